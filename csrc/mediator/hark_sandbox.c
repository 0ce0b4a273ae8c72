/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter is a table in this file rather than a compiled libseccomp blob: it stands next to the
 * reasons for its entries, needs no build step and no library in the process it guards, and its
 * order is the order of frequency, so a busy mediator passes it in a few comparisons.
 */
#include "hark_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define HARK_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HARK_ARCH AUDIT_ARCH_AARCH64
#else
#error "unknown architecture"
#endif

/* No open, socket, connect, execve, clone, ptrace, ioctl: what is not here kills the process. */
static const unsigned allowed[] = {
#ifdef __NR_epoll_wait
	__NR_epoll_wait,
#endif
	__NR_epoll_pwait,   __NR_read,      __NR_write,
	__NR_epoll_ctl,     __NR_recvfrom, /* MSG_PEEK for the first byte and before a pooled
					    * connection is used again
					    */
	__NR_recvmsg,                      /* control messages and their descriptors */
	__NR_accept4,       __NR_close,     __NR_getsockname, /* the address the agent dialled */
	__NR_getsockopt,    __NR_shutdown,
#ifdef __NR_poll
	__NR_poll,
#endif
	__NR_ppoll,         __NR_getrandom, /* OpenSSL reseeds */
	__NR_getpid,                        /* OpenSSL asks whether it was forked */
	__NR_clock_gettime,                 /* where there is no vDSO */
	__NR_gettimeofday,
#ifdef __NR_time
	__NR_time,
#endif
	__NR_futex,         __NR_brk,       __NR_munmap,
	__NR_mremap,        __NR_madvise,   __NR_restart_syscall,
	__NR_rt_sigreturn,  __NR_exit,      __NR_exit_group,
};

/* What an argument must be, or which bits it must not have. */
struct rule {
	unsigned arg;
	bool forbidden; /* bits, instead of the one value */
	uint32_t value;
};

enum { MAX_RULES = 2 };

/* Calls that are allowed with some arguments only. */
static const struct {
	unsigned nr;
	size_t n;
	struct rule rules[MAX_RULES];
} limited[] = {
	/* MSG_FASTOPEN would connect. */
	{__NR_sendmsg, 1, {{2, true, MSG_FASTOPEN}}},
	{__NR_setsockopt, 2, {{1, false, IPPROTO_TCP}, {2, false, TCP_NODELAY}}},
	/* O_NONBLOCK of a descriptor from the broker. */
	{__NR_fcntl, 1, {{1, false, F_SETFL}}},
	/* malloc may map memory, but nothing may map code. */
	{__NR_mmap, 1, {{2, true, PROT_EXEC}}},
	{__NR_mprotect, 1, {{2, true, PROT_EXEC}}},
};

enum { MAX_FILTER = 128, RULE_SIZE = 3 };

struct program {
	struct sock_filter code[MAX_FILTER];
	unsigned short len;
};

static void emit(struct program *p, uint16_t op, uint8_t jt, uint8_t jf, uint32_t k)
{
	p->code[p->len++] = (struct sock_filter){op, jt, jf, k};
}

/* The kernel takes these arguments as 32 bits, or refuses higher ones itself. */
static void emit_rule(struct program *p, const struct rule *rule)
{
	uint16_t test = BPF_JMP | BPF_K | (rule->forbidden ? BPF_JSET : BPF_JEQ);

	emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0,
	     (uint32_t)(offsetof(struct seccomp_data, args) + rule->arg * sizeof(uint64_t)));
	emit(p, test, !rule->forbidden, rule->forbidden, rule->value);
	emit(p, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

static void build(struct program *p)
{
	const uint16_t load = BPF_LD | BPF_W | BPF_ABS;
	const uint16_t equal = BPF_JMP | BPF_JEQ | BPF_K;
	const uint16_t ret = BPF_RET | BPF_K;
	size_t i;
	size_t k;

	p->len = 0;
	emit(p, load, 0, 0, offsetof(struct seccomp_data, arch));
	emit(p, equal, 1, 0, HARK_ARCH);
	emit(p, ret, 0, 0, SECCOMP_RET_KILL_PROCESS);
	/* x32 numbers carry a high bit, so none of them equals an entry. */
	emit(p, load, 0, 0, offsetof(struct seccomp_data, nr));
	for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		emit(p, equal, 0, 1, allowed[i]);
		emit(p, ret, 0, 0, SECCOMP_RET_ALLOW);
	}
	for (i = 0; i < sizeof(limited) / sizeof(limited[0]); i++) {
		emit(p, equal, 0, (uint8_t)(limited[i].n * RULE_SIZE + 1), limited[i].nr);
		for (k = 0; k < limited[i].n; k++)
			emit_rule(p, &limited[i].rules[k]);
		emit(p, ret, 0, 0, SECCOMP_RET_ALLOW);
	}
	emit(p, ret, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

int hark_sandbox_limits(uint64_t descriptors, struct hark_err *err)
{
	struct rlimit none = {0, 0};
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return hark_err_set(err, errno, "mediator limits: %s", strerror(errno));
	if (files.rlim_max > descriptors)
		files.rlim_max = descriptors; /* a lower one stays: raising needs a capability */
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_CORE, &none) || setrlimit(RLIMIT_NOFILE, &files) ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return hark_err_set(err, errno, "mediator limits: %s", strerror(errno));
	return 0;
}

static int drop(uint32_t uid, uint32_t gid, struct hark_err *err)
{
	if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		return hark_err_set(err, errno, "drop to %u:%u: %s", uid, gid, strerror(errno));
	/* A change of ids makes a process dumpable again on some settings. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return hark_err_set(err, errno, "prctl: %s", strerror(errno));
	return 0;
}

int hark_sandbox_enter(bool drop_ids, uint32_t uid, uint32_t gid, struct hark_err *err)
{
	struct program p;
	struct sock_fprog prog;

	if (drop_ids && drop(uid, gid, err))
		return -1;
	build(&p);
	prog.len = p.len;
	prog.filter = p.code;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		return hark_err_set(err, errno, "mediator filter: %s", strerror(errno));
	return 0;
}
