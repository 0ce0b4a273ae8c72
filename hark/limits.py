"""Every bound of hark: a name, a unit in the name, and the reason.

Rules: no number that limits anything stands elsewhere in Python. Bounds of C code are enum
constants in the header of their room.
"""

from __future__ import annotations

# --- policy ---------------------------------------------------------------------------------------
POLICY_MAX_BYTES = 1 << 20  # a policy is written by hand; this is far above any
POLICY_MAX_DOTS = 256  # outside of text, on a line: keys of many parts cost tomllib their square
POLICY_MAX_HOSTS = 4096  # host indexes, and the synthetic addresses of names, are 16-bit
POLICY_MAX_PORTS_PER_HOST = 64
POLICY_MAX_PATHS = 1024
POLICY_MAX_SECRETS = 64
POLICY_MAX_FORWARDS = 64
POLICY_MAX_RULES = 256  # each costs a look at every field of a request
POLICY_MAX_VOLATILE_CHARS = 4096
POLICY_MAX_HEADERS_PER_SECRET = 16
POLICY_MAX_HOSTS_PER_SECRET = 1024  # HARK_CONFIG_LIST of csrc/mediator/hark_policy.h
PLACEHOLDER_NAME_MAX_CHARS = 64  # the placeholder must stay a short header value
SECRET_MIN_BYTES = 8  # reflections are searched for: a shorter value would match by chance
SECRET_MAX_BYTES = 8192  # servers refuse longer header lines (nginx, Apache: 8 KiB)
ENV_MAX_VALUE_BYTES = 128 * 1024  # MAX_ARG_STRLEN: a longer string fails in execve(2)
PIDS_LEAST = 8  # fewer and no interpreter with threads starts
PIDS_DEFAULT = 4096  # a parallel build stays far below; a fork bomb is stopped
PIDS_MOST = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels
MEMORY_LEAST_BYTES = 16 << 20
MEMORY_MOST_BYTES = 1 << 50
MEMORY_DEFAULT_BYTES = 8 << 30  # a large build or a test suite; a bomb ends within seconds
MEMORY_HOST_QUARTERS = 3  # of the host's memory, where that is less: the host runs out last
CPU_LEAST_PERCENT = 1  # the kernel's own least quota is 1 ms of 100
CPU_MOST_PERCENT = 100 * 8192  # NR_CPUS of distribution kernels
CPU_PERIOD_US = 100_000  # the kernel's default; the quota is a share of it
DISK_LEAST_BYTES = 1 << 20
DISK_DEFAULT_BYTES = 16 << 30  # dependencies and a build of a large project
DISK_MOST_BYTES = 1 << 50
DISK_RESERVE_BYTES = 256 << 20  # of the host's disk: a run that leaves less is ended
DISK_RESERVE_FILES = 1000  # inodes, likewise
EVENTS_LEAST = 1000
EVENTS_DEFAULT = 20_000_000  # a day of a busy agent has some 100,000; verify takes a minute
EVENTS_MOST = 1 << 40
BUNDLE_LEAST_BYTES = 1 << 20
BUNDLE_DEFAULT_BYTES = 16 << 30  # with the uploads and downloads of a long run
BUNDLE_MOST_BYTES = 1 << 50
TIME_LEAST_S = 1
TIME_MOST_S = 366 * 86400
METER_TICK_MS = 250  # a disk takes some 500 MB in that time
TASKS_REFUSED_MOST = 10_000  # a program that retries makes tens; a fork bomb this many in a second
OOM_KILLS_MOST = 100  # a program that starts what was killed again and again
TMP_LEAST_BYTES = 1 << 16
TMP_DEFAULT_BYTES = 1 << 30  # tmpfs counts as memory of the host
OPEN_FILES_LEAST = 16
OPEN_FILES_MOST = 1 << 20  # the kernel's default fs.nr_open

# --- recorder -------------------------------------------------------------------------------------
MERGE_HOLD_NS = 20_000_000  # streams race by scheduling; 20 ms are two ticks of a busy core
MERGE_HELD_MAX_RECORDS = 200_000  # a stall must not take the machine's memory: then write unmerged
MERGE_HELD_MAX_BYTES = 32 << 20  # twice the mediator's ring, so a full ring still merges
MERGE_PAUSE_BYTES = 8 << 20  # above this, streams that can wait (mediator, stdio) are not read
EXEC_DIGEST_WAIT_NS = 500_000_000  # an exec waits this long for its digest: 1 GiB from a warm cache
RECORDER_MAX_PROCESSES = 65_536  # pids of one id block; ended processes are forgotten first
RECORDER_MAX_SOCKETS = 65_536  # connects whose tuple is remembered, far above the port range in use
RECORDER_MAX_SAME_TUPLE = 64  # connects of one thread from one port to one peer, in one linger
RECORDER_MAX_FLOWS = 16_384  # UDP tuples that may ask DNS questions
RECORDER_MAX_RESOLVED = 8192  # addresses that the run's resolver gave, for the names of refusals
RECORDER_MAX_CONNS = 16_384  # connections and exchanges: above the mediator's own limit
DENIALS_ONE_BY_ONE = 100  # equal refusals of the kernel or the rules: the rest is a count, so that
# an agent that tries in a loop fills neither the disk nor the recorder's time
DENIALS_MAX_KINDS = 4096  # different refusals that are counted so; others stay one by one
FILES_ONE_BY_ONE = 8  # equal writes or removals of one process: a log that is opened for each line
FILES_REMEMBERED = 65_536  # of them; then from the start
SOCKET_LINGER_NS = 5_000_000_000  # a closed tuple is kept so long for an accept that comes late
REQUEST_LINE_MAX_BYTES = 8192  # method and target copied out of a head; the head keeps everything
DIGEST_MAX_BYTES = 4 << 30  # an executable above this stays unknown: hashing it would take seconds
DIGEST_READ_BYTES = 1 << 20  # one read: large enough for BLAKE3 to use its wide lanes
DIGEST_TICK_NS = 20_000_000  # change times tick with the kernel: every 10 ms at HZ=100
DIGEST_COARSE_NS = 2_000_000_000  # where they are whole seconds: FAT has every second one
DIGEST_MAX_CACHED = 4096  # executables of one run; a build makes hundreds
DIGEST_MAX_OPEN = 16  # questions to hark-launch at once, so that few descriptors are open
DIGEST_MAX_QUEUED = 4096  # executables waiting for their turn; more stay unknown
STDIO_CHUNK_BYTES = 65_536  # one read of a stream: a pipe's default capacity
STDIO_BUFFER_BYTES = 1 << 20  # output the operator has not taken; above it the agent waits
DESCRIPTORS_LEAST = 128  # open files of a run's start, with room: 50 or so are measured
DESCRIPTORS_ADVISED = 1024  # the usual soft limit
SESSION_POLL_NS = 100_000_000  # sensors and rings are looked at this often when nothing wakes us
SESSION_PACE_S = 0.005  # between two turns that read exchanges; a denial may wait as long
SESSION_POLLS_PER_TURN = 64  # reads of one stream in one turn, so that no stream starves another
SESSION_KILL_WAIT_NS = 10_000_000_000  # from KILL to EXITED; the kernel needs milliseconds
SESSION_DRAIN_WAIT_NS = 10_000_000_000  # from STOP to DRAINED and empty rings
SESSION_PUBLISH_WAIT_NS = 120_000_000_000  # from SEALED to PUBLISHED: a copy between file systems
SESSION_CONTROL_WAIT_S = 5.0  # one control message to a peer that does not read
CHILD_END_WAIT_S = 1.0  # from a closed socket to an end that its parent can see: microseconds
NOTICE_LINES_MOST = 5  # refusals shown at the end of a run; the bundle holds all
NOTICE_MAX = 200  # notices of one run; more are counted
CA_BINDS_MOST = 64  # bundles of packages covered inside; one mount each

# --- bundle ---------------------------------------------------------------------------------------
BUNDLE_BLOCK_MAX_BYTES = 32 << 20  # two full sections, their tables and salts
BUNDLE_SECTION_MAX_BYTES = 8 << 20  # what one batch makes a reader hold
BUNDLE_WINDOW_MAX_BYTES = 8 << 20  # zstd's own memory; no larger than a section
BUNDLE_EVENTS_PER_BATCH = 65_536
BUNDLE_CHUNKS_PER_BATCH = 32_768
BUNDLE_CHUNK_MAX_BYTES = 256 << 10
BUNDLE_CHUNKS_PER_BODY = 65_536  # a longer body is several events
BUNDLE_REFS_PER_BATCH = 65_536  # one per event, on average
BUNDLE_REFS_BASE = 1 << 20  # six bytes of range name a million chunks: without a budget for the
BUNDLE_REFS_PER_CHUNK = 64  # whole bundle a small file costs minutes
BUNDLE_HEADER_MAX_BYTES = 64 << 10
BUNDLE_RECIPIENTS_MAX = 64
BUNDLE_ANNEX_MAX_BYTES = 1 << 20  # an anchor is a few KiB
BUNDLE_ANNEXES_MAX = 4096
BUNDLE_CBOR_DEPTH = 16
BUNDLE_CBOR_ITEMS = 65_536  # values of one payload
COMMAND_WORDS_MOST = 50_000  # the start event holds them with the environment, as one payload

BUNDLE_INLINE_BYTES = 1024  # up to here a byte string costs less in its event than as a chunk
BUNDLE_BODY_PART_BYTES = 4 << 20  # half a section: one event never fills a batch by itself
BUNDLE_BODY_STEP_BYTES = 1 << 20  # a stream is written in parts of about this
BUNDLE_LARGE_BODY_BYTES = 512 << 10  # from here on chunks of 32 KiB instead of 2 KiB
BUNDLE_FLUSH_EVENTS = 256  # one stored tree node
BUNDLE_FLUSH_BYTES = 256 << 10
BUNDLE_FLUSH_NS = 250_000_000  # what a killed recorder may lose
BUNDLE_HEAD_NS = 1_000_000_000  # unsigned tail of a killed run
BUNDLE_DENIED_HEAD_NS = 250_000_000  # a flood of denials must not become a flood of signatures
BUNDLE_DEDUP_CHUNKS = 1 << 17  # remembered chunks, 12 MiB: a longer memory saves little
BUNDLE_RESERVE_STEP_BYTES = 1 << 20  # allocate ahead, so that most flushes need no allocation
BUNDLE_LAST_WORDS_BYTES = 64 << 10  # room for the events that say why a run ended
BUNDLE_ZSTD_LEVEL = 3  # level 12 gains 3 % at 1.7 times the work
BUNDLE_BODY_READ_MAX_BYTES = 64 << 20  # at once; hark's own bodies come in parts of 4 MiB
BUNDLE_READ_AHEAD_BYTES = 1 << 20
BUNDLE_FOLLOW_NS = 100_000_000  # how often a growing file is looked at
BUNDLE_TOLD_MAX = 1000  # losses and downgrades a report lists; the rest are counted
PROOF_MAX_BYTES = 64 << 20  # an event and the chunks of its bodies
KEY_FILE_MAX_BYTES = 64 << 10

# --- broker and signer ----------------------------------------------------------------------------
PUBLISHED_CONNS_MOST = 256  # of --publish, at once; more wait in the backlog
PUBLISHED_BUFFER = 262_144  # bytes that wait for a reader, each way of a connection
PUBLISHED_PORT_LEAST = 1024  # lower ones of the host are not everybody's to take
DNS_QUERY_MAX_BYTES = 1232  # DNS Flag Day 2020: no larger datagram is sent by a stub resolver
DNS_TTL_S = 60  # short, so that no client keeps a synthetic address beyond the run
DNS_NAME_RECORDED_CHARS = 255  # HARK_MSG_NAME less one; only an escaped name is longer
DNS_BURST = 500  # questions at once: a package manager asks some dozens
DNS_PER_S = 200  # and then each second; more are not answered, and counted
DNS_BATCH = 64  # datagrams read before dialling gets its turn
DNS_STREAMS_MOST = 64  # TCP connections to the run's resolver at once
DNS_STREAM_IDLE_NS = 10_000_000_000  # RFC 7766 section 6.2.3: seconds, and it may be less
DNS_STREAM_READ_BYTES = 16_384
DNS_LAST_BATCHES = 256  # read at the end of a run: more than a socket of the default size holds
PROXY_ANSWER_MAX_BYTES = 16384  # head of a proxy's answer to CONNECT; squid's error pages fit
PROXY_INTERIM_MOST = 8  # 1xx answers before the final one
PROXY_AUTH_MAX_BYTES = 1024  # user:password
BROKER_DIALS_MOST = 512  # at once, as the mediator's own limit of connections
BROKER_LOOKUPS_MOST = 64  # threads in getaddrinfo(3); one per name, a slow name holds one
BROKER_ADDRESSES_MOST = 8  # tried for one dial
BROKER_DIAL_NS = 15_000_000_000  # from the question to a connection: look-up and all attempts
BROKER_STAGGER_NS = 250_000_000  # RFC 8305 section 5: before the next address is tried as well
BROKER_RECORD_NS = 5_000_000_000  # for DIAL_RECORDED; a flush takes under a millisecond
BROKER_SEND_S = 5.0  # for a peer to take a message; then it is broken, and the run ends
EXIT_BUG = 70  # EX_SOFTWARE of sysexits.h: a child of hark ended by a bug

# --- kernel sensors -------------------------------------------------------------------------------
KERNEL_CONTROL_RING_BYTES = 1 << 20  # 10,000 records: 100 ms of the fastest fork loop
KERNEL_BULK_RING_BYTES = 8 << 20  # what a loop of refused calls fills in 100 ms
KERNEL_SOCKET_RING_BYTES = 1 << 20  # a loop of refused connects fills it in 60 ms
KERNEL_READ_BYTES = 1 << 20  # one poll; a ring is emptied in few steps
KERNEL_ENDED_PROCESSES_HELD = 512  # some 20,000 rows of the counts map, a third of it
NFLOG_DATAGRAM_BYTES = 1 << 16  # the kernel's largest buffer of one group (NFULNL_NLBUFSIZ_DEFAULT)
NFLOG_DATAGRAMS_PER_POLL = 1024  # then the other streams have their turn

# --- launcher -------------------------------------------------------------------------------------
LAUNCH_SETUP_MS = 15_000  # some ms of work; a cold disk or a slow mount takes longer
LAUNCH_GO_MS = 60_000  # nft rules, BPF links and the first signed head lie between
LAUNCH_SEAL_MS = 180_000  # draining and sealing a long run; then the prefix is published as it is
LAUNCH_OPEN_S = 10.0  # opening one path as the person; a dead network share must not hang hark
LAUNCH_ROOT_BYTES = 64 << 20  # the private root holds folders and a few given files
LAUNCH_RUN_BYTES = 64 << 20  # /run inside
LAUNCH_FDS_PER_MESSAGE = 16  # HARK_CHAN_FDS
LAUNCH_SHEBANG_DEPTH = 6  # the kernel stops at 5
LAUNCH_HEAD_BYTES = 4096  # of a program, to tell what it is; the kernel refuses a longer #! line

# --- mediator -------------------------------------------------------------------------------------
# Bounds of its traffic are enum hark_limit in csrc/mediator/hark_policy.h.
MEDIATOR_START_S = 10.0  # making a CA and loading the bundle takes 30 ms; a loaded host more
MEDIATOR_END_S = 2.0  # it leaves at end of file; then it is killed

# --- start of a run -------------------------------------------------------------------------------
SURROUNDINGS_FILES_MOST = 128  # program, interpreter, libraries: a large program links some 60
SURROUNDINGS_DIGEST_BYTES = 512 << 20  # read for their digests: a Node or Bun binary has 100 MB
SURROUNDINGS_HEAD_BYTES = 8 << 20  # one part of a header, or the loader's whole cache
UPSTREAM_CA_MAX_BYTES = 1 << 20  # a whole system bundle has 220 kB
TTY_DEFAULT_ROWS = 24  # of a terminal that does not know its size, as a serial line
TTY_DEFAULT_COLUMNS = 80

HIDDEN_MOST = 4096  # recordings in one workspace that are hidden from the agent

# --- workspace ------------------------------------------------------------------------------------
WORKSPACE_ENTRIES_MOST = 500_000  # of a start manifest: 3 s of walking, 15 MB; the rest is unknown
WORKSPACE_MANIFEST_BYTES = 256 << 20  # unpacked: 500,000 rows with paths of 400 bytes
WORKSPACE_RECORDED_BYTES = 4 << 20  # of a start manifest that goes into the bundle: 150,000 files
WORKSPACE_KEPT_BYTES = 256 << 20  # content of a run's folders in its bundle: 4 s of a core
WORKSPACE_KEPT_FILE_BYTES = 32 << 20  # of one file, which is held whole; above, its digest only
WORKSPACE_KEPT_BATCH = 256  # small files of one event
WORKSPACE_KEPT_BATCH_BYTES = 256 << 10  # 4 ms of the recorder, for which an exchange may wait
WORKSPACE_KEPT_RATE = 16 << 20  # bytes a second while the agent runs: a fifth of a core
WORKSPACE_KEPT_BURST = 4 << 20  # at once: a small project is there before its agent says a word
WORKSPACE_KEPT_IDLE_NS = 20_000_000  # until the recorder looks again for more
WORKSPACE_KEPT_END_S = 5.0  # what is not there so long after the agent's end stays out, and is said
WORKSPACE_IGNORE_FILE_BYTES = 1 << 20  # rules are written by hand
WORKSPACE_STOP_FILES = 32  # files digested between two looks whether the run is over
WORKSPACE_WALK_S = 20.0  # walking a tree at the start; what is not reached by then is unknown
WORKSPACE_RACY_NS = 2_000_000_000  # FAT and old ext3 keep times to 2 s: younger ones prove nothing
WORKSPACE_RACY_TOTAL_BYTES = 256 << 20  # read for that at a start; the rest counts as changed
WORKSPACE_CHANGES_MOST = 500_000  # names in one upper: more is no change a person looks at
WORKSPACE_PATH_BYTES = 4096  # PATH_MAX with its NUL
WORKSPACE_COPY_BYTES = 1 << 20  # one read while copying or hashing
WORKSPACE_BATCH = 128  # changes that share one wait for the disk
WORKSPACE_BATCH_BYTES = 64 << 20
WORKSPACE_JOURNAL_BYTES = 512 << 20  # three lines for each change, with long paths
WRITE_SET_ENTRIES_MOST = 100_000  # rows in the bundle, some 10 MB
WRITE_SET_DIGEST_BYTES = 2 << 30  # read for it at the end of a run, holes too: 2 s from the cache
WRITE_SET_S = 20.0  # listing and hashing; what is not reached by then is said to be missing
WORKSPACE_DIFF_BYTES = 1 << 20  # a larger file is not shown line by line

# --- replay ---------------------------------------------------------------------------------------
IDENTITY_BODY_MAX_BYTES = 16 << 20  # JSON and forms that are sorted; above, the body is bytes
IDENTITY_PART_MAX_BYTES = 64 << 10  # parts and texts kept for the diff; above, length and hash
IDENTITY_DECODED_MAX_BYTES = 256 << 20  # a coded body above this is compared as it was sent
IDENTITY_PIECE_BYTES = 64 << 10  # what a decoder gives at once
IDENTITY_JSON_DEPTH = 200  # clients nest tens; Python's own limit is near 1000
IDENTITY_PARTS_MAX = 4096  # of one multipart body
IDENTITY_LINE_MAX_BYTES = 1024  # padding behind a multipart delimiter
IDENTITY_HEAD_MAX_BYTES = 16 << 10  # of one part, as servers have it
TOKEN_RUN_MAX_BYTES = 256  # an id and the words around it; longer runs are data
REPLAY_GATE_NS = 1_000_000_000  # an answer waits so long for what was recorded before it
REPLAY_UNREAD_BYTES = 256 << 10  # of one response, as the mediator queues it for a slow agent
REPLAY_STDIN_HELD_BYTES = 64 << 10  # a pipe's buffer
REPLAY_UNPACK_BYTES = 4 << 30  # of a workspace, on the disk of runs
REPLAY_MEMORY_BYTES = 256 << 20  # of one that must lie in memory to have its entries in order
REPLAY_UNPACK_S = 600.0  # making it: some 2 s for each GiB
REPLAY_PIECE_BYTES = 1 << 20  # one write
REPLAY_THREADS_KEPT = 4096  # of one process; a thread that ended may still have requests
REPLAY_WRITES_MAX = 50_000  # paths compared one by one; above, their digest
REPLAY_CANDIDATES_MAX = 256  # equal recorded requests looked at for one
REPLAY_NEAREST_MAX = 32  # recorded actions compared field by field to find the nearest
REPLAY_SHOWN_ROWS = 20  # of differing fields and renamed ids; JSON has all
REPLAY_SHOWN_CHARS = 160  # of a title
REPLAY_SHOWN_BEFORE = 3  # actions before a divergence
REPLAY_TOKENS_MAX = 200_000  # ids of inputs remembered; above, no id is taken for the agent's
