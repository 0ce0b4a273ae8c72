import gzip
import hashlib
import json
import time
import urllib.request

from ask import NEWS, ask

TWIN = 0
mine = hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:32]  # by the clock
say = json.dumps({"id": mine}).encode()
request = urllib.request.Request(NEWS + "/gzback", say, {"Accept-Encoding": "gzip"})
with urllib.request.urlopen(request) as answer:
    raw, coding = answer.read(), answer.headers.get("Content-Encoding")
back = json.loads(gzip.decompress(raw) if coding == "gzip" else raw)
print(back["id"] == mine)
print(ask("go on", session="none" if TWIN else back["id"]))
