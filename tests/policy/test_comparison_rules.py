"""`[[volatile]]` and `[[telemetry]]`: what they say, what is refused, and who may add them."""

from __future__ import annotations

import pytest

from hark.errors import PolicyError
from hark.policy.compile import canonical_text, compile_policy
from hark.policy.layers import join_layers
from hark.policy.model import Policy, Telemetry, Volatile
from hark.policy.parse import Layer, parse_layer

GOOD = """
[[volatile]]
name = "chunk"
host = "API.example."
path = "/v1/*"
field = "body $.input[*].output"
after = "Chunk \\"ID\\": "
length = 6

[[volatile]]
name = "err"
output = "stderr"

[[volatile]]
name = "log"
file = "logs/*"

[[telemetry]]
name = "metrics"
host = "m.example"
path = "/otlp/*"
"""


def parse(text: str) -> Policy:
    return parse_layer(text.encode(), source="p.toml", folder="/f").policy


def test_the_tables_are_read_and_written_back() -> None:
    policy = parse(GOOD)
    assert policy.volatile == (
        Volatile("chunk", "api.example", "/v1/*", "body $.input[*].output", 'Chunk "ID": ', 6),
        Volatile("err", output="stderr"),
        Volatile("log", file="logs/*"),
    )
    assert policy.telemetry == (Telemetry("metrics", "m.example", "/otlp/*"),)
    text = canonical_text(policy)
    assert parse(text) == policy
    assert compile_policy(policy).digest != compile_policy(Policy()).digest


def test_a_rule_without_a_path_is_about_every_path() -> None:
    (rule,) = parse('[[volatile]]\nname = "n"\nhost = "a.example"\nfield = "body $.x"\n').volatile
    assert rule.path == "*"
    assert parse(canonical_text(Policy(volatile=(rule,)))).volatile == (rule,)


BAD = {
    'name = "n"': "exactly one of host, output and file",
    'name = "n"\nhost = "a.example"\noutput = "stdout"\nfield = "x"': "exactly one of",
    'name = "n"\nhost = "a.example"': "field is missing",
    'name = "n"\noutput = "stdin"': "no stream",
    'name = "n"\noutput = "stdout"\nfield = "text"': "path or field beside output",
    'name = "n"\noutput = "stdout"\nafter = "x"': "after and length together",
    'name = "n"\noutput = "stdout"\nlength = 3': "after and length together",
    'name = "n"\noutput = "stdout"\nafter = "x"\nlength = 5000': "must be 1 to",
    'name = "n"\noutput = "stdout"\nafter = "x"\nlength = -1': "must be 1 to",
    'name = "n"\noutput = "stdout"\nalphabet = "x"': "stands without",
    'name = "n"\nfile = "a"\nafter = "x"\nlength = 1': "beside file",
    'name = "A b"\nfile = "a"': "no name of a rule",
    'name = "n"\nhost = "1.2.3.4"\nfield = "x"': "1.2.3.4",
    'name = "n"\nhost = "a.example"\nfield = "x"\nregex = ".*"': "not a key of [[volatile]]",
    'name = "n"\nfile = "a"\n[[volatile]]\nname = "n"\nfile = "b"': "has a table already",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse("[[volatile]]\n" + text)
    assert BAD[text] in "\n".join(caught.value.lines())


def test_the_projects_own_file_adds_no_rule() -> None:
    def layer(text: str, name: str) -> Layer:
        return parse_layer(text.encode(), source=name, folder="/f")

    system, same = layer(GOOD, "system"), layer(GOOD, "hark.toml")
    assert join_layers(system=system, project=same).volatile
    for text in (
        '[[volatile]]\nname = "n"\nfile = "*"\n',
        '[[telemetry]]\nname = "n"\nhost = "a.example"\npath = "*"\n',
    ):
        with pytest.raises(PolicyError, match=r"adds the rule 'n'"):
            join_layers(system=system, project=layer(text, "hark.toml"))
        assert join_layers(system=system, explicit=layer(text, "mine")) is not None
