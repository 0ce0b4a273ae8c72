import gzip
import json
import uuid

from ask import NEWS, ask, call

TWIN = 0
mine = str(uuid.uuid4())
back = json.loads(gzip.decompress(call(NEWS + "/gzback", {"id": mine}, Accept_Encoding="gzip")[1]))
print(back["id"] == mine)
print(ask("go on", session="none" if TWIN else back["id"]))
