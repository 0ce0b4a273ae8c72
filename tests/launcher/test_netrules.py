"""The packet rules as text: what they share with the launch plan, and what they need of a host."""

from __future__ import annotations

import re

from hark.launcher import netrules, network

TEXT = "\n".join(
    line for line in netrules.RULES.read_text().splitlines() if not line.startswith("#")
)


def test_ports_and_group_are_those_of_the_launch_plan():
    assert re.findall(r"l4proto tcp tproxy ip6? to :(\d+)", TEXT) == [str(network.TCP_PORT)] * 2
    assert re.findall(r"tcp dport 53 tproxy ip6? to :(\d+)", TEXT) == [str(network.DNS_PORT)] * 2
    assert re.findall(r"udp dport 53 tproxy ip6? to :(\d+)", TEXT) == [str(network.DNS_PORT)] * 2
    assert re.findall(r"log prefix \"hark\" group (\d+)", TEXT) == [str(network.LOG_GROUP)]


def test_protocols_are_named_only_where_nft_needs_no_file_for_it():
    """Other names are looked up in /etc/protocols (Debian's netbase), absent on a small host."""
    named = re.findall(r"l4proto (\w[\w-]*)", TEXT)
    assert "tcp" in named
    assert {word for word in named if not word.isdigit()} == {"tcp"}
