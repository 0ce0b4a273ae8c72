"""``hark verify``: the signer first, numbered steps, one line a property, one verdict.

Rules: needs no root and no native code. Exit status: 0 verified, 1 broken or rejected, 3 truncated.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark.bundle.core import load
from hark.bundle.keys import load_trust
from hark.bundle.source import FileSource
from hark.bundle.verify import Verdict, VerifyReport, verify_source
from hark.cli.bundle_argument import add_bundle_argument, find_bundle
from hark.cli.printable import printable, size_text, time_text, ulid_text
from hark.errors import InputError
from hark.locations import HOST_KEY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["NOT_ANCHORED", "configure", "progress", "run"]

NOT_ANCHORED = "transparency not anchored -- integrity only, no non-equivocation"
_PROGRESS_AFTER_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark verify``."""
    add_bundle_argument(parser)
    add_trust_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--verbose", action="store_true", help="say how it was verified")


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which keys are known."""
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="HEX|FILE",
        help="accept only this public key (64 hexadecimal digits or a .pub file); may be repeated",
    )
    parser.add_argument(
        "--require-signature",
        "--require-signer",
        action="store_true",
        help="refuse a bundle whose signer is neither this host nor trusted",
    )
    parser.add_argument(
        "--trusted-keys", type=Path, metavar="FILE", help="trusted keys; one a line, then a name"
    )
    parser.add_argument(
        "--host-key",
        type=Path,
        default=HOST_KEY,
        metavar="FILE",
        help=f"what counts as this host's key (default {HOST_KEY})",
    )


def trust_of(args: argparse.Namespace) -> Any:
    """Return the trust that the arguments describe."""
    pins = tuple(_pin(text) for text in args.key)
    return load_trust(
        host=args.host_key, trusted=args.trusted_keys, pins=pins, require=args.require_signature
    )


def _pin(text: str) -> str:
    if len(text) == 64:  # noqa: PLR2004 - a key in hexadecimal
        return text
    try:
        with Path(text).open(encoding="utf-8") as file:
            return file.read(80)
    except (OSError, UnicodeDecodeError, ValueError):
        return text  # and say what is wrong with it


def run(args: argparse.Namespace) -> int:
    """Verify and print; return the exit status."""
    path = find_bundle(args.run)
    trust = trust_of(args)
    core = load()
    try:
        with path.open("rb") as file:
            source = FileSource(file.fileno())
            report = verify_source(source, trust, core, progress(source.size()))
    except OSError as error:
        raise InputError(f"cannot read {path}", error.strerror or str(error)) from None
    if args.verbose:
        print(f"hark: verified with the {core.name} core", file=sys.stderr)
    if args.json:
        print(json.dumps(report_json(report), ensure_ascii=True))
    else:
        print("\n".join(report_lines(report)))
    return report.verdict.exit_code


def progress(size: int) -> Callable[[int], None] | None:
    """Return what shows how far it is, on a terminal, once it takes longer than a second."""
    if not sys.stderr.isatty():
        return None
    start = time.monotonic()
    last = [start + _PROGRESS_AFTER_S]

    def show(done: int) -> None:
        now = time.monotonic()
        if now >= last[0]:
            last[0] = now + 0.2
            end = "\r" if done < size else "\r\x1b[K"
            print(f"verifying {100 * done // max(size, 1)} %", end=end, file=sys.stderr, flush=True)

    return show


def signer_line(report: VerifyReport) -> str:
    """Return the first line. A key is named as signer only when a signature of it verified."""
    if report.signer is None or report.header is None:
        return "signed by nobody: there is no readable header"
    if report.heads == 0:
        return "signed by nobody: no head verifies"
    return f"{report.signer.text}: {report.signer.key.hex()}"


def report_lines(report: VerifyReport) -> list[str]:
    """Return all lines of the report."""
    marks = {True: "ok", False: "FAILED", None: "--"}
    lines = [signer_line(report)]
    for step in report.steps():
        detail = f": {printable(step.detail)}" if step.detail else ""
        lines.append(f"  {step.step.value} {marks[step.ok]:<6} {step.title}{detail}")
    lines += [f"{name:<12} {text}" for name, text in _properties(report)]
    lines.append(NOT_ANCHORED)
    why = (
        f"  {printable(report.why)}"
        if report.why and report.verdict is not Verdict.VERIFIED
        else ""
    )
    lines.append(f"{report.verdict.value}{why}")
    return lines


def _properties(report: VerifyReport) -> list[tuple[str, str]]:
    rows = _header_rows(report)
    rows.append(("events", _events_text(report)))
    if report.first_head is not None and report.last_head is not None:
        begin, last = (time_text(h.unix_ns) for h in (report.first_head, report.last_head))
        rows.append(("signed", f"first head {begin}, last head {last}"))
    rows.append(("root", report.root.hex()))
    rows.append(("bodies", f"{report.chunks} chunks, {size_text(report.body_bytes)} referred to"))
    rows.append(("ended", _end_text(report)))
    if report.synthetic:
        rows.append(("synthetic", "made by hark synth: nothing of this ever ran"))
    if report.development:
        rows.append(("development", "HARK_DEV=1 lifted the check of who may write hark's code"))
    if report.index_missing:
        rows.append(("index", "missing: sealed and signed, but its tail was lost"))
    rows += _redaction_rows(report)
    rows += [
        (
            "loss",
            f"event {x.seq}: {x.count} of {printable(x.source)} {printable(x.detail)}".rstrip(),
        )
        for x in report.losses
    ] or [("losses", "none recorded")]
    rows += [
        ("downgrade", f"event {x.seq}: {printable(x.feature)}: {printable(x.effect)}")
        for x in report.downgrades
    ] or [("downgrades", "none recorded")]
    if report.untold:
        rows.append(("more", f"{report.untold} further losses and downgrades"))
    if report.broken_event is not None:
        rows.append(("broken", f"event {report.broken_event}"))
    elif report.broken_range is not None:
        first, end = report.broken_range
        rows.append(("broken", f"in events {first} to {end - 1}"))
    return rows


def _header_rows(report: VerifyReport) -> list[tuple[str, str]]:
    header = report.header
    if header is None:
        return []
    rows = [
        ("run", f"{ulid_text(header.run_id)} by {printable(header.recorder, 60)}"),
        ("created", time_text(header.created_unix_ns)),
    ]
    if header.policy_digest is not None:
        rows.append(("policy", header.policy_digest.hex()))
    if header.parent is not None:
        rows.append(("parent", ulid_text(header.parent.run_id)))
    return rows


def _redaction_rows(report: VerifyReport) -> list[tuple[str, str]]:
    rows = []
    if report.redacted_events or report.redacted_chunks:
        what = f"{report.redacted_events} events and {report.redacted_chunks} chunks taken out"
        if report.sealed_blocks:
            what += ", some of them sealed for recipients"
        rows.append(("redacted", what))
    rows += [
        ("reason", f"{printable(reason, 200)} (the redactor's word, not the run's)")
        for reason in report.redaction_reasons
    ]
    return rows


def _events_text(report: VerifyReport) -> str:
    heads = f"{report.heads} heads"
    if report.events == report.signed_events:
        return f"{report.events}, all signed, {heads}"
    tail = report.events - report.signed_events
    return f"{report.events}, signed through {report.signed_events}, {tail} chained only, {heads}"


def _end_text(report: VerifyReport) -> str:
    if not report.sealed:
        return "not sealed"
    if report.end_reason is None:
        return "sealed, without saying how the run ended"
    code = "" if report.exit_code is None else f", exit status {report.exit_code}"
    return f"sealed, {printable(report.end_reason, 60)}{code}"


def report_json(report: VerifyReport) -> dict[str, Any]:
    """Return the report as a JSON object (docs/spec/bundle.md, "Verification")."""
    header, signer = report.header, report.signer
    return {
        "verdict": report.verdict.value,
        "why": report.why,
        "signer": None
        if signer is None or report.heads == 0
        else {"kind": signer.kind.value, "key": signer.key.hex(), "name": signer.name},
        "steps": [
            {"step": s.step.value, "title": s.title, "ok": s.ok, "detail": s.detail}
            for s in report.steps()
        ],
        "run": None if header is None else ulid_text(header.run_id),
        "created_unix_ns": None if header is None else header.created_unix_ns,
        "recorder": None if header is None else header.recorder,
        "events": report.events,
        "signed_events": report.signed_events,
        "heads": report.heads,
        "root": report.root.hex(),
        "sealed": report.sealed,
        "index_missing": report.index_missing,
        "chunks": report.chunks,
        "redacted_events": report.redacted_events,
        "redacted_chunks": report.redacted_chunks,
        "synthetic": report.synthetic,
        "development": report.development,
        "end_reason": report.end_reason,
        "exit_code": report.exit_code,
        "losses": [
            {"seq": x.seq, "source": x.source, "count": x.count, "detail": x.detail}
            for x in report.losses
        ],
        "downgrades": [
            {"seq": x.seq, "feature": x.feature, "cause": x.cause, "effect": x.effect}
            for x in report.downgrades
        ],
        "untold": report.untold,
        "broken_event": report.broken_event,
        "broken_range": report.broken_range,
        "transparency": NOT_ANCHORED,
    }
