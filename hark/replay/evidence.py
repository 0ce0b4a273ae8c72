"""What many record/replay pairs of one agent show: equal, renamed, ignored, divergent.

Pure: verdicts as ``hark replay --json`` prints them go in; text, JSON and JUnit XML come out. Every
pair that is not equal is told, and nothing is rounded. One that was not compared has failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Evidence", "PairSeen"]


@dataclass(frozen=True, slots=True)
class PairSeen:
    """One recording and its replay. Times in seconds; ``status``: the recorded agent's.

    ``verdict``: what ``hark replay --json`` printed, None when it printed none; then ``error`` says
    why.
    """

    number: int
    status: int
    record_s: float
    replay_s: float
    verdict: dict[str, Any] | None
    error: str = ""

    def holds(self, *, strict: bool) -> bool:
        """Whether the replay was equal, with ``strict`` exact."""
        verdict = self.verdict or {}
        return bool(verdict.get("equal")) and (not strict or bool(verdict.get("exact")))

    def claim(self) -> str:
        """Return the first line of the verdict, or why there is none."""
        return str(self.verdict["verdict"]) if self.verdict else f"not compared: {self.error}"

    def grade(self) -> str:
        """Return what an equal pair needed, without the fixed words."""
        return self.claim().removeprefix("REPLAY-EQUAL ")

    def place(self) -> str:
        """Return where a pair diverged: the action, and the fields that differ."""
        found = (self.verdict or {}).get("divergence") or {}
        side = found.get("now") or found.get("recorded") or {}
        title = str(side.get("title") or (self.verdict or {}).get("stopped") or self.error)
        rows = (found.get("nearest") or {}).get("differences", [])
        fields = [row["field"] for row in rows if not row.get("own_ids")]
        shown = ", ".join(fields[: limits.REPLAY_SHOWN_BEFORE])
        more = f", and {len(fields) - limits.REPLAY_SHOWN_BEFORE} more"
        shown += more if len(fields) > limits.REPLAY_SHOWN_BEFORE else ""
        return f"{title}: {shown}" if shown else title


@dataclass(frozen=True, slots=True)
class Evidence:
    """All pairs of one command."""

    command: str
    pairs: Sequence[PairSeen]
    strict: bool = False

    @property
    def equal(self) -> int:
        """Pairs that hold."""
        return sum(pair.holds(strict=self.strict) for pair in self.pairs)

    @property
    def holds(self) -> bool:
        """Whether every pair does, and there is one."""
        return bool(self.pairs) and self.equal == len(self.pairs)

    def failed(self) -> list[PairSeen]:
        """Pairs that do not hold, in order."""
        return [pair for pair in self.pairs if not pair.holds(strict=self.strict)]

    def _counted(self, key: str) -> Counter[str]:
        """Sum what the verdicts count under ``key``."""
        total: Counter[str] = Counter()
        for pair in self.pairs:
            total.update((pair.verdict or {}).get(key) or {})
        return total

    def lines(self) -> list[str]:
        """Return everything for a person; the first line is the claim."""
        good = [pair for pair in self.pairs if pair.holds(strict=self.strict)]
        out = [f"FIDELITY {self.equal} of {len(self.pairs)} pairs equal"]
        grades = Counter(pair.grade() for pair in good)
        out += [f"  equal      {count} {grade}" for grade, count in grades.most_common()]
        out += [
            f"  differs    pair {pair.number}: {pair.claim()}  [{pair.place()}]"
            for pair in self.failed()
        ]
        ids = sum(len((pair.verdict or {}).get("renamed") or []) for pair in self.pairs)
        out += [f"  renamed    {ids} ids of the agent's own"] if ids else []
        rules = sorted(self._counted("ignored").items())
        out += [f"  ignored    {rule} ({count})" for rule, count in rules]
        notes = Counter(note for pair in self.pairs for note in _notes(pair))
        out += [f"  note       {note} ({count})" for note, count in notes.most_common()]
        modes = sorted({str(pair.verdict["mode"]) for pair in self.pairs if pair.verdict})
        out += [f"  mode       {mode}" for mode in modes]
        return [*out, *(f"  rule       {text}" for text in self.suggestions())]

    def suggestions(self) -> list[str]:
        """Return rules that would name what differed, each on a line; the operator decides."""
        places: Counter[tuple[str, str]] = Counter()
        for pair in self.failed():
            near = ((pair.verdict or {}).get("divergence") or {}).get("nearest") or {}
            for row in (row for row in near.get("differences", []) if not row.get("own_ids")):
                places[str(near.get("title")), str(row["field"])] += 1
        out = []
        for (title, field), count in places.most_common(limits.REPLAY_SHOWN_BEFORE):
            host = title.partition(" ")[2].partition("/")[0].partition(":")[0]
            if field.startswith(("body ", "header ", "query ")) and host:
                place = f'host = "{host}", field = "{field}"'
            elif field == "text" and title.startswith(("stdout,", "stderr,")):
                place = f'output = "{title[:6]}"'
            else:
                continue
            out.append(f'[[volatile]] name = "?", {place}  ({count})')
        return out

    def to_json(self) -> dict[str, Any]:
        """Return everything for a machine."""
        return {
            "command": self.command,
            "pairs": len(self.pairs),
            "equal": self.equal,
            "strict": self.strict,
            "holds": self.holds,
            "ignored": dict(sorted(self._counted("ignored").items())),
            "results": [
                {
                    "pair": pair.number,
                    "holds": pair.holds(strict=self.strict),
                    "status": pair.status,
                    "record_s": round(pair.record_s, 3),
                    "replay_s": round(pair.replay_s, 3),
                    "verdict": pair.verdict,
                    "error": pair.error or None,
                }
                for pair in self.pairs
            ],
        }

    def junit(self) -> bytes:
        """Return JUnit XML, as CI systems read it: one test case for each pair."""
        suite = ET.Element(
            "testsuite",
            name=f"hark fidelity: {self.command}",
            tests=str(len(self.pairs)),
            failures=str(sum(pair.verdict is not None for pair in self.failed())),
            errors=str(sum(pair.verdict is None for pair in self.failed())),
            time=f"{sum(pair.record_s + pair.replay_s for pair in self.pairs):.3f}",
        )
        for pair in self.pairs:
            seconds = f"{pair.record_s + pair.replay_s:.3f}"
            name, group = f"pair {pair.number}", "hark.fidelity"
            case = ET.SubElement(suite, "testcase", classname=group, name=name, time=seconds)
            if not pair.holds(strict=self.strict):
                kind = "error" if pair.verdict is None else "failure"
                ET.SubElement(case, kind, message=pair.claim()).text = pair.place()
            else:
                ET.SubElement(case, "system-out").text = pair.claim()
        return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))


def _notes(pair: PairSeen) -> list[str]:
    verdict = pair.verdict or {}
    return [*(verdict.get("notes") or []), *(verdict.get("replay_notes") or [])]
