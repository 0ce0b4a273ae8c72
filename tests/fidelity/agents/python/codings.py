import gzip
import json

import zstandard
from ask import NEWS, ask, call

TWIN = 0
out = []
for coding, pack in (("gzip", gzip.compress), ("zstd", zstandard.compress), ("identity", bytes)):
    sent = pack(json.dumps({"coding": coding, "twin": TWIN, "text": "long " * 50}).encode())
    for answer in ("gzip", "zstd", "br"):
        status, raw = call(
            f"{NEWS}/packed/{answer}",
            sent,
            Content_Type="application/json",
            Content_Encoding=coding,
        )
        out.append((status, len(raw)))
print(ask(f"{out}"))
