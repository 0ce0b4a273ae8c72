"""Hints: the line to add, the variable to set, and nothing an agent could smuggle in."""

from __future__ import annotations

import pytest

from hark.policy.parse import parse_layer
from hark.recorder import notice


def test_a_denied_host_gets_its_policy_line():
    hint = notice.hint("host_denied", "evil.example", 443)
    assert hint == 'if the agent may reach it, add "evil.example" to allow_hosts'
    other = notice.hint("host_denied", "evil.example", 8443)
    assert '[[host]] name = "evil.example", ports = [8443]' in other


@pytest.mark.parametrize(
    "name", ["", "localhost", 'a".example', "a.example\nallow_hosts", "EVIL.example", "a b.example"]
)
def test_a_name_that_is_no_host_name_never_stands_in_a_policy_line(name: str):
    assert notice.hint("host_denied", name, 443) == ""


@pytest.mark.parametrize("reason", ["plain_http_denied", "host_denied"])
def test_a_hint_is_valid_policy(reason: str):
    line = notice.hint(reason, "files.example", 80).split("add ")[1]
    table, keys = line.split("]] ", 1)
    text = f"{table}]]\n" + keys.replace(", ports", "\nports").replace(", plain", "\nplain")
    host = parse_layer(text.encode(), source="hint", folder="/").policy.hosts[0]
    assert (host.name, host.ports, host.plain_ports) == ("files.example", (80,), (80,))


@pytest.mark.parametrize(
    ("program", "variable"),
    [
        (b"/usr/bin/node", "NODE_EXTRA_CA_CERTS"),
        (b"/opt/py/bin/python3.13", "SSL_CERT_FILE"),
        (b"curl", "CURL_CA_BUNDLE"),
        (b"/x/unheard-of", "its own list"),
        (b"", "its own list"),
    ],
)
def test_each_client_is_told_its_variable(program: bytes, variable: str):
    assert variable in notice.ca_hint(program)


def test_text_of_the_agent_is_escaped():
    assert notice.printable("ok\x1b]52;c;\x07\u202e") == "ok\\x1b]52;c;\\x07\\u202e"
    assert notice.printable(b"\xff\\") == "\\xff\\\\"


def test_lines_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notice.limits, "NOTICE_MAX", 2)
    notices = notice.Notices()
    for _ in range(3):
        notices.refused("host_denied", "evil.example", "do this")
    for n in range(5):
        notices.refused("no_sni", f"{n}", "")
    lines = notices.lines()
    assert lines[:2] == [
        "hark: refused: other (4 times)",
        "hark: refused: host denied evil.example (3 times)",
    ]
    assert "hark: hint: do this" in lines


def test_only_the_most_frequent_are_shown_and_the_rest_is_counted():
    notices = notice.Notices()
    for n in range(8):
        for _ in range(n + 1):
            notices.refused("no_sni", f"h{n}.example", "")
    lines = notices.lines()
    assert lines[0] == "hark: refused: no sni h7.example (8 times)"
    assert len(lines) == 6
    assert lines[-1].startswith(f"hark: refused: {1 + 2 + 3} more, see")
