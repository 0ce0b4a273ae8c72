"""The environment the agent gets, and where it finds the run's CA.

Rules: pure. An allow-list, never a filter of what is bad: what is not named here or in the policy
is not inside. A secret's variable holds its placeholder. The result is recorded as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hark import limits
from hark.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hark.policy.model import CompiledPolicy
    from hark.policy.person import Person
    from hark.policy.secrets import Secret

__all__ = [
    "CA_PATH",
    "CA_VARIABLES",
    "NAME_FOR_ROOT",
    "BindTarget",
    "agent_environment",
    "ca_bind_targets",
    "expand_path",
]

# The user database inside knows the agent by this name when the person is root: it is never root.
NAME_FOR_ROOT = "hark"

CA_PATH = "/etc/hark/ca.pem"  # inside: the run's CA and nothing else, since all TLS is mediated

# Who reads which variable, tested with unmodified clients: docs/spec/policy.md, "Trust".
CA_VARIABLES: dict[str, str] = {
    "AWS_CA_BUNDLE": CA_PATH,
    "CARGO_HTTP_CAINFO": CA_PATH,
    "CURL_CA_BUNDLE": CA_PATH,
    "DENO_CERT": CA_PATH,
    "GIT_SSL_CAINFO": CA_PATH,
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": CA_PATH,
    "NODE_EXTRA_CA_CERTS": CA_PATH,
    "PIP_CERT": CA_PATH,
    "REQUESTS_CA_BUNDLE": CA_PATH,
    "SSL_CERT_FILE": CA_PATH,
    "UV_NATIVE_TLS": "1",
    "UV_SYSTEM_CERTS": "1",
    "npm_config_cafile": CA_PATH,
}

_OWN = frozenset({*CA_VARIABLES, "HARK", "HOME", "LOGNAME", "PATH", "SHELL", "USER"})
_FROM_OUTSIDE = ("LANG", "TERM", "TZ")
_LOCALE = b"LC_"

# Bundles that programs read without any variable; all hold PEM but Java's.
_PEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian: OpenSSL, GnuTLS, Go, curl, git
    "/etc/ssl/cert.pem",  # Alpine, and LibreSSL's default
    "/usr/lib/ssl/cert.pem",  # OpenSSL's compiled-in default on Debian
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora; Go looks there too
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)
_JAVA_STORES = ("/etc/ssl/certs/java/cacerts",)
# Bundles that Python packages bring along, below a folder of packages. A process without the
# variables above trusts them, such as a tool server that was started with a bare environment.
_PACKAGE_BUNDLES = (
    "certifi/cacert.pem",  # requests, httpx
    "pip/_vendor/certifi/cacert.pem",
    "botocore/cacert.pem",
    "grpc/_cython/_credentials/roots.pem",
    "httplib2/cacerts.txt",
)


@dataclass(frozen=True, slots=True)
class BindTarget:
    """A file to cover inside. ``form``: "pem", the run CA alone, or "java", a key store of it."""

    path: str
    form: Literal["pem", "java"]


def agent_environment(
    compiled: CompiledPolicy,
    person: Person,
    outer: Mapping[bytes, bytes],
    secrets: Iterable[Secret],
) -> tuple[tuple[bytes, bytes], ...]:
    """Return every (name, value) of the agent's environment, sorted by name.

    ``outer`` is hark's own environment. Raises PolicyError for a name in the policy that hark sets
    itself, and for a value that execve(2) would refuse.
    """
    policy = compiled.policy
    check_names((*policy.pass_env, *(binding.env for binding in policy.secrets)))
    allowed = {name.encode() for name in (*_FROM_OUTSIDE, *policy.pass_env)}
    found = {
        name: value for name, value in outer.items() if name in allowed or name.startswith(_LOCALE)
    }
    found |= {
        b"HARK": b"1",
        b"HOME": person.home.encode(),
        b"LOGNAME": _name_inside(person),
        b"PATH": person.path,
        b"SHELL": person.shell.encode(),
        b"USER": _name_inside(person),
    }
    found |= {name.encode(): value.encode() for name, value in CA_VARIABLES.items()}
    found |= {s.binding.env.encode(): s.placeholder.encode() for s in secrets}
    check_values(found)
    return tuple(sorted(found.items()))


def _name_inside(person: Person) -> bytes:
    return (NAME_FOR_ROOT if person.uid == 0 else person.name).encode()


def check_names(names: Iterable[str]) -> None:
    """Refuse names that hark itself sets inside."""
    taken = sorted(set(names) & _OWN)
    if taken:
        raise PolicyError(
            f"{taken[0]} cannot be in pass_env or [secrets]", "hark sets it inside", "take it out"
        )


def check_values(found: Mapping[bytes, bytes]) -> None:
    """Refuse values that do not fit into one string of execve(2)."""
    for name, value in found.items():
        if len(name) + len(value) + 2 > limits.ENV_MAX_VALUE_BYTES:
            shown = name.decode(errors="replace")
            raise PolicyError(
                f"the variable {shown} is too long to pass on",
                f"name and value may have {limits.ENV_MAX_VALUE_BYTES} bytes",
            )


def expand_path(path: str, person: Person) -> str:
    """Make a path of the policy absolute: ``~/`` is the person's home."""
    if path == "~" or path.startswith("~/"):
        return (person.home.rstrip("/") + path[1:]) or "/"
    return path


def ca_bind_targets(
    exists: Callable[[str], bool],
    names: Callable[[str], Iterable[str]] = lambda _: (),
    folders: Iterable[str] = (),
) -> tuple[BindTarget, ...]:
    """Return the CA files of this host that are covered inside.

    ``exists`` and ``names`` (what a folder holds) ask the host. ``folders`` are shown read-only:
    where one is a Python prefix, bundles of its packages are covered too. What the agent may write
    to is left alone, since a covered file can be neither replaced nor removed.
    """
    packages = [path for folder in folders for path in _package_bundles(folder, names)]
    pem = [BindTarget(path, "pem") for path in (*_PEM_BUNDLES, *packages) if exists(path)]
    java = [BindTarget(path, "java") for path in _JAVA_STORES if exists(path)]
    return (*pem[: limits.CA_BINDS_MOST], *java)


def _package_bundles(prefix: str, names: Callable[[str], Iterable[str]]) -> list[str]:
    found = [prefix] if prefix.endswith(("/site-packages", "/dist-packages")) else []
    for library in (f"{prefix}/lib", f"{prefix}/lib64"):
        pythons = sorted(name for name in names(library) if name.startswith("python3"))
        found += [f"{library}/{n}/{part}-packages" for n in pythons for part in ("site", "dist")]
    return [f"{folder}/{bundle}" for folder in found for bundle in _PACKAGE_BUNDLES]
