import subprocess
import sys

from ask import ask

TWIN = 0
code = "import os,time,uuid; print(os.getpid(), time.time(), uuid.uuid4())"
said = subprocess.run(
    [sys.executable, "-c", code + ("; print('more')" if TWIN else "")],
    capture_output=True,
    text=True,
).stdout
print(ask(f"the tool printed {said}"))
