import http.client

from ask import NEWS, ask, call

TWIN = 0
broken = []
while True:
    try:
        status, data = call(NEWS + "/cut/2")
        break
    except (OSError, http.client.HTTPException) as error:
        broken.append((type(error).__name__, len(getattr(error, "partial", b""))))
print(ask(f"{status}, {len(data) + TWIN} bytes after {broken}"))
