"""An HTTP proxy that knows CONNECT and nothing else, as a process of its own.

Arguments: where every tunnel leads (ADDRESS:PORT), user:password or "", and a log. Prints its port.
Each head it was sent stands in the log, one JSON text a line, before it is answered.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
from pathlib import Path


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client: socket.socket, target: tuple[str, int], auth: bytes, log: str) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        if not (more := client.recv(65536)):
            return
        head += more
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(json.dumps(head.decode("latin-1")) + "\n")
    wanted = b"proxy-authorization: basic " + base64.b64encode(auth).lower()
    if auth and wanted not in head.lower():
        client.sendall(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=x\r\n\r\n")
    elif b"refused.example" in head:
        client.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
    else:
        with socket.create_connection(target) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            pump(client, server)
            back.join()
    client.close()


def main() -> None:
    address, auth, log = sys.argv[1:]
    host, _, port = address.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        client, _ = listener.accept()
        args = (client, (host, int(port)), auth.encode(), log)
        threading.Thread(target=serve, args=args, daemon=True).start()


if __name__ == "__main__":
    main()
