import random
import time

from ask import NEWS, ask, call

TWIN = 0
begun, pauses = time.monotonic(), []
while call(NEWS + "/retry/429/2", {"try": "me"})[0] != 200:
    pauses.append(random.uniform(0.02, 0.06) + TWIN)
    time.sleep(pauses[-1])
print(ask(f"waited {pauses}, {time.monotonic() - begun:.3f} s in all"))
