"""Every bound of hark: a name, a unit in the name, and the reason.

Rules: no number that limits anything stands elsewhere in Python. Bounds of C code are enum
constants in the header of their room.
"""

from __future__ import annotations

# --- policy ---------------------------------------------------------------------------------------
POLICY_MAX_BYTES = 1 << 20  # a policy is written by hand; this is far above any
POLICY_MAX_HOSTS = 4096  # host indexes, and the synthetic addresses of names, are 16-bit
POLICY_MAX_PORTS_PER_HOST = 64
POLICY_MAX_PATHS = 1024
POLICY_MAX_SECRETS = 64
POLICY_MAX_HEADERS_PER_SECRET = 16
PLACEHOLDER_NAME_MAX_CHARS = 64  # the placeholder must stay a short header value
SECRET_MIN_BYTES = 8  # reflections are searched for: a shorter value would match by chance
SECRET_MAX_BYTES = 8192  # servers refuse longer header lines (nginx, Apache: 8 KiB)
ENV_MAX_VALUE_BYTES = 128 * 1024  # MAX_ARG_STRLEN: a longer string fails in execve(2)
