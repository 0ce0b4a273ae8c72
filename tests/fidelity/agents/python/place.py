import locale
import os
import socket
import time

from ask import ask

TWIN = 0
names = sorted(name for name in os.environ if TWIN or not name.startswith("X_"))
where = f"{socket.gethostname()} {time.tzname} {time.localtime(0)[:5]} {locale.getlocale()} {names}"
where += f" {os.getcwd()} {os.getuid()} {os.getpid()} {os.listdir()} {os.umask(0)}"
print(ask(where + " edited" * TWIN))
