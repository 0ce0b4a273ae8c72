"""``make fidelity``: n pairs of every shape and one twin each; writes docs/fidelity.md.

Exit status 1 when a failure has no reason in ``fidelity_known``, a reason is untrue, or a twin was
not caught. Every pair's result is appended to build/fidelity.jsonl first, so that a stopped run
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from fidelity_known import KNOWN  # noqa: E402 - after the path
from fidelity_mutations import Mutations, mutate  # noqa: E402
from fidelity_pairs import Pair, Programs, Said  # noqa: E402
from fidelity_shapes import SHAPES, Shape  # noqa: E402
from harness.running import ROOT  # noqa: E402

PAGE, KEPT = ROOT / "docs" / "fidelity.md", ROOT / "build" / "fidelity.jsonl"
LARGE = 50_000_000
TOLD = 10  # pairs that must be equal before a known reason is called untrue: some differ by chance


@dataclass(slots=True)
class Row:
    """What is known of a shape: each pair's text and whether it was equal, and the twin's."""

    shape: Shape
    pairs: list[tuple[bool, str]] = field(default_factory=list)
    twin: tuple[bool, str] | None = None
    mutations: tuple[int, int, int, dict[str, int]] | None = None
    silent: list[str] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)

    @property
    def equal(self) -> int:
        """Pairs that were equal."""
        return sum(is_equal for is_equal, _ in self.pairs)

    def faults(self) -> list[str]:
        """What this run does not accept."""
        label, out = self.shape.label, []
        if self.equal < len(self.pairs) and label not in KNOWN:
            out.append(
                f"{label}: {len(self.pairs) - self.equal} pairs differ without a known reason"
            )
        if len(self.pairs) >= TOLD and self.equal == len(self.pairs) and label in KNOWN:
            out.append(f"{label}: is equal; its known reason is untrue")
        out += [f"{label}: an alteration was silent: {text}" for text in self.silent]
        if self.twin is not None and not self.twin[0]:
            out.append(f"{label}: its twin was not caught: {self.twin[1]}")
        return out


def clean(text: str) -> str:
    """Take this machine's own names out of a line, and what would break a table."""
    return text.replace(str(ROOT), "HARK").replace("|", "\\|").replace("\n", " ")[:400]


def read() -> dict[str, Row]:
    """Read the results kept so far."""
    rows = {shape.label: Row(shape) for shape in SHAPES}
    for line in KEPT.read_text().splitlines() if KEPT.exists() else []:
        kept = json.loads(line)
        row = rows.get(kept["shape"])
        if row is not None and kept["what"] == "pair":
            row.pairs.append((kept["good"], kept["text"]))
            row.modes.update(filter(None, (kept.get("mode"),)))
        elif row is not None and kept["what"] == "mutations":
            row.mutations = json.loads(kept["text"])
        elif row is not None and kept["what"] == "silent":
            row.silent.append(kept["text"])
        elif row is not None:
            row.twin = (kept["good"], kept["text"])
    return rows


def keep(shape: Shape, what: str, *, good: bool, text: str, mode: str = "") -> None:
    """Append one result, on disk before the next begins."""
    with KEPT.open("a") as file:
        row = {"shape": shape.label, "what": what, "good": good, "text": text, "mode": mode}
        file.write(json.dumps(row) + "\n")
    sys.stdout.write(f"  {'ok ' if good else 'NOT'} {shape.label:22} {what:5} {text[:160]}\n")
    sys.stdout.flush()


def measure(row: Row, count: int, programs: Programs) -> None:
    """Make the pairs that are missing, and with the first one the twin and the alterations."""
    shape, todo = row.shape, count - len(row.pairs)
    for number in range(max(todo, row.mutations is None)):
        with Pair(shape, programs, size=LARGE) as pair:
            result = pair.run()
            if number < todo:
                mode = str(result.said.verdict.get("mode", "")) if result.said else ""
                keep(shape, "pair", good=result.is_equal, text=clean(result.text()), mode=mode)
            if number == 0 and row.mutations is None and not result.missing:
                if shape.twin and row.twin is None:
                    keep_twin(shape, pair.twin())
                keep_mutations(shape, mutate(pair.bundle))


def keep_twin(shape: Shape, said: Said) -> None:
    """Keep whether the edited agent was caught at the named action."""
    named = any(title.startswith(shape.twin) for title in said.titles())
    caught = said.status == 1 and named and not said.dialled
    keep(shape, "twin", good=caught, text=clean(f"{said.line}: {said.titles()}"))


def keep_mutations(shape: Shape, found: Mutations) -> None:
    """Keep what became of the alterations, each silent one by itself."""
    text = json.dumps([found.requests, found.caught, found.renamed, found.ignored])
    keep(shape, "mutations", good=not found.silent, text=text)
    for label in found.silent:
        keep(shape, "silent", good=False, text=clean(label))


HEAD = """# Fidelity

Written by `make fidelity`; do not edit. Each pair is one recording and one replay of it, with a
fresh service, workspace and bundle, and counts only when its shape happened (the retry was made,
the stream was cut). Agents: `tests/fidelity/agents`. A twin is the same agent, edited; it must
diverge at the action that the suite names. The number is the shape's in the list below.
"""


def summary(rows: list[Row], count: int) -> str:
    """Return the figures of all rows."""
    pairs, equal = sum(len(r.pairs) for r in rows), sum(r.equal for r in rows)
    twins = [row.twin[0] for row in rows if row.twin]
    where = f"Kernel {platform.release()}, {os.cpu_count()} CPUs."
    modes = sorted({mode for row in rows for mode in row.modes})
    where += "".join(f" Mode: {mode}." for mode in modes)
    first = f"**{equal} of {pairs} pairs equal, {sum(twins)} of {len(twins)} twins caught.**"
    return f"{first} Asked for: {count} pairs of each. {where}"


def table_row(row: Row) -> str:
    """Return a shape's line of the table."""
    grades = Counter(text for is_equal, text in row.pairs if is_equal)
    known = ((text.removeprefix("REPLAY-EQUAL "), n) for text, n in grades.most_common())
    shown = "; ".join(f"{n} {text}" for text, n in known) or "none"
    twin = "not made" if row.twin is None else ("caught" if row.twin[0] else "**not caught**")
    shape = row.shape
    equal = f"{row.equal} of {len(row.pairs)}"
    return f"| {shape.label} | {shape.number} | {equal} | {shown} | {twin} |"


def differences(row: Row) -> list[str]:
    """Return every failure of a shape, equal ones counted."""
    reason = KNOWN.get(row.shape.label, "no reason is known")
    texts = Counter(text for is_equal, text in row.pairs if not is_equal)
    rows = [f"- {n}: `{text}`" for text, n in texts.most_common()]
    return [f"**{row.shape.label}**: {reason}.", "", *rows, ""]


def alterations(rows: list[Row]) -> list[str]:
    """Return what became of every altered field (``fidelity_mutations``)."""
    found = [row.mutations for row in rows if row.mutations]
    ignored: Counter[str] = Counter()
    for row in found:
        ignored.update(row[3])
    requests, caught, renamed = (sum(row[i] for row in found) for i in range(3))
    silent = [f"- **{row.shape.label}: {text}**" for row in rows for text in row.silent]
    total = caught + renamed + ignored.total() + len(silent)
    told = f"{caught} caught at their request, {renamed} told as a renamed id"
    named = f"{ignored.total()} named by a rule, **{len(silent)} silent**"
    rules = "; ".join(f"`{rule}` {count}" for rule, count in ignored.most_common())
    first = f"{total} alterations of {requests} recorded requests, one at a time: {told}, {named}."
    lines = ["## Every field altered", "", first, "", f"Rules: {rules}.", ""]
    return [*lines, *silent]


def page(rows: list[Row], count: int) -> str:
    """Return docs/fidelity.md."""
    done = [row for row in rows if row.pairs]
    lines = [HEAD, summary(done, count), ""]
    lines += ["| agent | shape | equal | verdicts | twin |", "|---|---|---|---|---|"]
    lines += [table_row(row) for row in done]
    lines += ["", "## What differs, and why", ""]
    for row in done:
        lines += differences(row) if row.equal < len(row.pairs) else []
    return "\n".join([*lines, *alterations(done), SHAPES_TEXT, ""])


SHAPES_TEXT = """## The shapes

0 the five of hark's first version: an incident with a denied host, a stream, a retry, a
repeated request, MCP over HTTP · 1 threads on a queue · 2 many requests at once · 3 order of
answers in the prompt · 4 a tool that prints pid, date, ids · 5 a shell pipeline with `xargs
-P4` · 6 git, its hash in the prompt · 7 `ls -la`, `stat`, `tar` in the prompt · 8 clock,
timers, random numbers · 10 a static Go binary · 14 long poll · 15 backoff with jitter on 429 ·
16 an id that the server gives back · 17 the date in the prompt · 18 redirects, one to a denied
host · 19 coded and multipart bodies · 20 large bodies both ways, chunked, trailers, `Expect` ·
21 a reset inside a body, then a retry · 22 names · 23 denied by name, address, port, UDP · 24
MCP over stdio, with sampling by the server · 25 order of sets and folders · 26 timeouts of the
client, a stream left midway ·
27 SDKs and 28 agents of others, as they are (`tests/interop/clients`) ·
29 what an agent sees of its host.

Not made here: 9 (other people's binaries, `tests/interop`), 11 (Rust has no HTTP client in its
standard library), 12 and 13 (WebSocket and gRPC are not mediated yet); of 17 the change of the
day, of 22 SERVFAIL, CNAME and timeouts (hark's resolver answers every name itself,
`docs/spec/policy.md`)."""


def main() -> int:
    """Measure, write the page, say what is not accepted."""
    parser = argparse.ArgumentParser(prog="fidelity")
    parser.add_argument("-n", type=int, default=20, help="pairs of each shape (default 20)")
    parser.add_argument("--fresh", action="store_true", help="forget the results kept so far")
    parser.add_argument(
        "only", nargs="*", help="shapes, such as node/ or python/retry; default all"
    )
    args = parser.parse_args()
    KEPT.parent.mkdir(exist_ok=True)
    if args.fresh:
        KEPT.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="hark-programs-") as place:
        programs = Programs(Path(place))
        for label, row in read().items():
            if args.only and not any(word in label for word in args.only):
                continue
            try:
                measure(row, args.n, programs)
            except pytest.skip.Exception as missing:  # told by the page too: it has no row
                sys.stdout.write(f"  --- {label}: {missing}\n")
    rows = list(read().values())
    PAGE.write_text(page(rows, args.n))
    faults = [fault for row in rows for fault in row.faults()]
    sys.stdout.write("".join(f"fidelity: {fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
