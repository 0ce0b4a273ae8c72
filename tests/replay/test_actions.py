"""Events to actions, deliveries and inputs; spawn paths and lineages."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_making import AGENT, Event, Script, actions, deliveries, inputs, read, steps

from hark.bundle.events import Kind
from hark.errors import HarkError, InputError
from hark.replay.digest import Foata
from hark.replay.identity import ActionKind
from hark.replay.rules import BUILTIN

if TYPE_CHECKING:
    from hark.replay.actions import Action


def kinds(events: list[Event]) -> list[ActionKind]:
    return [action.identity.kind for action in actions(events)]


def digest(events: list[Event]) -> bytes:
    foata = Foata()
    for step in steps(events):
        if hasattr(step, "mark"):
            foata.deliver(step.mark)
        elif hasattr(step, "identity"):
            foata.act(step.identity.renamed)
    return foata.digest()


def test_a_small_run() -> None:
    script = Script()
    one = script.request("/a", b'{"k":1}')
    script.answer(one, b"hello ", b"there")
    script.output(b"said hel")
    script.output(b"lo\n")
    found = actions(script.finish())
    assert [action.identity.kind for action in found] == [
        ActionKind.EXEC,
        ActionKind.REQUEST,
        ActionKind.OUTPUT,
        ActionKind.EXIT,
    ]
    assert [action.number for action in found] == [1, 2, 3, 4]
    assert [action.path for action in found] == ["agent", "agent", "-", "-"]
    assert found[1].program == "/bin/agent"
    assert found[1].exchange == 1
    assert "response to POST api.example/a, 11 bytes" in found[2].last_input
    marks = [step.mark for step in deliveries(script.events)]
    assert [mark.delivered for mark in marks] == [0, 6, 11]
    assert "response to POST api.example/a" in [step.label for step in inputs(script.events)]


def test_every_kind_has_a_class_and_an_unknown_one_is_refused() -> None:
    script = Script()
    known = set(Kind)
    handled = {Kind.RUN_START, Kind.REQUEST, Kind.BODY, Kind.CONN}  # made by Script
    payloads: dict[int, dict[int, Any]] = {
        Kind.FORK: {1: AGENT, 4: [200, 200, 9], 5: False},
        Kind.DNS: {4: b"a.example", 5: 1, 6: 0},
        Kind.DENIED: {4: "nft", 10: b"\1\1\1\1", 11: 25, 12: 6},
        Kind.LOSS: {4: "bulk", 5: 3},
        Kind.END: {2: 1, 4: "complete"},
        Kind.RESPONSE: {2: 1, 4: 200, 5: False, 6: b""},
        Kind.DELIVERY: {2: 1, 4: b"", 5: True},
        Kind.TRAILERS: {2: 1, 4: False, 5: b""},
        Kind.STDIO: {4: 1, 5: b""},
        29: {4: b"/work", 6: b"\1" * 32},
        28: {4: b"/work", 5: [], 6: 0, 7: b"", 8: True},
    }
    script.request("/a", b"x")
    for kind in sorted(known - handled):
        script.add(kind, payloads.get(kind, {1: AGENT}))
    steps(script.events)
    for kind in set(range(64)) - known - {28, 29}:
        with pytest.raises(InputError, match="cannot be compared"):
            steps([Event(0, kind, {})])
    with pytest.raises(InputError, match="cannot be compared"):
        steps([Event(0, Kind.BODY, None)])


def test_spawn_paths_and_lineages_do_not_depend_on_ids() -> None:
    def run(base: int) -> list[Any]:
        script = Script()
        child, worker, grandchild = base + 1, base + 2, base + 3
        script.add(Kind.FORK, {1: AGENT, 4: [child, child, 8], 5: False})
        script.exec(b"/bin/sh", b"-c", actor=[child, child, 8, None])
        script.add(Kind.FORK, {1: AGENT, 4: [100, worker, 7], 5: True})
        script.add(Kind.FORK, {1: [100, worker, 7, None], 4: [grandchild, grandchild, 9], 5: False})
        script.exec(b"/bin/ls", actor=[grandchild, grandchild, 9, None])
        script.add(Kind.FORK, {1: AGENT, 4: [base + 4, base + 4, 10], 5: False})
        script.exec(b"/bin/ls", actor=[base + 4, base + 4, 10, None])
        script.exec(b"/bin/lost", actor=[9999, 9999, 1, None])
        return actions(script.finish())

    found = run(300)
    assert [a.path for a in found[:5]] == ["agent", "agent/1", "agent:1/1", "agent/2", "-"]
    again = run(4000)
    assert [a.identity for a in again] == [a.identity for a in found]
    # Which thread of the agent forked is not in the digest; that a shell stood between is.
    assert found[2].identity.renamed == found[3].identity.renamed
    script = Script()
    script.exec(b"/bin/sh")
    script.exec(b"/bin/ls")
    assert actions(script.events)[2].identity.renamed != found[2].identity.renamed


@pytest.mark.parametrize("seed", range(6))
def test_how_a_body_was_cut_is_invisible(seed: int) -> None:
    script = Script()
    script.answer(script.request("/a", b'{"k":"hark-placeholder-01-key"}', seed=seed), b"ok")
    assert actions(script.finish())[1].identity == actions(_reference().events)[1].identity


def _reference() -> Script:
    script = Script()
    script.answer(script.request("/a", b'{"k":"hark-placeholder-01-key"}'), b"ok")
    script.finish()
    return script


def test_two_requests_at_once_are_a_set_and_one_after_an_answer_is_not() -> None:
    def run(order: str) -> bytes:
        script = Script()
        names = {"a": "/a", "b": "/b"}
        numbers = [script.request(names[c], b"x") for c in order]
        for number in sorted(numbers, key=lambda n: order[n - 1]):
            script.answer(number, b"ok")
        return digest(script.finish())

    assert run("ab") == run("ba")
    script = Script()
    script.answer(script.request("/a", b"x"), b"ok")
    script.answer(script.request("/b", b"x"), b"ok")
    assert digest(script.finish()) != run("ab")


def test_chunks_of_an_answer_are_invisible_and_acting_between_them_is_not() -> None:
    def run(*chunks: bytes, between: bool = False) -> bytes:
        script = Script()
        number = script.request("/a", b"x")
        script.begin(number)
        for chunk in chunks:
            script.deliver(number, chunk)
            if between and chunk == chunks[0]:
                script.exec(b"/bin/ls")
        script.deliver(number, b"")
        script.end(number)
        if not between:
            script.exec(b"/bin/ls")
        return digest(script.finish())

    assert run(b"one", b"two") == run(b"on", b"et", b"wo")
    assert run(b"one", b"two", between=True) != run(b"one", b"two")


def test_a_refused_request_is_an_action_with_its_refusal_and_no_delivery() -> None:
    def run(body: bytes, *, refused: bool) -> list[Event]:
        script = Script()
        number = script.request("/steal", body)
        if refused:
            script.add(Kind.DENIED, {2: number, 4: "mediator", 5: "host_denied", 17: True})
            if body:  # a refusal stands behind its head
                script.events.insert(-3, script.events.pop())
            script.begin(number, 403, own=True)
            script.deliver(number, b"no: exchange 1")
            script.end(number, "host_denied")
        return script.finish()

    for body in (b"x", b""):
        (request,) = [a for a in actions(run(body, refused=True)) if a.exchange]
        assert not deliveries(run(body, refused=True))
        assert not [s for s in inputs(run(body, refused=True)) if s.label.startswith("response")]
        (allowed,) = [a for a in actions(run(body, refused=False)) if a.exchange]
        assert {a.identity.renamed for a in (request, allowed)} == {
            request.identity.renamed,
            allowed.identity.renamed,
        }
        assert request.identity.strict != allowed.identity.strict
        assert request.identity.normalised != allowed.identity.normalised


@pytest.mark.parametrize("body", [b"", b"x"])
def test_an_upstream_that_fails_is_an_input(body: bytes) -> None:
    script = Script()
    number = script.request("/a", body)
    script.add(Kind.DENIED, {2: number, 4: "mediator", 5: "dial_connect", 17: False})
    script.begin(number, 502, own=True)
    script.deliver(number, b"hark's words")
    script.end(number, "dial_connect")
    (delivery,) = deliveries(script.finish())
    assert (delivery.mark.delivered, delivery.mark.reason) == (0, "dial_connect")
    (request,) = [a for a in actions(script.events) if a.exchange]
    assert all(item.name != "refused" for item in request.identity.fields)


@pytest.mark.parametrize("own", [False, True])
def test_a_body_behind_100_continue_is_part_of_its_request(own: bool) -> None:
    """100 (Continue) is hark's own where the dial failed before the body came."""

    def one(body: bytes, *, invited: bool = True) -> list[Action]:
        script = Script()
        script.request("/v1/x", b"x" * len(body))
        while script.events[-1].kind == Kind.BODY:
            script.events.pop()
        if own:
            script.add(Kind.DENIED, {2: 1, 4: "mediator", 5: "dial_connect", 17: False})
        if invited:
            script.begin(1, 100, own=own)
        script.add(Kind.BODY, {1: AGENT, 2: 1, 4: body, 5: True})
        script.begin(1, 502 if own else 200, own=own)
        script.end(1, "dial_connect" if own else "complete")
        return actions(script.finish())

    request, other, plain = (
        next(step for step in found if step.exchange == 1)
        for found in (one(b"one"), one(b"two"), one(b"one", invited=False))
    )
    assert request.identity.strict == plain.identity.strict
    assert request.identity.normalised == plain.identity.normalised
    assert request.identity.normalised != other.identity.normalised


def test_a_cut_answer_is_another_delivery_than_a_whole_one() -> None:
    def run(reason: str) -> bytes:
        script = Script()
        number = script.request("/a", b"x")
        script.begin(number)
        script.deliver(number, b"part")
        script.end(number, reason)
        return digest(script.finish())

    assert run("complete") == run("client_gone")
    assert run("complete") != run("upstream_truncated")


def test_a_request_that_was_left_off_is_not_a_whole_one() -> None:
    script = Script()
    script.exchanges = 1
    raw = b"POST /a HTTP/1.1\r\nHost: api.example\r\nContent-Length: 9\r\n\r\n"
    script.add(Kind.REQUEST, {1: AGENT, 2: 1, 4: 1, 5: "api.example", 8: raw})
    script.add(Kind.BODY, {2: 1, 4: b"half", 5: False})
    script.end(1, "truncated_request")
    (request,) = [a for a in actions(script.finish()) if a.exchange]
    assert ("body end", "missing") in [(f.name, f.value) for f in request.identity.fields]


def test_questions_and_refusals_count_once() -> None:
    script = Script()
    for name in (b"a.example", b"A.example.", b"b.example", b"a.example"):
        script.add(Kind.DNS, {1: AGENT, 4: name, 5: 28, 6: 0})
    for port in (25, 25, 26):
        script.add(Kind.DENIED, {1: AGENT, 3: 77, 4: "nft", 10: b"\1" * 4, 11: port, 12: 6})
    script.add(Kind.DENIED, {1: AGENT, 3: 78, 4: "nft", 10: b"\1" * 4, 11: 25, 12: 6})
    for _ in range(3):
        script.add(Kind.DENIED, {1: AGENT, 4: "seccomp", 5: "syscall_refused", 7: 425, 8: 1})
    for conn in (5, 5, 6):
        script.add(Kind.DENIED, {4: "mediator", 5: "no_sni", 11: 443, 15: conn, 17: True})
    script.add(Kind.DENIED, {4: "mediator", 5: "client_silent", 15: 9, 17: False})
    found = kinds(script.finish())
    assert found.count(ActionKind.QUESTION) == 2
    assert found.count(ActionKind.REFUSED) == 3 + 1 + 2


def test_output_is_its_bytes_whenever_they_were_read() -> None:
    def run(*parts: bytes) -> list[bytes]:
        script = Script()
        for part in parts:
            script.output(part)
        return [a.identity.renamed for a in actions(script.finish())]

    whole = run(b"key=hark-placeholder-01-key id=3f2a9c0d11be\n")
    assert run(b"key=hark-place", b"holder-01-key id=3f2a", b"9c0d11be\n") == whole
    assert run(b"key=hark-placeholder-01-key id=000a9c0d11be\n") == whole
    assert run(b"key=hark-placeholder-01-key id=none\n") != whole


def test_ids_of_environment_stdin_and_answers_are_not_the_agents() -> None:
    one = b"3f2a9c0d11be"

    def run(where: str) -> tuple[int, bytes]:
        script = Script("epoch")
        if where == "stdin":
            script.add(Kind.STDIO, {4: 0, 5: one, 6: True})
        number = script.request("/first", b"x")
        script.answer(number, *([b'{"id":"3f2a9c', b'0d11be"}'] if where == "answer" else [b"."]))
        script.request("/second", b"id=" + one)
        request = [a for a in actions(script.finish()) if a.exchange][1]
        return len(request.identity.tokens), request.identity.renamed

    minted = run("nowhere")
    assert minted[0] == 1
    for where in ("stdin", "answer"):
        assert run(where)[0] == 0
        assert run(where)[1] != minted[1]


def test_times_are_compared_under_a_recorded_clock_only() -> None:
    def run(mode: str, time: bytes) -> bytes:
        script = Script(mode)
        script.request("/a", time)
        return actions(script.finish())[1].identity.renamed

    assert run("off", b"at 21:43:35") == run("off", b"at 21:43:36")
    assert run("full", b"at 21:43:35") != run("full", b"at 21:43:36")
    assert BUILTIN.real_times is False


def test_a_killed_run_has_no_output_and_no_exit() -> None:
    script = Script()
    script.request("/a")
    script.output(b"part")
    assert kinds(script.events) == [ActionKind.EXEC, ActionKind.REQUEST]


def test_the_write_set_is_an_action_per_folder_however_it_was_cut() -> None:
    rows = [[b"a.txt", "A", 0, 3, 0o644, b"\1" * 32], [b"b", "D", 1, 0, 0, None]]

    def run(*cuts: list[list[Any]]) -> list[bytes]:
        script = Script()
        for i, rows_here in enumerate(cuts):
            last = {6: 2, 7: b"\2" * 32, 8: True} if i == len(cuts) - 1 else {}
            script.add(28, {4: b"/work", 5: rows_here, **last})
        return [a.identity.normalised for a in actions(script.finish())]

    assert run(rows) == run(rows[:1], rows[1:])
    assert run(rows) != run(rows[:1], [[b"b", "M", 1, 0, 0, None]])


def test_losses_are_counted() -> None:
    from hark.replay.actions import Extractor  # noqa: PLC0415

    script = Script()
    script.add(Kind.LOSS, {4: "bulk", 5: 3})
    extractor = Extractor(read)
    for event in script.finish():
        list(extractor.feed(event))
    assert extractor.lost == {"bulk": 3}
    assert extractor.is_complete


values = st.recursive(
    st.none() | st.integers(-5, 1 << 64) | st.binary(max_size=6) | st.text(max_size=4)
    | st.booleans(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
payloads = st.dictionaries(st.integers(1, 12) | st.just(17), values, max_size=8)
hostile = st.lists(
    st.tuples(st.sampled_from(sorted({*map(int, Kind), 28, 29})), payloads), max_size=12
)


@given(hostile)
@settings(max_examples=300, deadline=None)
def test_a_hostile_recording_is_refused_or_read(rows: list[tuple[int, dict[int, Any]]]) -> None:
    with contextlib.suppress(HarkError):
        steps(Event(i, kind, payload) for i, (kind, payload) in enumerate(rows))
