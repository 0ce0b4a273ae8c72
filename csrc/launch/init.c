/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run's init: pid 1 of its namespace. It builds the private root, starts the agent, forwards
 * signals to it, reaps, and reports. Its end ends every process of the run. Once the agent lives
 * it keeps one capability, CAP_KILL: without it, it could not signal another uid.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

/* Ends that cross the clone. */
struct birth {
	int reports; /* child's end */
	int alive;   /* child's read end: hangs up when the warden is gone */
	int execd;   /* agent's write end: closed by a successful exec */
};

static const struct {
	uint16_t op;
	step_fn *run;
} steps[] = {
	{HARK_OP_DEADLINES, step_deadlines},
	{HARK_OP_HOLD, step_hold},
	{HARK_OP_WATCH, step_watch},
	{HARK_OP_RUN_DIR, step_run_dir},
	{HARK_OP_PUBLISH, step_publish},
	{HARK_OP_METER, step_meter},
	{HARK_OP_NETNS, step_netns},
	{HARK_OP_LISTEN, step_listen},
	{HARK_OP_NFLOG, step_nflog},
	{HARK_OP_CGROUP, step_cgroup},
	{HARK_OP_LIMIT_V2, step_limit_v2},
	{HARK_OP_LIMIT_V1, step_limit_v1},
	{HARK_OP_USERNS, step_userns},
	{HARK_OP_VIEW, step_view},
	{HARK_OP_TRACE, step_trace},
	{HARK_OP_HOSTNAME, step_hostname},
	{HARK_OP_ROOT, step_root},
	{HARK_OP_LINK, step_link},
	{HARK_OP_STAGE_DIR, step_stage_dir},
	{HARK_OP_MASK, step_mask},
	{HARK_OP_STAGE_FILE, step_stage_file},
	{HARK_OP_TREE, step_tree},
	{HARK_OP_ONE_FILE, step_one_file},
	{HARK_OP_TMPFS, step_tmpfs},
	{HARK_OP_DEV, step_dev},
	{HARK_OP_PROC, step_proc},
	{HARK_OP_WORKSPACE, step_workspace},
	{HARK_OP_DIRECT, step_direct},
	{HARK_OP_COVER, step_cover},
	{HARK_OP_PIVOT, step_pivot},
	{HARK_OP_RLIMIT, step_rlimit},
	{HARK_OP_PERSONALITY, step_personality},
	{HARK_OP_CREDS, step_creds},
	{HARK_OP_CWD, step_cwd},
	{HARK_OP_LANDLOCK, step_landlock},
	{HARK_OP_SECCOMP, step_seccomp},
	{HARK_OP_ENV, step_env},
	{HARK_OP_EXEC, step_exec},
};

static step_fn *find_step(uint16_t op)
{
	size_t i;

	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (steps[i].op == op)
			return steps[i].run;
	return NULL;
}

int launch_phase(struct launch *l, enum plan_phase phase, struct hark_err *err)
{
	uint32_t i;

	for (i = 0; i < l->plan.n; i++) {
		const struct plan_op *op = &l->plan.ops[i];
		step_fn *run = plan_phase_of(op) == phase ? find_step(op->op) : NULL;

		if (!run)
			continue;
		l->at_op = op->index;
		if (run(l, op, err))
			return -1;
	}
	l->at_op = UINT32_MAX;
	return 0;
}

void report_send(const struct launch *l, const struct report *rep, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl = {{0}};
	struct iovec iov = {(void *)(uintptr_t)rep, sizeof(*rep)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *c;

		mh.msg_control = ctl.buf;
		mh.msg_controllen = sizeof(ctl.buf);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	while (sendmsg(l->reports, &mh, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static _Noreturn void give_up(const struct launch *l, const struct hark_err *err)
{
	const struct report rep = {.kind = REPORT_FAILED, .op = l->at_op, .err = *err};

	report_send(l, &rep, -1);
	_exit(125);
}

/* The warden's death must end the run; the signal alone has a race with an early death, the pipe
 * has none. */
static int die_with_warden(const struct birth *b, struct hark_err *err)
{
	struct pollfd p = {.fd = b->alive, .events = 0};

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return hark_err_set(err, errno, "parent death signal: %s", strerror(errno));
	if (poll(&p, 1, 0) != 0)
		_exit(125);
	return 0;
}

static const struct plan_op *find_op(const struct launch *l, uint16_t op)
{
	uint32_t i;

	for (i = 0; i < l->plan.n; i++)
		if (l->plan.ops[i].op == op)
			return &l->plan.ops[i];
	return NULL;
}

static int open_stdio(struct launch *l, struct hark_err *err)
{
	const struct plan_op *tty = find_op(l, HARK_OP_TTY);
	const struct plan_op *stdio = find_op(l, HARK_OP_STDIO);

	if (setsid() < 0) /* also leaves the operator's terminal: /dev/tty must not be it */
		return hark_err_set(err, errno, "session: %s", strerror(errno));
	if (!tty == !stdio)
		return hark_err_set(err, EPROTO, "plan: a terminal or descriptors, not both");
	l->at_op = tty ? tty->index : stdio->index;
	return tty ? step_tty(l, tty, err) : step_stdio(l, stdio, err);
}

/* What the warden ignores or blocks is not the agent's: dispositions survive an exec. By the
 * kernel's own call, since libc hides two signals that its posix_spawn leaves ignored. */
static void default_signals(void)
{
	const struct {
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} dfl = {0};
	sigset_t none;
	int signo;

	for (signo = 1; signo < NSIG; signo++)
		(void)syscall(SYS_rt_sigaction, signo, &dfl, NULL, sizeof(dfl.mask));
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void agent_main(struct launch *l)
{
	const struct report rep = {.kind = REPORT_AGENT};
	struct hark_err err;

	hark_err_init(&err);
	(void)setpgid(0, 0);
	if (l->tty >= 0)
		(void)tcsetpgrp(l->tty, getpid());
	default_signals();
	report_send(l, &rep, -1);
	if (!launch_phase(l, PLAN_AGENT, &err))
		(void)hark_err_set(&err, EPROTO, "plan: nothing to execute");
	give_up(l, &err);
}

static int keep_cap_kill(struct hark_err *err)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2] = {{1U << CAP_KILL, 1U << CAP_KILL, 0}, {0}};
	unsigned long cap;

	for (cap = 0; cap < 64; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (syscall(SYS_capset, &h, d) < 0)
		return hark_err_set(err, errno, "init: capset: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return hark_err_set(err, errno, "init: no_new_privs: %s", strerror(errno));
	return 0;
}

/* Init must not hold the agent's pipes open: their end of file is the recorder's signal. */
static int release_stdio(void)
{
	hark_autofd null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int i;

	for (i = 0; i < 3; i++)
		if (null < 0 || dup2(null, i) < 0)
			return -1;
	return 0;
}

static void report_state(const struct launch *l, uint32_t kind, int status)
{
	const struct report rep = {.kind = kind, .value = (uint32_t)status};

	report_send(l, &rep, -1);
}

static void reap(struct launch *l)
{
	int st;
	pid_t pid;

	while ((pid = waitpid(-1, &st, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
		if (pid != l->agent_pid)
			continue;
		if (WIFSTOPPED(st))
			report_state(l, REPORT_STOPPED, st);
		else if (WIFCONTINUED(st))
			report_state(l, REPORT_CONTINUED, st);
		else
			report_state(l, REPORT_EXITED, st);
	}
}

/* What a terminal would send goes to the agent's group, the rest to the agent alone. */
static void forward(const struct launch *l, int signo)
{
	const bool group = signo == SIGINT || signo == SIGQUIT || signo == SIGTSTP ||
			   signo == SIGCONT || signo == SIGHUP || signo == SIGWINCH;

	if (signo == SIGCONT && l->tty >= 0)
		(void)tcsetpgrp(l->tty, l->agent_pid);
	(void)kill(group ? -l->agent_pid : l->agent_pid, signo);
}

static void on_signals(struct launch *l, int sfd)
{
	struct signalfd_siginfo si;

	while (read(sfd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			reap(l);
		else
			forward(l, (int)si.ssi_signo);
	}
}

static _Noreturn void watch_agent(struct launch *l, int alive, int sfd)
{
	struct pollfd p[3] = {{.fd = sfd, .events = POLLIN},
			      {.fd = alive, .events = 0},
			      {.fd = l->reports, .events = POLLIN}};

	for (;;) {
		if (poll(p, 3, -1) < 0 && errno != EINTR)
			_exit(125);
		if (p[1].revents || p[2].revents) /* the warden is gone, or lets us go */
			_exit(0);
		if (p[0].revents)
			on_signals(l, sfd);
	}
}

static void close_wardens(struct launch *l)
{
	size_t i;

	hark_fd_close(&l->rec.fd);
	for (i = 0; i < l->nfds; i++)
		if (l->keep[i])
			hark_fd_close(&l->fds[i]);
}

/* Close every descriptor from 3 on but these. */
static void close_others(const int *keep, size_t n)
{
	unsigned int from = 3;
	size_t i;

	for (;;) {
		unsigned int next = ~0U;

		for (i = 0; i < n; i++)
			if (keep[i] >= (int)from && (unsigned int)keep[i] < next)
				next = (unsigned int)keep[i];
		if (next > from)
			(void)syscall(SYS_close_range, from, next == ~0U ? next : next - 1, 0U);
		if (next == ~0U)
			return;
		from = next + 1;
	}
}

static int build(struct launch *l, const struct birth *b, struct hark_err *err)
{
	(void)umask(022);
	if (setns(l->net.a, CLONE_NEWNET) < 0)
		return hark_err_set(err, errno, "enter network namespace: %s", strerror(errno));
	net_fini(&l->net);
	if (cgroup_enter_v1(&l->cgroup, err) || launch_phase(l, PLAN_ROOT, err) ||
	    open_stdio(l, err))
		return -1;
	return die_with_warden(b, err); /* again: fsuid changes have cleared it */
}

static void fork_agent(struct launch *l, const struct birth *b, struct hark_err *err)
{
	sigset_t all;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, NULL);
	l->agent_pid = fork();
	if (l->agent_pid == 0) {
		(void)close(b->alive);
		agent_main(l);
	}
	if (l->agent_pid < 0) {
		(void)hark_err_set(err, errno, "fork: %s", strerror(errno));
		give_up(l, err);
	}
}

static _Noreturn void init_main(struct launch *l, const struct birth *b)
{
	struct hark_err err;
	sigset_t all;
	int sfd;

	hark_err_init(&err);
	l->reports = b->reports;
	(void)prctl(PR_SET_NAME, "hark-init");
	close_wardens(l);
	if (die_with_warden(b, &err) || build(l, b, &err))
		give_up(l, &err);
	fork_agent(l, b, &err);
	(void)setpgid(l->agent_pid, l->agent_pid);
	(void)sigfillset(&all);
	sfd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	close_others((const int[4]){l->reports, b->alive, sfd, l->tty}, 4);
	if (sfd < 0 || release_stdio())
		(void)hark_err_set(&err, errno, "init: %s", strerror(errno));
	if (err.err || keep_cap_kill(&err) || die_with_warden(b, &err))
		give_up(l, &err);
	watch_agent(l, b->alive, sfd);
}

static int make_ends(struct launch *l, struct birth *b, struct hark_err *err)
{
	const int one = 1;
	int sv[2];
	int alive[2];
	int execd[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return hark_err_set(err, errno, "socketpair: %s", strerror(errno));
	l->reports = sv[0];
	b->reports = sv[1];
	/* before anyone can send: credentials are stamped by the sender's side */
	if (setsockopt(sv[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0 ||
	    pipe2(alive, O_CLOEXEC) < 0)
		return hark_err_set(err, errno, "pipe: %s", strerror(errno));
	b->alive = alive[0];
	l->alive = alive[1];
	if (pipe2(execd, O_CLOEXEC) < 0)
		return hark_err_set(err, errno, "pipe: %s", strerror(errno));
	l->execd = execd[0];
	b->execd = execd[1];
	return 0;
}

static pid_t clone_init(struct launch *l)
{
	struct clone_args args = {
		.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			 CLONE_NEWCGROUP,
		.pidfd = (uint64_t)(uintptr_t)&l->init_pidfd,
		.exit_signal = SIGCHLD,
	};

	if (l->cgroup.fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned int)l->cgroup.fd;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/* The warden keeps no end of the agent's pipes and no source mount. */
static void release_agent_fds(struct launch *l)
{
	size_t i;

	for (i = 0; i < l->nfds; i++)
		if (!l->keep[i])
			hark_fd_close(&l->fds[i]);
}

int init_start(struct launch *l, struct hark_err *err)
{
	struct birth b = {-1, -1, -1};

	if (root_detach_sources(l, err) || make_ends(l, &b, err))
		return -1;
	l->at_op = UINT32_MAX;
	l->init_pid = clone_init(l);
	if (l->init_pid == 0) {
		hark_fd_close(&l->reports);
		hark_fd_close(&l->alive);
		hark_fd_close(&l->execd);
		init_main(l, &b);
	}
	hark_fd_close(&b.reports);
	hark_fd_close(&b.alive);
	hark_fd_close(&b.execd);
	release_agent_fds(l);
	if (l->init_pid < 0)
		return hark_err_set(err, errno, "clone3: %s", strerror(errno));
	return 0;
}
