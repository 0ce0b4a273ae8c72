/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hark_filter.h"

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

/* Calls that are allowed with some arguments only. */
static const struct hark_filter_limited limited[] = {
	/* MSG_FASTOPEN would connect. */
	{__NR_sendmsg, 1, {{2, true, MSG_FASTOPEN}}},
	{__NR_setsockopt, 2, {{1, false, IPPROTO_TCP}, {2, false, TCP_NODELAY}}},
	/* O_NONBLOCK of a descriptor from the broker. */
	{__NR_fcntl, 1, {{1, false, F_SETFL}}},
	/* malloc may map memory, but nothing may map code. */
	{__NR_mmap, 1, {{2, true, PROT_EXEC}}},
	{__NR_mprotect, 1, {{2, true, PROT_EXEC}}},
};

static const struct hark_filter filter = {
	.allowed = allowed,
	.allowed_n = sizeof(allowed) / sizeof(allowed[0]),
	.limited = limited,
	.limited_n = sizeof(limited) / sizeof(limited[0]),
};

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
	if (drop_ids && drop(uid, gid, err))
		return -1;
	return hark_filter_enter(&filter, err);
}
