"""``hark inspect``: the events of a bundle as a table, in full, or as JSON lines.

Rules: prints what is there, also from a bundle that is broken, cut or still being written, and
then checks it: the whole file, or for ``--seq`` the one event against the signed root. What does
not hold is told on stderr. Exit status as of ``hark verify``: 0, 1 broken, 3 truncated; who signed
is not asked. Names and the form of JSON lines come from docs/spec/records.md. Text of the agent is
escaped on every output.
"""

from __future__ import annotations

import errno
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle.core import load
from hark.bundle.events import Kind
from hark.bundle.keys import Trust
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.bundle.source import FileSource
from hark.bundle.verify import Verdict, verify_source
from hark.cli.bundle_argument import add_bundle_argument, find_bundle
from hark.cli.fields import field_lines, field_names, json_item, kind_name, text_item
from hark.cli.printable import moment_text, printable, tell
from hark.cli.verify import progress
from hark.errors import BundleInvalid, HarkError, InputError
from hark.kernel import syscalls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hark.bundle.cbor import BlobRef
    from hark.bundle.reader import Event

__all__ = ["configure", "run"]

_FIELD_MAX = 60
_OF_WORKSPACE = (Kind.WORKSPACE_START, Kind.WORKSPACE_CONTENT)
_SUMMARY_MAX = 110


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark inspect``."""
    add_bundle_argument(parser)
    parser.add_argument("--seq", type=int, metavar="N", help="one event, in full")
    parser.add_argument("-n", type=int, metavar="COUNT", help="at most so many events")
    parser.add_argument("--kind", action="append", default=[], help="only this kind; repeatable")
    parser.add_argument(
        "--since", type=seconds, metavar="SECONDS", help="only what came this long after the start"
    )
    parser.add_argument(
        "--time",
        choices=["run", "utc", "local"],
        default="run",
        help="seconds since the run's start (the default), or the time of day",
    )
    parser.add_argument("--follow", action="store_true", help="go on while it is being written")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def seconds(text: str) -> float:
    """Read ``--since``; raises ValueError, which argparse tells."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def run(args: argparse.Namespace) -> int:
    """Print the events; return the exit status."""
    kinds = frozenset(_kind_number(name) for word in args.kind for name in word.split(","))
    with _open(find_bundle(args.run, live=args.follow)) as bundle:
        view = _View(bundle, args.time)
        if args.seq is not None:
            event = bundle.event(args.seq)
            print(view.json(event) if args.json else view.full(event))
        else:
            _print(view, _events(bundle, args, kinds, view.faults.append), args, kinds)
        sys.stdout.flush()
        return _judge(bundle, args.seq, view.faults)


def _open(path: Path) -> Bundle:
    try:
        return Bundle.open(path)
    except BundleInvalid as error:  # not even a header: broken, or cut before its end
        with path.open("rb") as file:
            report = verify_source(FileSource(file.fileno()), Trust(), load())
        error.exit_code = report.verdict.exit_code or error.exit_code
        raise


def _judge(bundle: Bundle, seq: int | None, faults: Faults) -> int:
    """Say what is wrong with what was printed; return the exit status."""
    if seq is not None and _proves(bundle, seq):
        return 0
    report = bundle.verify(Trust(), progress=progress(bundle.size))
    if report.verdict is not Verdict.VERIFIED:
        tell([f"hark: warning: this bundle is {report.verdict}: {report.why}"])
    elif faults.count:
        tell([f"hark: warning: {faults.first}"])
    if faults.count > 1:
        tell([f"hark: warning: {faults.count} parts of it cannot be read"])
    if report.verdict is Verdict.VERIFIED:
        return BundleInvalid.exit_code if faults.count else 0
    tell(["hark: hint: hark verify says more"])
    return report.verdict.exit_code


def _proves(bundle: Bundle, seq: int) -> bool:
    """Whether the event is under the final head; looks at no more than that takes."""
    signed = bundle.last_head()
    if bundle.indexed_events() is None or signed is None or not signed[0].final:
        return False
    try:
        prove(bundle, seq, bodies=True)
    except HarkError:  # also when its bodies are too long for a proof
        return False
    return True


class Faults:
    """What could not be read. A hostile file holds any number, so only the first is kept."""

    def __init__(self) -> None:
        self.first = ""
        self.count = 0

    def append(self, error: BundleInvalid) -> None:
        """Count one more."""
        self.first = self.first or ": ".join(filter(None, (error.what, error.cause)))
        self.count += 1


def _print(
    view: _View, events: Iterator[Event], args: argparse.Namespace, kinds: frozenset[int]
) -> None:
    printed = 0
    for event in events:
        view.note(event)
        if kinds and event.kind not in kinds:
            continue  # read for the names of programs only
        if args.n is not None and printed >= args.n:
            return
        if printed == 0 and not args.json:
            print(view.title())
        print(view.json(event) if args.json else view.row(event))
        printed += 1
        if args.follow:
            sys.stdout.flush()


def _events(
    bundle: Bundle,
    args: argparse.Namespace,
    kinds: frozenset[int],
    on_fault: Callable[[BundleInvalid], None],
) -> Iterator[Event]:
    since = None
    if args.since is not None:
        since = (bundle.header.created_boot_ns or 0) + int(args.since * 1e9)
    wanted = kinds | {int(Kind.EXEC)} if kinds else None
    if args.follow:
        return bundle.follow(wanted, since=since)
    return bundle.events(wanted, since=since, on_fault=on_fault)


def _kind_number(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else int(Kind[name.upper()])
    except KeyError:
        known = ", ".join(kind.name.lower() for kind in Kind)
        raise InputError(f"there is no kind {name!r}", hint=f"kinds: {known}") from None


class _View:
    """Turns events into text; remembers which program a process executed."""

    def __init__(self, bundle: Bundle, clock: str = "run") -> None:
        self._bundle = bundle
        self.faults = Faults()
        self._clock = clock
        self._start_ns = bundle.header.created_boot_ns
        self._start_unix_ns = bundle.header.created_unix_ns
        self._programs: dict[tuple[int, int], bytes] = {}

    # --- JSON ---

    def json(self, event: Event) -> str:
        """One event as a JSON object."""
        value: dict[str, Any] = {
            "seq": event.seq,
            "kind": kind_name(event.kind),
            "time_ns": event.time_ns,
            "time": self._moment(event),
        }
        if event.payload is None:
            value["redacted"] = True
        else:
            names = field_names(event.kind)
            for key, item in event.payload.items():
                name = names.get(key, str(key))
                value[name] = json_item(name, item, self._body)
        return json.dumps(value, ensure_ascii=True)

    def _body(self, ref: BlobRef) -> Any:
        if ref.length > limits.BUNDLE_BODY_READ_MAX_BYTES:
            return {"omitted_bytes": ref.length}
        try:
            parts = list(self._bundle.parts(ref))
        except BundleInvalid as error:
            self.faults.append(error)
            return {"unreadable_bytes": ref.length}
        missing = sum(part for part in parts if isinstance(part, int))
        if missing:
            return {"redacted_bytes": missing, "bytes": ref.length}
        return b"".join(part for part in parts if isinstance(part, bytes))

    # --- table ---

    def title(self) -> str:
        """The head of the table."""
        wide = 10 if self._clock == "run" else 32 if self._clock == "local" else 27
        return f"{'SEQ':>6}  {'TIME':>{wide}}  {'KIND':<14} {'ACTOR':<34} WHAT"

    def row(self, event: Event) -> str:
        """One event as a line."""
        start = self._start(event)
        moment = f"{(event.time_ns - start) / 1e9:>10.4f}"
        if self._clock != "run":
            moment = self._moment(event, local=self._clock == "local")
        actor = self._actor(event)
        what = "(redacted)" if event.payload is None else self._summary(event)
        return f"{event.seq:>6}  {moment}  {kind_name(event.kind):<14} {actor:<34} {what}"

    def _start(self, event: Event) -> int:
        """Return when the run began, boot clock; without a word of it, when its first event was."""
        if self._start_ns is None:
            self._start_ns = event.time_ns
        return self._start_ns

    def _moment(self, event: Event, *, local: bool = False) -> str:
        """Return the time of day, by the clock as it was set when the bundle was begun."""
        return moment_text(self._start_unix_ns + event.time_ns - self._start(event), local=local)

    def full(self, event: Event) -> str:
        """One event with all its fields."""
        lines = [
            f"event    {event.seq}",
            f"kind     {event.kind} {kind_name(event.kind)}",
            f"time_ns  {event.time_ns}",
            f"time     {self._moment(event)}",
            f"length   {event.length}",
        ]
        if event.payload is None:
            return "\n".join([*lines, "(redacted)"])
        lines += field_lines(event.kind, event.payload, self._text)
        return "\n".join(lines)

    def _text(self, ref: BlobRef) -> bytes:
        if ref.length > limits.BUNDLE_BODY_READ_MAX_BYTES:
            return b"(too long to be shown)"
        try:
            return self._bundle.read_body(ref)
        except BundleInvalid as error:
            self.faults.append(error)
            return b"(cannot be read)"

    def _actor(self, event: Event) -> str:
        actor = (event.payload or {}).get(1)
        if not isinstance(actor, list) or len(actor) < 3:  # noqa: PLR2004 - records.md, key 1
            return "-"
        tgid, tid, start_ns, *digest = actor
        who = f"{tgid}" if tgid == tid else f"{tgid}/{tid}"
        if digest and isinstance(digest[0], bytes):
            who += f" {digest[0].hex()[:8]}"
        program = self._program(tgid, start_ns)
        return printable(f"{who} {program}" if program else who, _FIELD_MAX)

    def note(self, event: Event) -> None:
        """Remember what a process executed; call it with every event, in order."""
        if event.kind != Kind.EXEC or event.payload is None:
            return
        match event.payload:
            case {1: [int() as tgid, _, int() as start_ns, *_], 4: bytes() as filename}:
                self._programs[tgid, start_ns] = filename

    def _program(self, tgid: Any, start_ns: Any) -> str:
        """Name of what the process last executed."""
        if type(tgid) is not int or type(start_ns) is not int:
            return ""
        return printable(self._programs.get((tgid, start_ns), b"").rsplit(b"/", 1)[-1], 16)

    def _summary(self, event: Event) -> str:
        payload = event.payload or {}
        names = field_names(event.kind)
        words = []
        exchange = payload.get(2)
        if exchange is not None:
            words.append(f"#{text_item('', exchange, 12)}")
        if event.kind == Kind.REQUEST:
            words.append(self._request(payload))
        elif event.kind in _OF_WORKSPACE:
            words.append(_workspace(payload))
        else:
            words += [
                f"{names.get(key, str(key))}={text_item(names.get(key, ''), item, _FIELD_MAX)}"
                for key, item in payload.items()
                if key > 3  # noqa: PLR2004 - common keys have their own columns
            ]
            words.append(_call(payload))
        return printable(" ".join(words).rstrip(), _SUMMARY_MAX)

    def _request(self, payload: dict[int, Any]) -> str:
        meant = payload.get(5, _host_field(payload.get(8)))  # only an allowed host has key 5
        method, target = (text_item("", payload.get(key), _FIELD_MAX) for key in (6, 7))
        return f"{method} {text_item('', meant, _FIELD_MAX)}{target}"


def _host_field(head: Any) -> bytes:
    """Return what a request to a denied host said in its Host field; "?" when it said nothing."""
    lines = head.split(b"\r\n")[1:] if isinstance(head, bytes) else []
    fields = (line.partition(b":") for line in lines)
    return next((value.strip() for name, _, value in fields if name.lower() == b"host"), b"?")


def _workspace(payload: dict[int, Any]) -> str:
    """Return what an event about the start of the workspace says, without its long fields."""
    folder = text_item("folder", payload.get(4), _FIELD_MAX)
    match payload:
        case {9: bool() as complete}:
            kept = f"kept={payload.get(6, 0)} bytes={payload.get(7, 0)}"
            left = text_item("left_out", payload.get(8, []), _FIELD_MAX)
            why = text_item("detail", payload.get(10, ""), _FIELD_MAX)
            return f"{folder} {kept} left_out={left} complete={complete} {why}".rstrip()
        case {5: list() as contents}:
            first = contents[0][0] if contents and isinstance(contents[0], list) else b""
            name = text_item("content", first, _FIELD_MAX)
            more = f" and {len(contents) - 1} more" if len(contents) > 1 else ""
            return f"{folder} {name}{more}"
    size = text_item("manifest", payload.get(5), _FIELD_MAX) if 5 in payload else "left out"  # noqa: PLR2004 - its key
    if isinstance(payload.get(5), bytes):
        size = f"<{len(payload[5])} bytes>"
    return f"{folder} manifest={size} digest={text_item('digest', payload.get(6), _FIELD_MAX)}"


def _call(payload: dict[int, Any]) -> str:
    """Return names for the numbers of a system call that seccomp stopped."""
    match payload:
        case {4: "seccomp", 7: int() as nr}:
            call = syscalls.name(nr | (syscalls.IA32 if payload.get(18) else 0))
        case _:
            return ""
    match payload.get(8):
        case int() as code if code in errno.errorcode:
            return f"({call}: {errno.errorcode[code]})"
    return f"({call})"
