import os

from ask import ask

TWIN = 0
for name in ("zeta", "alpha", "mid", "b", "a"):
    os.mkdir(name)
    open(f"{name}/{name}.txt", "w").close()
print(ask(f"files {[(p, d, f) for p, d, f in os.walk('.')]} {TWIN}"))
