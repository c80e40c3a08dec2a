"""Process 1 of one host of `Hosts`: sets the host up, then answers the agent as sshd would.

    python -I -S host.py NAME ADDRESS FOLDER

FOLDER holds the files that all hosts share: `hosts`, and `tmp`, on which each mounts its own.

It runs in new namespaces of its own. On stdout: its process id outside, then `ready`. Awaited
on stdin: a line when the network cable is plugged in; when stdin ends, so does this process, and
with it, because it is process 1, every process of the host.
"""

import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading

PORT = 22
FRAME = struct.Struct("!BI")  # 1: stdout, 2: stderr, 0: exit status; length, or the status
# What sshd would give: a launcher that relies on the caller's environment must forward it itself.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": os.path.expanduser("~"),  # noqa: PTH111 - pathlib takes 20 ms to import
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/sh",
}


def main():
    name, address, folder = sys.argv[1:]
    ENVIRONMENT["TMPDIR"] = f"{folder}/tmp"
    # /proc is still the one from outside, so this is the process id that others know.
    print(os.readlink("/proc/self"), flush=True)  # noqa: PTH115
    socket.sethostname(name)
    shell(
        f"mount -t proc proc /proc && mount --bind '{folder}/hosts' /etc/hosts &&"
        " mount -t tmpfs -o size=2g,mode=1777 tmpfs /dev/shm &&"
        f" mount -t tmpfs -o size=2g,mode=1777 tmpfs '{folder}/tmp'"
    )
    if not os.read(0, 100):
        return
    network = f"link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n"
    subprocess.run(["ip", "-batch", "-"], input=network, text=True, check=True, env=ENVIRONMENT)
    door = socket.create_server(("", PORT), backlog=100)
    signal.signal(signal.SIGCHLD, reap)  # process 1 inherits every orphan
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0, door], [], [])
        if 0 in ready:
            return
        connection, _ = door.accept()
        if os.fork() == 0:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                door.close()
                serve(connection)
            finally:
                os._exit(0)
        connection.close()


def shell(command):
    subprocess.run(["/bin/sh", "-c", command], check=True, env=ENVIRONMENT)


def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def serve(connection):
    """Run the command of one agent, in a process of its own."""
    with connection.makefile("rb", buffering=0) as lines:
        line = lines.readline()
    if not line:  # a probe of the open port
        return
    child = subprocess.Popen(
        ["/bin/sh", "-c", json.loads(line)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=ENVIRONMENT["HOME"],
        env=ENVIRONMENT,
        start_new_session=True,
    )
    threading.Thread(target=feed, args=(connection, child), daemon=True).start()
    try:
        with selectors.DefaultSelector() as outputs:
            outputs.register(child.stdout, selectors.EVENT_READ, 1)
            outputs.register(child.stderr, selectors.EVENT_READ, 2)
            while outputs.get_map():
                for key, _ in outputs.select():
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        connection.sendall(FRAME.pack(key.data, len(data)) + data)
                    else:
                        outputs.unregister(key.fileobj)
        status = child.wait()
        connection.sendall(FRAME.pack(0, status if status >= 0 else 128 - status))
    except OSError:
        pass  # the agent has exited; sshd leaves the command alone, and so do we


def feed(connection, child):
    try:
        while data := connection.recv(1 << 16):
            child.stdin.write(data)
    except OSError:
        pass
    child.stdin.close()


if __name__ == "__main__":
    main()
