"""The address rules, against a list of addresses that must and must not be dialled."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.mediator.addresses import address_fault

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.0.1",
    "100.128.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "2400:cb00::1",
    "::ffff:1.1.1.1",
    "64:ff9b::808:808",
]
PRIVATE = [
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.255",
    "::1",
    "fc00::1",
    "fd12::1",
    "::ffff:127.0.0.1",
    "::ffff:10.1.2.3",
    "64:ff9b::a00:1",
    "2002:0a00:0001::1",
]
NEVER = ["0.1.2.3", "169.254.169.254", "169.254.0.1", "192.0.2.1", "198.18.0.1",
         "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
         "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.88.99.1", "::", "fe80::1",
         "fec0::1", "ff02::1", "fd00:ec2::254", "2001:db8::1", "2001::1", "3fff::1", "4000::1",
         "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::127.0.0.1",
         "::ffff:0.0.0.0", "64:ff9b:1::1", "100::1"]  # fmt: skip


def fault(text: str, *, private: bool = False) -> str:
    return address_fault(ipaddress.ip_address(text).packed, private=private)


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_dialled(text: str) -> None:
    assert fault(text) == ""
    assert fault(text, private=True) == ""


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_need_the_policys_word(text: str) -> None:
    assert fault(text) == "private address"
    assert fault(text, private=True) == ""


@pytest.mark.parametrize("text", NEVER)
def test_what_is_never_dialled(text: str) -> None:
    assert fault(text)
    assert fault(text, private=True)


def test_the_unspecified_address_is_never_dialled() -> None:
    assert address_fault(bytes(4), private=True)  # Linux would connect to loopback


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16))
def test_nothing_that_python_calls_special_is_dialled(raw: bytes) -> None:
    address = ipaddress.ip_address(raw)
    carried = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    special = address if carried is None else carried
    if special.is_private or special.is_multicast or special.is_link_local or special.is_reserved:
        assert address_fault(raw, private=False) or address in ipaddress.ip_network("64:ff9b::/96")
