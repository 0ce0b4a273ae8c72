"""Policy files as people write them: what they mean, and what each mistake is told."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.errors import HarkError, PolicyError
from hark.policy.model import BROAD_HEADERS, Host, Limits, Policy, SecretBinding
from hark.policy.parse import parse_layer, parse_limit


def parse(text: str) -> Policy:
    return parse_layer(text.encode(), source="p.toml", folder="/work").policy


def refusal(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(PolicyError) as caught:
        parse_layer(data, source="p.toml", folder="/work")
    return caught.value.lines()


def test_the_empty_file_allows_nothing() -> None:
    assert parse("") == Policy()
    assert Policy().allow_hosts == Policy().hosts == Policy().secrets == ()
    assert (Policy().workspace, Policy().allow_downgrades) == ("overlay", ())


def test_the_four_first_keys() -> None:
    policy = parse(
        """
        allow_hosts = ["api.openai.com", "API.Anthropic.com.", "api.openai.com"]
        read_paths = ["/usr/share//dict/", "~/notes", "data"]
        write_paths = ["./out"]
        [secrets]
        api_key = "OPENAI_API_KEY"
        """
    )
    assert policy.allow_hosts == ("api.anthropic.com", "api.openai.com")
    assert policy.read_paths == ("/usr/share/dict", "/work/data", "~/notes")
    assert policy.write_paths == ("/work/out",)
    assert policy.secrets == (SecretBinding(name="api_key", env="OPENAI_API_KEY", broad=True),)
    assert policy.secrets[0].headers == BROAD_HEADERS


def test_everything_else() -> None:
    policy = parse(
        """
        version = 1
        pass_env = ["EDITOR"]
        workspace = "direct"
        tier = "full"
        allow_downgrades = ["landlock", "bpf"]
        [limits]
        pids = 100
        memory = "1G"
        tmp = "64 MiB"
        open_files = 256
        cpu = 150
        disk = "2G"
        events = 5000
        bytes = "1G"
        time = "90m"
        [secrets.github]
        env = "GH_TOKEN"
        hosts = ["api.github.com"]
        header = "Authorization"
        methods = ["POST", "GET"]
        [[host]]
        name = "registry.lan"
        ports = [5000, 80]
        plain = [80]
        private = true
        [[host]]
        name = "old.example"
        plain = true
        """
    )
    assert policy.hosts == (
        Host(name="old.example", ports=(80,), plain_ports=(80,)),
        Host(name="registry.lan", ports=(80, 5000), plain_ports=(80,), private=True),
    )
    assert policy.limits == Limits(
        pids=100,
        memory=1 << 30,
        cpu=150,
        disk=2 << 30,
        tmp=64 << 20,
        open_files=256,
        events=5000,
        bytes=1 << 30,
        time=5400,
    )
    assert policy.secrets == (
        SecretBinding(
            name="github",
            env="GH_TOKEN",
            hosts=("api.github.com",),
            headers=("authorization",),
            methods=("GET", "POST"),
        ),
    )
    assert (policy.workspace, policy.tier) == ("direct", "full")
    assert policy.allow_downgrades == ("bpf", "landlock")


MISTAKES = {
    "allow_hosts = [\n": ("end of document", "not closed"),
    "allow_hosts: ['x']": ("line 1, column", 'key = "value"'),
    "\nallow_hosts = api.x": ("line 2, column", "quotes"),
    'allow_hosts = ["a.b"]\nallow_hosts = ["c.d"]': ("not TOML", "twice"),
    '\n\nallow_host = ["a.b"]': ("line 3", "allow_hosts"),
    "[limits]\npid = 3": ("line 2: limits.pid", "pids"),
    '[[host]]\nname = "a.b"\n[[host]]\nname = "c.d"\nport = 3': ("line 5: host[1].port", "ports"),
    '[[host]]\nname = "a"\n[[host]]\nname = "A."': ("line 4", "join the tables"),
    '[[host]]\nname = "a"\nports = [0]': ("line 3: host[0].ports", "65535"),
    '[[host]]\nname = "a"\nports = []': ("line 3", "443"),
    '[[host]]\nname = "a"\nplain = [80]': ("line 3", "add 80 to ports"),
    "[[host]]\nports = [80]": ("line 1: host[0] has no", "name"),
    '[host]\nname = "a"': ("line 1: host must be a list", "[[host]]"),
    'allow_hosts = [\n"ok.example",\n"*.bad",\n]': ("line 3: allow_hosts[1]", "exact names"),
    'allow_hosts = ["1.2.3.4"]': ("line 1", "IP address"),
    'allow_hosts = ["[::1]"]': ("line 1", "bare name"),
    'allow_hosts = ["https://a.b"]': ("line 1", "bare"),
    'allow_hosts = ["a.b:8443"]': ("line 1", "ports = [...]"),
    'allow_hosts = ["bücher.example"]': ("line 1", "xn--"),
    'allow_hosts = ["xn--zzzzzzzzzzzz-.example"]': ("line 1", "hyphens"),
    'allow_hosts = ["a_b.example"]': ("line 1", "hyphens"),
    'allow_hosts = [""]': ("line 1", "empty"),
    'allow_hosts = ["a..b"]': ("line 1", "empty label"),
    'allow_hosts = "a.b"': ("line 1: allow_hosts must be a list", "not text"),
    'tier = "ful"': ("line 1: tier", "record, contain, full"),
    'workspace = "live"': ("line 1: workspace", "overlay, direct"),
    'read_paths = ["../x"]': ("line 1", "'..'"),
    'read_paths = ["~other/x"]': ("line 1", "another person"),
    'read_paths = ["a\\nb"]': ("line 1", "control"),
    'write_paths = ["/"]': ("line 1", "names /"),
    'write_paths = ["//"]': ("line 1", "names /"),
    'pass_env = ["A-B"]': ("line 1", "variable"),
    "[secrets]\nk = 3": ("line 2: secrets.k", "VARIABLE"),
    '[secrets]\n"a b" = "X"': ("secrets.a b", "secret name"),
    '[secrets]\na = "X"\nb = "X"': ("line 3: secrets.b", "reads X"),
    '[secrets.x]\nenv = "A"': ("line 1: secrets.x has no", "hosts"),
    '[secrets.x]\nenv="A"\nhosts=[]\nheader="b"': ("line 3: secrets.x.hosts", "empty"),
    '[secrets.x]\nenv="A"\nhosts=["a"]\nheader="Host"': ("line 4", "header field"),
    '[secrets.x]\nenv="A"\nhosts=["a"]\nheader="a b"': ("line 4", "header field"),
    '[secrets.x]\nenv="A"\nhosts=["a"]\nheader="b"\nmethods=["get"]': ("line 5", "method"),
    '[secrets.x]\nenv="A"\nhosts=["a"]\nheadr="b"': ("line 4: secrets.x.headr", "header"),
    '[secrets.x]\nenv="A"\nhosts=["a"]': ("line 1: secrets.x", "no place"),
    '[secrets.x]\nenv="A"\nhosts=["a"]\nquery="a=b"': ("line 4", "query parameter"),
    '[secrets.x]\nenv="A"\nhosts=["a"]\nquery=["ok", "a%20"]': ("line 4", "query parameter"),
    '[limits]\nmemory = "5X"': ("line 2: limits.memory", "512M"),
    '[limits]\ntime = "5X"': ("line 2: limits.time", "90s"),
    '[limits]\ntime = "0s"': ("line 2: limits.time is 0", "1 to"),
    '[limits]\ncpu = "50%"': ("line 2", "number"),
    "[limits]\nevents = 3": ("line 2: limits.events is 3", "1000 to"),
    "[limits]\npids = 0": ("line 2: limits.pids is 0", "8 to"),
    "[limits]\npids = true": ("line 2", "number"),
    "version = 2": ("line 1: version is 2", "version 1"),
    'allow_downgrades = ["BPF!"]': ("line 1", "hark doctor"),
    "a = " + "[" * 2000: ("p.toml", "nest"),
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text[:40])
def test_a_mistake_names_its_line_and_a_repair(text: str) -> None:
    place, said = MISTAKES[text]
    lines = refusal(text)
    assert "p.toml" in lines[0]
    assert place in lines[0]
    assert said in " ".join(lines)


def test_text_that_is_not_utf8() -> None:
    assert "line 2: not UTF-8" in refusal(b"tier = 'full'\n# \xff")[0]


def test_a_file_that_is_too_long() -> None:
    assert "longer than" in refusal(b"#" * (1 << 20) + b"x")[0]


def test_a_pasted_secret_is_not_shown_again() -> None:
    assert "sk-live" not in " ".join(refusal('[secrets]\nk = "sk-live-1234567890"'))
    assert "sk-live" not in " ".join(refusal('pass_env = ["sk-live-1234567890"]'))


@given(st.text(max_size=300))
def test_any_text_is_a_policy_or_an_error(text: str) -> None:
    with contextlib.suppress(PolicyError):
        parse_layer(text.encode("utf-8", "surrogatepass"), source="p", folder="/")


VALUES = st.recursive(
    st.sampled_from(
        ["1", "-1", "true", "1.5", '"a.b"', '"/x"', '"A"', '""', "2020-01-01", "'*'", '"full"']
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.dictionaries(st.sampled_from(["env", "hosts", "name", "x"]), inner, max_size=3).map(
            lambda pairs: "{" + ",".join(f"{k} = {v}" for k, v in pairs.items()) + "}"
        )
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["allow_hosts", "host", "read_paths", "write_paths", "secrets", "pass_env", "workspace",
     "tier", "allow_downgrades", "limits", "version", "other"]
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_value_under_any_key_is_a_policy_or_an_error(pairs: dict[str, str]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in pairs.items())
    with contextlib.suppress(PolicyError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "a." * 200_000 + "a = 1",
        "[" + "a." * 200_000 + "a]",
        '# """\n' + "'a'." * 100_000 + 'a = 1\n# """',
        '[limits]\nx = {s = """a"b""", ' + "k." * 100_000 + "k = 1}",
    ],
    ids=["key", "header", "behind a comment", "inline"],
)
def test_a_key_of_very_many_parts_costs_no_time(text: str) -> None:
    """They cost tomllib their number squared; an agent may have written the file."""
    assert "too many parts" in refusal(text.encode())[0]


def test_dots_in_text_are_no_keys() -> None:
    names = ", ".join(f'"a{n}.b.c.example"' for n in range(400))
    policy = parse_layer(f"allow_hosts = [{names}] # {'.' * 500}".encode(), source="p", folder="/")
    assert len(policy.policy.allow_hosts) == 400


def test_a_number_of_too_many_digits() -> None:
    assert "too many digits" in refusal(b"version = " + b"9" * 5000)[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pids=9", Limits(pids=9, memory=5 << 30)),
        ("memory=2G", Limits(memory=2 << 30)),
        ("time=90s", Limits(memory=5 << 30, time=90)),
        ("time=90", Limits(memory=5 << 30, time=90)),
        ("cpu=50", Limits(memory=5 << 30, cpu=50)),
    ],
)
def test_an_option_sets_one_limit(text: str, wanted: Limits) -> None:
    assert parse_limit(text, Limits(memory=5 << 30)) == wanted


@pytest.mark.parametrize(
    "text", ["", "pids", "pids=", "=3", "pid=3", "pids=1k", "memory=lots", "cpu=50%", "time=-1"]
)
def test_an_option_that_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(HarkError, match="--limit"):
        parse_limit(text, Limits())
