/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden: sets the run up, waits for every party, ends the run when one is gone, publishes the
 * bundle and removes what the run left. It never waits without a deadline, except for the agent.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hark_pins.h"
#include "launch.h"

enum {
	PLAN_MS = 10000, /* for the plan to arrive */
	SEND_MS = 5000,
	END_MS = 10000, /* for a killed tree to be gone */
	PATH_BYTES = 64
};

enum event {
	EV_MSG,      /* .msg, .fds */
	EV_REPORT,   /* .rep, .pid, .fd */
	EV_EXECED,   /* the agent has left our code */
	EV_INIT,     /* init is dead */
	EV_RECORDER, /* its socket is closed, or broken */
	EV_DEATH,    /* .cause */
	EV_METER,    /* the run is over a limit, or its meter died */
	EV_TERM,     /* somebody sent us SIGTERM */
	EV_TIMEOUT
};

struct warden {
	struct launch *l;
	int term; /* signalfd */
	union hark_msg msg;
	struct hark_msg_fds fds;
	struct report rep;
	pid_t pid;
	int fd;
	uint32_t cause;
	bool begun;    /* GO came: the bundle holds a run */
	bool watching; /* the deaths of the other parties still matter */
	bool recorder_gone;
};

int step_deadlines(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;

	(void)err;
	l->setup_ms = hark_cur_u32(&cur);
	l->go_ms = hark_cur_u32(&cur);
	l->seal_ms = hark_cur_u32(&cur);
	return 0;
}

int step_hold(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;

	(void)err;
	l->keep[hark_cur_u16(&cur)] = true;
	return 0;
}

int step_watch(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct launch_watch w;

	w.cause = hark_cur_u32(&cur);
	w.at = hark_cur_u16(&cur);
	if (l->watch_n == LAUNCH_WATCHES)
		return hark_err_set(err, E2BIG, "plan: too many processes to watch");
	l->keep[w.at] = true;
	l->watch[l->watch_n++] = w;
	return 0;
}

int step_run_dir(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;

	l->publish.runs = hark_cur_u16(&cur);
	l->publish.run_name = hark_cur_str(&cur);
	l->keep[l->publish.runs] = true;
	if (!*l->publish.run_name || strchr(l->publish.run_name, '/'))
		return hark_err_set(err, EINVAL, "plan: not a run name");
	return 0;
}

int step_publish(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct launch_publish *p = &l->publish;
	struct hark_cur cur = op->body;

	p->dest = hark_cur_u16(&cur);
	p->dest_name = hark_cur_str(&cur);
	p->uid = hark_cur_u32(&cur);
	p->gid = hark_cur_u32(&cur);
	p->groups_n = hark_cur_u32(&cur);
	p->groups = cur;
	l->keep[p->dest] = true;
	if (!*p->dest_name || strchr(p->dest_name, '/'))
		return hark_err_set(err, EINVAL, "plan: not a file name");
	return 0;
}

/* One packet of init or agent. A packet of another size, or none, is the end of that socket. */
static bool read_report(struct warden *w)
{
	union {
		char buf[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {&w->rep, sizeof(w->rep)};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf)};
	struct cmsghdr *c;
	ssize_t n = recvmsg(w->l->reports, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	w->fd = -1;
	w->pid = 0;
	for (c = n < 0 ? NULL : CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
		struct ucred cred;

		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&w->fd, CMSG_DATA(c), sizeof(w->fd));
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
			w->pid = cred.pid;
		}
	}
	if (n == (ssize_t)sizeof(w->rep))
		return true;
	hark_fd_close(&w->fd);
	if (n == 0)
		hark_fd_close(&w->l->reports);
	return false;
}

static enum event read_message(struct warden *w)
{
	const enum hark_rx rx = hark_chan_recv(&w->l->rec, &w->msg, &w->fds, 0);

	if (rx == HARK_RX_MSG)
		return EV_MSG;
	if (rx == HARK_RX_TIMEOUT)
		return EV_TIMEOUT;
	w->recorder_gone = true;
	return EV_RECORDER;
}

/* Which of the other parties has died: the first whose descriptor shows any event. */
static bool find_death(struct warden *w, const struct pollfd *p)
{
	size_t i;

	for (i = 0; i < w->l->watch_n; i++) {
		if (!p[i].revents)
			continue;
		w->cause = w->l->watch[i].cause;
		return true;
	}
	return false;
}

enum { P_REPORTS, P_EXECD, P_INIT, P_REC, P_TERM, P_METER, P_WATCH };

/* Reports come first, so that an agent's own end is never mistaken for init's. */
static enum event pick(struct warden *w, const struct pollfd *p)
{
	struct launch *l = w->l;

	if (p[P_REPORTS].revents && read_report(w))
		return EV_REPORT;
	if (p[P_EXECD].revents) {
		hark_fd_close(&l->execd);
		return EV_EXECED;
	}
	if (p[P_INIT].revents)
		return EV_INIT;
	if (p[P_REC].revents)
		return read_message(w);
	if (p[P_TERM].revents) {
		struct signalfd_siginfo si;

		(void)!read(w->term, &si, sizeof(si));
		return EV_TERM;
	}
	if (p[P_METER].revents)
		return EV_METER;
	return find_death(w, p + P_WATCH) ? EV_DEATH : EV_TIMEOUT;
}

static enum event next_event(struct warden *w, uint64_t deadline_ns)
{
	struct launch *l = w->l;
	struct pollfd p[P_WATCH + LAUNCH_WATCHES];
	size_t i;

	for (;;) {
		enum event ev;
		int n;

		p[P_REPORTS] = (struct pollfd){l->reports, POLLIN, 0};
		p[P_EXECD] = (struct pollfd){l->execd, POLLIN, 0};
		p[P_INIT] = (struct pollfd){l->init_reaped ? -1 : l->init_pidfd, POLLIN, 0};
		p[P_REC] = (struct pollfd){w->recorder_gone ? -1 : l->rec.fd, POLLIN, 0};
		p[P_TERM] = (struct pollfd){w->term, POLLIN, 0};
		p[P_METER] = (struct pollfd){l->meter.fd, POLLIN, 0};
		for (i = 0; i < l->watch_n; i++)
			p[P_WATCH + i] = (struct pollfd){w->watching ? l->fds[l->watch[i].at] : -1,
							 POLLIN, 0};
		n = poll(p, (nfds_t)(P_WATCH + l->watch_n), hark_deadline_poll(deadline_ns));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return EV_TIMEOUT;
		ev = pick(w, p);
		if (ev != EV_TIMEOUT)
			return ev;
	}
}

/* A party of the run is gone, or the time is over, before the agent was there. */
static int event_failed(struct warden *w, enum event ev, const char *what, struct hark_err *err)
{
	static const char *const who[] = {
		[HARK_EXIT_RECORDER] = "recorder", [HARK_EXIT_MEDIATOR] = "mediator",
		[HARK_EXIT_BROKER] = "broker",     [HARK_EXIT_SIGNER] = "signer",
		[HARK_EXIT_TRACER] = "tracer",
	};

	if (ev == EV_TIMEOUT)
		return hark_err_set(err, ETIME, "%s: no answer in time", what);
	if (ev == EV_RECORDER)
		return hark_err_set(err, EPIPE, "%s: the recorder is gone", what);
	if (ev == EV_DEATH)
		return hark_err_set(err, EPIPE, "%s: the %s died", what,
				    w->cause < sizeof(who) / sizeof(who[0]) && who[w->cause]
					    ? who[w->cause]
					    : "watched process");
	if (ev == EV_INIT)
		return hark_err_set(err, ECHILD, "%s: the run's init died", what);
	if (ev == EV_TERM)
		return hark_err_set(err, EINTR, "%s: terminated", what);
	return hark_err_set(err, EPROTO, "%s: unexpected message", what);
}

static int take_fds(struct warden *w, struct hark_err *err)
{
	struct launch *l = w->l;

	if (l->nfds + w->fds.n > HARK_PLAN_FDS) {
		hark_fd_close_all(w->fds.fd, w->fds.n);
		return hark_err_set(err, E2BIG, "plan: too many descriptors");
	}
	memcpy(l->fds + l->nfds, w->fds.fd, w->fds.n * sizeof(int));
	l->nfds += w->fds.n;
	return 0;
}

static int receive_plan(struct warden *w, struct hark_err *err)
{
	const uint64_t deadline_ns = hark_deadline_ms(PLAN_MS);

	for (;;) {
		enum event ev = next_event(w, deadline_ns);
		int r;

		if (ev != EV_MSG)
			return event_failed(w, ev, "plan", err);
		if (w->msg.head.type == HARK_MSG_FDS) {
			if (take_fds(w, err))
				return -1;
			continue;
		}
		if (w->msg.head.type != HARK_MSG_PLAN || w->fds.n != 1) {
			hark_fd_close_all(w->fds.fd, w->fds.n);
			return event_failed(w, EV_MSG, "plan", err);
		}
		r = plan_load(&w->l->plan, w->fds.fd[0], w->l->nfds, err);
		hark_fd_close(&w->fds.fd[0]);
		return r;
	}
}

static int send_net_ready(struct launch *l, struct hark_err *err)
{
	const struct launch_net *n = &l->net;
	const int fds[] = {n->m,     n->tcp4, n->tcp6, n->udp4, n->udp6,
			   n->nflog, n->a,    n->dns4, n->dns6, l->cgroup.fd};
	const size_t count = sizeof(fds) / sizeof(fds[0]) - (l->cgroup.fd < 0);
	union hark_msg msg = {.net_ready = {.cgroup_id = l->cgroup.id, .netns_cookie = n->cookie}};

	return hark_chan_send(&l->rec, &msg, HARK_MSG_NET_READY, 0, fds, count,
			      hark_deadline_ms(SEND_MS), err);
}

static int await_go(struct warden *w, struct hark_err *err)
{
	enum event ev;

	w->watching = true;
	ev = next_event(w, hark_deadline_ms(w->l->go_ms));
	if (ev == EV_MSG)
		hark_fd_close_all(w->fds.fd, w->fds.n);
	if (ev != EV_MSG || w->msg.head.type != HARK_MSG_GO)
		return event_failed(w, ev, "go", err);
	w->begun = true;
	return 0;
}

/* The agent's packet carries its pid as the kernel translates it for us. */
static int on_start_report(struct warden *w, struct hark_err *err)
{
	struct launch *l = w->l;

	switch (w->rep.kind) {
	case REPORT_TTY:
		l->tty = w->fd;
		return 0;
	case REPORT_AGENT:
		l->agent_pid = w->pid;
		l->agent_pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
		return 0;
	case REPORT_FAILED:
		l->at_op = w->rep.op;
		*err = w->rep.err;
		err->what[sizeof(err->what) - 1] = 0;
		err->hint[sizeof(err->hint) - 1] = 0;
		return err->err ? -1 : hark_err_set(err, EIO, "start failed");
	case REPORT_EXITED:
		l->agent_exited = true;
		l->wait_status = w->rep.value;
		return 0;
	default:
		return 0;
	}
}

/* Kept to find executables of processes that are gone by the time the recorder asks. */
static void open_agent_root(struct launch *l)
{
	char path[PATH_BYTES];

	if (l->root >= 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", l->init_pid);
	l->mntns = open(path, O_RDONLY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "/proc/%d/root", l->init_pid);
	l->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void answer_exe(struct warden *w)
{
	union hark_msg msg = {.exe = {.err = 0}};
	const uint32_t id = w->msg.head.id;
	hark_autofd fd = exe_open(w->l, &w->msg.open_exe);
	struct hark_err err;

	hark_err_init(&err);
	if (fd < 0) {
		msg.exe.err = (uint32_t)-fd;
		fd = -1;
	}
	if (hark_chan_send(&w->l->rec, &msg, HARK_MSG_EXE, id, &fd, fd >= 0,
			   hark_deadline_ms(SEND_MS), &err))
		w->recorder_gone = true;
}

static void send_signal(const struct launch *l, int signo)
{
	const int to = signo == SIGKILL || signo == SIGSTOP ? l->agent_pidfd : l->init_pidfd;

	if (signo > 0 && signo < NSIG && to >= 0)
		(void)syscall(SYS_pidfd_send_signal, to, signo, NULL, 0);
}

/*
 * The recorder sees an exec by the kernel's sensors at once, so it may ask for the executable, or
 * pass a signal on, before init's report of that exec has come here.
 */
static int early_message(struct warden *w, struct hark_err *err)
{
	hark_fd_close_all(w->fds.fd, w->fds.n);
	switch (w->msg.head.type) {
	case HARK_MSG_OPEN_EXE:
		open_agent_root(w->l);
		answer_exe(w);
		return 0;
	case HARK_MSG_SIGNAL:
		send_signal(w->l, (int)w->msg.signal.signo);
		return 0;
	default:
		return event_failed(w, EV_MSG, "start", err);
	}
}

static int await_exec(struct warden *w, struct hark_err *err)
{
	const uint64_t deadline_ns = hark_deadline_ms(w->l->setup_ms);

	for (;;) {
		enum event ev = next_event(w, deadline_ns);

		if (ev == EV_EXECED && w->l->agent_pid > 0)
			return 0;
		if (ev == EV_EXECED) /* nothing reported it: init died early */
			continue;
		if (ev == EV_MSG) {
			if (early_message(w, err))
				return -1;
			continue;
		}
		if (ev != EV_REPORT)
			return event_failed(w, ev, "start", err);
		if (on_start_report(w, err))
			return -1;
	}
}

static int send_started(struct launch *l, struct hark_err *err)
{
	union hark_msg msg = {.started = {.agent_pid = (uint32_t)l->agent_pid,
					  .init_pid = (uint32_t)l->init_pid}};
	int r = hark_chan_send(&l->rec, &msg, HARK_MSG_STARTED, 0, &l->tty, l->tty >= 0,
			       hark_deadline_ms(SEND_MS), err);

	hark_fd_close(&l->tty);
	return r;
}

static int start_agent(struct warden *w, struct hark_err *err)
{
	struct launch *l = w->l;

	if (init_start(l, err) || await_exec(w, err))
		return -1;
	open_agent_root(l);
	return send_started(l, err) || meter_start(l, err) ? -1 : 0;
}

static void send_job(struct warden *w, bool stopped)
{
	union hark_msg msg = {.job = {.stopped = stopped}};
	struct hark_err err;

	hark_err_init(&err);
	if (hark_chan_send(&w->l->rec, &msg, HARK_MSG_JOB, 0, NULL, 0, hark_deadline_ms(SEND_MS),
			   &err))
		w->recorder_gone = true;
}

/* false: the run is over, for w->cause. */
static bool on_run_message(struct warden *w)
{
	hark_fd_close_all(w->fds.fd, w->fds.n);
	switch (w->msg.head.type) {
	case HARK_MSG_SIGNAL:
		send_signal(w->l, (int)w->msg.signal.signo);
		return true;
	case HARK_MSG_OPEN_EXE:
		answer_exe(w);
		return true;
	case HARK_MSG_KILL:
		w->cause = HARK_EXIT_KILLED;
		return false;
	default:
		w->cause = HARK_EXIT_RECORDER;
		w->recorder_gone = true;
		return false;
	}
}

static bool on_run_report(struct warden *w)
{
	hark_fd_close(&w->fd);
	if (w->rep.kind == REPORT_STOPPED || w->rep.kind == REPORT_CONTINUED)
		send_job(w, w->rep.kind == REPORT_STOPPED);
	if (w->rep.kind != REPORT_EXITED)
		return true;
	w->l->agent_exited = true;
	w->l->wait_status = w->rep.value;
	w->cause = HARK_EXIT_AGENT;
	return false;
}

static void run_until_end(struct warden *w)
{
	bool going = !w->l->agent_exited;

	w->cause = HARK_EXIT_AGENT;
	while (going) {
		switch (next_event(w, HARK_TIME_NEVER)) {
		case EV_MSG:
			going = on_run_message(w);
			break;
		case EV_REPORT:
			going = on_run_report(w);
			break;
		case EV_RECORDER:
			w->cause = HARK_EXIT_RECORDER;
			going = false;
			break;
		case EV_TERM:
			w->cause = HARK_EXIT_KILLED;
			going = false;
			break;
		case EV_INIT:
			w->cause = HARK_EXIT_INIT;
			going = false;
			break;
		case EV_METER:
			w->l->limit = meter_read(w->l);
			w->cause = w->l->limit ? HARK_EXIT_LIMIT : HARK_EXIT_METER;
			going = false;
			break;
		case EV_DEATH:
			going = false; /* find_death has set the cause */
			break;
		case EV_EXECED:
		case EV_TIMEOUT:
			break;
		}
		if (w->recorder_gone && going) {
			w->cause = HARK_EXIT_RECORDER;
			going = false;
		}
	}
}

/* Wait for init. Its end ends every process of its namespace, before it is reaped. */
static void reap_init(struct warden *w, uint64_t deadline_ns)
{
	struct launch *l = w->l;
	struct pollfd p = {.fd = l->init_pidfd, .events = POLLIN};
	int status = 0;

	if (l->init_pid <= 0 || l->init_reaped)
		return;
	if (poll(&p, 1, hark_deadline_poll(deadline_ns)) != 1)
		return;
	if (waitpid(l->init_pid, &status, 0) == l->init_pid)
		l->init_reaped = true;
	while (l->reports >= 0 && read_report(w)) {
		hark_fd_close(&w->fd);
		if (w->rep.kind == REPORT_EXITED && !l->agent_exited) {
			l->agent_exited = true;
			l->wait_status = w->rep.value;
		}
	}
	if (!l->agent_exited)
		l->wait_status = (uint32_t)status;
}

/* End every process of the run, however far it came. */
static void end_tree(struct warden *w)
{
	struct launch *l = w->l;

	meter_stop(l);
	if (l->agent_exited)
		l->stragglers = cgroup_tasks(&l->cgroup, l->init_pid);
	cgroup_kill(&l->cgroup);
	if (l->init_pid > 0 && !l->init_reaped)
		(void)syscall(SYS_pidfd_send_signal, l->init_pidfd, SIGKILL, NULL, 0);
	reap_init(w, hark_deadline_ms(END_MS));
}

static void send_exited(struct warden *w)
{
	union hark_msg msg = {.exited = {.wait_status = w->l->wait_status,
					 .stragglers = w->l->stragglers,
					 .cause = w->cause,
					 .limit = w->l->limit}};
	struct hark_err err;
	int views[HARK_CHAN_FDS];
	size_t n;

	hark_err_init(&err);
	if (w->recorder_gone)
		return;
	meter_counts(&w->l->cgroup, &msg.exited.refused_tasks, &msg.exited.killed_tasks);
	n = view_open(w->l, views, HARK_CHAN_FDS);
	if (hark_chan_send(&w->l->rec, &msg, HARK_MSG_EXITED, 0, views, n,
			   hark_deadline_ms(SEND_MS), &err))
		w->recorder_gone = true;
	hark_fd_close_all(views, n);
}

/* Until the recorder says SEALED: true, and what it wants is in .msg. A recorder that is gone or
 * silent leaves a prefix, which is published as it is. */
static bool await_sealed(struct warden *w)
{
	const uint64_t deadline_ns = hark_deadline_ms(w->l->seal_ms);

	w->watching = false;
	while (!w->recorder_gone) {
		enum event ev = next_event(w, deadline_ns);

		if (ev == EV_MSG)
			hark_fd_close_all(w->fds.fd, w->fds.n);
		if (ev == EV_MSG && w->msg.head.type == HARK_MSG_SEALED)
			return true;
		if (ev == EV_MSG && w->msg.head.type == HARK_MSG_OPEN_EXE)
			answer_exe(w);
		if (ev == EV_TIMEOUT || ev == EV_TERM)
			break;
	}
	return false;
}

static void send_published(struct warden *w, int code)
{
	union hark_msg msg = {.published = {.err = (uint32_t)code}};
	struct hark_err err;

	hark_err_init(&err);
	if (!w->recorder_gone)
		(void)!hark_chan_send(&w->l->rec, &msg, HARK_MSG_PUBLISHED, 0, NULL, 0,
				      hark_deadline_ms(SEND_MS), &err);
}

static void clean_up(struct launch *l)
{
	struct hark_err err;

	hark_err_init(&err);
	hark_fd_close(&l->root); /* the last holders of the agent's mounts */
	hark_fd_close(&l->mntns);
	hark_fd_close_all(l->userns, l->userns_n);
	hark_fd_close(&l->view);
	net_fini(&l->net);
	if (cgroup_remove(&l->cgroup, hark_deadline_ms(END_MS), &err))
		dprintf(STDERR_FILENO, "hark: warning: %s\n", err.what);
	/* The recorder attached the sensors and may not take them down any more. */
	hark_err_init(&err);
	if (l->cgroup.id && hark_pins_leave_host(l->cgroup.id, &err))
		dprintf(STDERR_FILENO, "hark: warning: %s\n", err.what);
}

/* The recorder seals, the bundle goes to its place, the run's folder goes. */
static int close_run(struct warden *w)
{
	uint32_t wanted = await_sealed(w) ? w->msg.sealed.publish : HARK_SEALED_PUBLISH;
	int code = 0;

	clean_up(w->l);
	if (wanted & HARK_SEALED_PUBLISH)
		code = publish_bundle(w->l);
	remove_run_dir(w->l, !code && (wanted & HARK_SEALED_DISCARD) != 0);
	send_published(w, code);
	return code;
}

static int finish(struct warden *w)
{
	end_tree(w);
	send_exited(w);
	return close_run(w) ? 1 : 0;
}

/* Nothing of the agent may stay; the recorder is told when that is true. Before GO there is no
 * record of a run either; after it the bundle says what failed, and is published. */
static int fail(struct warden *w, const struct hark_err *why)
{
	union hark_msg msg = {.failed = {.err = (uint32_t)why->err, .op = w->l->at_op}};
	struct hark_err err;

	hark_err_init(&err);
	end_tree(w);
	if (!w->begun)
		clean_up(w->l);
	memcpy(msg.failed.what, why->what, sizeof(msg.failed.what));
	memcpy(msg.failed.hint, why->hint, sizeof(msg.failed.hint));
	if (!w->recorder_gone && hark_chan_send(&w->l->rec, &msg, HARK_MSG_FAILED, 0, NULL, 0,
						hark_deadline_ms(SEND_MS), &err))
		w->recorder_gone = true;
	if (w->begun)
		(void)close_run(w);
	return 1;
}

/* SIGTERM ends the run; what a terminal sends is the recorder's business. */
static int set_signals(struct warden *w, struct hark_err *err)
{
	static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE};
	sigset_t term;
	size_t i;

	for (i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		(void)signal(ignored[i], SIG_IGN);
	(void)sigemptyset(&term);
	(void)sigaddset(&term, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &term, NULL);
	w->term = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
	return w->term < 0 ? hark_err_set(err, errno, "signalfd: %s", strerror(errno)) : 0;
}

static int set_up(struct warden *w, struct hark_err *err)
{
	if (set_signals(w, err) || receive_plan(w, err))
		return -1;
	if (launch_phase(w->l, PLAN_WARDEN, err) || launch_phase(w->l, PLAN_HOST, err))
		return -1;
	if (send_net_ready(w->l, err) || await_go(w, err))
		return -1;
	return start_agent(w, err);
}

int warden_run(struct launch *l)
{
	struct warden w = {.l = l, .term = -1, .fd = -1};
	struct hark_err err;

	hark_err_init(&err);
	if (set_up(&w, &err))
		return fail(&w, &err);
	run_until_end(&w);
	return finish(&w);
}
