"""``hark fidelity``: record and replay a command again and again, and say what was the same.

Each pair is a `hark run` and a `hark replay`, as a person would call them; this verb only starts
them, one after the other, and adds up what they say. Recordings lie in a folder of their own, so
that no run sees them; what the recorded agents wrote is thrown away.
Exit status: 0 every pair equal, 1 not, 2 bad input, 125 nothing could be recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark.cli.printable import printable, ulid_text
from hark.cli.run import agent_command
from hark.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hark.policy.person import Person
    from hark.replay.evidence import PairSeen

__all__ = ["configure", "run"]

_MOST = 10_000
_FAILED = 125
_SHOWN = 300
_TAIL = 16_384  # of stderr, where hark's own words stand


@dataclass(frozen=True, slots=True)
class _Ended:
    """A verb that ended."""

    status: int
    stdout: bytes
    stderr: bytes


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; the agent's command stands after ``--``."""
    parser.usage = "hark fidelity [options] -- COMMAND [ARGUMENT...]"
    add = parser.add_argument
    add("-n", dest="count", type=int, default=5, metavar="N", help="pairs (default 5)")
    add("--policy", metavar="FILE", help="policy (TOML) of every run")
    add(
        "--rules", metavar="FILE", help="compare by the volatile and telemetry rules of this policy"
    )
    add("--as", dest="person", metavar="USER", help="whose files and environment")
    add(
        "--upstream",
        metavar="HOST=IP:PORT",
        action="append",
        default=[],
        help="as `hark run` has it",
    )
    add("--upstream-ca", metavar="FILE", help="as `hark run` has it")
    add("--stdin", metavar="FILE", help="standard input of every run; default: none")
    add("--strict", action="store_true", help="only REPLAY-EQUAL exact is equal")
    add("--keep", metavar="DIR", help="leave the recordings in this new folder")
    add("--json", action="store_true", help="print everything as JSON")
    add("--junit", metavar="FILE", help="write JUnit XML here too")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the agent")


def run(args: argparse.Namespace) -> int:
    """Make the pairs, print the evidence, return the exit status."""
    from hark.policy.person import find_person  # noqa: PLC0415 - when the arguments are good
    from hark.policy.privileges import acting_as  # noqa: PLC0415
    from hark.replay.evidence import Evidence  # noqa: PLC0415

    command = [os.fsdecode(word) for word in agent_command(args.command)]
    if not 1 <= args.count <= _MOST:
        raise InputError(f"-n {args.count}", f"it must be 1 to {_MOST}")
    person = find_person(args.person, os.environb)
    pairs: list[PairSeen] = []
    with _folder(args.keep, person) as folder:
        for number in range(1, args.count + 1):
            pairs.append(_pair(args, command, folder, number, person))
            if not args.json:
                sys.stderr.write(f"hark: pair {number}: {printable(pairs[-1].claim(), _SHOWN)}\n")
    evidence = Evidence(printable(" ".join(command), _SHOWN), pairs, args.strict)
    if args.junit:
        with acting_as(person):
            Path(args.junit).write_bytes(evidence.junit())
    if args.json:
        print(json.dumps(evidence.to_json(), ensure_ascii=True))
    else:
        print("\n".join(printable(line) for line in evidence.lines()))
    if all(pair.verdict is None for pair in pairs):
        return _FAILED
    return 0 if evidence.holds else 1


@contextmanager
def _folder(keep: str | None, person: Person) -> Iterator[Path]:
    """Make a folder for the recordings, the person's own; it goes unless it is to be kept."""
    from hark.policy.privileges import acting_as  # noqa: PLC0415 - with its caller

    with acting_as(person):
        if keep is None:
            place = Path(tempfile.mkdtemp(prefix="hark-fidelity-"))
        else:
            place = Path(keep).absolute()
            try:
                place.mkdir(mode=0o700)
            except OSError as error:
                raise InputError(f"--keep {keep}: cannot make it", error.strerror or "") from error
    try:
        yield place
    finally:
        if keep is None:
            with acting_as(person):
                shutil.rmtree(place, ignore_errors=True)


def _pair(
    args: argparse.Namespace, command: list[str], folder: Path, number: int, person: Person
) -> PairSeen:
    """Record once and replay once."""
    from hark.replay.evidence import PairSeen  # noqa: PLC0415 - with its caller

    bundle = folder / f"pair-{number}.hark"
    begun = time.monotonic()
    with _input(args.stdin, person) as stdin:
        recorded = _hark(["run", *_options(args), "-q", f"-o{bundle}", "--", *command], stdin)
    between = time.monotonic()
    if not bundle.exists():
        error = _last(recorded.stderr) or f"`hark run` ended with {recorded.status}"
        return PairSeen(number, recorded.status, between - begun, 0.0, None, error)
    rules = [f"--rules={args.rules}"] if args.rules else []
    replayed = _hark(["replay", "--json", "--quiet", *rules, str(bundle)])
    ended = time.monotonic()
    verdict = _verdict(replayed.stdout)
    _discard(bundle, person)
    return PairSeen(
        number,
        recorded.status,
        between - begun,
        ended - between,
        verdict,
        "" if verdict else _last(replayed.stderr) or f"ended with {replayed.status}",
    )


def _options(args: argparse.Namespace) -> list[str]:
    words = [f"--upstream={text}" for text in args.upstream]
    given = (("policy", args.policy), ("as", args.person), ("upstream-ca", args.upstream_ca))
    return [*words, *(f"--{name}={value}" for name, value in given if value), "--no-tty"]


def _hark(words: list[str], stdin: int = subprocess.DEVNULL) -> _Ended:
    """Run one verb of this hark to its end; of what an agent prints, keep the end of stderr."""
    stdout = subprocess.PIPE if words[0] == "replay" else subprocess.DEVNULL
    with tempfile.TemporaryFile() as told:
        done = subprocess.run(
            [*_myself(), *words], stdin=stdin, stdout=stdout, stderr=told, check=False
        )
        size = told.seek(0, os.SEEK_END)
        told.seek(max(0, size - _TAIL))
        return _Ended(done.returncode, done.stdout or b"", told.read())


@contextmanager
def _input(name: str | None, person: Person) -> Iterator[int]:
    """Open the runs' standard input, as the person."""
    from hark.policy.privileges import acting_as  # noqa: PLC0415 - with its caller

    if name is None:
        yield subprocess.DEVNULL
        return
    try:
        with acting_as(person):
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"--stdin {name}: cannot open it", error.strerror or "") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _myself() -> list[str]:
    """Return the words that start this hark."""
    name = Path(sys.argv[0])
    if name.name == "hark" and os.access(name, os.X_OK):
        return [str(name.absolute())]
    return [sys.executable, "-m", "hark.cli.app"]


def _verdict(stdout: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(stdout)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "verdict" in found else None


def _last(stderr: bytes) -> str:
    """Return hark's error and its cause."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if "hark: " in line]
    told = [line.partition(": ")[2] for line in lines if ": error: " in line or ": cause: " in line]
    return printable("; ".join(told), _SHOWN)


def _discard(bundle: Path, person: Person) -> None:
    """Throw away what the recorded agent wrote."""
    from hark.bundle.reader import Bundle  # noqa: PLC0415 - with its caller
    from hark.locations import RUNS  # noqa: PLC0415
    from hark.policy.privileges import acting_as  # noqa: PLC0415

    with acting_as(person), Bundle.open(bundle) as opened:
        name = ulid_text(opened.header.run_id)
    if (RUNS / name).exists():
        _hark(["discard", name])
