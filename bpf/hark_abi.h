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
	HARK_REC_PAD = 0,		/* skip to the start of the ring */

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
	HARK_REC_REFUSED = 0x117,	/* a policy denial or a protocol error, see hark_reasons.h */

	/* kernel (bpf/), BPF rings; subject = socket cookie, 0 where no socket is meant */
	HARK_REC_EXEC = 0x201,
	HARK_REC_FORK = 0x202,
	HARK_REC_EXIT = 0x203,
	HARK_REC_CONNECT = 0x204,	/* TCP: tuple known, before the SYN leaves */
	HARK_REC_UDP_FLOW = 0x205,	/* UDP: first packet of a (cookie, tuple) */
	HARK_REC_SOCK_CLOSE = 0x206,
	HARK_REC_SYS_REFUSED = 0x207,	/* sys_exit without sys_enter: a seccomp refusal */
	HARK_REC_SYS_KILLED = 0x208,	/* SIGSYS from seccomp */
	HARK_REC_CGROUP_LEFT = 0x209	/* a task of the run was moved to another cgroup */
};

enum hark_rec_flag {
	HARK_RECF_TRUNCATED = 1,	/* the variable part was cut at its limit */
	HARK_RECF_END = 2,		/* last body record of this direction */
	HARK_RECF_IA32 = 4,		/* the syscall number is an i386 one */
	HARK_RECF_THREAD = 8		/* fork: a thread, exit: not the last thread */
};

/* 32 bytes, in front of every record. */
struct hark_rec_head {
	uint32_t len;		/* whole record, head included, multiple of 8 */
	uint16_t kind;		/* enum hark_rec_kind */
	uint16_t flags;		/* enum hark_rec_flag */
	uint64_t boot_ns;	/* CLOCK_BOOTTIME */
	uint64_t seq;		/* per producer, from 0, without gaps unless lost */
	uint64_t subject;	/* exchange id or socket cookie */
};

/* 24 bytes, after the head of every kernel record. Ids are those of the initial pid namespace. */
struct hark_rec_task {
	uint64_t cgroup;	/* cgroup v2 id of the task */
	uint32_t tgid;
	uint32_t tid;
	uint64_t start_ns;	/* start of the thread-group leader, CLOCK_BOOTTIME */
};
