import socket

from ask import ask

TWIN = 0
out = []
for name, family in (
    ("api.openai.com", socket.AF_INET6),
    ("not-in-the-policy.example", socket.AF_INET),
    ("second-twin.example" if TWIN else "second.example", socket.AF_UNSPEC),
    ("under_score..bad", socket.AF_INET),
    ("localhost", socket.AF_INET),
):
    try:
        out.append(socket.getaddrinfo(name, 443, family, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        out.append(type(error).__name__)
print(ask(f"names: {out}"))
