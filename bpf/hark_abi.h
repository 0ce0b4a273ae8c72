/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records that cross a ring, as three compilers see them: clang for BPF, the C compiler for
 * csrc/, cffi for Python.
 *
 * Rules. Only enums and structs of fixed-width integers: no #include, no #define, no pointer, no
 * bool, no bit-field. Every padding byte has a name and is zero. Limits are enum constants, since
 * BTF and cffi carry enums and lose macros. Variable bytes follow the fixed part; head.len counts
 * everything, rounded up to 8. A bundle never stores these structs (docs/spec/records.md), so they
 * may change without a format version. hark_abi_check.h asserts sizes; tests/test_abi.py compares
 * BTF with cffi.
 */

enum hark_rec_kind {
	HARK_REC_PAD = 0, /* skip to the start of the ring */

	/* mediator (csrc/mediator), memfd ring; subject = exchange id, 0 for connection records */
	HARK_REC_CONN_OPEN = 0x101,
	HARK_REC_CONN_TLS = 0x102,
	HARK_REC_CONN_CLOSE = 0x103,
	HARK_REC_UPSTREAM = 0x104,
	HARK_REC_REQ_HEAD = 0x110,
	HARK_REC_REQ_BODY = 0x111,
	HARK_REC_RES_HEAD = 0x112,
	HARK_REC_RES_BODY = 0x113,
	HARK_REC_TRAILERS = 0x114,
	HARK_REC_EXCHANGE_END = 0x115,
	HARK_REC_SUBSTITUTED = 0x116,
	HARK_REC_REFUSED = 0x117, /* a policy denial or a protocol error, see hark_reasons.h */

	/* kernel (bpf/), BPF rings; subject = socket cookie, 0 where no socket is meant */
	HARK_REC_EXEC = 0x201,
	HARK_REC_FORK = 0x202,
	HARK_REC_EXIT = 0x203,
	HARK_REC_CONNECT = 0x204,  /* TCP: tuple known, before the SYN leaves */
	HARK_REC_UDP_FLOW = 0x205, /* UDP: first packet of a tuple, or of its new sender */
	HARK_REC_SOCK_CLOSE = 0x206,
	HARK_REC_SYS_REFUSED = 0x207, /* sys_exit without sys_enter: a seccomp refusal */
	HARK_REC_SYS_KILLED = 0x208,  /* SIGSYS from seccomp */
	HARK_REC_CGROUP_LEFT = 0x209, /* a task of the run was moved to another cgroup */
	HARK_REC_SOCKET = 0x20a,      /* what a thread did with a socket, see enum hark_socket_op */
	HARK_REC_FILE = 0x20b,        /* what a thread did to a file, see enum hark_file_op */
	HARK_REC_CAP_REFUSED = 0x20c  /* first refusal of a capability to a thread (Linux 6.13) */
};

enum hark_rec_flag {
	HARK_RECF_TRUNCATED = 1, /* the variable part was cut at its limit */
	HARK_RECF_END = 2,       /* last body record of this direction */
	HARK_RECF_IA32 = 4,      /* the syscall number is an i386 one */
	HARK_RECF_THREAD = 8     /* fork: a thread, exit: not the last thread */
};

/* 32 bytes, in front of every record. */
struct hark_rec_head {
	uint32_t len;     /* whole record, head included, multiple of 8 */
	uint16_t kind;    /* enum hark_rec_kind */
	uint16_t flags;   /* enum hark_rec_flag */
	uint64_t boot_ns; /* CLOCK_BOOTTIME */
	uint64_t seq;     /* per producer, from 0, without gaps unless lost */
	uint64_t subject; /* exchange id or socket cookie */
};

/*
 * Mediator payloads, after the head. Each names the size of the bytes that follow it; a record
 * holds at most HARK_MED_BODY of them, so that it always fits the ring. A reason is an enum
 * hark_reason (csrc/mediator/hark_reasons.h). Addresses: IPv4 in the first 4 bytes. Texts are
 * zero-filled and need no terminator when full.
 */
enum hark_med_limit {
	HARK_MED_BODY = 65536, /* body bytes in one record */
	HARK_MED_HEAD = 73728, /* a head: 64 KiB as received, or as rebuilt with our fields */
	HARK_MED_DETAIL = 512, /* detail of a refusal */
	HARK_MED_TEXT = 64
};

struct hark_rec_conn_open {
	uint64_t conn;
	uint8_t src[16];
	uint8_t dst[16];
	uint16_t family; /* AF_INET or AF_INET6 */
	uint16_t sport;
	uint16_t dport;
	uint16_t pad0;
};

struct hark_rec_conn_tls {
	uint64_t conn;
	char version[HARK_MED_TEXT];
	char cipher[HARK_MED_TEXT];
	char alpn[HARK_MED_TEXT];
	uint32_t resumed;
	uint32_t size; /* the SNI follows */
};

struct hark_rec_conn_close {
	uint64_t conn;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint16_t reason;
	uint16_t pad0;
	uint32_t pad1;
};

struct hark_rec_upstream {
	uint64_t conn;
	uint32_t host; /* index in the compiled host table */
	uint16_t family;
	uint16_t port;
	uint8_t addr[16];
	char version[HARK_MED_TEXT]; /* empty: plain HTTP */
	char cipher[HARK_MED_TEXT];
	uint8_t cert_sha256[32];
	uint16_t pooled;
	uint16_t resumed;
	uint32_t pad0;
};

struct hark_rec_req_head {
	uint64_t conn;
	int32_t host;  /* -1: not in the table */
	uint32_t size; /* the head follows */
};

struct hark_rec_bytes { /* REQ_BODY, RES_BODY; HARK_RECF_END on the last one */
	uint32_t size;
	uint32_t pad0;
};

struct hark_rec_res_head {
	uint16_t status;
	uint16_t own; /* 1: hark made the response */
	uint32_t size;
};

struct hark_rec_trailers {
	uint32_t response; /* 1: of the response */
	uint32_t size;
};

struct hark_rec_substituted {
	uint32_t secret;
	uint32_t size; /* the header's name follows */
};

struct hark_rec_refused {
	uint64_t conn;
	uint16_t reason;
	uint16_t denial;    /* 1: a policy denial, held until it is on disk */
	uint16_t name_size; /* the host or SNI meant, then the detail, follow */
	uint16_t detail_size;
};

struct hark_rec_exchange_end {
	uint64_t request_bytes;
	uint64_t response_bytes;
	uint16_t reason;
	uint16_t pad0;
	uint32_t pad1;
};

/* 24 bytes, after the head of every kernel record. Ids are those of the initial pid namespace. */
struct hark_rec_task {
	uint64_t cgroup; /* cgroup v2 id of the task */
	uint32_t tgid;
	uint32_t tid;
	uint64_t start_ns; /* start of the thread-group leader, CLOCK_BOOTTIME */
};

/* Limits of the variable parts, in bytes. */
enum hark_rec_limit {
	HARK_EXEC_NAME_MAX = 4096, /* PATH_MAX: the kernel takes no longer name */
	HARK_EXEC_ARGV_MAX = 8192,
	HARK_KERNEL_REC_MAX = 16384 /* longest kernel record; a reader's buffer holds it */
};

/* HARK_REC_EXEC. Then name_len bytes of file name and argv_len bytes of arguments, each argument
 * ended by a NUL unless it was cut. */
struct hark_rec_exec {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint32_t parent_tgid;
	uint32_t dev; /* device of the executable: major << 20 | minor, as the kernel has it */
	uint64_t ino;
	int64_t ctime_ns;
	uint32_t uid; /* of the process, as the initial user namespace knows it */
	uint32_t gid;
	uint32_t euid;
	uint32_t egid;
	uint64_t cap_effective; /* in its own user namespace */
	uint16_t name_len;
	uint16_t argv_len;
	uint32_t pad0;
};

/* HARK_REC_FORK. .task is the thread that called clone. */
struct hark_rec_fork {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint32_t child_tgid;
	uint32_t child_tid;
	uint64_t child_start_ns;
};

/* HARK_REC_EXIT */
struct hark_rec_exit {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint32_t status; /* as wait(2) gives it */
	uint32_t pad0;
};

/* HARK_REC_CONNECT, HARK_REC_UDP_FLOW. An IPv4 address is in the first 4 bytes, also where the
 * socket is an IPv6 one with a mapped address. .task is all zero where no owner is known. */
struct hark_rec_flow {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint64_t netns; /* cookie of the socket's network namespace, 0 = not known */
	uint8_t src[16];
	uint8_t dst[16];
	uint16_t sport;
	uint16_t dport;
	uint16_t family; /* AF_INET or AF_INET6 */
	uint16_t pad0;
};

/* HARK_REC_SOCK_CLOSE */
struct hark_rec_sock_close {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint64_t tx_bytes; /* payload, without retransmissions */
	uint64_t rx_bytes;
};

/* HARK_REC_SYS_REFUSED, HARK_REC_SYS_KILLED */
struct hark_rec_syscall {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint32_t nr;
	uint32_t err; /* errno; 0 for SYS_KILLED */
};

/* HARK_REC_CGROUP_LEFT */
struct hark_rec_left {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint64_t to_cgroup;
};

enum hark_socket_op {
	HARK_SOCKET_BIND = 1,
	HARK_SOCKET_ACCEPT = 2,
	HARK_SOCKET_CONNECT = 3, /* unix only: the rest is HARK_REC_CONNECT */
	HARK_SOCKET_USE = 4      /* another process than so far sends or receives (Linux 6.3) */
};

enum hark_socket_limit { HARK_UNIX_NAME = 112 }; /* sun_path has 108 */

/* HARK_REC_SOCKET: the call succeeded. Addresses as in struct hark_rec_flow; unix: the name that
 * was bound or connected to, which begins with a NUL when it is an abstract one. */
struct hark_rec_socket {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint8_t src[16];
	uint8_t dst[16];
	uint16_t sport;
	uint16_t dport;
	uint16_t family; /* AF_UNIX, AF_INET or AF_INET6 */
	uint16_t op;     /* enum hark_socket_op */
	uint16_t type;   /* SOCK_STREAM, ... */
	uint16_t name_len;
	uint32_t pad0;
	uint8_t name[112]; /* HARK_UNIX_NAME */
};

enum hark_file_op {
	HARK_FILE_WRITE = 1,       /* a regular file was opened for writing */
	HARK_FILE_REMOVE = 2,      /* a name was removed */
	HARK_FILE_RENAME_FROM = 3, /* a name was given up */
	HARK_FILE_RENAME_TO = 4    /* and this one taken; the record before names the old one */
};

enum hark_file_limit {
	HARK_FILE_PATH = 4096, /* of the kernel's own names */
	HARK_FILE_NAME = 4096, /* of the name that the call was given */
	HARK_FILE_DEPTH = 64   /* folders and mount points that are walked up */
};

/* HARK_REC_FILE. Then path_len bytes: the names of the path, innermost first, each ended by a NUL,
 * as the kernel resolved it; of the file (WRITE) or of the folder that the call began in. Then
 * name_len bytes: the text that the call was given, which its caller may have changed since. */
struct hark_rec_file {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint64_t ino; /* WRITE only */
	uint32_t dev;
	uint32_t op; /* enum hark_file_op */
	uint16_t path_len;
	uint16_t name_len;
	uint32_t pad0;
};

/* HARK_REC_CAP_REFUSED */
struct hark_rec_cap {
	struct hark_rec_head head;
	struct hark_rec_task task;
	uint32_t cap; /* CAP_* of linux/capability.h */
	uint32_t nr;  /* the call it was in */
};

/* What follows is held in maps, one of each per run, and read by their descriptors. */

enum hark_ring_id {
	HARK_RING_CONTROL = 0, /* what costs its maker a fork or exec: bounded by that */
	HARK_RING_BULK = 1,    /* what a loop can make: refusals, datagrams, files */
	HARK_RING_SOCKET = 2,  /* connects and closes, which attribution rests on */
	HARK_RINGS = 3
};

struct hark_ring_key {
	uint64_t run;  /* cgroup id of the run */
	uint32_t ring; /* enum hark_ring_id */
	uint32_t pad0;
};

enum hark_run_limit {
	HARK_LEVELS_MAX = 4,    /* different depths of run cgroups at one time */
	HARK_COUNTS_MAX = 65536 /* (process, syscall, errno) rows of living processes, one run */
};

/* Depths below the root at which run cgroups lie; 0 = free place. Entries never move. */
struct hark_levels {
	uint32_t level[4]; /* HARK_LEVELS_MAX */
	uint64_t filter; /* bit (id & 63) of each run: another id is no run's, without a look-up */
};

enum hark_count_nr {
	HARK_NR_MAX = 1024, /* numbers from here on are counted as HARK_NR_OTHER */
	HARK_NR_OTHER = 1024,
	HARK_NR_IA32 = 32768 /* set when the number is an i386 one */
};

struct hark_count_key {
	uint64_t start_ns;
	uint32_t tgid;
	uint16_t nr;  /* enum hark_count_nr */
	uint16_t err; /* errno, 0 = success */
};

/*
 * How a thread came to be, as a number: a child's is made of its maker's and of its own place among
 * the maker's processes, or threads, from 1. Equal in every execution that forks in the same order
 * (docs/spec/replay.md, "Who acts"). One row per living thread, by thread id.
 */
enum hark_spawn_limit {
	HARK_SPAWNS_MAX = 65536 /* living threads of one run that have a row */
};

struct hark_spawn {
	uint64_t path;     /* never 0 */
	uint64_t start_ns; /* as in struct hark_rec_task */
	uint32_t tgid;
	uint32_t pad0;
};

/* What idle.bpf.c knows of its run; mapped by who waits for the run to be idle. */
enum hark_idle_limit {
	HARK_IDLE_RING = 4096 /* bytes of the ring of bells: one page */
};

struct hark_idle {
	uint64_t seq;      /* how often the run has become busy: names one idle time */
	int64_t active;    /* tasks that run, can run or are being woken; 0: idle */
	uint64_t armed;    /* 1: ring the bell when the run becomes idle; cleared by that */
	uint64_t since_ns; /* CLOCK_MONOTONIC of the last time it became idle */
	uint64_t edges;    /* how often it has */
	uint64_t missed;   /* tasks without room for a note: the count is not to be believed */
	uint64_t repaired; /* tasks first met when they were running already */
};

struct hark_ring_stats {
	uint64_t produced; /* the next record's sequence number */
	uint64_t emitted;
	uint64_t dropped;
};

struct hark_run_stats {
	struct hark_ring_stats ring[3]; /* enum hark_ring_id */
	uint64_t counts_dropped;        /* syscalls not counted: the map was full */
};
