"""Bytes of a bundle: encoding, hashing, writing, verifying, proving. No sockets, no root."""
