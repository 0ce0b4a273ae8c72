import uuid

from ask import NEWS, ask, body

TWIN = 0
mine = str(uuid.uuid4())
back = body(NEWS + "/back", {"id": mine})
print(back["id"] == mine)
print(ask("go on", session=back["server"] if TWIN else back["id"], server=back["server"]))
