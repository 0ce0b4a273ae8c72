"""`[upstream]`, `[forward]` and `preset`: what a policy file may say, and what comes of it."""

from __future__ import annotations

import pytest

from hark.errors import InputError, PolicyError
from hark.policy.compile import compile_policy, compile_redirects
from hark.policy.layers import join_layers
from hark.policy.model import Forward, Policy, Proxy
from hark.policy.names import name_fault
from hark.policy.parse import Layer, parse_layer
from hark.policy.presets import presets

WAY_OUT = """
allow_hosts = ["api.example"]
[upstream]
proxy = "http://Proxy.Corp.example:3128/"
auth = "PROXY_AUTH"
no_proxy = [".corp.example", "intranet.example"]
ca = "corp.pem"
"""
FORWARDS = """
[forward.db]
to = "[::1]:5432"
port = 15432
[forward.ollama]
to = "127.0.0.1:11434"
http = true
"""


def layer(text: str) -> Layer:
    return parse_layer(text.encode(), source="p", folder="/w")


def policy(text: str) -> Policy:
    return layer(text).policy


def fault(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        compile_policy(policy(text))
    return f"{caught.value.what} {caught.value.hint}"


# --- [upstream] -----------------------------------------------------------------------------------


def test_a_proxy_and_who_is_reached_without_it() -> None:
    way = policy(WAY_OUT).way_out
    assert way.ca == "/w/corp.pem"
    assert way.proxy == Proxy(
        host="proxy.corp.example",
        port=3128,
        auth="PROXY_AUTH",
        direct=(".corp.example", "intranet.example"),
    )
    carried = {
        name: way.proxy.carries(name)
        for name in ("api.example", "intranet.example", "x.intranet.example", "a.corp.example")
    }
    assert carried == {
        "api.example": True,
        "intranet.example": False,
        "x.intranet.example": True,
        "a.corp.example": False,
    }
    assert way.proxy.carries("corp.example")
    assert way.proxy.carries("evilcorp.example")


@pytest.mark.parametrize("host", ["10.0.0.9", "[fd00::9]"])
def test_a_proxy_may_be_an_address(host: str) -> None:
    proxy = policy(f'[upstream]\nproxy = "http://{host}:8080"').way_out.proxy
    assert proxy is not None
    assert proxy.shown == f"{host}:8080"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('proxy = "https://p.example:3128"', "begins with http://"),
        ('proxy = "http://p.example"', "a host and a port"),
        ('proxy = "http://p.example:3128/x"', "a host and a port"),
        ('proxy = "http://p.example:99999"', "no URL"),
        ('proxy = "http://-x:1"', "upstream.proxy"),
        ('auth = "PROXY_AUTH"', "no proxy"),
        ('no_proxy = ["x.example"]', "no proxy"),
        ('proxy = "http://p.example:1"\nno_proxy = ["*.example"]', "pattern"),
        ('proxy = "http://p.example:1"\nauth = "user:pass word"', "environment variable"),
        ('prox = "http://p.example:1"', "did you mean 'proxy'?"),
        ('ca = "../x.pem"', "climbs"),
    ],
)
def test_what_is_no_way_out(line: str, says: str) -> None:
    assert says in fault(f"[upstream]\n{line}")


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    said = fault('[upstream]\nproxy = "http://me:hunter2hunter2@p.example:1"')
    assert "hunter2" not in said
    assert "auth" in said


@pytest.mark.parametrize(
    "more", ['pass_env = ["PROXY_AUTH"]', 'allow_hosts = ["a.example"]\nsecrets.x = "PROXY_AUTH"']
)
def test_the_agent_has_nothing_of_the_password(more: str) -> None:
    text = f'{more}\n[upstream]\nproxy = "http://p.example:1"\nauth = "PROXY_AUTH"'
    assert "PROXY_AUTH" in fault(text)


# --- [forward] ------------------------------------------------------------------------------------


def test_a_forward_is_a_row_of_the_host_table() -> None:
    compiled = compile_policy(policy(FORWARDS))
    assert [(h.name, h.ports, h.plain_ports) for h in compiled.hosts] == [
        ("db.hark.internal", (15432,), (15432,)),
        ("ollama.hark.internal", (11434,), (11434,)),
    ]
    assert compiled.hosts[0].forward == Forward(
        name="db", address="::1", target=5432, port=15432, http=False
    )


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[forward.x]\nto = "localhost:1"', "no address"),
        ('[forward.x]\nto = "127.0.0.1"', "no address"),
        ('[forward.x]\nto = "127.0.0.1:0"', "no address"),
        ('[forward.x]\nto = "127.0.0.1:65536"', "no address"),
        ('[forward.x]\nto = "::1:80"', "no address"),
        ('[forward.x]\nto = "[127.0.0.1]:80"', "no address"),
        ('[forward.x]\nto = "[fe80::1%eth0]:80"', "no address"),
        ('[forward.x]\nto = "169.254.169.254:80"', "own network"),
        ('[forward.x]\nto = "0.0.0.0:80"', "own network"),
        ('[forward.x]\nto = "8.8.8.8:53"', "own network"),
        ('[forward.x]\nto = "127.0.0.1:80"\nport = 65536', "ports are 1 to 65535"),
        ('[forward.X]\nto = "127.0.0.1:80"', "no service name"),
        ('[forward."a.b"]\nto = "127.0.0.1:80"', "no service name"),
        ('forward.x = "127.0.0.1:80"', "must be a table"),
        ("[forward.x]\nport = 80", "has no"),
        ('[forward.x]\nto = "127.0.0.1:80"\nhttps = true', "did you mean 'http'?"),
        ('[[host]]\nname = "x.hark.internal"', "hark's own"),
    ],
)
def test_what_is_no_forward(table: str, says: str) -> None:
    assert says in fault(table)


def test_a_forward_has_no_other_address() -> None:
    compiled = compile_policy(policy(FORWARDS))
    with pytest.raises(InputError, match="forward"):
        compile_redirects([("db.hark.internal", bytes((127, 0, 0, 1)), 22)], compiled)


# --- presets --------------------------------------------------------------------------------------


def test_every_preset_is_exact_names_with_a_source() -> None:
    for name, preset in presets().items():
        assert preset.name == name
        assert preset.version >= 1
        assert preset.about
        assert preset.source.startswith("https://")
        assert preset.hosts
        assert list(preset.hosts) == sorted(set(preset.hosts))
        assert set(preset.plain) <= set(preset.hosts)
        assert not [fault for host in preset.hosts if (fault := name_fault(host))]


def test_a_preset_is_expanded_and_named() -> None:
    one = policy('allow_hosts = ["a.example"]\npreset = ["pypi"]')
    assert one.allow_hosts == ("a.example", "files.pythonhosted.org", "pypi.org")
    assert one.from_presets == ("pypi 1",)
    assert policy('preset = ["pypi"]\n').allow_hosts == ("files.pythonhosted.org", "pypi.org")


def test_a_preset_with_clear_text_joins_a_host_table() -> None:
    compiled = compile_policy(
        policy('preset = ["debian"]\n[[host]]\nname = "deb.debian.org"\nports = [8443]')
    )
    host = compiled.find("deb.debian.org")
    assert host is not None
    assert (host.ports, host.plain_ports) == ((80, 443, 8443), (80,))


def test_what_is_no_preset() -> None:
    assert "did you mean 'pypi'?" in fault('preset = ["pypy"]')
    assert "preset" in fault('from_presets = ["pypi"]')


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [WAY_OUT, FORWARDS, 'preset = ["github", "debian"]'])
def test_the_canonical_text_gives_the_same_policy(text: str) -> None:
    first = compile_policy(policy(text))
    again = compile_policy(policy(first.text))
    assert again == first


@pytest.mark.parametrize("text", [WAY_OUT, FORWARDS, 'preset = ["github", "debian"]'])
def test_a_project_may_repeat_and_not_add(text: str) -> None:
    base = layer(text)
    assert join_layers(system=base, project=base) == base.policy
    with pytest.raises(PolicyError):
        join_layers(system=layer('allow_hosts = ["api.example"]'), project=base)


@pytest.mark.parametrize(
    "change",
    [
        WAY_OUT.replace("3128", "3129"),
        WAY_OUT.replace('".corp.example", ', ""),
        WAY_OUT.replace("corp.pem", "other.pem"),
        WAY_OUT.split("[upstream]", maxsplit=1)[0] + '[upstream]\nca = "corp.pem"',
    ],
)
def test_a_project_does_not_change_the_way_out(change: str) -> None:
    with pytest.raises(PolicyError, match="way out"):
        join_layers(system=layer(WAY_OUT), project=layer(change))


def test_a_project_does_not_move_a_forward() -> None:
    with pytest.raises(PolicyError, match="forward"):
        join_layers(system=layer(FORWARDS), project=layer(FORWARDS.replace("11434", "22")))
