"""The mediator's table from a compiled policy."""

from __future__ import annotations

from ulid import ULID

from hark.mediator.config import Credential, HostEntry, MediatorConfig, PortMode, config_of, encode
from hark.policy.compile import compile_policy
from hark.policy.model import Host, Policy, SecretBinding
from hark.policy.secrets import load_secrets

POLICY = Policy(
    allow_hosts=("api.stub.test", "b.example"),
    hosts=(Host(name="plain.example", ports=(80, 8443), plain_ports=(80,)),),
    secrets=(
        SecretBinding(
            name="KEY",
            env="MY_KEY",
            hosts=("api.stub.test",),
            headers=("x-key",),
            methods=("POST",),
        ),
    ),
)


def test_of_a_policy():
    policy = compile_policy(POLICY)
    secrets = load_secrets(policy.secrets, {b"MY_KEY": b"a-real-value"}, ULID())
    config = config_of(policy, secrets, ids=(7, 8), upstream_ca={"b.example": "PEM"})
    assert config.ids == (7, 8)
    assert [(h.index, h.name, h.ca_pem) for h in config.hosts] == [
        (0, "api.stub.test", ""),
        (1, "b.example", "PEM"),
        (2, "plain.example", ""),
    ]
    assert config.hosts[0].ports == ((443, PortMode.TLS),)
    assert config.hosts[2].ports == ((80, PortMode.BOTH), (8443, PortMode.TLS))
    (credential,) = config.credentials
    assert credential.hosts == (0,)
    assert credential.headers == ("x-key",)
    assert credential.methods == ("POST",)
    assert credential.real == b"a-real-value"
    assert credential.placeholder == secrets[0].placeholder


def test_nothing_of_a_value_is_shown():
    credential = Credential(
        secret=0, placeholder="hark-placeholder-x", real=b"hush-hush", headers=("a",), hosts=(0,)
    )
    host = HostEntry(index=0, name="a.b", ports=((443, PortMode.TLS),))
    config = MediatorConfig(hosts=(host,), credentials=(credential,))
    assert "hush" not in repr(config)
    assert b"hush-hush\0" in encode(config)
