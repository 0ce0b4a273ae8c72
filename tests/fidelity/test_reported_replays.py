"""Reported faults of other record-and-replay tools, as whole runs (docs/cases.md, R numbers)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from fidelity_pairs import Pair, Programs
from fidelity_shapes import Shape, printed
from harness.running import need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str, str], Pair]]:
    """Return what records a script of a runtime and gives its pair."""
    need("root", os.geteuid() == 0)
    made: list[Pair] = []

    def pair(runtime: str, text: str) -> Pair:
        one = Pair(Shape(runtime, "streaming", 0, printed("done")), Programs(tmp_path / "programs"))
        made.append(one)
        done = one.record_command(one.place_script(text))
        assert done == "", done
        return one

    yield pair
    for one in made:
        one.__exit__(None, None, None)


def edit(pair: Pair, text: str) -> None:
    """Change the script alone: what it imports keeps its time, and so does its bytecode."""
    (pair.work / pair.script).write_text(text)


PRELUDE = """
from ask import *
import json, sys, threading
JSON = {"Content_Type": "application/json"}
"""


def test_r10_thirty_clients_at_once(make: Callable[[str, str], Pair]):
    """And each gets its own answers: the prompt holds who got what."""
    text = """
got = {}
def work(i):
    got[i] = [body(f"{NEWS}/late/{i}-{k}", {"who": i})["n"] for k in range(3)]
threads = [threading.Thread(target=work, args=(i,)) for i in range(30)]
[t.start() for t in threads]; [t.join() for t in threads]
ask(json.dumps(sorted(got.items()))); print("done")
"""
    pair = make("python", PRELUDE + text)
    said = pair.replay()
    assert (said.status, said.dialled) == (0, 0), said.verdict
    assert said.line.startswith("REPLAY-EQUAL exact")


def test_r24_r41_nested_promises_do_not_swap_answers(make: Callable[[str, str], Pair]):
    text = """
import {NEWS, ask, body} from './ask.mjs';
const one = async (i) => {
  const pair = await Promise.all([body(`${NEWS}/late/same`, {q: i}), body(`${NEWS}/late/${i}`)]);
  const more = (a, k) => body(`${NEWS}/late/x${i}${k}`).then((b) => [i, k, a.n, b.n]);
  return Promise.all(pair.map(more));
};
console.log(await ask(JSON.stringify(await Promise.all([0, 1, 2, 3].map(one)))), 'done');
"""
    pair = make("node", text)
    said = pair.replay()
    assert said.status == 0, said.verdict
    assert said.line.startswith("REPLAY-EQUAL exact")


def test_r25_r26_a_changed_body_gets_no_stale_answer(make: Callable[[str, str], Pair]):
    text = 'body(NEWS + "/late/a", {"q": 1, "deep": [{"x": "old"}]}, **JSON); print("done")'
    pair = make("python", PRELUDE + text)
    edit(pair, PRELUDE + text.replace('"old"', '"new"'))
    said = pair.replay("--workspace=current")
    assert said.status == 1
    (row,) = said.first["nearest"]["differences"]
    assert (row["field"], row["recorded"], row["now"]) == ("body $.deep[0].x", '"old', '"new')
    assert said.verdict["stopped"].startswith("not recorded: POST ")


def test_r32_r35_graphql_bodies_and_parameters_count(make: Callable[[str, str], Pair]):
    text = """
query = {"query": "query Q($id: ID!) { node(id: $id) { id } }", "variables": {"id": "a"}}
print(call(NEWS + "/took?b=2&a=1", query, **JSON)[1]); print("done")
"""
    pair = make("python", PRELUDE + text)
    edit(pair, PRELUDE + text.replace("b=2&a=1", "a=1&b=2"))  # R12: the order of parameters
    said = pair.replay("--workspace=current")
    assert said.line == "REPLAY-EQUAL normalised 1", said.verdict
    assert said.verdict["ignored"] == {"target-form": 1}
    for old, new, field in (
        ('"id": "a"', '"id": "b"', "body $.variables.id"),
        ("node(id", "nodes(id", "body $.query"),
        ("b=2", "b=3", "query b"),
    ):
        edit(pair, PRELUDE + text.replace(old, new))
        said = pair.replay("--workspace=current")
        assert said.status == 1
        assert [row["field"] for row in said.first["nearest"]["differences"]] == [field]


def test_r40_r43_a_command_more_is_told_where_it_was_made(make: Callable[[str, str], Pair]):
    text = 'import subprocess\nask("one")\nask("two"); print("done")'
    pair = make("python", PRELUDE + text)
    edit(pair, PRELUDE + text.replace('ask("two")', 'subprocess.run(["/bin/true"]); ask("two")'))
    said = pair.replay("--workspace=current")
    assert said.status == 1
    assert said.first["now"]["title"] == "exec /bin/true"
    assert said.first["last_input"].startswith(
        "response to POST api.openai.com/v1/chat/completions"
    )
    assert [side["title"].split()[0] for side in said.first["before"]][-1] == "POST"
    assert said.first["now"]["thread"] is not None
