"""Digests of real files: right, cached, bounded, and unknown when they cannot be trusted."""

from __future__ import annotations

import errno
import os
import select
import time
from typing import TYPE_CHECKING

import blake3
import pytest

from hark import limits
from hark.kernel.records import ExeId
from hark.recorder import digest
from hark.recorder.digest import Digest, Digests, hash_executable

from .rig import WAIT_S
from .transcript import MS, execed

if TYPE_CHECKING:
    from pathlib import Path

    from hark.kernel.records import Exec
    from hark.policy.control import OpenExe


def exe_of(path: Path) -> ExeId:
    info = path.stat()
    return ExeId(1, info.st_ino, info.st_ctime_ns)


def executed(tgid: int, exe: ExeId | None = None, *, after_ns: int = 10**9) -> Exec:
    """An exec so long after the file was changed."""
    exe = exe or ExeId(8, 77, time.time_ns() - 10**9 | 1)
    boot_to_unix = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return execed((exe.ctime_ns - boot_to_unix + after_ns) / MS, tgid, exe)


def hashed(path: Path, exe: ExeId | None = None) -> Digest:
    fd = os.open(path, os.O_RDONLY)
    try:
        return hash_executable(fd, exe or exe_of(path))
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, limits.DIGEST_READ_BYTES, 3 * limits.DIGEST_READ_BYTES + 7])
def test_the_digest_is_blake3_of_the_whole_file(tmp_path: Path, size: int):
    path = tmp_path / "program"
    path.write_bytes(os.urandom(size))
    got = hashed(path)
    assert (got.digest, got.state) == (blake3.blake3(path.read_bytes()).digest(), "read")


def test_a_file_that_changed_since_the_exec_stays_unknown(tmp_path: Path):
    path = tmp_path / "program"
    path.write_bytes(b"one")
    exe = exe_of(path)
    assert hashed(path, exe).digest is not None
    os.utime(path, ns=(1, 1))
    got = hashed(path, exe)
    assert (got.digest, got.state) == (None, "unknown: changed since it was executed")


def test_a_file_that_changes_while_it_is_read_stays_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "program"
    path.write_bytes(b"one")
    real = os.pread

    def and_change(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        if offset == 0:
            path.write_bytes(b"two!")
        return data

    monkeypatch.setattr(digest.os, "pread", and_change)
    assert hashed(path).state == "unknown: changed while it was read"


def test_what_is_no_file_or_too_large_stays_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert hashed(tmp_path).state == "unknown: not a regular file"
    path = tmp_path / "program"
    path.write_bytes(bytes(100))
    monkeypatch.setattr(limits, "DIGEST_MAX_BYTES", 99)
    assert hashed(path).state == "unknown: larger than 99 bytes"


class Launcher:
    """Answers questions when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[OpenExe, int]] = []
        self.digests = Digests(lambda question, ident: self.asked.append((question, ident)))

    def results(self, count: int) -> list[Digest]:
        got: list[Digest] = []
        while len(got) < count:
            ready, _, _ = select.select([self.digests.fileno()], [], [], WAIT_S)
            assert ready
            got += self.digests.results()
        return got


@pytest.fixture
def launcher():
    one = Launcher()
    yield one
    one.digests.close()


def test_an_executable_is_asked_for_once(launcher: Launcher, tmp_path: Path):
    path = tmp_path / "program"
    path.write_bytes(b"program")
    exe = exe_of(path)
    assert launcher.digests.want(executed(20, exe)) is None
    assert launcher.digests.want(executed(30, exe)) is None
    assert launcher.digests.busy
    [(question, ident)] = launcher.asked
    assert (question.tgid, question.start_ns, question.ino) == (20, 20000, exe.ino)
    assert launcher.digests.answered(ident, 0, (os.open(path, os.O_RDONLY),))
    [result] = launcher.results(1)
    assert result.state == "read"
    assert not launcher.digests.busy
    again = launcher.digests.want(executed(40, exe))
    assert again == Digest(exe, result.digest, "cached")
    assert len(launcher.asked) == 1


def test_another_version_is_another_executable(launcher: Launcher):
    launcher.digests.want(executed(20, ExeId(1, 2, 3)))
    launcher.digests.want(executed(20, ExeId(1, 2, 4)))
    assert len(launcher.asked) == 2


def test_an_answer_without_a_file_says_why_and_is_asked_again(launcher: Launcher):
    exe = ExeId(1, 2, 3)
    launcher.digests.want(executed(20, exe))
    assert launcher.digests.answered(launcher.asked[0][1], errno.ENOENT, ())
    assert launcher.results(1) == [Digest(exe, None, "unknown: No such file or directory")]
    assert launcher.digests.want(executed(20, exe)) is None
    assert len(launcher.asked) == 2


def test_an_answer_to_no_question_is_refused_and_closed(launcher: Launcher):
    fd = os.open("/dev/null", os.O_RDONLY)
    assert not launcher.digests.answered(7, 0, (fd,))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    launcher.digests.want(executed(20))
    assert not launcher.digests.answered(1, 0, ())


def test_few_files_are_open_at_once_and_the_queue_is_bounded(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "DIGEST_MAX_QUEUED", 5)
    wanted = [launcher.digests.want(executed(20, ExeId(1, n, 1))) for n in range(30)]
    assert len(launcher.asked) == limits.DIGEST_MAX_OPEN
    refused = [w for w in wanted if w is not None]
    assert len(refused) == 30 - limits.DIGEST_MAX_OPEN - 5
    assert refused[0].state == "unknown: too many new executables at once"
    for _, ident in list(launcher.asked):
        launcher.digests.answered(ident, errno.ESRCH, ())
    launcher.results(limits.DIGEST_MAX_OPEN)
    assert len(launcher.asked) == limits.DIGEST_MAX_OPEN + 5


@pytest.mark.parametrize(
    ("ctime_ns", "after_ns"),
    [(10**18 + 1, 0), (10**18 + 1, limits.DIGEST_TICK_NS - 10**6), (10**18, 1_900_000_000)],
)
def test_what_may_have_changed_at_the_time_of_its_exec_stays_unknown(
    launcher: Launcher, ctime_ns: int, after_ns: int
):
    """A program could else be replaced after it ran, under the same change time."""
    exe = ExeId(1, 2, ctime_ns)
    state = "unknown: changed at the time it was executed"
    assert launcher.digests.want(executed(20, exe, after_ns=after_ns)) == Digest(exe, None, state)
    assert not launcher.asked
    assert launcher.digests.want(executed(20, exe, after_ns=3 * 10**9)) is None
