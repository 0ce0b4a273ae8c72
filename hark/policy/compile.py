"""``Policy`` to ``CompiledPolicy``: one flat, sorted table, a canonical text and its digest.

Rules: pure and deterministic. What is enforced follows from the text alone: ``parse_layer`` of the
text gives the same policy, which compiles to the same tables (docs/spec/policy.md, "Digest").
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import blake3

from hark import limits
from hark.errors import InputError, PolicyError
from hark.policy.comparison import rule_lines
from hark.policy.model import (
    HTTPS_PORT,
    TABLE_VERSION,
    CompiledHost,
    CompiledPolicy,
    CompiledSecret,
    Forward,
    Host,
    Limits,
    Policy,
    Redirect,
    SecretBinding,
    WayOut,
)
from hark.policy.names import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "LIMIT_DEFAULTS",
    "canonical_text",
    "compile_policy",
    "compile_redirects",
    "effective_limits",
    "host_table",
]


def compile_policy(policy: Policy) -> CompiledPolicy:
    """Build the tables. Raises PolicyError where the parts of a whole policy contradict."""
    hosts = host_table(policy)
    if len(hosts) > limits.POLICY_MAX_HOSTS:
        raise PolicyError(f"the policy names more than {limits.POLICY_MAX_HOSTS} hosts")
    check_variables(policy)
    index = {host.name: host.index for host in hosts}
    text = canonical_text(policy)
    return CompiledPolicy(
        version=TABLE_VERSION,
        policy=policy,
        hosts=hosts,
        secrets=tuple(
            compile_secret(i, binding, policy, index) for i, binding in enumerate(policy.secrets)
        ),
        limits=effective_limits(policy.limits),
        text=text,
        digest=blake3.blake3(text.encode()).digest(),
    )


def compile_redirects(
    given: Iterable[tuple[str, bytes, int]], compiled: CompiledPolicy
) -> tuple[Redirect, ...]:
    """Check ``--upstream`` entries (host, 4 or 16 address bytes, port) against the host table.

    Raises InputError for a host that the policy denies or that is named twice.
    """
    redirects: dict[str, Redirect] = {}
    for text, address, port in given:
        name = normalise(text)
        if compiled.find(name) is None:
            hint = "--upstream changes where a host is dialled, not whether it is allowed"
            raise InputError(f"--upstream {text}: the policy does not allow that host", "", hint)
        if name in {forward.host for forward in compiled.policy.forwards}:
            raise InputError(f"--upstream {text}: a forward has its address in the policy")
        if name in redirects:
            raise InputError(f"--upstream {text}: given twice")
        redirects[name] = Redirect(host=name, address=address, port=port)
    return tuple(redirects[name] for name in sorted(redirects))


LIMIT_DEFAULTS = {
    "pids": limits.PIDS_DEFAULT,
    "memory": limits.MEMORY_DEFAULT_BYTES,
    "disk": limits.DISK_DEFAULT_BYTES,
    "tmp": limits.TMP_DEFAULT_BYTES,
    "events": limits.EVENTS_DEFAULT,
    "bytes": limits.BUNDLE_DEFAULT_BYTES,
}


def effective_limits(given: Limits) -> Limits:
    """Fill in hark's defaults; what is still None afterwards is not bounded."""
    unset = {k: v for k, v in LIMIT_DEFAULTS.items() if getattr(given, k) is None}
    return replace(given, **unset)


def host_table(policy: Policy) -> tuple[CompiledHost, ...]:
    """Join ``allow_hosts`` (port 443), ``[[host]]`` and ``[forward]`` by name; sorted by name."""
    tables = {host.name: host for host in policy.hosts}
    for name in policy.allow_hosts:
        host = tables.get(name, Host(name=name))
        ports = tuple(sorted({*host.ports, HTTPS_PORT}))
        tables[name] = Host(
            name=name, ports=ports, plain_ports=host.plain_ports, private=host.private
        )
    forwards = {forward.host: forward for forward in policy.forwards}
    tables |= {name: forward_row(forward) for name, forward in forwards.items()}
    return tuple(
        CompiledHost(
            index=index,
            name=host.name,
            ports=host.ports,
            plain_ports=host.plain_ports,
            private=host.private,
            forward=forwards.get(host.name),
        )
        for index, host in enumerate(sorted(tables.values(), key=lambda host: host.name))
    )


def forward_row(forward: Forward) -> Host:
    """Return the row of a service: its one port, in clear text."""
    return Host(name=forward.host, ports=(forward.port,), plain_ports=(forward.port,), private=True)


def compile_secret(
    place: int, binding: SecretBinding, policy: Policy, index: dict[str, int]
) -> CompiledSecret:
    """Resolve host names to indexes; every one must be a host the policy allows."""
    names = policy.allow_hosts if binding.broad else binding.hosts
    missing = [name for name in names if name not in index]
    if missing:
        raise PolicyError(
            f"the secret {binding.name!r} is bound to {missing[0]!r}, which the policy denies",
            "",
            "add the name to allow_hosts, or take it out of the secret's hosts",
        )
    if not names:
        raise PolicyError(
            f"the secret {binding.name!r} is bound to no host",
            'a secret written as name = "VARIABLE" goes to allow_hosts, and that is empty',
            f"allow a host, or write a table [secrets.{binding.name}] with hosts = [...]",
        )
    if len(names) > limits.POLICY_MAX_HOSTS_PER_SECRET:
        raise PolicyError(
            f"the secret {binding.name!r} is bound to {len(names)} hosts",
            f"at most {limits.POLICY_MAX_HOSTS_PER_SECRET} are possible",
            f"write a table [secrets.{binding.name}] with the hosts that need it",
        )
    return CompiledSecret(
        index=place,
        name=binding.name,
        env=binding.env,
        hosts=tuple(sorted(index[name] for name in names)),
        headers=binding.headers,
        queries=binding.queries,
        methods=binding.methods,
        broad=binding.broad,
    )


def check_variables(policy: Policy) -> None:
    """Refuse a secret's variable that is also passed as it is: the value would be inside."""
    both = {binding.env for binding in policy.secrets} & set(policy.pass_env)
    if both:
        raise PolicyError(
            f"{min(both)} is a secret and also in pass_env",
            "pass_env would hand the agent the real value",
            "take it out of pass_env: the agent gets a placeholder under that name",
        )
    proxy = policy.way_out.proxy
    if proxy and proxy.auth in {*policy.pass_env, *(b.env for b in policy.secrets)}:
        raise PolicyError(
            f"{proxy.auth} is the proxy's password and also in pass_env or [secrets]",
            "the agent has no need of it",
            "give the proxy a variable of its own",
        )


def canonical_text(policy: Policy) -> str:
    """Write the policy as TOML in one fixed form; every key that is not a default is there."""
    return "\n".join(
        [
            "version = 1",
            *top_lines(policy),
            *limit_lines(policy.limits),
            *way_out_lines(policy.way_out),
            *forward_lines(policy.forwards),
            *secret_lines(policy.secrets),
            *host_lines(policy.hosts),
            *rule_lines(policy.volatile, policy.telemetry, text),
            "",
        ]
    )


def top_lines(policy: Policy) -> Iterator[str]:
    """Write the lists and words before the first table."""
    keys = ("allow_hosts", "from_presets", "read_paths", "write_paths", "pass_env")
    for key in (*keys, "allow_downgrades"):
        if items := getattr(policy, key):
            yield f"{key} = {text_list(items)}"
    yield f"workspace = {text(policy.workspace)}"
    yield f"tier = {text(policy.tier)}"


def limit_lines(bounds: Limits) -> Iterator[str]:
    """``[limits]``, where any is set."""
    if bounds != Limits():
        yield "[limits]"
    for item in fields(bounds):
        value = getattr(bounds, item.name)
        if value is not None:
            yield f"{item.name} = {value}"


def way_out_lines(way: WayOut) -> Iterator[str]:
    """``[upstream]``, where anything is set."""
    if way == WayOut():
        return
    yield "[upstream]"
    if way.proxy:
        yield f"proxy = {text(f'http://{way.proxy.shown}')}"
        if way.proxy.auth:
            yield f"auth = {text(way.proxy.auth)}"
        if way.proxy.direct:
            yield f"no_proxy = {text_list(way.proxy.direct)}"
    if way.ca:
        yield f"ca = {text(way.ca)}"


def forward_lines(forwards: Iterable[Forward]) -> Iterator[str]:
    """``[forward.NAME]``, one for each."""
    for forward in forwards:
        host = f"[{forward.address}]" if ":" in forward.address else forward.address
        yield f"[forward.{forward.name}]"
        yield f"to = {text(f'{host}:{forward.target}')}"
        yield f"port = {forward.port}"
        if forward.http:
            yield "http = true"


def secret_lines(bindings: Iterable[SecretBinding]) -> Iterator[str]:
    """``[secrets]`` with the broad ones, then a table for each narrow one."""
    broad = [binding for binding in bindings if binding.broad]
    if broad:
        yield "[secrets]"
    yield from (f"{binding.name} = {text(binding.env)}" for binding in broad)
    for binding in bindings:
        if binding.broad:
            continue
        yield f"[secrets.{binding.name}]"
        yield f"env = {text(binding.env)}"
        yield f"hosts = {text_list(binding.hosts)}"
        if binding.headers:
            yield f"header = {text_list(binding.headers)}"
        if binding.queries:
            yield f"query = {text_list(binding.queries)}"
        if binding.methods:
            yield f"methods = {text_list(binding.methods)}"


def host_lines(hosts: Iterable[Host]) -> Iterator[str]:
    """``[[host]]``, one for each."""
    for host in hosts:
        yield "[[host]]"
        yield f"name = {text(host.name)}"
        yield f"ports = {list(host.ports)}"
        if host.private:
            yield "private = true"
        if host.plain_ports:
            yield f"plain = {list(host.plain_ports)}"


def text(value: str) -> str:
    """One TOML basic string. JSON's escapes are TOML's, and no control character gets here."""
    return json.dumps(value, ensure_ascii=False)


def text_list(values: Iterable[str]) -> str:
    """One TOML array of strings."""
    return "[" + ", ".join(text(value) for value in values) + "]"
