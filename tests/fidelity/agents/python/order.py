import os

from ask import ask

TWIN = 0
for name in ("zeta", "alpha", "mid", "b", "a"):
    open(name, "w").close()
words = {"pear", "apple", "plum", "fig", "quince", "date"}
things = {object() for _ in range(6)}
said = f"set {list(words)[TWIN:]} hash {hash('x')} id {id(words)} objects {[id(x) for x in things]} files {os.listdir()}"
print(ask(said))
