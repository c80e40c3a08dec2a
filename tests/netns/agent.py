"""A look-alike of ssh between the hosts of `Hosts`, for mpiexec's launch agent.

    agent [OPTIONS OF ssh] [USER@]HOST [OPTIONS] COMMAND...

It goes over the network of the hosts: to a host whose link is cut it connects as little as ssh
would, and when it is killed, what it started lives on. Like ssh it joins the words of the command
with spaces for a shell on the other side, and forwards no environment.
"""

import getopt
import json
import os
import socket
import struct
import sys
import threading

PORT = 22
FRAME = struct.Struct("!BI")
OPTIONS = "1246AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:p:Q:R:S:W:w:"


def main():
    try:
        options, rest = getopt.getopt(sys.argv[1:], OPTIONS)
        host, *rest = rest
        more, words = getopt.getopt(rest, OPTIONS)
    except (getopt.GetoptError, ValueError) as error:
        fail(f"usage: agent [options of ssh] host command ({error})")
    if not words:
        fail("agent: a command is needed, there is no login here")
    host = host.rpartition("@")[2]
    named = dict(options + more)
    seconds = dict(value.split("=", 1) for _, value in options + more if "=" in value)
    timeout = float(seconds["ConnectTimeout"]) if "ConnectTimeout" in seconds else None
    try:
        connection = socket.create_connection((host, PORT), timeout)
    except socket.gaierror as error:
        fail(f"ssh: Could not resolve hostname {host}: {error.strerror}")
    except OSError as error:
        fail(f"ssh: connect to host {host} port {PORT}: {error.strerror or error}")
    connection.settimeout(None)
    connection.sendall(json.dumps(" ".join(words)).encode() + b"\n")
    source = os.open(os.devnull, os.O_RDONLY) if "-n" in named else 0
    threading.Thread(target=feed, args=(connection, source), daemon=True).start()
    with connection.makefile("rb") as frames:
        while len(head := frames.read(FRAME.size)) == FRAME.size:
            stream, size = FRAME.unpack(head)
            if stream == 0:
                os._exit(size)
            write(stream, frames.read(size))
    fail(f"Connection to {host} closed by remote host.")


def feed(connection, source):
    try:
        while data := os.read(source, 1 << 16):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other thread sees it too, and reports it


def write(stream, data):
    try:
        while data:
            data = data[os.write(stream, data) :]
    except BrokenPipeError:
        os._exit(255)


def fail(message):
    print(message, file=sys.stderr)
    sys.stderr.flush()
    os._exit(255)


if __name__ == "__main__":
    main()
