"""The compiled table: what follows from a policy, and that its text stands for all of it."""

from __future__ import annotations

import string

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark import limits
from hark.errors import InputError, PolicyError
from hark.policy.compile import canonical_text, compile_policy, compile_redirects
from hark.policy.model import Host, Limits, Policy, Redirect, SecretBinding
from hark.policy.names import name_fault
from hark.policy.parse import parse_layer


def parsed(text: str) -> Policy:
    return parse_layer(text.encode(), source="p", folder="/").policy


def test_allow_hosts_and_tables_join_by_name() -> None:
    compiled = compile_policy(
        parsed(
            'allow_hosts = ["b.example", "a.example"]\n'
            '[[host]]\nname = "b.example"\nports = [8443, 80]\nplain = [80]\nprivate = true\n'
            '[[host]]\nname = "0.example"\n'
        )
    )
    rows = [(h.index, h.name, h.ports, h.plain_ports, h.private) for h in compiled.hosts]
    assert rows == [
        (0, "0.example", (443,), (), False),
        (1, "a.example", (443,), (), False),
        (2, "b.example", (80, 443, 8443), (80,), True),
    ]


def test_find_is_exact() -> None:
    compiled = compile_policy(parsed('allow_hosts = ["a.example", "b.example"]'))
    assert compiled.find("b.example").index == 1
    for name in ("B.example", "b.example.", "x.b.example", "b.exampl", "", "zz"):
        assert compiled.find(name) is None


def test_a_broad_secret_goes_to_allow_hosts_only() -> None:
    compiled = compile_policy(
        parsed('allow_hosts = ["b.example"]\n[secrets]\nk = "K"\n[[host]]\nname = "a.example"\n')
    )
    assert compiled.secrets[0].hosts == (1,)
    assert compiled.secrets[0].broad


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[secrets.k]\nenv="K"\nhosts=["a.b"]\nheader="x"', "which the policy denies"),
        ('[secrets]\nk = "K"', "bound to no host"),
        (f"allow_hosts={[f'h{i}.example' for i in range(1025)]}\n[secrets]\nk='K'", "1025 hosts"),
        ('allow_hosts=["a.b"]\npass_env=["K"]\n[secrets]\nk="K"', "also in pass_env"),
    ],
)
def test_contradictions(text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        compile_policy(parsed(text))


def test_limits_have_defaults() -> None:
    assert compile_policy(Policy()).limits == Limits(
        pids=limits.PIDS_DEFAULT,
        memory=limits.MEMORY_DEFAULT_BYTES,
        disk=limits.DISK_DEFAULT_BYTES,
        tmp=limits.TMP_DEFAULT_BYTES,
        events=limits.EVENTS_DEFAULT,
        bytes=limits.BUNDLE_DEFAULT_BYTES,
    )


def test_the_digest_is_plain_blake3_of_the_text() -> None:
    compiled = compile_policy(parsed('allow_hosts = ["a.example"]'))
    assert compiled.digest == blake3.blake3(compiled.text.encode()).digest()


def test_order_and_spelling_do_not_change_the_digest() -> None:
    one = parsed('allow_hosts = ["a.example", "B.example."]\nread_paths = ["/x/", "/y"]')
    two = parsed('read_paths = ["/y", "//x"]\nallow_hosts = ["b.example", "a.example"]')
    assert compile_policy(one).digest == compile_policy(two).digest


def test_redirects_are_for_hosts_of_the_table() -> None:
    compiled = compile_policy(parsed('allow_hosts = ["a.example", "b.example"]'))
    address = bytes((127, 0, 0, 1))
    assert compile_redirects([("B.Example.", address, 8443)], compiled) == (
        Redirect(host="b.example", address=address, port=8443),
    )
    with pytest.raises(InputError, match="does not allow"):
        compile_redirects([("c.example", address, 8443)], compiled)
    with pytest.raises(InputError, match="twice"):
        compile_redirects([("a.example", address, 1), ("A.example", address, 2)], compiled)


LABEL = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=12)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join).filter(lambda n: not name_fault(n))
NAMES = st.lists(NAME, max_size=4).map(lambda names: tuple(sorted(set(names))))
PORTS = st.lists(st.integers(1, 65535), min_size=1, max_size=4).map(lambda p: tuple(sorted(set(p))))
PATH = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="\x7f/"), min_size=1
).filter(lambda t: t not in (".", ".."))
PATHS = st.lists(PATH, max_size=3).map(lambda parts: tuple(sorted({f"/{part}" for part in parts})))
VARIABLE = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Host, ...]:
    made = []
    for name in draw(NAMES):
        ports = draw(PORTS)
        plain = tuple(p for p in ports if draw(st.booleans()))
        made.append(Host(name=name, ports=ports, plain_ports=plain, private=draw(st.booleans())))
    return tuple(made)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    allowed, tables = draw(NAMES), draw(hosts())
    known = sorted({*allowed, *(host.name for host in tables)})
    variables = draw(st.lists(VARIABLE, unique=True, max_size=4))
    secrets = []
    for place, env in enumerate(variables):
        if allowed and draw(st.booleans()):
            secrets.append(SecretBinding(name=f"s{place}", env=env, broad=True))
        elif known:
            some = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3))
            secrets.append(
                SecretBinding(
                    name=f"s{place}",
                    env=env,
                    hosts=tuple(sorted(set(some))),
                    headers=draw(st.sampled_from([("x-a",), ("authorization", "x-b")])),
                    methods=draw(st.sampled_from([(), ("GET",), ("GET", "POST")])),
                )
            )
    return Policy(
        allow_hosts=allowed,
        hosts=tables,
        read_paths=draw(PATHS),
        write_paths=draw(PATHS),
        secrets=tuple(secrets),
        workspace=draw(st.sampled_from(["overlay", "direct"])),
        tier=draw(st.sampled_from(["record", "contain", "full"])),
        allow_downgrades=draw(st.sampled_from([(), ("bpf",), ("bpf", "landlock")])),
        limits=Limits(
            pids=draw(st.none() | st.integers(8, 1 << 22)),
            memory=draw(st.none() | st.integers(1 << 24, 1 << 50)),
            cpu=draw(st.none() | st.integers(1, 100 * 8192)),
            disk=draw(st.none() | st.integers(1 << 20, 1 << 50)),
            events=draw(st.none() | st.integers(1000, 1 << 40)),
            bytes=draw(st.none() | st.integers(1 << 20, 1 << 50)),
            time=draw(st.none() | st.integers(1, 366 * 86400)),
        ),
    )


@given(policies())
def test_the_text_parses_back_to_the_policy(policy: Policy) -> None:
    text = canonical_text(policy)
    assert parse_layer(text.encode(), source="canonical", folder="/elsewhere").policy == policy
    assert compile_policy(policy) == compile_policy(parsed(text))


@given(policies())
def test_the_table_is_sorted_and_complete(policy: Policy) -> None:
    compiled = compile_policy(policy)
    names = [host.name for host in compiled.hosts]
    assert names == sorted(names, key=str.encode)
    assert len(set(names)) == len(names)
    assert set(names) == {*policy.allow_hosts, *(host.name for host in policy.hosts)}
    for host in compiled.hosts:
        assert compiled.find(host.name) is host
        assert (443 in host.ports) >= (host.name in policy.allow_hosts)
    for secret in compiled.secrets:
        assert all(compiled.hosts[index].name in names for index in secret.hosts)
