"""Compare docs/spec/policy.md with the code: example, keys, lists and numbers."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from hark import limits
from hark.mediator.dns import Rule
from hark.policy.compile import compile_policy
from hark.policy.environment import CA_PATH, CA_VARIABLES
from hark.policy.model import BROAD_HEADERS, FORWARD_DOMAIN
from hark.policy.parse import LIMIT_KEYS, PolicyFile, parse_layer
from hark.policy.presets import presets

PAGE = (Path(__file__).parents[2] / "docs" / "spec" / "policy.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_examples_are_policies() -> None:
    first, way_out, forwards, rules, second = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for text in (way_out, forwards):
        compile_policy(parse_layer(text.encode(), source="page", folder="/").policy)
    parse_layer(first.encode(), source="page", folder="/")
    parse_layer(rules.encode(), source="page", folder="/")
    whole = 'allow_hosts = ["api.github.com", "maps.googleapis.com"]\n' + second
    compile_policy(parse_layer(whole.encode(), source="page", folder="/").policy)


def test_every_key_has_a_row() -> None:
    rows = set(re.findall(r"^\| `\[*(\w+)\]*` \|", section("Keys"), re.MULTILINE))
    assert rows == {field.encode_name for field in msgspec.structs.fields(PolicyFile)}
    assert all(f"`{key}`" in section("Keys") for key in LIMIT_KEYS)


def test_presets_and_numbers_of_the_way_out() -> None:
    assert set(re.findall(r"`([a-z-]+)`", section("Presets").split("Presets: ")[1])) == {*presets()}
    assert f"above {limits.PROXY_ANSWER_MAX_BYTES} bytes" in section("The way out")
    assert FORWARD_DOMAIN in section("Forwards")


def test_lists_and_numbers() -> None:
    assert all(f"`{name}`" in section("Secrets") for name in BROAD_HEADERS)
    assert all(f"`{name}`" in section("Trust") for name in (*CA_VARIABLES, CA_PATH))
    assert f"{limits.SECRET_MIN_BYTES} to {limits.SECRET_MAX_BYTES} bytes" in section("Secrets")
    names = section("Names")
    assert f"above {limits.DNS_BURST} at once or {limits.DNS_PER_S} a second" in names
    assert f"above {limits.DNS_QUERY_MAX_BYTES} bytes" in names
    assert f"live {limits.DNS_TTL_S} seconds" in " ".join(names.split())
    assert f"`{Rule.RATE}`" in names
    assert f"{limits.BROKER_STAGGER_NS // 1_000_000} ms" in section("Addresses")
    assert f"within {limits.BROKER_DIAL_NS // 1_000_000_000} seconds" in section("Addresses")
    assert f"default {limits.PIDS_DEFAULT}" in section("Keys")
    assert limits.TMP_DEFAULT_BYTES == 1 << 30
