/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's last steps before exec, in the agent's own process. After step_creds it has no
 * capability, no way to gain one and no descriptor that outlives exec but 0, 1 and 2.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "launch.h"

enum {
	NR_LANDLOCK_CREATE = 444,
	NR_LANDLOCK_ADD_RULE = 445,
	NR_LANDLOCK_RESTRICT = 446,
	RULE_PATH_BENEATH = 1,
	/* A call that hark-trace has begun to answer is interrupted by a deadly signal alone:
	 * SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19. */
	LISTEN = SECCOMP_FILTER_FLAG_NEW_LISTENER | (1U << 5),
	CAPS = 64
};

/* Rights that make sense on a file: EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV. */
static const uint64_t FILE_RIGHTS = 1U | 2U | 4U | (1U << 14) | (1U << 15);

struct landlock_attr { /* struct landlock_ruleset_attr, Linux 6.12 */
	uint64_t fs, net, scoped;
};

struct __attribute__((packed)) landlock_path { /* struct landlock_path_beneath_attr */
	uint64_t access;
	int32_t fd;
};

static int open_terminal(uint32_t uid, uint32_t gid, int *slave, struct hark_err *err)
{
	hark_autofd master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	char path[32];
	int zero = 0;
	unsigned int n;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &zero) < 0 || ioctl(master, TIOCGPTN, &n) < 0)
		return hark_err_set(err, errno, "terminal: %s", strerror(errno));
	(void)snprintf(path, sizeof(path), "/dev/pts/%u", n);
	*slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*slave < 0 || fchown(*slave, uid, gid) < 0)
		return hark_err_set(err, errno, "terminal: %s", strerror(errno));
	return hark_fd_take(&master);
}

static int on_standard_fds(const int fd[3], struct hark_err *err)
{
	int i;

	for (i = 0; i < 3; i++)
		if (dup2(fd[i], i) < 0)
			return hark_err_set(err, errno, "descriptor %d: %s", i, strerror(errno));
	return 0;
}

/* A pipe is opened anew by /dev/stdout and its like, which asks for the agent's own permission. */
static int give_pipes(const int fd[3], uint32_t uid, uint32_t gid, struct hark_err *err)
{
	struct stat st;
	int i;

	for (i = 0; i < 3; i++) {
		if (fstat(fd[i], &st) < 0)
			return hark_err_set(err, errno, "descriptor %d: %s", i, strerror(errno));
		if (S_ISFIFO(st.st_mode) && fchown(fd[i], uid, gid) < 0)
			return hark_err_set(err, errno, "descriptor %d: %s", i, strerror(errno));
	}
	return 0;
}

/* In init, which is the session's leader: then the agent's group is not an orphaned one and a
 * Ctrl-Z stops it. */
int step_tty(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	const struct report rep = {.kind = REPORT_TTY};
	struct hark_cur cur = op->body;
	struct winsize size = {0};
	hark_autofd master = -1;
	uint32_t uid;
	uint32_t gid;

	size.ws_row = hark_cur_u16(&cur);
	size.ws_col = hark_cur_u16(&cur);
	uid = hark_cur_u32(&cur);
	gid = hark_cur_u32(&cur);
	master = open_terminal(uid, gid, &l->tty, err);
	if (master < 0)
		return -1;
	if (ioctl(master, TIOCSWINSZ, &size) < 0 || ioctl(l->tty, TIOCSCTTY, 0) < 0)
		return hark_err_set(err, errno, "terminal: %s", strerror(errno));
	report_send(l, &rep, master);
	return on_standard_fds((const int[3]){l->tty, l->tty, l->tty}, err);
}

int step_stdio(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	int fd[3];
	uint32_t uid;
	uint32_t gid;
	int i;

	for (i = 0; i < 3; i++)
		fd[i] = l->fds[hark_cur_u16(&cur)];
	uid = hark_cur_u32(&cur);
	gid = hark_cur_u32(&cur);
	if (give_pipes(fd, uid, gid, err))
		return -1;
	return on_standard_fds(fd, err);
}

int step_rlimit(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	uint32_t resource = hark_cur_u32(&cur);
	struct rlimit want;
	struct rlimit have;

	(void)l;
	want.rlim_cur = hark_cur_u64(&cur);
	want.rlim_max = hark_cur_u64(&cur);
	if (getrlimit((__rlimit_resource_t)resource, &have) < 0)
		return hark_err_set(err, errno, "rlimit %u: %s", resource, strerror(errno));
	/* A core limit of 1 is stricter than 0: no file, and no core program of the host. */
	if (resource == RLIMIT_CORE && want.rlim_max == 1 && !setrlimit(RLIMIT_CORE, &want))
		return 0;
	if (want.rlim_max > have.rlim_max) /* raising needs CAP_SYS_RESOURCE: keep the lower one */
		want.rlim_max = have.rlim_max;
	if (want.rlim_cur > want.rlim_max)
		want.rlim_cur = want.rlim_max;
	if (setrlimit((__rlimit_resource_t)resource, &want) < 0)
		return hark_err_set(err, errno, "rlimit %u: %s", resource, strerror(errno));
	return 0;
}

int step_personality(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const int before = personality(0xffffffffUL); /* asks, and changes nothing */

	(void)l;
	if (before < 0 || personality((unsigned int)before | hark_cur_u32(&cur)) < 0)
		return hark_err_set(err, errno, "personality: %s", strerror(errno));
	return 0;
}

static int lock_privileges(struct hark_err *err)
{
	const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
				   SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
				   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
	unsigned long cap;

	for (cap = 0; cap < CAPS; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
			return hark_err_set(err, errno, "bounding set: %s", strerror(errno));
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECUREBITS, bits) < 0)
		return hark_err_set(err, errno, "securebits: %s", strerror(errno));
	return 0;
}

static int drop_all_caps(struct hark_err *err)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0}, {0}};

	if (syscall(SYS_capset, &h, none) < 0)
		return hark_err_set(err, errno, "capset: %s", strerror(errno));
	return 0;
}

/* PR_SET_DUMPABLE comes after the last credential change, which clears it: the agent must be able
 * to read its own /proc files, and a tracer of its user namespace to attach. */
static int seal_process(struct hark_err *err)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return hark_err_set(err, errno, "no_new_privs: %s", strerror(errno));
	if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return hark_err_set(err, errno, "close_range: %s", strerror(errno));
	return 0;
}

int step_creds(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	uint16_t ns = hark_cur_u16(&cur);
	uint32_t uid = hark_cur_u32(&cur);
	uint32_t gid = hark_cur_u32(&cur);

	if (ns >= l->userns_n || setns(l->userns[ns], CLONE_NEWUSER) < 0)
		return hark_err_set(err, errno, "enter user namespace: %s", strerror(errno));
	if (lock_privileges(err))
		return -1;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return hark_err_set(err, errno, "become uid %u: %s", uid, strerror(errno));
	return drop_all_caps(err) || seal_process(err) ? -1 : 0;
}

int step_cwd(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);

	(void)l;
	if (chdir(path) < 0)
		return hark_err_set(err, errno, "working folder %s: %s", path, strerror(errno));
	return 0;
}

/* A path the agent cannot even open stays denied, so it is no error. */
static int add_rule(int ruleset, uint64_t access, const char *path, struct hark_err *err)
{
	hark_autofd fd = open(path, O_PATH | O_CLOEXEC);
	struct landlock_path rule = {access, fd};
	struct stat st;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0)
		return hark_err_set(err, errno, "landlock %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		rule.access &= FILE_RIGHTS;
	if (!rule.access)
		return 0;
	if (syscall(NR_LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, &rule, 0) < 0)
		return hark_err_set(err, errno, "landlock %s: %s", path, strerror(errno));
	return 0;
}

/* The size given must be one this kernel knows: fields it does not know are zero and cut off. */
static size_t attr_size(const struct landlock_attr *a)
{
	if (a->scoped)
		return sizeof(*a);
	return a->net ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
}

int step_landlock(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct landlock_attr attr;
	hark_autofd ruleset = -1;
	uint32_t flags;
	uint32_t n;

	(void)l;
	attr.fs = hark_cur_u64(&cur);
	attr.net = hark_cur_u64(&cur);
	attr.scoped = hark_cur_u64(&cur);
	flags = hark_cur_u32(&cur);
	ruleset = (int)syscall(NR_LANDLOCK_CREATE, &attr, attr_size(&attr), 0);
	if (ruleset < 0)
		return hark_err_set(err, errno, "landlock: %s", strerror(errno));
	for (n = hark_cur_u32(&cur); n; n--) {
		uint64_t access = hark_cur_u64(&cur);

		if (add_rule(ruleset, access, hark_cur_str(&cur), err))
			return -1;
	}
	if (syscall(NR_LANDLOCK_RESTRICT, ruleset, flags) < 0)
		return hark_err_set(err, errno, "landlock: restrict: %s", strerror(errno));
	return 0;
}

int step_seccomp(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	uint32_t len = hark_cur_u32(&cur);
	const uint8_t *blob = hark_cur_bytes(&cur, len);
	const size_t n = len / sizeof(struct sock_filter);
	const bool notify = (op->flags & HARK_OPF_NOTIFY) != 0;
	struct sock_filter *code = malloc(len ? len : 1);
	struct sock_fprog prog;
	long r;

	if (!code || !n || n > BPF_MAXINSNS || len % sizeof(*code)) {
		free(code);
		return hark_err_set(err, EINVAL, "seccomp: no usable filter");
	}
	memcpy(code, blob, len);
	prog.len = (unsigned short)n;
	prog.filter = code;
	r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, notify ? LISTEN : 0UL, &prog);
	free(code);
	if (r < 0)
		return hark_err_set(err, errno, "seccomp: %s", strerror(errno));
	return notify ? tracer_give(l, (int)r, err) : 0;
}

/* NULL-terminated array of borrowed strings from `{u32 n, str[n]}`. */
static char **read_strings(struct hark_cur *cur)
{
	uint32_t n = hark_cur_u32(cur);
	char **out = calloc((size_t)n + 1, sizeof(*out));
	uint32_t i;

	for (i = 0; out && i < n; i++)
		out[i] = (char *)(uintptr_t)hark_cur_str(cur);
	return out;
}

int step_env(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;

	l->envp = read_strings(&cur);
	return l->envp ? 0 : hark_err_set(err, ENOMEM, "environment: no memory");
}

/* The conventional codes of a shell: 127 not found, 126 found but not executable. */
int step_exec(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *file = hark_cur_str(&cur);
	char **argv = read_strings(&cur);

	if (!argv)
		return hark_err_set(err, ENOMEM, "arguments: no memory");
	(void)execve(file, argv, l->envp);
	dprintf(STDERR_FILENO, "hark: error: cannot start %s\nhark: cause: %s\n", file,
		strerror(errno));
	_exit(errno == ENOENT || errno == ENOTDIR ? 127 : 126);
}
