"""The values behind placeholders: read once from the operator's environment, never shown.

Rules: a value leaves a ``Secret`` only by its ``value`` attribute; repr, errors and the policy text
never hold it. A value that would break out of a header field is refused here, at load.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hark import limits
from hark.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ulid import ULID

    from hark.policy.model import CompiledSecret, WayOut

__all__ = ["Secret", "load_proxy_auth", "load_secrets", "mint_placeholder"]

DELETE = 0x7F


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One secret of a run: where it may go, what stands for it inside, and what it is."""

    binding: CompiledSecret
    placeholder: str
    value: bytes = field(repr=False)


def mint_placeholder(run: ULID, name: str, length: int) -> str:
    """Make what the agent holds instead of ``name``; once per run, kept by its replays.

    Dots, which no name holds, make it ``length`` bytes where it is shorter: a value and its
    placeholder of one length leave every Content-Length as it is.
    """
    return f"hark-placeholder-{run}-{name}".ljust(length, ".")


def load_secrets(
    bindings: Sequence[CompiledSecret], outer: Mapping[bytes, bytes], run: ULID
) -> tuple[Secret, ...]:
    """Read every bound variable from ``outer``, the operator's environment.

    Raises PolicyError, naming the variable and never its value, for one that is missing or that
    cannot stand in a header field (RFC 9110 section 5.5).
    """
    return tuple(load_secret(binding, outer, run) for binding in bindings)


def load_secret(binding: CompiledSecret, outer: Mapping[bytes, bytes], run: ULID) -> Secret:
    """Read one variable and mint what stands for it."""
    value = read_value(binding, outer)
    return Secret(
        binding=binding,
        placeholder=mint_placeholder(run, binding.name, len(value)),
        value=value,
    )


def read_value(binding: CompiledSecret, outer: Mapping[bytes, bytes]) -> bytes:
    """Return the checked value of one binding."""
    value = outer.get(binding.env.encode())
    if value is None:
        raise PolicyError(
            f"the secret {binding.name!r} has no value",
            f"the variable {binding.env} is not set in hark's environment",
            f"set it, and let sudo pass it on: sudo --preserve-env={binding.env} hark run ...",
        )
    fault = value_fault(value)
    if fault:
        raise PolicyError(
            f"the secret {binding.name!r} cannot be used", f"the value of {binding.env} {fault}"
        )
    return value


def value_fault(value: bytes) -> str:
    """Say why ``value`` cannot be a credential in a header field; empty when it can."""
    if any(byte < ord(" ") or byte == DELETE for byte in value):
        return "holds a control character, such as a line end"
    if value != value.strip(b" "):
        return "begins or ends with a space"
    if len(value) < limits.SECRET_MIN_BYTES:
        return f"is shorter than {limits.SECRET_MIN_BYTES} bytes"
    if len(value) > limits.SECRET_MAX_BYTES:
        return f"is longer than {limits.SECRET_MAX_BYTES} bytes"
    if value.startswith(b"hark-placeholder-"):
        return "is itself a placeholder"
    return ""


def load_proxy_auth(way: WayOut, outer: Mapping[bytes, bytes]) -> bytes:
    """Read ``user:password`` for the policy's proxy; empty where it wants none.

    Raises PolicyError, naming the variable and never its value.
    """
    name = way.proxy.auth if way.proxy else ""
    if not name:
        return b""
    value = outer.get(name.encode(), b"")
    fault = auth_fault(value) if value else "is not set in hark's environment"
    if fault:
        raise PolicyError(
            "there are no credentials for the proxy",
            f"the variable {name} {fault}",
            f"put user:password into it; sudo --preserve-env={name} hark run ...",
        )
    return value


def auth_fault(value: bytes) -> str:
    """Say why ``value`` is no ``user:password`` (RFC 7617 section 2); empty when it is one."""
    if any(byte < ord(" ") or byte == DELETE for byte in value):
        return "holds a control character, such as a line end"
    if b":" not in value:
        return "holds no colon between user and password"
    if len(value) > limits.PROXY_AUTH_MAX_BYTES:
        return f"is longer than {limits.PROXY_AUTH_MAX_BYTES} bytes"
    return ""
