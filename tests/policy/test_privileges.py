"""What a process still is after ``drop``: read from /proc by another process, not by itself."""

from __future__ import annotations

import ast
import os
import socket
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hark.errors import InternalError
from hark.policy import privileges
from hark.policy.person import find_person

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.kernel

UID = 0x7700_0FF0
CAP_SYS_PTRACE = 19


class Child:
    """A forked child that runs ``body`` and then waits to be looked at."""

    def __init__(self, body: Callable[[tuple[int, int]], object]) -> None:
        ready_r, ready_w = os.pipe()
        self.go_r, self.go_w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.go_w)
                result = body((ready_w, self.go_r))
                os.write(ready_w, repr(result).encode())
                os.close(ready_w)
                os.read(self.go_r, 1)
                code = 0
            except BaseException:  # noqa: BLE001
                os.write(ready_w, traceback.format_exc().encode())
            finally:
                os._exit(code)
        os.close(ready_w)
        os.close(self.go_r)
        self.said = os.read(ready_r, 65536).decode()
        os.close(ready_r)

    def status(self) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return {k: v.strip() for k, _, v in (line.partition(":") for line in lines)}

    def end(self) -> int:
        os.close(self.go_w)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_nothing_is_left() -> None:
    child = Child(lambda _: privileges.drop(UID, UID))
    try:
        assert child.said == "None"
        status = child.status()
        caps = {k: int(v, 16) for k, v in status.items() if k.startswith("Cap")}
        assert caps == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
        assert status["Uid"].split() == [str(UID)] * 4
        assert status["Gid"].split() == [str(UID)] * 4
        assert status["Groups"] == ""
        assert status["NoNewPrivs"] == "1"
        assert Path(f"/proc/{child.pid}/environ").stat().st_uid == 0  # not dumpable: root's
    finally:
        assert child.end() == 0


def test_before_the_drop_there_was_something_to_lose() -> None:
    child = Child(lambda _: None)
    try:
        assert int(child.status()["CapEff"], 16) != 0
    finally:
        assert child.end() == 0


def test_root_cannot_come_back() -> None:
    def attempt(_: tuple[int, int]) -> list[str]:
        privileges.drop(UID, UID)
        refused = []
        for name, call in {
            "setuid": lambda: os.setuid(0),
            "setgroups": lambda: os.setgroups([0]),
            "chown": lambda: os.chown("/proc/self/cwd", 0, 0),
            "raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
            "key": lambda: Path("/etc/shadow").read_bytes(),
        }.items():
            try:
                call()
            except PermissionError:
                refused.append(name)
        return refused

    child = Child(attempt)
    assert child.end() == 0
    assert child.said == "['setuid', 'setgroups', 'chown', 'raw socket', 'key']"


def test_one_capability_can_be_kept() -> None:
    child = Child(lambda _: privileges.drop(UID, UID, (CAP_SYS_PTRACE,)))
    try:
        status = child.status()
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 1 << CAP_SYS_PTRACE
        assert int(status["CapBnd"], 16) == int(status["CapInh"], 16) == 0
    finally:
        assert child.end() == 0


def test_a_process_with_threads_is_refused() -> None:
    def attempt(_: tuple[int, int]) -> str:
        stop = threading.Event()
        threading.Thread(target=stop.wait, daemon=True).start()
        try:
            privileges.drop(UID, UID)
        except InternalError:
            return "refused"
        finally:
            stop.set()
        return "dropped"

    child = Child(attempt)
    assert child.end() == 0
    assert child.said == "'refused'"


def test_descriptors_are_closed_and_the_standard_ones_lead_nowhere() -> None:
    def attempt(needed: tuple[int, int]) -> list[str]:
        high = os.dup2(needed[1], 700)
        os.open("/etc/passwd", os.O_RDONLY)
        privileges.close_all_but([high, *needed])
        left = [(int(e.name), e) for e in Path("/proc/self/fd").iterdir() if e.exists()]
        return [f"{fd} {entry.readlink()}" for fd, entry in sorted(left) if fd not in needed]

    child = Child(attempt)
    assert child.end() == 0
    left = ast.literal_eval(child.said)
    assert left[:3] == ["0 /dev/null", "1 /dev/null", "2 /dev/null"]
    assert [entry.split(":")[0] for entry in left[3:]] == ["700 pipe"]


def test_the_network_is_left_behind() -> None:
    def attempt(_: tuple[int, int]) -> str:
        privileges.leave_network()
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        except OSError as error:
            return os.strerror(error.errno or 0)
        return "connected"

    child = Child(attempt)
    try:
        assert Path(f"/proc/{child.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    finally:
        assert child.end() == 0
    assert child.said == repr(os.strerror(101))


def test_the_name_and_the_group_are_its_own() -> None:
    child = Child(lambda _: privileges.kept_apart("hark-a-name-that-is-long"))
    try:
        assert Path(f"/proc/{child.pid}/comm").read_text() == "hark-a-name-tha\n"
        assert os.getpgid(child.pid) == child.pid
    finally:
        assert child.end() == 0


def test_files_of_a_person_are_opened_with_their_rights(tmp_path: Path) -> None:
    nobody = find_person("nobody", {})
    secret = tmp_path / "root-only"
    secret.write_text("x")
    secret.chmod(0o600)
    before = os.getresuid(), os.getresgid(), os.getgroups()
    with privileges.acting_as(nobody):
        assert set(os.getgroups()) == set(nobody.groups)
        with pytest.raises(PermissionError):
            secret.read_text()
        with pytest.raises(PermissionError):
            Path("/etc/shadow").read_text()
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    assert secret.read_text() == "x"
    with pytest.raises(ZeroDivisionError), privileges.acting_as(nobody):
        os.write(1, b"" * (1 // 0))
    assert os.geteuid() == 0
