"""The writer: fails closed, killed at any byte, disk full at any append, one writer at a time."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bundle_making import CORES, KEY, UNIX_NS, Clock, contents, header, verified, writer_on

from hark import limits
from hark.bundle.events import Kind
from hark.bundle.native import NativeCore
from hark.bundle.reader import Bundle
from hark.bundle.verify import Verdict, VerifyReport
from hark.bundle.writer import BundleWriter, create
from hark.errors import InputError, RecordingFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.bundle.core import Core

KILLS = 60
GROWTH_MAX = 12 << 20  # a fifth of what is written between the two looks


def read(path: Path) -> bytes:
    return path.read_bytes()


def test_append_returns_numbers_and_seal_makes_it_verify(tmp_path: Path):
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    writer.head()
    assert [writer.append(19, i, {4: b"x"}) for i in range(600)] == list(range(600))
    writer.seal()
    report = verified(read(tmp_path / "b.hark"))
    assert (report.verdict, report.events, report.signed_events) == (Verdict.VERIFIED, 600, 600)
    assert report.root == writer.root
    with pytest.raises(RecordingFailed):
        writer.append(19, 1, {})
    os.close(fd)


def test_what_matters_at_once_is_in_the_file_at_once(tmp_path: Path):
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    writer.head()
    writer.append(Kind.DELIVERY, 1, {4: b"later"})
    assert verified(read(tmp_path / "b.hark")).events == 0
    writer.append(Kind.DENIED, 2, {4: "mediator"})
    assert verified(read(tmp_path / "b.hark")).events == 2
    os.close(fd)


def test_tick_flushes_and_signs_in_time(tmp_path: Path):
    now = [1_000_000_000]
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd, now_boot_ns=lambda: now[0])
    writer.head()

    def after(ns: int) -> VerifyReport:
        now[0] += ns
        writer.tick(now[0])
        return verified(read(tmp_path / "b.hark"))

    writer.append(Kind.DELIVERY, now[0], {4: b"x"})
    assert after(limits.BUNDLE_FLUSH_NS - 1).events == 0
    assert after(1).events == 1
    assert after(0).signed_events == 0
    assert after(limits.BUNDLE_HEAD_NS).signed_events == 1
    heads = after(10 * limits.BUNDLE_HEAD_NS).heads
    assert heads == 2  # nothing new, so nothing to sign
    writer.append(Kind.DENIED, now[0], {4: "dns"})
    assert after(limits.BUNDLE_DENIED_HEAD_NS).signed_events == 2
    os.close(fd)


def test_durable_counts_only_what_is_on_disk(tmp_path: Path):
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    assert writer.durable() == 0
    writer.append(Kind.DELIVERY, 1, {4: b"x"})
    assert writer.durable() == 0
    writer.flush()
    assert writer.durable() == 0
    writer.sync()
    assert writer.durable() == 1
    os.close(fd)


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        ({4: 1.5}, "float"),
        ({4: 1 << 64}, ""),
        ({4: -(1 << 63) - 1}, ""),
        ({4: {1, 2}}, ""),
        ({"a": 1, 2: 3}, ""),
        ({4: object()}, ""),
        ({4: "\ud800"}, ""),
        ({-1: 1}, ""),
        ({4: bytes(limits.BUNDLE_BODY_PART_BYTES + 1)}, "too many"),
    ],
)
def test_a_value_without_an_encoding_stops_the_recording(tmp_path: Path, payload: Any, cause: str):
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    writer.head()
    writer.append(19, 1, {4: b"before"})
    with pytest.raises(RecordingFailed) as failure:
        writer.append(19, 2, payload)
    assert cause in failure.value.cause
    with pytest.raises(RecordingFailed):  # closed, for whatever comes
        writer.append(19, 3, {4: b"after"})
    with pytest.raises(RecordingFailed):
        writer.seal()
    assert writer.salvage() == 1
    writer.append(Kind.LOSS, 3, {4: "recorder", 5: 1})
    writer.seal()
    report = verified(read(tmp_path / "b.hark"))
    assert report.verdict is Verdict.VERIFIED
    assert [(x.source, x.count) for x in report.losses] == [("recorder", 1)]
    os.close(fd)


def test_a_signer_that_dies_stops_the_recording(tmp_path: Path):
    calls = []

    def sign(head: bytes) -> bytes:
        calls.append(head)
        if len(calls) > 1:
            raise ConnectionResetError
        return KEY.sign_head(head)

    fd = create(tmp_path / "b.hark")
    writer = BundleWriter(fd, header(), sign, now_boot_ns=Clock(), now_unix_ns=lambda: UNIX_NS)
    writer.head()
    writer.append(19, 1, {4: b"x"})
    with pytest.raises(RecordingFailed):
        writer.head()
    assert verified(read(tmp_path / "b.hark")).verdict is Verdict.TRUNCATED
    os.close(fd)


def test_a_seal_that_fails_behind_the_final_head(tmp_path: Path):
    """The final head is there, the index is not: sealed, index missing, nothing more fits."""
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    writer.head()
    writer.append(19, 1, {4: b"x"})
    writer.flush()
    real, writer._mmr.nodes = writer._mmr.nodes, None
    with pytest.raises(RecordingFailed):
        writer.seal()
    writer.salvage()
    with pytest.raises(RecordingFailed, match="sealed"):
        writer.append(19, 2, {4: b"y"})
    report = verified(read(tmp_path / "b.hark"))
    assert (report.verdict, report.index_missing) == (Verdict.VERIFIED, True)
    writer._mmr.nodes = real
    writer.salvage()
    writer.seal()
    report = verified(read(tmp_path / "b.hark"))
    assert (report.verdict, report.index_missing) == (Verdict.VERIFIED, False)
    os.close(fd)


def test_a_bad_descriptor_is_a_recording_failure(tmp_path: Path):
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    os.close(fd)
    for action in (writer.head, writer.salvage, writer.seal):
        with pytest.raises(RecordingFailed):
            action()


def test_two_writers_are_refused(tmp_path: Path):
    path = tmp_path / "b.hark"
    fd = create(path)
    writer = writer_on(fd)
    with pytest.raises(InputError):
        create(path)
    again = os.open(path, os.O_RDWR)
    with pytest.raises(RecordingFailed, match="another writer"):
        writer_on(again)
    writer.head()
    writer.seal()
    os.close(fd)
    with pytest.raises(RecordingFailed, match="another writer"):  # unlocked, but not empty
        writer_on(again)
    os.close(again)
    assert verified(path.read_bytes()).verdict is Verdict.VERIFIED


def test_create_follows_no_link_and_is_private(tmp_path: Path):
    target = tmp_path / "elsewhere"
    (tmp_path / "b.hark").symlink_to(target)
    with pytest.raises(InputError):
        create(tmp_path / "b.hark")
    assert not target.exists()
    fd = create(tmp_path / "c.hark")
    assert os.fstat(fd).st_mode & 0o777 == 0o600
    os.close(fd)


def write_forever(fd: int, seed: int) -> None:
    """Write as fast as possible, signing every few milliseconds."""
    rand = random.Random(seed)  # noqa: S311
    writer = writer_on(fd, now_boot_ns=time.monotonic_ns)
    writer.head()
    last = time.monotonic_ns()
    for i in range(10**9):
        writer.append(19, i, {2: i, 4: rand.randbytes(200)})
        if i % 97 == 0:
            writer.append(16, i, {4: rand.randbytes(5000)})
        if time.monotonic_ns() - last > 5_000_000:
            writer.head()
            last = time.monotonic_ns()


def test_killed_at_any_moment_leaves_a_prefix_that_verifies(tmp_path: Path):
    rand = random.Random(20261130)  # noqa: S311
    for number in range(KILLS):
        path = tmp_path / f"{number}.hark"
        fd = create(path)
        child = os.fork()
        if child == 0:
            try:
                write_forever(fd, number)
            finally:
                os._exit(1)
        os.close(fd)
        time.sleep(rand.random() * 0.05)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        data = path.read_bytes()
        path.unlink()
        report = verified(data)
        assert report.verdict is Verdict.TRUNCATED, report.why
        if report.header is not None:
            assert len(contents(data)) == report.events


@pytest.fixture
def small_disk(tmp_path: Path):
    """Mount tmpfs of any size; all are gone afterwards."""
    mounted = []

    def mount(size: int) -> Path:
        where = tmp_path / f"disk{size}"
        where.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            if "root" in os.environ.get("HARK_REQUIRE", ""):
                pytest.fail(f"mount: {done.stderr}")
            pytest.skip(f"mount: {done.stderr}")
        mounted.append(where)
        return where

    yield mount
    for where in mounted:
        subprocess.run(["umount", str(where)], check=True)


def fill_disk(fd: int, core: Core = None) -> BundleWriter:
    """Write until the disk is full; the error must say so."""
    writer = writer_on(fd, core=core)
    rand = random.Random(3)  # noqa: S311
    writer.head()
    with pytest.raises(RecordingFailed) as failure:  # noqa: PT012
        for i in range(10**6):
            writer.append(19, i, {2: i, 4: rand.randbytes(rand.choice((20, 700, 3000)))})
            if i % 50 == 0:
                writer.head()
    assert failure.value.cause == os.strerror(errno.ENOSPC)
    assert "free space" in failure.value.hint
    return writer


@pytest.mark.kernel
@pytest.mark.parametrize("size", [256 << 10, 300 << 10, (1 << 20) + 4096, 1500 << 10, 3 << 20])
def test_disk_full_still_seals(small_disk: Callable[[int], Path], size: int):
    path = small_disk(size) / "b.hark"
    fd = create(path)
    writer = fill_disk(fd)
    lost = writer.salvage()
    assert lost > 0
    writer.append(Kind.LOSS, 1, {4: "recorder", 5: lost, 6: "disk full"})
    writer.append(Kind.RUN_END, 2, {4: 9, 6: "recorder-died"})
    writer.seal()
    os.close(fd)
    report = verified(path.read_bytes())
    assert report.verdict is Verdict.VERIFIED, report.why
    assert [(x.source, x.count) for x in report.losses] == [("recorder", lost)]
    assert report.end_reason == "recorder-died"


def seal_on_full_disk(path: Path) -> bool:
    """Fill the disk, then seal; False when there was not even room to begin."""
    fd = create(path)
    try:
        writer = fill_disk(fd)
        assert verified(path.read_bytes()).verdict is Verdict.TRUNCATED
        lost = writer.salvage()
        writer.append(Kind.LOSS, 1, {4: "recorder", 5: lost, 6: "disk full"})
        writer.seal()
    except RecordingFailed:
        return False
    finally:
        os.close(fd)
    report = verified(path.read_bytes())
    assert report.verdict is Verdict.VERIFIED, report.why
    assert [(x.source, x.count) for x in report.losses] == [("recorder", lost)]
    return True


@pytest.mark.kernel
def test_disk_full_at_every_page(small_disk: Callable[[int], Path]):
    """Wherever the disk ends, the recording does not begin, or it ends sealed and says so."""
    ends = [seal_on_full_disk(small_disk(pages << 12) / "b.hark") for pages in range(8, 74)]
    assert ends == sorted(ends), "once there is room to begin, more room seals too"
    assert sum(ends) > 40


class NoReserve(NativeCore):
    """A file system that cannot allocate ahead."""

    def reserve(self, fd: int, start: int, size: int) -> int:  # noqa: ARG002
        return errno.EOPNOTSUPP


@pytest.mark.kernel
def test_disk_full_in_the_middle_of_a_block_leaves_a_prefix(small_disk: Callable[[int], Path]):
    path = small_disk(256 << 10) / "b.hark"
    fd = create(path)
    writer = fill_disk(fd, NoReserve())
    report = verified(path.read_bytes())
    assert report.verdict is Verdict.TRUNCATED
    events = report.events
    writer.salvage()  # half a block is taken back
    assert verified(path.read_bytes()).events == events
    os.close(fd)


@pytest.mark.kernel
def test_no_room_at_all(small_disk: Callable[[int], Path]):
    path = small_disk(32 << 10) / "b.hark"
    fd = create(path)
    with pytest.raises(RecordingFailed):
        writer_on(fd)
    os.close(fd)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_repeated_history_costs_once(tmp_path: Path, core: Core):
    rand = random.Random(8)  # noqa: S311
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd, core=core)
    history = b""
    raw = 0
    for _ in range(12):
        history += rand.randbytes(2000)
        raw += len(history)
        writer.append(16, 1, {4: history})
    writer.seal()
    os.close(fd)
    assert (tmp_path / "b.hark").stat().st_size < raw / 3
    with Bundle.open(tmp_path / "b.hark") as bundle:
        assert bundle.read_body(bundle.event(11).payload[4]) == history


def test_references_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Beyond it a chunk is stored again, so that reading costs no more than the size tells."""
    monkeypatch.setattr(limits, "BUNDLE_REFS_BASE", 40)
    monkeypatch.setattr(limits, "BUNDLE_REFS_PER_CHUNK", 2)
    body = random.Random(4).randbytes(3000)  # noqa: S311
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    for i in range(100):
        writer.append(16, i, {4: body})
    writer.seal()
    os.close(fd)
    with Bundle.open(tmp_path / "b.hark") as bundle:
        refs = [event.payload[4] for event in bundle.events()]
        assert all(bundle.read_body(ref) == body for ref in refs)
    first = refs[0].ranges[0][0]
    assert refs[1].ranges[0][0] == first, "positive control: it is referred to again"
    assert refs[-1].ranges[0][0] > first
    assert verified((tmp_path / "b.hark").read_bytes()).verdict is Verdict.VERIFIED


GROWTH = """
import os, random, resource, sys
from bundle_making import writer_on
from hark.bundle.writer import create
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fd = create(sys.argv[1])
writer = writer_on(fd)
writer.head()
rand = random.Random(1)
def write(megabytes):
    for i in range(megabytes):
        writer.append(16, i, {2: 1, 4: rand.randbytes(1 << 20)})
        for _ in range(200):
            writer.append(19, i, {2: 1, 4: rand.randbytes(300)})
        writer.head()
write(12)
print(peak())
write(60)
writer.seal()
print(peak())
"""


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path / "b.hark")],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    before, after = (int(word) << 10 for word in done.stdout.split())
    assert (tmp_path / "b.hark").stat().st_size > 72 << 20
    assert after - before < GROWTH_MAX


def test_long_strings_inside_lists_become_bodies_too(tmp_path: Path):
    fd = create(tmp_path / "b.hark")
    writer = writer_on(fd)
    argv = [b"sh", b"-c", b"x" * 5000, bytearray(b"y" * 2000), memoryview(b"z")]
    writer.append(5, 1, {4: b"/bin/sh", 5: argv})
    writer.seal()
    os.close(fd)
    ((_, _, _, payload),) = contents((tmp_path / "b.hark").read_bytes())
    assert payload == {4: b"/bin/sh", 5: [bytes(a) for a in argv]}
    assert verified((tmp_path / "b.hark").read_bytes()).chunks > 0
