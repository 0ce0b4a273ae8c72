"""A service of the host that speaks no HTTP, as a process of its own: it speaks first.

Argument: a log. Prints its port. It greets, then does what the first line of the client says:

  echo   sends back what comes until the client's end, then a line with the count
  reset  reads a line, then resets the connection
  slow   reads nothing until another client has come and gone, then the rest
  first  sends a line, ends its side, and reads the rest

Each connection's end is one JSON line in the log: what was asked for, bytes and their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import sys
import threading
from pathlib import Path

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 seconds
GONE = threading.Event()  # a client has come and gone


def drain(sock: socket.socket, *, back: bool) -> tuple[int, str]:
    digest, count = hashlib.sha256(), 0
    while data := sock.recv(65536):
        digest.update(data)
        count += len(data)
        if back:
            sock.sendall(data)
    return count, digest.hexdigest()


def serve(sock: socket.socket, log: Path, lock: threading.Lock) -> None:
    sock.sendall(b"220 a service of the host\n")
    word = b""
    while not word.endswith(b"\n") and (byte := sock.recv(1)):
        word += byte
    asked = word.decode().strip()
    if asked == "reset":
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        count, digest = 0, ""
    elif asked == "first":
        sock.sendall(b"that is all\n")
        sock.shutdown(socket.SHUT_WR)
        count, digest = drain(sock, back=False)
    else:
        if asked == "slow":
            GONE.wait()
        count, digest = drain(sock, back=asked == "echo")
        if asked == "echo":
            sock.sendall(f"{count} bytes\n".encode())
    with lock, log.open("a", encoding="utf-8") as file:
        file.write(json.dumps([asked, count, digest]) + "\n")
    sock.close()
    if asked != "slow":
        GONE.set()


def main() -> None:
    log, lock = Path(sys.argv[1]), threading.Lock()
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0], log, lock), daemon=True).start()


if __name__ == "__main__":
    main()
