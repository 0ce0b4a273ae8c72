"""The numbers of the run's private network. They never leave the two namespaces of a run.

100.64.0.0/10 is shared address space (RFC 6598): no host the agent could mean lives there.
``rules.nft`` repeats the ports and the log group; ``tests/launcher/test_netrules.py`` compares.
"""

from __future__ import annotations

import ipaddress

__all__ = [
    "AGENT_V4",
    "AGENT_V6",
    "BACKLOG",
    "DNS_PORT",
    "LOG_COPY_BYTES",
    "LOG_GROUP",
    "MEDIATOR_V4",
    "MEDIATOR_V6",
    "PREFIX_V4",
    "PREFIX_V6",
    "TCP_PORT",
]

MEDIATOR_V4 = ipaddress.IPv4Address("100.64.0.1")
AGENT_V4 = ipaddress.IPv4Address("100.64.0.2")
PREFIX_V4 = 30
MEDIATOR_V6 = ipaddress.IPv6Address("fd00:6861:726b::1")  # "hark" in a unique local prefix
AGENT_V6 = ipaddress.IPv6Address("fd00:6861:726b::2")
PREFIX_V6 = 126
TCP_PORT = 15001
# Answers leave from the port the socket is bound to, and a stub resolver takes them only from 53.
DNS_PORT = 53
BACKLOG = 512
LOG_GROUP = 5
LOG_COPY_BYTES = 128  # IPv6 header, extension headers and ports
