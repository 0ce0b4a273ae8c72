"""Verdicts: equal grades with counts; a divergence names both sides, the field, who and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_making import AGENT, Event, Script, read

from hark.bundle.events import Kind
from hark.replay.actions import Action, Extractor
from hark.replay.rules import BUILTIN, Rules, Telemetry, Volatile
from hark.replay.verdict import History, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = "Content-Type: application/json"
ONE, TWO = b"550e8400-e29b-41d4-a716-446655440000", b"6fa459ea-ee8a-3ca4-894e-db77e160355e"


def history(events: list[Event], rules: Rules) -> tuple[History, list[Action]]:
    found = History()
    extractor = Extractor(read, rules)
    made = [step for event in events for step in extractor.feed(event)]
    made += extractor.finish()
    for step in made:
        found.add(step)
    found.lost = extractor.lost
    found.is_complete = any(event.kind == Kind.RUN_END for event in events)
    return found, [step for step in made if isinstance(step, Action)]


def compare(
    left: list[Event], right: list[Event], rules: Rules = BUILTIN, *, order: bool = True
) -> Verdict:
    (a, a_actions), (b, b_actions) = history(left, rules), history(right, rules)
    return judge(
        a,
        b,
        load_recorded=lambda n: a_actions[n - 1].identity,
        load_now=lambda n: b_actions[n - 1].identity,
        order=order,
    )


def agent(
    say: bytes = b'{"content":"hi"}',
    *,
    lines: tuple[str, ...] = (),
    answer: bytes = b"fine",
    early: bool = False,
    output: bytes = b"done\n",
    status: int = 0,
    extra: Callable[[Script], None] | None = None,
) -> list[Event]:
    """Two calls, the second after the first one's answer; then a tool."""
    script = Script("epoch")
    first = script.request("/v1/chat", b'{"n":1}', JSON)
    if not early:
        script.answer(first, answer)
    second = script.request("/v1/chat", say, JSON, *lines)
    if early:
        script.answer(first, answer)
    script.answer(second, b"bye")
    script.add(Kind.FORK, {1: AGENT, 4: [300, 300, 9], 5: False})
    script.exec(b"/bin/tool", b"-x", actor=[300, 300, 9, None])
    if extra:
        extra(script)
    script.output(output)
    return script.finish(status)


def test_the_same_run_is_exact() -> None:
    verdict = compare(agent(), agent())
    assert verdict.first_line() == "REPLAY-EQUAL exact"
    assert verdict.holds(strict=True)
    assert verdict.lines()[1].startswith("  6 actions, digest ")
    assert verdict.recorded == verdict.now
    assert not verdict.inputs
    assert not verdict.notes


GRADES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"lines": ("User-Agent: a",)},
        {"lines": ("User-Agent: b",)},
        "REPLAY-EQUAL normalised 1",
    ),
    (
        {"say": b'{"a":1,"b":2}'},
        {"say": b'{"b":2,"a":1}'},
        "REPLAY-EQUAL normalised 1",
    ),
    (
        {"say": b'{"id":"' + ONE + b'"}', "output": ONE},
        {"say": b'{"id":"' + TWO + b'"}', "output": TWO},
        "REPLAY-EQUAL renamed 1",
    ),
    (
        {"say": b'{"id":"' + ONE + b'"}', "lines": ("User-Agent: a",)},
        {"say": b'{"id":"' + TWO + b'"}', "lines": ("User-Agent: b",)},
        "REPLAY-EQUAL normalised 1, renamed 1",
    ),
]


@pytest.mark.parametrize(("left", "right", "line"), GRADES)
def test_grades(left: dict[str, Any], right: dict[str, Any], line: str) -> None:
    verdict = compare(agent(**left), agent(**right))
    assert verdict.first_line() == line
    assert verdict.equal
    assert not verdict.holds(strict=True)
    assert verdict.recorded.strict != verdict.now.strict
    assert verdict.recorded.renamed == verdict.now.renamed


def test_rules_are_named_and_counted() -> None:
    rules = Rules(
        telemetry=(Telemetry("log", "api.example", "/v1/log"),),
        volatile=(Volatile("seed", "api.example", "/v1/chat", "body $.seed"),),
    )

    def run(n: int) -> list[Event]:
        def log(script: Script) -> None:
            script.request("/v1/log", b'{"rss":%d}' % n)

        return agent(b'{"seed":%d}' % n, extra=log)

    verdict = compare(run(1), run(2), rules)
    assert verdict.first_line() == (
        "REPLAY-EQUAL normalised 1, 1 telemetry not compared, 1 volatile fields"
    )
    assert "  ignored    volatile:seed (1)" in verdict.lines()
    assert not verdict.holds(strict=True)
    assert compare(run(1), run(1), rules).holds(strict=True) is False  # telemetry is never exact
    assert compare(run(1), run(1)).holds(strict=True)
    assert not compare(run(1), run(2)).equal


def test_an_output_can_be_left_out_whole_or_in_part() -> None:
    whole = Rules(volatile=(Volatile("log", output="stderr"),))
    part = Rules(volatile=(Volatile("took", output="stdout", after="took ", length=3),))

    def run(out: bytes, err: bytes) -> list[Event]:
        return agent(output=out, extra=lambda script: script.output(err, 2))

    verdict = compare(run(b"took 123 ms\n", b"a"), run(b"took 456 ms\n", b"a"), part)
    assert verdict.first_line() == "REPLAY-EQUAL normalised 1, 1 volatile fields"
    assert verdict.tally.rules == {"volatile:took": 1}
    assert not compare(run(b"took 123 ms\n", b"a"), run(b"took 45x ms\n", b"a"), part).equal
    assert not compare(run(b"took 123 ms\n", b"a"), run(b"took 456 s \n", b"a"), part).equal
    verdict = compare(run(b"x", b"short"), run(b"x", b"much longer"), whole)
    assert verdict.first_line() == "REPLAY-EQUAL normalised 1, 2 volatile fields"
    assert not compare(run(b"x", b"short"), run(b"y", b"short"), whole).equal
    assert compare(run(b"x", b"same"), run(b"x", b"same"), whole).holds(strict=True)


def test_a_written_file_can_be_left_out() -> None:
    rules = Rules(volatile=(Volatile("session-log", file="logs/*.jsonl"),))

    def run(path: bytes, digest: bytes, change: str = "A") -> list[Event]:
        def wrote(script: Script) -> None:
            rows = [[path, change, 0, len(digest), 0o644, digest]]
            payload = {4: b"/work", 5: rows, 6: 1, 7: b"\1" * 32, 8: True}
            script.add(28, payload)

        return agent(extra=wrote)

    a, b = run(b"logs/1.jsonl", b"a" * 32), run(b"logs/1.jsonl", b"bb" * 20)
    verdict = compare(a, b, rules)
    assert verdict.first_line() == "REPLAY-EQUAL normalised 1, 1 volatile fields"
    assert verdict.tally.rules == {"volatile:session-log": 1}
    assert not compare(a, b).equal
    assert not compare(a, run(b"logs/1.jsonl", b"a" * 32, "M"), rules).equal
    assert not compare(a, run(b"logs/2.jsonl", b"a" * 32), rules).equal
    assert not compare(run(b"x", b"a" * 32), run(b"x", b"b" * 32), rules).equal


def test_other_content_of_a_written_file_is_no_renamed_id() -> None:
    """A digest has the shape of an id; the name of a file may hold one."""

    def run(name: bytes, digest: bytes) -> list[Event]:
        def wrote(script: Script) -> None:
            rows = [[b"out-" + name, "A", 0, 9, 0o644, digest]]
            script.add(28, {4: b"/work", 5: rows, 6: 1, 7: digest, 8: True})

        return agent(extra=wrote)

    one, two = bytes.fromhex("1f2e3d4c5b6a7988" * 4), bytes.fromhex("a1b2c3d4e5f60718" * 4)
    verdict = compare(run(ONE, one), run(ONE, two))
    assert verdict.first_line().startswith("REPLAY-DIVERGED")
    assert verdict.divergence is not None
    assert verdict.divergence.nearest is not None
    (row,) = verdict.divergence.nearest.differences
    assert (row.field, row.own_ids) == ("path out-" + ONE.decode(), False)
    assert compare(run(ONE, one), run(ONE, one)).holds(strict=True)
    assert compare(run(ONE, one), run(TWO, one)).first_line() == "REPLAY-EQUAL renamed 1"


def test_what_was_lost_is_no_exact_replay() -> None:
    lossy = agent(extra=lambda script: script.add(Kind.LOSS, {4: "bulk", 5: 3}))
    for left, right in ((lossy, agent()), (agent(), lossy)):
        verdict = compare(left, right)
        assert verdict.first_line() == "REPLAY-EQUAL 3 records lost"
        assert verdict.equal
        assert not verdict.holds(strict=True)
        assert verdict.to_json()["records_lost"] == 3
    assert compare(agent(), agent()).first_line() == "REPLAY-EQUAL exact"


def test_a_changed_field_is_shown_with_both_values() -> None:
    verdict = compare(agent(), agent(b'{"content":"ho\x1b[31m"}'.replace(b"\x1b", b"\\u001b")))
    assert verdict.first_line() == "REPLAY-DIVERGED at action 3"
    divergence = verdict.divergence
    assert divergence is not None
    assert divergence.recorded is not None
    assert divergence.now is not None
    assert divergence.nearest is not None
    (difference,) = divergence.nearest.differences
    assert difference.field == "body $.content"
    assert (difference.recorded, difference.now) == ('"hi', '"ho\x1b[31m')
    assert divergence.path == "agent"
    assert "response to POST api.example/v1/chat, 4 bytes" in divergence.last_input
    assert [side.number for side in divergence.before] == [1, 2]
    text = "\n".join(verdict.lines())
    assert "\x1b" not in text
    assert "body $.content" in text
    assert "\\x1b" in text
    assert not verdict.holds()


def test_a_request_moved_across_a_delivery_is_named_as_that() -> None:
    verdict = compare(agent(), agent(early=True))
    assert verdict.divergence is not None
    assert verdict.divergence.number == 3
    assert "came later when recorded, after response to POST" in verdict.divergence.moved
    assert verdict.divergence.recorded is not None
    assert verdict.divergence.recorded.number == 3
    assert verdict.notes == (
        "all actions are the same; where they stand between deliveries is not",
    )
    verdict = compare(agent(early=True), agent())
    assert verdict.divergence is not None
    assert "comes later now, after response to POST" in verdict.divergence.moved


def test_order_can_be_left_out_and_that_is_said() -> None:
    verdict = compare(agent(), agent(early=True), order=False)
    assert verdict.first_line() == "REPLAY-EQUAL exact, order not compared"
    assert verdict.equal
    assert not verdict.holds(strict=True)
    verdict = compare(agent(), agent(b'{"content":"other"}', early=True), order=False)
    assert verdict.first_line() == "REPLAY-DIVERGED at action 3"


def test_the_same_actions_after_less_input_are_another_run() -> None:
    def run(*chunks: bytes) -> list[Event]:
        script = Script()
        number = script.request("/a", b"x")
        script.begin(number)
        script.deliver(number, chunks[0])
        script.exec(b"/bin/tool")
        for chunk in chunks[1:]:
            script.deliver(number, chunk)
        script.end(number)
        return script.finish()

    assert compare(run(b"ab", b"c"), run(b"ab", b"c")).equal
    verdict = compare(run(b"ab", b"c"), run(b"a", b"bc"))
    assert verdict.divergence is not None
    assert verdict.divergence.number == 3
    assert "after response to POST api.example/a, 1 bytes" in verdict.divergence.moved


CHANGES: list[tuple[str, dict[str, Any], int]] = [
    ("output", {"output": b"dome\n"}, 5),
    ("exit status", {"status": 3}, 6),
    ("a surplus exec", {"extra": lambda script: script.exec(b"/bin/more")}, 5),
    (
        "a denied packet",
        {
            "extra": lambda script: script.add(
                Kind.DENIED, {3: 5, 4: "nft", 10: b"\1\2\3\4", 11: 25, 12: 6}
            )
        },
        5,
    ),
    ("a question", {"extra": lambda s: s.add(Kind.DNS, {4: b"leak.example", 5: 1, 6: 0})}, 5),
]


@pytest.mark.parametrize(("what", "change", "number"), CHANGES)
def test_every_kind_of_action_counts(what: str, change: dict[str, Any], number: int) -> None:
    verdict = compare(agent(), agent(**change))
    assert verdict.divergence is not None, what
    assert verdict.divergence.number == number
    back = compare(agent(**change), agent())
    assert back.divergence is not None
    json.dumps(back.to_json())
    assert back.to_json()["divergence"]["recorded"] or back.to_json()["divergence"]["now"]


def test_ids_that_do_not_fit_the_map_are_shown() -> None:
    def run(first: bytes, second: bytes) -> list[Event]:
        script = Script()
        script.answer(script.request("/a", first), b"ok")
        script.answer(script.request("/b", second), b"ok")
        return script.finish()

    assert compare(run(ONE, ONE), run(TWO, TWO)).equal
    verdict = compare(run(ONE, ONE), run(ONE, TWO))
    assert verdict.divergence is not None
    assert verdict.divergence.conflict == (ONE, TWO)
    assert f"{ONE.decode()} is not {TWO.decode()}" in "\n".join(verdict.lines())
    assert verdict.recorded.renamed == verdict.now.renamed  # the map sees what the digest cannot


def test_a_killed_recording_is_compared_as_far_as_it_goes() -> None:
    script = Script()
    script.answer(script.request("/a", b"x"), b"ok")
    script.request("/b", b"x")
    verdict = compare(script.events, [*script.events, *_rest(script)])
    assert verdict.equal
    assert verdict.notes == ("the recording is incomplete: it has no orderly end",)


def _rest(script: Script) -> list[Event]:
    more = Script()
    more.events = list(script.events)
    more.exchanges = script.exchanges
    at = len(more.events)
    more.answer(2, b"ok")
    more.request("/c", b"x")
    return more.finish()[at:]


def test_other_inputs_are_said() -> None:
    verdict = compare(agent(answer=b"fine"), agent(answer=b"good"))
    assert verdict.first_line() == "REPLAY-EQUAL exact"
    assert verdict.inputs == ("response to POST api.example/v1/chat: 1 recorded, 1 now differ",)


def test_another_program_is_said_and_one_of_unknown_digest_is_not() -> None:
    def run(digest: bytes | None) -> list[Event]:
        script = Script()
        words = {1: AGENT, 4: b"/bin/tool", 5: [b"tool"], 8: "read" if digest else "unknown: late"}
        script.add(Kind.EXEC, {**words, 7: digest} if digest else words)
        return script.finish()

    one, other, late = (run(digest) for digest in (b"\2" * 32, b"\3" * 32, None))
    assert compare(one, other).inputs == ("program /bin/tool: 1 recorded, 1 now differ",)
    assert not compare(one, late).inputs
    assert not compare(late, one).inputs


moves = st.lists(
    st.tuples(st.sampled_from("reda"), st.integers(0, 2), st.integers(0, 2)), max_size=14
)


def play(script_moves: list[tuple[str, int, int]]) -> list[Event]:
    script = Script("epoch")
    open_ones: list[int] = []
    for what, a, b in script_moves:
        if what == "r":
            open_ones.append(script.request(f"/{a}", b"%d" % b, JSON))
            script.begin(open_ones[-1])
        elif what == "e":
            script.exec(b"/bin/%d" % a)
        elif open_ones and what == "d":
            script.deliver(open_ones[a % len(open_ones)], b"x" * (b + 1))
        elif open_ones:
            script.end(open_ones.pop(a % len(open_ones)))
    return script.finish()


@given(moves, moves)
@settings(max_examples=200, deadline=None)
def test_verdict_and_digest_agree(left: list[Any], right: list[Any]) -> None:
    verdict = compare(play(left), play(right))
    assert verdict.exact is (verdict.recorded.strict == verdict.now.strict)
    assert verdict.equal is (verdict.recorded.renamed == verdict.now.renamed)
    assert compare(play(left), play(left)).exact
