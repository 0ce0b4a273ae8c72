"""Host names as policy, DNS and TLS compare them: exact, lower case, letters digits hyphens.

Rules: pure. One normal form for every room, so that a name cannot pass one check and miss another.
Sources: RFC 1034 section 3.5, RFC 1123 section 2.1 (LDH), RFC 5890 section 2.3.1 (A-labels),
RFC 5891 section 5.4 (what an A-label must be).
"""

from __future__ import annotations

import re

__all__ = ["MAX_LABEL", "MAX_NAME", "name_fault", "normalise"]

MAX_LABEL = 63  # RFC 1035 section 2.3.4
MAX_NAME = 253  # in text, without the trailing dot

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_NUMBER = re.compile(r"[0-9]+\Z|0x[0-9a-f]*\Z")


def normalise(text: str) -> str:
    """Lower the ASCII letters and drop one trailing dot. Says nothing about validity."""
    lowered = "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)
    return lowered.removesuffix(".")


def name_fault(name: str) -> str:
    """Say why ``name``, in normal form, is not a host name; empty when it is one."""
    labels = name.split(".")
    checks = (
        (not name, "is empty"),
        (not name.isascii(), "is not ASCII: write its A-label form, xn--..."),
        (len(name) > MAX_NAME, f"is longer than {MAX_NAME} characters"),
        ("*" in name, "is a pattern: only exact names are allowed"),
        (":" in name or "/" in name, "is not a bare name"),
        # URL Standard, "ends in a number": clients parse such a host as an IPv4 address.
        (_NUMBER.match(labels[-1]) is not None, "is an IP address or ends in a number"),
    )
    found = next((fault for failed, fault in checks if failed), "")
    return found or next(filter(None, map(label_fault, labels)), "")


def label_fault(label: str) -> str:
    """Say why one label, in lower case, is not allowed in a host name; empty when it is."""
    if not label:
        return "has an empty label"
    if len(label) > MAX_LABEL:
        return f"has a label longer than {MAX_LABEL} characters"
    if not _LABEL.match(label):
        return "holds a character other than a-z, 0-9 and inner hyphens"
    if label.startswith("xn--") and not is_a_label(label):
        return f"has a label, {label!r}, that is no valid A-label"
    return ""


def is_a_label(label: str) -> bool:
    """Whether ``label`` is ``xn--`` and Punycode that encodes back to itself (RFC 5891, 5.4).

    Which code points a registry allows (the IDNA2008 tables) is left to the registry.
    """
    try:
        text = label[4:].encode("ascii").decode("punycode")
        return not text.isascii() and text.encode("punycode").decode("ascii") == label[4:]
    except (ValueError, OverflowError):  # UnicodeError is a ValueError
        return False
