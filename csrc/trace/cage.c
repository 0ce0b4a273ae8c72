/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hark_filter.h"
#include "trace.h"

enum { CAPS = 64 };

/* No open, socket, connect, execve, clone, kill: what is not here kills the process. */
static const unsigned int allowed[] = {
	__NR_ppoll,           __NR_poll,          __NR_process_vm_writev,
	__NR_recvmsg,         __NR_read,          __NR_write, /* what went wrong, to stderr */
	__NR_close,           __NR_futex,         __NR_brk,
	__NR_munmap,          __NR_mremap,        __NR_madvise,
	__NR_getpid,          __NR_clock_gettime, /* where there is no vDSO */
	__NR_restart_syscall, __NR_rt_sigreturn,  __NR_exit,
	__NR_exit_group,
};

static const struct hark_filter_limited limited[] = {
	{__NR_ioctl, 1, {{1, false, (uint32_t)SECCOMP_IOCTL_NOTIF_RECV}}},
	{__NR_ioctl, 1, {{1, false, (uint32_t)SECCOMP_IOCTL_NOTIF_SEND}}},
	{__NR_ioctl, 1, {{1, false, (uint32_t)SECCOMP_IOCTL_NOTIF_ID_VALID}}},
	{__NR_ioctl, 1, {{1, false, (uint32_t)TRACE_NOTIF_SET_FLAGS}}},
	{__NR_bpf, 1, {{0, false, BPF_MAP_LOOKUP_ELEM}}},
	{__NR_sendmsg, 1, {{2, true, MSG_FASTOPEN}}},
	{__NR_mmap, 1, {{2, true, PROT_EXEC}}},
	{__NR_mprotect, 1, {{2, true, PROT_EXEC}}},
};

static const struct hark_filter filter = {
	.allowed = allowed,
	.allowed_n = sizeof(allowed) / sizeof(allowed[0]),
	.limited = limited,
	.limited_n = sizeof(limited) / sizeof(limited[0]),
};

int trace_limits(struct hark_err *err)
{
	struct rlimit none = {0, 0};

	if (setrlimit(RLIMIT_CORE, &none) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return hark_err_set(err, errno, "trace: limits: %s", strerror(errno));
	return 0;
}

/* Nothing that this process could execute would gain anything; the sets are those of init's own
 * namespace until setns, which fills them anew, for the run's namespace alone. */
static int drop_bounding(struct hark_err *err)
{
	unsigned long cap;

	for (cap = 0; cap < CAPS; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
			return hark_err_set(err, errno, "trace: bounding set: %s", strerror(errno));
	return 0;
}

static int keep_ptrace(struct hark_err *err)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2] = {{1U << CAP_SYS_PTRACE, 1U << CAP_SYS_PTRACE, 0}, {0}};

	if (syscall(SYS_capset, &h, d))
		return hark_err_set(err, errno, "trace: capset: %s", strerror(errno));
	return 0;
}

int trace_enter(int userns, uint32_t uid, uint32_t gid, struct hark_err *err)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
				   SECBIT_NO_SETUID_FIXUP_LOCKED;

	/* The ids first, and with the capabilities kept: they are not the run's, so its namespace
	 * has no name for them. */
	if (prctl(PR_SET_SECUREBITS, bits) || setgroups(0, NULL) || setresgid(gid, gid, gid) ||
	    setresuid(uid, uid, uid))
		return hark_err_set(err, errno, "trace: become %u: %s", uid, strerror(errno));
	if (setns(userns, CLONE_NEWUSER))
		return hark_err_set(err, errno, "trace: user namespace: %s", strerror(errno));
	if (drop_bounding(err) || keep_ptrace(err))
		return -1;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) /* the change of ids has set it anew */
		return hark_err_set(err, errno, "trace: dumpable: %s", strerror(errno));
	return hark_filter_enter(&filter, err);
}
