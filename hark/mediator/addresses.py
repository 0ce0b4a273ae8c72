"""Which addresses the broker may dial: the check between a resolved name and connect(2).

Rules: pure. An address must be public unicast. ``private = true`` of a host opens private, shared
and loopback ranges, never link-local or metadata addresses. An IPv6 address that carries an IPv4
one is judged by what it carries as well. An own table, not ``ipaddress.is_global``: its meaning
changed between Python versions.
Sources: the IANA special-purpose address registries (RFC 6890) as of 2026, RFC 4291, RFC 6052,
and the vendors' documentation for metadata addresses.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

__all__ = ["address_fault"]

Network = IPv4Network | IPv6Network

# Opened by `private = true`.
_PRIVATE4 = tuple(
    map(
        IPv4Network,
        ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    )
)
_PRIVATE6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))

# Never dialled: services that hand out credentials to whoever can reach them.
_METADATA4 = tuple(
    map(
        IPv4Network,
        (
            "100.100.100.200/32",  # Alibaba Cloud
            "168.63.129.16/32",  # Azure's wire server
            "192.0.0.192/32",  # Oracle Cloud, classic
        ),
    )
)
_METADATA6 = tuple(
    map(IPv6Network, ("fd00:ec2::254/128", "fd20:ce::254/128", "fd00:42::42/128"))
)  # AWS, Google Cloud, Scaleway

# Never dialled: not a public unicast host.
_NEVER4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network; Linux takes 0.0.0.0 for loopback
            "169.254.0.0/16",  # link-local, and most clouds' metadata
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "198.18.0.0/15",  # benchmarks; hark's own synthetic addresses
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)
_UNICAST6 = IPv6Network("2000::/3")  # all that IANA has given out for global unicast
_NEVER6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, ORCHID and others
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_MAPPED = IPv6Network("::ffff:0:0/96")


def address_fault(raw: bytes, *, private: bool) -> str:
    """Say why the address (4 or 16 bytes) may not be dialled; empty when it may.

    ``private``: the policy says that the host may have a private address.
    """
    if len(raw) == 4:  # noqa: PLR2004
        return fault4(IPv4Address(raw), private=private)
    address = IPv6Address(raw)
    if address in _MAPPED:
        return fault4(IPv4Address(raw[12:]), private=private)
    if address in _NAT64:
        return fault4(IPv4Address(raw[12:]), private=private)
    if address in _SIX_TO_FOUR:
        return fault4(IPv4Address(raw[2:6]), private=private)
    return fault6(address, private=private)


def fault4(address: IPv4Address, *, private: bool) -> str:
    """Judge an IPv4 address."""
    if any(address in network for network in _METADATA4):
        return "metadata address"
    if any(address in network for network in _NEVER4):
        return "not a public host's address"
    if not private and any(address in network for network in _PRIVATE4):
        return "private address"
    return ""


def fault6(address: IPv6Address, *, private: bool) -> str:
    """Judge an IPv6 address that carries no IPv4 one."""
    if any(address in network for network in _METADATA6):
        return "metadata address"
    if any(address in network for network in _PRIVATE6):
        return "" if private else "private address"
    if address not in _UNICAST6 or any(address in network for network in _NEVER6):
        return "not a public host's address"
    return ""
