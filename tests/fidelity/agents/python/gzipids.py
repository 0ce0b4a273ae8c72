import gzip
import hashlib
import json
import time

from ask import NEWS, ask, call

TWIN = 0
mine = hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:32]  # of the clock
back = json.loads(gzip.decompress(call(NEWS + "/gzback", {"id": mine}, Accept_Encoding="gzip")[1]))
print(back["id"] == mine)
print(ask("go on", session="none" if TWIN else back["id"]))
