import random
import time

from ask import NEWS, ask, call

TWIN = 0
pause, tries = 0.02, 0
while True:
    status, _ = call(NEWS + "/retry/429/3", {"try": "me"})
    if status == 200:
        break
    tries += 1
    time.sleep(pause + random.uniform(0, pause))
    pause *= 2
print(ask(f"worked after {tries + TWIN} refusals"))
