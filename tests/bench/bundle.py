"""Figures of the bundle: write, verify, prove, seek, deduplicate, memory. In process, native code.

    python tests/bench/bundle.py [--quick]

Method: docs/benchmarking.md. Every figure is the values of several rounds. Writing and verifying
are CPU time of this process, which has one thread; seeking is wall clock. Prints a table and writes
build/bench/bundle.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import Figure, table, write_json

from hark.bundle.core import load
from hark.bundle.format import Header
from hark.bundle.keys import SigningKey, Trust
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.bundle.verify import Verdict
from hark.bundle.writer import BundleWriter, create

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD = 520
KEY = SigningKey.from_seed(bytes(32))
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "mix",
    "other",
    "words",
]


class Open:
    """A bundle being written to a file of its own."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self.fd = create(path)
        header = Header(
            run_id=bytes(16), created_unix_ns=1, recorder="bench", public_key=KEY.public
        )
        self.writer = BundleWriter(
            self.fd,
            header,
            KEY.sign_head,
            now_boot_ns=time.monotonic_ns,
            now_unix_ns=time.time_ns,
        )
        self.writer.head()

    def seal(self) -> None:
        self.writer.seal()
        os.close(self.fd)


def payloads(count: int, kind: str) -> list[dict[int, Any]]:
    """Event payloads of about ``PAYLOAD`` bytes, random or text."""
    rand = random.Random(7)  # noqa: S311
    size = PAYLOAD - 40
    texts = [" ".join(rand.choice(WORDS) for _ in range(120)).encode()[:size] for _ in range(997)]
    noise = [rand.randbytes(size) for _ in range(997)]
    data = texts if kind == "text" else noise
    actor = [4242, 4243, 123_456_789_012, bytes(16)]
    return [{1: actor, 2: i // 8, 4: data[i % 997], 5: False} for i in range(count)]


def write_events(path: Path, events: list[dict[int, Any]]) -> float:
    """Seconds of CPU to write and seal; a head every second, as in a run."""
    out = Open(path)
    start = time.process_time()
    for i, event in enumerate(events):
        out.writer.append(19, i, event)
        if i % 256 == 0:
            out.writer.tick(time.monotonic_ns())
    out.seal()
    return time.process_time() - start


def verify(path: Path, *, pure: bool = False) -> float:
    """Seconds of CPU to verify."""
    with Bundle.open(path, core=load(pure=pure)) as bundle:
        start = time.process_time()
        report = bundle.verify(Trust())
        took = time.process_time() - start
    if report.verdict is not Verdict.VERIFIED:
        raise SystemExit(f"bench: {path} does not verify: {report.why}")
    return took


def measure_events(work: Path, count: int, rounds: int) -> Iterator[Figure]:
    for kind in ("random", "text"):
        events = payloads(count, kind)
        path = work / f"{kind}.hark"
        wrote = [write_events(path, events) for _ in range(rounds)]
        yield Figure(f"write, {kind}, CPU", "us/event", tuple(1e6 * t / count for t in wrote))
        read = [verify(path) for _ in range(rounds)]
        per = 100_000 / count
        yield Figure(f"verify 100,000, {kind}", "ms", tuple(1e3 * t * per for t in read))
        slow = [verify(path, pure=True) for _ in range(max(1, rounds // 3))]
        yield Figure(
            f"verify 100,000, {kind}, pure Python", "ms", tuple(1e3 * t * per for t in slow)
        )


def measure_bodies(work: Path, megabytes: int, rounds: int) -> Iterator[Figure]:
    for kind in ("random", "text"):
        rand = random.Random(3)  # noqa: S311
        path = work / "bodies.hark"
        out = Open(path)
        spent = 0.0
        for i in range(megabytes):
            body = rand.randbytes(1 << 20)
            if kind == "text":
                lines = (b"%d %d the quick brown fox\n" % (i, n) for n in range(35_000))
                body = b"".join(lines)[: 1 << 20]
            start = time.process_time()
            out.writer.append(16, i, {4: body})
            spent += time.process_time() - start
        out.seal()
        rate = megabytes * (1 << 20) / 1e6
        yield Figure(f"write bodies, {kind}", "MB/s", (rate / spent,))
        values = tuple(rate / verify(path) for _ in range(rounds))
        yield Figure(f"verify bodies, {kind}", "MB/s", values)


def measure_seeking(work: Path, count: int, rounds: int) -> Iterator[Figure]:
    path = work / "million.hark"
    pool = payloads(997, "text")
    out = Open(path)
    for i in range(count):
        out.writer.append(19, i, pool[i % 997])
    out.seal()
    rand = random.Random(5)  # noqa: S311
    proved, sought = [], []
    for _ in range(20 * rounds):
        seq = rand.randrange(count)
        start = time.perf_counter()
        with Bundle.open(path) as bundle:
            prove(bundle, seq)
        proved.append(1e3 * (time.perf_counter() - start))
        start = time.perf_counter()
        with Bundle.open(path) as bundle:
            bundle.event(seq)
        sought.append(1e3 * (time.perf_counter() - start))
    yield Figure(f"open and prove one of {count:,}", "ms", tuple(proved))
    yield Figure(f"open and read one of {count:,}", "ms", tuple(sought))
    yield Figure(f"verify {count:,} events", "ms", (1e3 * verify(path),))


def conversation(turns: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """Requests that resend their whole history, each answered by small deliveries."""
    rand = random.Random(11)  # noqa: S311

    def text(size: int) -> str:
        words: list[str] = []
        while sum(map(len, words)) < size:
            words.append(rand.choice(WORDS) + str(rand.randrange(300)))
        return " ".join(words)

    tools = [{"name": f"tool{i}", "description": text(300)} for i in range(8)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": text(700)}]
    system = text(3000)
    for _ in range(turns):
        request = {"system": system, "tools": tools, "messages": messages, "stream": True}
        answer = text(rand.randrange(150, 900))
        pieces = [answer[i : i + 20] for i in range(0, len(answer), 20)]
        frames = [b"data: " + json.dumps({"delta": {"text": p}}).encode() + b"\n\n" for p in pieces]
        yield json.dumps(request).encode(), frames
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": text(rand.randrange(200, 2600))})


def measure_conversation(work: Path) -> Iterator[Figure]:
    path = work / "talk.hark"
    out = Open(path)
    raw = 0
    for number, (request, frames) in enumerate(conversation(100), 1):
        out.writer.append(15, number, {2: number, 5: "api.example", 8: b"POST / HTTP/1.1\r\n\r\n"})
        out.writer.append(16, number, {2: number, 4: request, 5: True})
        for i, frame in enumerate(frames):
            out.writer.append(19, number, {2: number, 4: frame})
            if i % 25 == 24:
                out.writer.flush()
        out.writer.flush()
        raw += len(request) + sum(map(len, frames))
    out.seal()
    verify(path)
    yield Figure(
        "raw bytes of a 100-turn conversation over its bundle", "x", (raw / path.stat().st_size,)
    )


def measure_memory(work: Path, megabytes: int) -> Iterator[Figure]:
    """Peak memory of a process that writes a long upload in parts, and of one that verifies it."""
    path = work / "upload.hark"
    for name, action in (("write", _upload), ("verify", verify)):
        child = os.fork()
        if child == 0:
            try:
                if name == "write":
                    _upload(path, megabytes)
                else:
                    action(path)
            finally:
                os._exit(0)
        _, status, usage = os.wait4(child, 0)
        if status:
            raise SystemExit(f"bench: {name} of the upload failed")
        yield Figure(
            f"{name} a body of {megabytes} MB, peak memory", "MB", (usage.ru_maxrss / 1024,)
        )


def _upload(path: Path, megabytes: int = 0) -> None:
    out = Open(path)
    rand = random.Random(1)  # noqa: S311
    for i in range(megabytes):
        out.writer.append(16, i, {2: 1, 4: rand.randbytes(1 << 20)})
    out.seal()


def main() -> int:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rounds = 3 if quick else 7
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="hark-bench-") as name:
        work = Path(name)
        figures += measure_memory(work, 50 if quick else 200)
        figures += measure_events(work, 20_000 if quick else 100_000, rounds)
        figures += measure_bodies(work, 32 if quick else 256, rounds)
        figures += measure_seeking(work, 100_000 if quick else 1_000_000, rounds)
        figures += measure_conversation(work)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.append(Figure("peak memory of this bench", "MB", (base,)))
    title = f"Bundle ({rounds} rounds, native core: {load().name == 'native'})"
    print(table(title, figures))  # noqa: T201
    out = ROOT / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "bundle.json", title, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
