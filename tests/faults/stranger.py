"""Another user of this host, who knocks at every port: ``stranger.py UID FILES ADDRESS...``.

Prints a line for each address and way to connect: what the scheduler or worker there answered, or
how it refused; and a line for each of FILES (separated by colons) that could be read.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from distributed import Scheduler, Security
from distributed.comm import connect
from distributed.protocol.pickle import dumps


def steal():
    """The code that the stranger tries to run as another user."""
    return os.getuid()


async def knock(address, used):
    arguments = {} if used is None else used.get_connection_args("client")
    comm = await connect(address, timeout=2, **arguments)
    try:
        order = {"op": "run_function", "function": dumps(steal), "args": dumps(()), "reply": True}
        await comm.write(order)
        return str(await asyncio.wait_for(comm.read(), 3))
    finally:
        comm.abort()


async def main(uid, files, ports):
    # What is loaded late must be loaded while this user may still read it.
    own = Security.temporary()
    async with Scheduler(
        port=0, host="127.0.0.1", dashboard=False, dashboard_address="127.0.0.1:0", security=own
    ) as scheduler:
        await knock(scheduler.address, own)
    async with Scheduler(
        port=0, host="127.0.0.1", dashboard=False, dashboard_address="127.0.0.1:0"
    ) as scheduler:
        print("control", await knock(scheduler.address, None))
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    for file in files:
        with suppress(OSError):
            Path(file).read_bytes()
            print("read", file)
    ways = [(protocol, port) for port in ports for protocol in ("tcp", "tls")]

    async def attempt(protocol, port):
        try:
            said = await asyncio.wait_for(
                knock(f"{protocol}://{port}", own if protocol == "tls" else None), 4
            )
        except (Exception, asyncio.CancelledError) as error:
            said = f"refused {type(error).__name__}"
        return f"{protocol} {port} " + said.replace("\n", " ")

    print(*await asyncio.gather(*(attempt(*way) for way in ways)), sep="\n", flush=True)
    os._exit(0)  # connections that hang would keep it


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2].split(":"), sys.argv[3:]))
