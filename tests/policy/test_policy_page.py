"""Compare docs/spec/policy.md with the code: example, keys, lists and numbers."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from hark import limits
from hark.mediator.dns import Rule
from hark.policy.compile import LIMIT_DEFAULTS, compile_policy
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


def test_the_examples_of_the_guide_are_policies() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "network.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) == 4
    for text in blocks:
        compile_policy(parse_layer(text.encode(), source="guide", folder="/").policy)


def test_every_key_has_a_row() -> None:
    rows = set(re.findall(r"^\| `\[*(\w+)\]*` \|", section("Keys"), re.MULTILINE))
    assert rows == {field.encode_name for field in msgspec.structs.fields(PolicyFile)}
    rows = set(re.findall(r"^\| `(\w+)` \|", section("Limits"), re.MULTILINE))
    assert rows == set(LIMIT_KEYS)


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


def test_default_limits() -> None:
    rows = section("Limits").splitlines()
    told = {row.split("|")[1].strip(" `"): row.split("|")[3] for row in rows if row[:1] == "|"}
    sizes = {1 << 30: "1 GiB", 8 << 30: "8 GiB", 16 << 30: "16 GiB"}
    for name, value in LIMIT_DEFAULTS.items():
        assert sizes.get(value, f"{value:,}".replace("4,096", "4096")) in told[name]
    assert {name for name, text in told.items() if text.strip() == "none"} == {"cpu", "time"}
    text = " ".join(section("Limits").split())
    assert f"less than {limits.DISK_RESERVE_BYTES >> 20} MiB or {limits.DISK_RESERVE_FILES}" in text
    assert f"after {limits.TASKS_REFUSED_MOST:,} refusals" in text
    assert f"after {limits.OOM_KILLS_MOST} of them" in text
    assert f"every {limits.METER_TICK_MS} ms" in text
