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
PIDS_LEAST = 8  # fewer and no interpreter with threads starts
PIDS_DEFAULT = 4096  # a parallel build stays far below; a fork bomb is stopped
PIDS_MOST = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels
MEMORY_LEAST_BYTES = 16 << 20
MEMORY_MOST_BYTES = 1 << 50
TMP_LEAST_BYTES = 1 << 16
TMP_DEFAULT_BYTES = 1 << 30  # tmpfs counts as memory of the host
OPEN_FILES_LEAST = 16
OPEN_FILES_MOST = 1 << 20  # the kernel's default fs.nr_open

# --- recorder -------------------------------------------------------------------------------------
MERGE_HOLD_NS = 20_000_000  # streams race by scheduling delays; 20 ms covers two ticks of a busy core
MERGE_HELD_MAX_RECORDS = 200_000  # a stall must not take the machine's memory: then write unmerged
MERGE_HELD_MAX_BYTES = 32 << 20  # twice the mediator's ring, so a full ring still merges
MERGE_PAUSE_BYTES = 8 << 20  # above this, streams that can wait (mediator, stdio) are not read
EXEC_DIGEST_WAIT_NS = 500_000_000  # an exec waits this long for its digest: 1 GiB from a warm cache
RECORDER_MAX_PROCESSES = 65_536  # pids of one id block; ended processes are forgotten first
RECORDER_MAX_SOCKETS = 65_536  # connects whose tuple is remembered, far above the port range in use
RECORDER_MAX_FLOWS = 16_384  # UDP tuples that may ask DNS questions
RECORDER_MAX_CONNS = 16_384  # connections and exchanges: above the mediator's own limit
SOCKET_LINGER_NS = 5_000_000_000  # a closed tuple is kept so long for an accept that comes late
REQUEST_LINE_MAX_BYTES = 8192  # method and target copied out of a head; the head keeps everything
DIGEST_MAX_BYTES = 4 << 30  # an executable above this stays unknown: hashing it would take seconds
DIGEST_READ_BYTES = 1 << 20  # one read: large enough for BLAKE3 to use its wide lanes
DIGEST_MAX_CACHED = 4096  # executables of one run; a build makes hundreds
DIGEST_MAX_OPEN = 16  # questions to hark-launch at once, so that few descriptors are open
DIGEST_MAX_QUEUED = 4096  # executables waiting for their turn; more stay unknown
STDIO_CHUNK_BYTES = 65_536  # one read of a stream: a pipe's default capacity
STDIO_BUFFER_BYTES = 1 << 20  # output the operator has not taken; above it the agent waits
SESSION_POLL_NS = 100_000_000  # sensors and rings are looked at this often when nothing wakes us
SESSION_KILL_WAIT_NS = 10_000_000_000  # from KILL to EXITED; the kernel needs milliseconds
SESSION_DRAIN_WAIT_NS = 10_000_000_000  # from STOP to DRAINED and empty rings
SESSION_PUBLISH_WAIT_NS = 120_000_000_000  # from SEALED to PUBLISHED: a copy between file systems
SESSION_CONTROL_WAIT_S = 5.0  # one control message to a peer that does not read
NOTICE_MAX = 200  # notices of one run; more are counted
