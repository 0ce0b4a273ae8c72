/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch plan: what hark-launch does, in order. Compiled by hark/launcher/plan.py, which says
 * what each payload holds; tests/launcher/test_plan.py compares the numbers of this file.
 *
 * Rules. A closed list: an unknown op, flag or trailing byte is refused before anything is done.
 * Ops stand in the order of their phases (op >> 8) and are carried out in the order they stand.
 * Only enums here, so that cffi reads this file too.
 */

enum hark_plan_head {
	HARK_PLAN_MAGIC = 0x4e4c5048, /* "HPLN" */
	HARK_PLAN_VERSION = 1
};

enum hark_plan_limit {
	HARK_PLAN_OPS = 1024,       /* ops of one plan */
	HARK_PLAN_BYTES = 16777216, /* a plan; file contents are most of it */
	HARK_PLAN_FDS = 256,        /* descriptors that come with it */
	HARK_PLAN_NO_FD = 0xffff
};

enum hark_op {
	/* what the warden must know; nothing is done yet */
	HARK_OP_DEADLINES = 0x001, /* u32 setup_ms, go_ms, seal_ms */
	HARK_OP_HOLD = 0x002,      /* u16 fd: kept open (a lock) until all is cleaned up */
	HARK_OP_WATCH = 0x003,     /* u32 cause, u16 fd: any event on it is a death */
	HARK_OP_RUN_DIR = 0x004,   /* u16 fd of the parent folder, str name */
	HARK_OP_PUBLISH = 0x005,   /* u16 folder fd, str name, u32 uid, gid, n, gid[n] */
	HARK_OP_METER = 0x006, /* u32 tick_ms, u64 disk bytes, free bytes, files, tasks, kills */

	/* in the host's namespaces */
	HARK_OP_NETNS = 0x101,    /* u8 m4[4], a4[4], len4, m6[16], a6[16], len6, ipv6 */
	HARK_OP_LISTEN = 0x102,   /* u16 tcp port, dns port, backlog */
	HARK_OP_NFLOG = 0x103,    /* u16 group, u32 bytes of each packet */
	HARK_OP_CGROUP = 0x104,   /* str folder to make (cgroup v2) */
	HARK_OP_LIMIT_V2 = 0x105, /* str file of the run's cgroup, str value */
	HARK_OP_LIMIT_V1 = 0x106, /* str folder to make, str file, str value */
	HARK_OP_USERNS = 0x107,   /* u32 owner, u32 n, {u32 inside, outside, count}[n], then gids */
	HARK_OP_VIEW = 0x108,     /* as USERNS: the ids of the recorder's view of the layers */
	HARK_OP_TRACE =
		0x109, /* u16 fd of the socket to hark-trace, u16 userns it is confined to */

	/* in the run's init, with its own namespaces: building the private root */
	HARK_OP_HOSTNAME = 0x201,   /* str */
	HARK_OP_ROOT = 0x202,       /* str scratch folder, u32 owner, u64 bytes */
	HARK_OP_LINK = 0x203,       /* str target, str path */
	HARK_OP_STAGE_DIR = 0x204,  /* str path, u32 mode, uid, gid */
	HARK_OP_STAGE_FILE = 0x205, /* str path, u32 mode, uid, gid, u32 len, bytes */
	HARK_OP_TREE = 0x206,       /* u16 fd, u16 userns, str source, str path */
	HARK_OP_ONE_FILE = 0x207,   /* u16 fd, u16 userns, str source, str path */
	HARK_OP_TMPFS = 0x208,      /* str path, u32 mode, uid, gid, u64 bytes */
	HARK_OP_DEV = 0x209,        /* u64 bytes of /dev/shm */
	HARK_OP_PROC = 0x20a,
	HARK_OP_WORKSPACE =
		0x20b,          /* u16 fd, u16 userns, str source, path, layer folder, mask or "" */
	HARK_OP_DIRECT = 0x20c, /* u16 fd, u16 userns, str source, str path */
	HARK_OP_COVER = 0x20d,  /* str staged path, str path: an existing file is replaced */
	HARK_OP_PIVOT = 0x20e,
	HARK_OP_MASK =
		0x20f, /* str staged folder to make, u32 n, str name[n]: names hidden by it */

	/* in the agent, before exec */
	HARK_OP_TTY = 0x301,      /* u16 rows, columns, u32 uid, gid: kernel ids of its owner */
	HARK_OP_STDIO = 0x302,    /* u16 fd of stdin, stdout, stderr; u32 uid, gid: get the pipes */
	HARK_OP_RLIMIT = 0x303,   /* u32 resource, u64 soft, hard */
	HARK_OP_CREDS = 0x304,    /* u16 userns, u32 uid, gid */
	HARK_OP_CWD = 0x305,      /* str */
	HARK_OP_LANDLOCK = 0x306, /* u64 fs, net, scoped, u32 flags, n, {u64 access, str path}[n] */
	HARK_OP_SECCOMP = 0x307,  /* u32 len, struct sock_filter[] */
	HARK_OP_ENV = 0x308,      /* u32 n, str[n] */
	HARK_OP_EXEC = 0x309,     /* str file, u32 n, str argv[n] */
	HARK_OP_PERSONALITY = 0x30a /* u32 bits to add, personality(2) */
};

enum hark_op_flag {
	HARK_OPF_OPTIONAL = 1, /* TREE, ONE_FILE, COVER, LIMIT: go on when the thing is missing */
	HARK_OPF_IDMAP_OPTIONAL =
		2,              /* TREE, ONE_FILE: without idmap where the file system has none */
	HARK_OPF_STAGED = 4,    /* TREE, WORKSPACE: staged files lie over; LINK: is one */
	HARK_OPF_NO_SOURCE = 8, /* WORKSPACE: only staged files lie below; thrown away at the end */
	HARK_OPF_OPAQUE = 16,   /* STAGE_DIR: nothing of the layer below shows in this folder */
	HARK_OPF_NOTIFY = 32,   /* SECCOMP: the filter has a listener, which goes to hark-trace */
	HARK_OPF_RUN_IDS = 64 /* WORKSPACE: fd is a detached mount whose files have the run's ids */
};
