"""Count the bytes of marked packets in this network namespace, by probe, until stdin ends."""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import threading

MARK = re.compile(rb"HARK-OUT-(\w+);")
PORTS = (22, 25, 53, 80, 443, 853, 8080)


def serve() -> None:
    """Take every TCP connection, for the data to come."""
    socks = []
    for port in PORTS:
        s = socket.socket(socket.AF_INET6)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", port))
        s.listen(64)
        socks.append(s)
    while True:
        for s in select.select(socks, [], [])[0]:
            conn, _ = s.accept()
            threading.Thread(target=lambda c=conn: (c.recv(9999), c.close()), daemon=True).start()


def main() -> None:
    seen: dict[str, int] = {}
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniffer.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    if "serve" in sys.argv:
        threading.Thread(target=serve, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for fd in select.select([sniffer, 0], [], [])[0]:
            if fd == 0:
                break
            frame = sniffer.recv(1 << 17)
            for name in {m.decode() for m in MARK.findall(frame)}:
                seen[name] = seen.get(name, 0) + len(frame)
        else:
            continue
        break
    sniffer.setblocking(False)
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
