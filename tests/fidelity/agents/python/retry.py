import time

from ask import NEWS, ask, call

TWIN = 0
tries = 0
while True:
    tries += 1
    status, _ = call(NEWS + "/retry/503/1")
    if status == 200:
        break
    time.sleep(0.05)
print(ask(f"worked after {tries + TWIN} tries"))
