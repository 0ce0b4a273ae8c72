"""Programs that must keep working inside, as they are installed on this machine."""

# ruff: noqa: E501 - programs as a person would type them
from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from launcher.rig import PATH, Box

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel

PROGRAMS = {
    "python3 subprocess": "python3 -c \"import subprocess;print(subprocess.run(['id'],capture_output=True))\"",
    "python3 asyncio": """python3 -c '
import asyncio
async def m():
    p=await asyncio.create_subprocess_exec("true"); await p.wait()
    s=await asyncio.start_server(lambda r,w:w.close(),"127.0.0.1",0)
    r,w=await asyncio.open_connection(*s.sockets[0].getsockname()); await r.read()
asyncio.run(m())'""",
    "python3 multiprocessing": """cat > m.py <<'E'
import multiprocessing as m
if __name__=="__main__":
    with m.Pool(2) as p: print(p.map(abs,[1,-2]))
E
python3 m.py""",
    "python3 shared memory": "python3 -c 'from multiprocessing import shared_memory as s; x=s.SharedMemory(create=True,size=10); x.close(); x.unlink()'",
    "python3 ssl": "python3 -c 'import ssl;ssl.create_default_context()'",
    "python3 venv": "python3 -m venv --without-pip v && v/bin/python -c 'import sys;assert sys.prefix!=sys.base_prefix'",
    "python3 interfaces": "python3 -c 'import socket; print(socket.if_nameindex(), socket.getaddrinfo(\"localhost\",80))'",
    "git": "git init -q g && cd g && echo a>a && git add a && git -c user.name=a -c user.email=b commit -qm x && git gc -q && git log --oneline",
    "gcc": "printf '#include <stdio.h>\\nint main(void){puts(\"hi\");}' > a.c && gcc -O2 -fsanitize=undefined a.c -o a && ./a",
    "make": "printf 'all:\\n\\techo hi\\n' > Makefile && make",
    "node": 'node -e \'const cp=require("child_process");console.log(cp.execSync("id")+"");new (require("worker_threads").Worker)("1",{eval:true});\'',
    "node fetch": 'node -e \'const s=require("http").createServer((q,r)=>r.end("ok")).listen(0,async()=>{const r=await fetch("http://127.0.0.1:"+s.address().port);console.log(await r.text());process.exit(0)})\'',
    "npm": "npm --version && npm init -y",
    "go": 'export GOCACHE=/tmp/go GO111MODULE=off; printf \'package main\\nimport ("net";"fmt")\\nfunc main(){l,_:=net.Listen("tcp","127.0.0.1:0");fmt.Println(l.Addr())}\' > m.go && go run m.go',
    "java": "java -version",
    "tmux": "tmux -L x new-session -d 'sleep 0.2' && sleep 0.4",
    "script": "script -qc 'tty' /dev/null",
    "sort": "seq 100000 | sort -R | sort -n | tail -1",
    "ip": "ip -br addr && ip route",
    "ps": "ps aux",
    "perl": 'perl -e \'print fork ? "a" : "b"\'',
    "tar": "tar cf x.tar /etc/hostname && tar tf x.tar && mkdir d && mv d e && rmdir e",
    "sqlite3": 'python3 -c \'import sqlite3;c=sqlite3.connect("x.db");c.execute("pragma journal_mode=wal");c.execute("create table t(a)");c.commit()\'',
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_works(box: MakeBox, name: str):
    if shutil.which(name.split(maxsplit=1)[0], path=PATH) is None and name != "sqlite3":
        pytest.skip(f"{name.split(maxsplit=1)[0]} is not installed")
    result = box(["/bin/sh", "-ec", PROGRAMS[name]]).run()
    assert (result.status, result.err if result.status else "") == (0, "")


def test_debuggers_and_own_sandboxes_are_refused_with_an_errno(box: MakeBox):
    script = "unshare -Ur true; echo $?"
    result = box(["/bin/sh", "-c", script]).run()
    assert result.out == "1\n"
    assert "Operation not permitted" in result.err
