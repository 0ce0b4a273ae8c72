"""Records into event payloads (docs/spec/records.md), one function per record.

Pure. Rules: what the agent, the network or the file system made stays bytes; a name from the
policy's own table is text, so the type of a host says whose word it is. Keys ascend. An unknown
value is an absent key. Actors are added by ``merge``, which knows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hark import limits
from hark.policy import control

if TYPE_CHECKING:
    from hark.kernel import records as kernel
    from hark.mediator import records as mediator

__all__ = ["Names", "Payload", "address", "compact", "request_line"]

Payload = dict[int, Any]

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10  # include/linux/socket.h
_FAMILIES = {_AF_UNIX: "unix", _AF_INET: "inet", _AF_INET6: "inet6"}
_TYPES = {1: "stream", 2: "dgram", 3: "raw", 5: "seqpacket"}  # include/linux/net.h
# include/uapi/linux/capability.h of Linux 6.18, by number.
_CAPABILITY_NAMES = """
chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable
net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot
sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease
audit_write audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend audit_read
perfmon bpf checkpoint_restore
"""
CAPABILITIES = tuple(_CAPABILITY_NAMES.split())
_TCP, _UDP = 6, 17  # IANA protocol numbers
_DNS_PORT = 53
_MAPPED = bytes(10) + b"\xff\xff"  # RFC 4291 section 2.5.5.2


def address(raw: bytes) -> bytes:
    """4 or 16 bytes; an IPv4-mapped IPv6 address is the IPv4 one, since tuples must compare."""
    return raw[12:] if len(raw) == 16 and raw.startswith(_MAPPED) else raw  # noqa: PLR2004


def family_address(family: int, raw: bytes) -> bytes | None:
    """Return the address of a control message (IPv4 in the first 4 bytes), or ``None``."""
    if family == _AF_INET:
        return raw[:4]
    return address(raw) if family == _AF_INET6 else None


def address_text(raw: bytes) -> str:
    """Write an address for a person."""
    if len(raw) not in (4, 16):
        return raw.hex()
    from ipaddress import ip_address  # noqa: PLC0415 - only when a packet was refused

    return str(ip_address(raw))


def compact(values: Payload) -> Payload:
    """``values`` in key order, without the unknown (None) ones."""
    return {key: values[key] for key in sorted(values) if values[key] is not None}


def request_line(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return method and target of a request head, or ``None`` without a request line."""
    parts = raw[: limits.REQUEST_LINE_MAX_BYTES].split(b"\r\n", 1)[0].split(b" ")
    return (parts[0], parts[1]) if len(parts) >= 2 and parts[0] else None  # noqa: PLR2004


class Names:
    """The policy's tables, by the indexes that records carry."""

    def __init__(
        self, hosts: tuple[str, ...], secrets: tuple[str, ...], proxy: str | None = None
    ) -> None:
        self.proxy = proxy  # host and port, where the policy names one
        self._hosts = hosts
        self._known = frozenset(hosts)
        self._secrets = secrets

    def host(self, index: int) -> str | None:
        """Name of host ``index``; ``None`` for a host that is not in the table."""
        return self._hosts[index] if 0 <= index < len(self._hosts) else None

    def secret(self, index: int) -> str | None:
        """Name of secret ``index``."""
        return self._secrets[index] if 0 <= index < len(self._secrets) else None

    def host_or_bytes(self, name: str) -> str | bytes | None:
        """``name`` as text when the table has it, else as the agent's bytes."""
        if not name:
            return None
        return name if name in self._known else name.encode("utf-8", "surrogateescape")


# --- kernel ---------------------------------------------------------------------------------------


def exec_(record: kernel.Exec, digest: bytes | None, state: str) -> Payload:
    """Kind 5."""
    return compact(
        {
            4: record.filename,
            5: list(record.argv),
            6: record.truncated or None,
            7: digest,
            8: state,
            9: record.parent_tgid,
            10: [record.uid, record.euid, record.gid, record.egid, record.caps],
        }
    )


def fork(record: kernel.Fork) -> Payload:
    """Kind 6."""
    child = record.child
    return {4: [child.tgid, child.tid, child.start_ns], 5: record.thread}


def socket_act(record: kernel.SocketAct) -> Payload:
    """Kind 46. A ``use`` says who, and of which socket; the rest was told before."""
    payload: Payload = {3: record.cookie or None, 4: record.op, 5: _FAMILIES[record.family]}
    if record.op != "use":
        payload[6] = _TYPES.get(record.type, str(record.type))
    if record.family == _AF_UNIX:
        payload[11] = record.name or None
    elif record.op != "use":
        payload |= {7: address(record.src), 8: record.sport}
        if record.op == "accept":
            payload |= {9: address(record.dst), 10: record.dport}
    return compact(payload)


def file_act(record: kernel.FileAct) -> Payload:
    """Kind 47."""
    name = None if record.op == "write" else record.name
    return compact({4: record.op, 5: record.path, 6: name, 7: record.truncated or None})


def cap_refused(record: kernel.CapRefused) -> Payload:
    """Kind 11, layer capability: the call may have gone on without it."""
    name = CAPABILITIES[record.cap] if record.cap < len(CAPABILITIES) else str(record.cap)
    payload: Payload = {4: "capability", 5: "capability_refused", 7: record.nr, 13: name}
    return compact(payload | {17: True, 18: record.ia32 or None})


def flow(record: kernel.Connect | kernel.UdpFlow) -> Payload:
    """Kinds 8 and 26."""
    return {
        3: record.cookie,
        4: address(record.src),
        5: record.sport,
        6: address(record.dst),
        7: record.dport,
    }


def syscall_denied(
    record: kernel.SyscallRefused | kernel.SyscallKilled, reason: str, errno: int | None
) -> Payload:
    """Kind 11, layer ``seccomp``."""
    return compact(
        {4: "seccomp", 5: reason, 7: record.nr, 8: errno, 18: True if record.ia32 else None}
    )


def packet_denied(record: kernel.RefusedPacket) -> Payload:
    """Kind 11, layer ``nft``. Ports are absent for protocols without them."""
    ports = record.proto in (_TCP, _UDP)
    return compact(
        {
            4: "nft",
            5: "packet_refused",
            6: record.prefix or None,
            10: address(record.dst) or None,
            11: record.dport if ports else None,
            12: record.proto,
            16: record.sport if ports else None,
        }
    )


# --- mediator -------------------------------------------------------------------------------------


def conn(opened: mediator.ConnOpen, tls: mediator.ConnTls | None, sni: str = "") -> Payload:
    """Kind 12; without ``tls`` no handshake was made, ``sni`` is then what one asked for."""
    values: Payload = {
        4: opened.conn,
        5: sni.encode("utf-8", "surrogateescape") or None,
        6: address(opened.src),
        7: opened.sport,
        8: address(opened.dst),
        9: opened.dport,
    }
    if tls is not None:
        values |= {
            5: tls.sni.encode("utf-8", "surrogateescape") or None,
            10: tls.version,
            11: tls.cipher,
            12: tls.alpn or None,
            13: tls.resumed,
        }
    return compact(values)


def upstream(record: mediator.Upstream, names: Names) -> Payload:
    """Kind 14."""
    return compact(
        {
            2: record.exchange or None,
            4: record.conn,
            5: names.host(record.host),
            6: address(record.addr),
            7: record.port,
            8: record.version or None,
            9: record.cipher or None,
            10: record.cert_sha256 if any(record.cert_sha256) else None,
            11: record.pooled,
            12: record.resumed,
        }
    )


def request(record: mediator.RequestHead, names: Names) -> Payload:
    """Kind 15."""
    method, target = request_line(record.raw) or (None, None)
    return compact(
        {
            2: record.exchange,
            4: record.conn,
            5: names.host(record.host),
            6: method,
            7: target,
            8: record.raw,
        }
    )


def data(record: mediator.RequestBody | mediator.ResponseBody) -> Payload:
    """Kinds 16 and 19."""
    return {2: record.exchange, 4: record.data, 5: record.end}


def response(record: mediator.ResponseHead) -> Payload:
    """Kind 18."""
    return {2: record.exchange, 4: record.status, 5: record.own, 6: record.raw}


def refused(
    record: mediator.Refused,
    names: Names,
    opened: mediator.ConnOpen | None,
    hint: str,
    name: str = "",
) -> Payload:
    """Kind 11, layer ``mediator``. ``name``: the host, where the record itself names none."""
    return compact(
        {
            2: record.exchange or None,
            4: "mediator",
            5: record.reason,
            9: names.host_or_bytes(record.name or name),
            10: address(opened.dst) if opened else None,
            11: opened.dport if opened else None,
            12: _TCP if opened else None,
            13: record.detail or None,
            14: hint or None,
            15: record.conn or None,
            17: record.denial,
        }
    )


# --- broker ---------------------------------------------------------------------------------------


def dns_answers(message: control.Dns) -> list[bytes]:
    """Return the addresses that were given: 4 or 16 bytes each."""
    answers = [message.answer[16 * i : 16 * i + 16] for i in range(min(message.answers, 8))]
    # 0 behind the first 4 bytes: IPv4. No synthetic IPv6 address ends so, and ::1 begins with 0.
    return [a[:4] if not any(a[4:]) else a for a in answers]


def dns(message: control.Dns) -> Payload:
    """Kind 10."""
    return compact(
        {
            4: message.qname.encode("utf-8", "surrogateescape"),
            5: message.qtype,
            6: message.rcode,
            7: dns_answers(message),
            8: message.rule or None,
            9: message.sport,
            10: family_address(message.family, message.dst),
            11: True if message.tcp else None,
        }
    )


def dns_denied(message: control.Dns) -> Payload:
    """Kind 11, layer ``dns``: a question that got an error instead of an answer.

    A denied name is no such case: it gets an address, and its connection is refused.
    """
    return compact(
        {
            4: "dns",
            5: "question_refused",
            6: message.rule or None,
            9: message.qname.encode("utf-8", "surrogateescape") or None,
            10: family_address(message.family, message.dst),
            11: _DNS_PORT,
            12: _TCP if message.tcp else _UDP,
            16: message.sport,
        }
    )


def dial(message: control.DialEvent, names: Names) -> Payload:
    """Kind 13; an intent has status ``dialling``."""
    status = "dialling"
    if message.type is control.MsgType.DIAL_RESULT:
        status = _DIAL_STATUS.get(message.status, f"status {message.status}")
    answered = message.status >= control.DialStatus.PROXY_AUTH
    return compact(
        {
            4: names.host(message.host),
            5: message.port,
            6: family_address(message.family, message.addr),
            7: status,
            8: message.err or None if not answered else None,
            9: message.conn or None,
            10: names.proxy if message.proxied else None,
            11: message.err or None if answered else None,
        }
    )


_DIAL_STATUS = {int(status): status.name.lower() for status in control.DialStatus}


def draws(message: control.Draws) -> Payload:
    """What a thread has drawn: ``random``. Without a stream of its own where it had no path."""
    stream = message.path.to_bytes(8, "big") if message.path else None
    return compact({4: "getrandom", 5: message.calls, 6: message.bytes, 7: stream})


# --- publisher ------------------------------------------------------------------------------------

_INBOUND = 1 << 32  # from here on: above all that the mediator numbers in one run
_INBOUND_END = {
    control.InboundWhat.COMPLETE: "complete",
    control.InboundWhat.REFUSED: "dial_connect",
    control.InboundWhat.HOST_GONE: "client_gone",
    control.InboundWhat.AGENT_GONE: "upstream_closed",
    control.InboundWhat.STOPPED: "stopped",
}


def inbound(message: control.Inbound, ident: int) -> Payload:
    """Kind 12, of a published port."""
    return compact(
        {
            4: _INBOUND + ident,
            6: family_address(message.family, message.src),
            7: message.sport,
            8: family_address(message.family, message.dst),
            9: message.port,
            14: message.host_port,
        }
    )


def inbound_end(message: control.Inbound, ident: int) -> Payload:
    """Kind 22, of a published port."""
    reasons = {int(what): reason for what, reason in _INBOUND_END.items()}
    return {
        4: _INBOUND + ident,
        5: reasons.get(message.what, f"status {message.what}"),
        6: message.rx_bytes,
        7: message.tx_bytes,
    }
