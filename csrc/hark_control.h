/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on hark's control sockets (SOCK_SEQPACKET, one message per packet).
 *
 * Rules. One fixed struct per type; the packet length must equal the struct's size, else the peer
 * is hostile or broken and the run ends the fail-closed way. Native byte order: both ends are this
 * machine and this build. Descriptors travel by SCM_RIGHTS in the order the comment gives. End of
 * file on any of these sockets ends the run. Every wait has a deadline.
 *
 * Text fields are zero-filled to their size and need no terminator when full.
 * Included after <stdint.h>; cffi reads this file too (hark._native), so no macros and no #include.
 */

enum hark_msg_type {
	/* hark-launch -> recorder */
	HARK_MSG_NET_READY = 1, /* fds: netns M, tcp4, tcp6, udp4, udp6, nflog, netns A, TCP 53 of
				   IPv4 and IPv6, cgroup directory (or none) */
	HARK_MSG_STARTED = 2,   /* fds: pty master where the plan asked for one */
	HARK_MSG_EXITED =
		3, /* fds: the layers' upper folders, read-only, where the plan has a view */
	HARK_MSG_PUBLISHED = 4,
	HARK_MSG_FAILED = 5, /* no agent: nothing of it is left; after GO, SEALED follows */
	HARK_MSG_EXE = 6,    /* answer to OPEN_EXE; fds: the executable, or none */
	HARK_MSG_JOB = 7,    /* the agent's job stopped or continued (terminal runs) */

	/* recorder -> hark-launch */
	HARK_MSG_GO = 20, /* start record is on disk: start the agent */
	HARK_MSG_SIGNAL = 21,
	HARK_MSG_OPEN_EXE = 22,
	HARK_MSG_SEALED = 23, /* publish the bundle and clean up */
	HARK_MSG_KILL = 24,   /* recording failed: kill the tree */
	HARK_MSG_FDS = 25,    /* fds: the next ones that the plan names by index */
	HARK_MSG_PLAN = 26,   /* fds: the sealed launch plan; after all FDS, before all else */

	/* mediator -> recorder */
	HARK_MSG_CA = 40,          /* the run CA's certificate, PEM, 0-filled */
	HARK_MSG_DRAINED = 41,     /* answer to STOP: all is in the ring (broker: sent) */
	HARK_MSG_PLAY_WANTED = 42, /* replay: this request is complete, and in the ring */

	/* recorder -> mediator; STOP also to the broker, which answers DRAINED */
	HARK_MSG_LISTEN = 60,  /* fds: tcp4, tcp6 */
	HARK_MSG_DURABLE = 61, /* every ring record below .below is on disk */
	HARK_MSG_STOP = 62,
	HARK_MSG_PLAY = 63, /* replay: a piece of an exchange's recorded answer */

	/* mediator -> broker, and the answer; id joins them */
	HARK_MSG_DIAL = 80,
	HARK_MSG_DIALED = 81, /* fds: the connected socket, or none */

	/* broker -> recorder */
	HARK_MSG_DNS = 100,
	HARK_MSG_DIAL_INTENT = 101, /* waits for DIAL_RECORDED before connect() */
	HARK_MSG_DIAL_RESULT = 102,
	HARK_MSG_BROKER_READY = 103,

	/* recorder -> broker */
	HARK_MSG_RESOLVE_SOCKETS = 120, /* fds: sockets of port 53, UDP and listening TCP */
	HARK_MSG_DIAL_RECORDED = 121,

	/* publisher -> recorder, in a run with --publish; id: the connection */
	HARK_MSG_INBOUND = 200, /* waits for INBOUND_RECORDED before the agent sees it */
	HARK_MSG_PUBLISHER_READY = 201,

	/* recorder -> publisher; STOP too, which it answers with DRAINED */
	HARK_MSG_PUBLISH = 220, /* fds: netns A */
	HARK_MSG_INBOUND_RECORDED = 221,

	/* recorder -> signer, and the answer; signer -> recorder once at start: SIGNER_READY */
	HARK_MSG_SIGN = 140,
	HARK_MSG_SIGNED = 141,
	HARK_MSG_SIGNER_READY = 142,
	HARK_MSG_WRAP = 143, /* seal 32 bytes for who holds the key; once, before the first SIGN */
	HARK_MSG_WRAPPED = 144,
	HARK_MSG_UNWRAP = 145, /* the way back, for a replay; once, before the first SIGN */
	HARK_MSG_UNWRAPPED = 146,

	/* hark-trace -> recorder; DRAINED answers STOP */
	HARK_MSG_DRAWS = 160, /* what one thread has drawn; all of them come before DRAINED */

	/* recorder -> hark-trace; also STOP */
	HARK_MSG_SEED = 180 /* before GO; fds: the map of struct hark_spawn, where there is one */
};

/* First byte of a packet between hark-launch and hark-trace, a SOCK_SEQPACKET pair of its own. */
enum hark_trace_packet {
	HARK_TRACE_USERNS = 'U',  /* hark-launch; one fd: the run's user namespace */
	HARK_TRACE_READY = 'R',   /* hark-trace: it is confined to that namespace */
	HARK_TRACE_LISTENER = 'L' /* the agent before exec; one fd: its filter's listener */
};

enum hark_msg_limit {
	HARK_MSG_TEXT = 256,
	HARK_MSG_NAME = 256, /* a DNS name needs 253 */
	HARK_MSG_PEM = 2048,
	HARK_MSG_PLAY_DATA = 4096,
	HARK_MSG_ANSWERS = 8,
	HARK_MSG_SECRET = 32,
	HARK_MSG_SEALED_SECRET = 80 /* RFC 9180, X25519: 32 bytes of key, 32 sealed, 16 of tag */
};

enum hark_dial_status {
	HARK_DIAL_OK = 0,
	HARK_DIAL_DENIED = 1,  /* not in the broker's table */
	HARK_DIAL_RESOLVE = 2, /* the name did not resolve */
	HARK_DIAL_PRIVATE = 3, /* every address is private, and the policy does not allow that */
	HARK_DIAL_CONNECT = 4, /* err says why */
	HARK_DIAL_TIMEOUT = 5,
	HARK_DIAL_UNRECORDED = 6, /* the intent could not be put on disk: not dialled */
	/* With a proxy; .err is its HTTP status, 0: it gave none. UNREACHABLE: errno. */
	HARK_DIAL_PROXY_UNREACHABLE = 7,
	HARK_DIAL_PROXY_AUTH = 8,    /* 407 */
	HARK_DIAL_PROXY_REFUSED = 9, /* other 4xx */
	HARK_DIAL_PROXY_FAILED = 10, /* 5xx */
	HARK_DIAL_PROXY_BROKEN = 11  /* no answer to CONNECT that means anything */
};

enum hark_play_what {
	HARK_PLAY_INTERIM = 0, /* a 1xx head */
	HARK_PLAY_HEAD = 1,
	HARK_PLAY_BODY = 2, /* one delivery */
	HARK_PLAY_TRAILERS = 3,
	HARK_PLAY_END = 4,
	HARK_PLAY_REFUSE = 5, /* the upstream failed before its answer; data: the detail */
	HARK_PLAY_CUT = 6     /* or inside it */
};

enum hark_play_flag {
	HARK_PLAY_MORE = 1, /* the next message goes on with this head or delivery */
	HARK_PLAY_CLOSE = 2 /* the connection ends with this response */
};

struct hark_msg_head {
	uint16_t type;
	uint16_t len; /* whole message, head included */
	uint32_t id;  /* joins a question and its answer; 0 otherwise */
	uint64_t seq; /* per direction, from 0 */
};

struct hark_msg_plain { /* GO, KILL, FDS, PLAN, STOP, LISTEN, DRAINED, RESOLVE_SOCKETS,
			   DIAL_RECORDED, BROKER_READY, PUBLISHER_READY,
			   PUBLISH, INBOUND_RECORDED */
	struct hark_msg_head head;
};

struct hark_msg_net_ready {
	struct hark_msg_head head;
	uint64_t cgroup_id;    /* cgroup v2 id (st_ino) of the run */
	uint64_t netns_cookie; /* SO_NETNS_COOKIE of the agent's namespace */
};

struct hark_msg_started {
	struct hark_msg_head head;
	uint32_t agent_pid; /* initial pid namespace */
	uint32_t init_pid;
};

struct hark_msg_exited {
	struct hark_msg_head head;
	uint32_t wait_status;   /* as wait(2) gives it */
	uint32_t stragglers;    /* tasks killed after the agent had ended */
	uint32_t cause;         /* enum hark_exit_cause */
	uint32_t limit;         /* enum hark_over, when that is the cause */
	uint64_t refused_tasks; /* by the limit on tasks, where a cgroup counts them */
	uint64_t killed_tasks;  /* by the kernel, for want of memory, where a cgroup counts them */
};

enum hark_exit_cause {
	HARK_EXIT_AGENT = 0,    /* the agent ended by itself, or by a forwarded signal */
	HARK_EXIT_RECORDER = 1, /* fail-closed: who died */
	HARK_EXIT_MEDIATOR = 2,
	HARK_EXIT_BROKER = 3,
	HARK_EXIT_SIGNER = 4,
	HARK_EXIT_KILLED = 5,   /* the recorder said KILL */
	HARK_EXIT_INIT = 6,     /* the run's init died */
	HARK_EXIT_LAUNCHER = 7, /* never sent; the recorder notes it when the socket closes */
	HARK_EXIT_LIMIT = 8,    /* the run was over a limit: .limit */
	HARK_EXIT_METER = 9,    /* who watches the limits died */
	HARK_EXIT_TRACER = 10,
	HARK_EXIT_PUBLISHER = 11
};

enum hark_over {
	HARK_OVER_PIDS = 1,     /* refused tasks again and again */
	HARK_OVER_MEMORY = 2,   /* the kernel killed tasks again and again */
	HARK_OVER_DISK = 3,     /* the layers hold more than they may */
	HARK_OVER_DISK_FULL = 4 /* too little is left of the disk they lie on */
};

struct hark_msg_published {
	struct hark_msg_head head;
	uint32_t err; /* errno; 0 = at its place */
	uint32_t pad0;
};

struct hark_msg_failed {
	struct hark_msg_head head;
	uint32_t err; /* errno */
	uint32_t op;  /* index of the plan op that failed, or 0xffffffff */
	char what[HARK_MSG_TEXT];
	char hint[HARK_MSG_TEXT];
};

struct hark_msg_signal {
	struct hark_msg_head head;
	uint32_t signo;
	uint32_t pad0;
};

struct hark_msg_job {
	struct hark_msg_head head;
	uint32_t stopped; /* 1 stopped, 0 continued */
	uint32_t pad0;
};

struct hark_msg_open_exe {
	struct hark_msg_head head; /* id joins the answer */
	uint64_t start_ns;
	uint64_t ino; /* as the kernel record named it */
	uint32_t tgid;
	uint32_t dev;
	char path[4096];
};

struct hark_msg_exe {
	struct hark_msg_head head;
	uint32_t err; /* errno; 0 = one fd came along */
	uint32_t pad0;
};

enum hark_sealed {
	HARK_SEALED_PUBLISH = 1, /* move the bundle to its place; else it stays in the run folder */
	HARK_SEALED_DISCARD = 2  /* then remove the run folder with all that is in it */
};

struct hark_msg_sealed {
	struct hark_msg_head head;
	uint32_t publish; /* bits of enum hark_sealed */
	uint32_t pad0;
};

struct hark_msg_ca {
	struct hark_msg_head head;
	char pem[HARK_MSG_PEM];
};

struct hark_msg_durable {
	struct hark_msg_head head;
	uint64_t below; /* ring sequence number */
};

struct hark_msg_play_wanted {
	struct hark_msg_head head;
	uint64_t exchange;
};

struct hark_msg_play {
	struct hark_msg_head head;
	uint64_t exchange;
	uint64_t length;  /* HEAD: Content-Length, where framing says so */
	uint32_t size;    /* bytes of .data */
	uint16_t what;    /* enum hark_play_what */
	uint16_t flags;   /* enum hark_play_flag */
	uint16_t status;  /* INTERIM, HEAD */
	uint16_t framing; /* HEAD: enum hark_framing */
	uint16_t reason;  /* REFUSE, CUT: enum hark_reason */
	uint16_t pad0;
	uint8_t data[HARK_MSG_PLAY_DATA];
};

struct hark_msg_dial {
	struct hark_msg_head head;
	uint32_t host; /* index in the compiled host table */
	uint16_t port;
	uint16_t pad0;
	uint64_t conn; /* mediator's connection id, for the record */
};

struct hark_msg_dialed {
	struct hark_msg_head head;
	uint32_t status; /* enum hark_dial_status */
	uint32_t err;
	uint16_t family; /* AF_INET or AF_INET6 */
	uint16_t port;
	uint32_t pad0;
	uint8_t addr[16];
};

struct hark_msg_dns {
	struct hark_msg_head head;
	uint64_t boot_ns;
	uint8_t src[16]; /* v4 in the first 4 bytes */
	uint8_t dst[16]; /* the server that was asked */
	uint16_t family;
	uint16_t sport;
	uint16_t qtype;
	uint16_t rcode;
	uint32_t allowed; /* 1: the name is in the table */
	uint32_t answers; /* how many of .answer are set */
	uint8_t answer[HARK_MSG_ANSWERS][16];
	char qname[HARK_MSG_NAME]; /* without the trailing dot, lower case, escaped where not LDH */
	char rule[64];
	uint32_t tcp; /* 1: asked by TCP */
	uint32_t pad0;
};

struct hark_msg_dial_intent { /* and DIAL_RESULT */
	struct hark_msg_head head;
	uint64_t boot_ns;
	uint64_t conn;
	uint32_t host;
	uint32_t status;
	uint32_t err;
	uint16_t port;
	uint16_t family;
	uint8_t addr[16];
	uint32_t proxied; /* 1: .addr and .port are the proxy's */
	uint32_t pad0;
};

enum hark_inbound_what {
	HARK_INBOUND_OPEN = 0,
	HARK_INBOUND_COMPLETE = 1,
	HARK_INBOUND_REFUSED = 2, /* the agent does not listen there */
	HARK_INBOUND_HOST_GONE = 3,
	HARK_INBOUND_AGENT_GONE = 4,
	HARK_INBOUND_STOPPED = 5 /* the run ended */
};

struct hark_msg_inbound { /* a connection of the host's loopback to a port of the agent */
	struct hark_msg_head head;
	uint64_t boot_ns;
	uint64_t rx_bytes; /* from the agent */
	uint64_t tx_bytes; /* to the agent */
	uint8_t src[16];   /* v4 in the first 4 bytes */
	uint8_t dst[16];
	uint32_t what; /* enum hark_inbound_what */
	uint16_t family;
	uint16_t sport;
	uint16_t port; /* of the agent */
	uint16_t host_port;
	uint32_t pad0;
};

struct hark_msg_sign {
	struct hark_msg_head head;
	uint8_t statement[128]; /* docs/spec/bundle.md, "Heads" */
};

struct hark_msg_signed {
	struct hark_msg_head head;
	uint32_t err; /* EPERM: not this run, count fell, or after the final head */
	uint32_t pad0;
	uint8_t signature[64];
};

struct hark_msg_signer_ready {
	struct hark_msg_head head;
	uint8_t public_key[32];
};

struct hark_msg_wrap {
	struct hark_msg_head head;
	uint8_t secret[HARK_MSG_SECRET];
};

struct hark_msg_wrapped {
	struct hark_msg_head head;
	uint32_t err; /* errno; EPERM: asked a second time, or after a head */
	uint32_t pad0;
	uint8_t recipient[32]; /* X25519 */
	uint8_t sealed[HARK_MSG_SEALED_SECRET];
};

struct hark_msg_unwrap {
	struct hark_msg_head head;
	uint8_t sealed[HARK_MSG_SEALED_SECRET];
};

struct hark_msg_unwrapped {
	struct hark_msg_head head;
	uint32_t err; /* errno; EKEYREJECTED: sealed for another key */
	uint32_t pad0;
	uint8_t secret[HARK_MSG_SECRET];
};

struct hark_msg_seed {
	struct hark_msg_head head;
	uint8_t seed[HARK_MSG_SECRET];
};

struct hark_msg_draws {
	struct hark_msg_head head;
	uint64_t path; /* struct hark_spawn; 0: threads that have none, or that were too many */
	uint64_t calls;
	uint64_t bytes;
	uint64_t start_ns;
	uint32_t tgid; /* of the thread that drew first by this path; 0: not known */
	uint32_t tid;
};
