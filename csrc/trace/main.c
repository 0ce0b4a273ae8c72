/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-trace CONTROL LAUNCH UID GID
 *
 * Two inherited sockets: to the recorder, and to hark-launch, which brings the run's user namespace
 * and later the listener of the agent's filter. Started by hark/trace/process.py, as root; it reads
 * one packet of hark-launch, then gives all but one capability up, and says so. Nothing of the
 * agent is looked at before that.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_fd.h"
#include "trace.h"

enum { EXIT_HARK = 125, ARGS = 4, FD_FIRST = 3, FD_LAST = 1023 };
enum step { GO_ON, THE_END, FAILED };

static int parse_number(const char *text, long from, long to, long *out)
{
	char *end = NULL;

	errno = 0;
	*out = strtol(text, &end, 10);
	return errno || *end || end == text || *out < from || *out > to ? -1 : 0;
}

static int parse_args(int argc, char **argv, long out[ARGS], struct hark_err *err)
{
	int i;

	if (argc != ARGS + 1)
		return hark_err_set(err, EINVAL, "trace: it is started by hark run, not by hand");
	for (i = 0; i < ARGS; i++) {
		const bool is_fd = i < 2;

		if (parse_number(argv[i + 1], is_fd ? FD_FIRST : 1, is_fd ? FD_LAST : INT32_MAX,
				 &out[i]))
			return hark_err_set(err, EINVAL, "trace: argument %d", i + 1);
		if (is_fd && fcntl((int)out[i], F_SETFD, FD_CLOEXEC))
			return hark_err_set(err, EBADF, "trace: argument %d", i + 1);
	}
	return 0;
}

/* One packet of one byte with one descriptor. -1: there is none, or it is something else. */
static int take_fd(int sock, char *what, struct hark_err *err)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct iovec iov = {what, 1};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf)};
	struct cmsghdr *c;
	int fd = -1;

	if (recvmsg(sock, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
		return hark_err_set(err, EPIPE, "trace: hark-launch is gone");
	c = CMSG_FIRSTHDR(&mh);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	if (fd < 0 || (mh.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
		hark_fd_close(&fd);
		return hark_err_set(err, EPROTO, "trace: a packet without its descriptor");
	}
	return fd;
}

/* Nothing comes from the recorder before the run's network is there, but its end does. */
static int await_userns(struct trace *t, struct hark_err *err)
{
	struct pollfd p[2] = {{t->launch, POLLIN, 0}, {t->rec.fd, 0, 0}};
	char what = 0;
	int fd;

	if (poll(p, 2, TRACE_START_MS) < 1)
		return hark_err_set(err, ETIME, "trace: hark-launch did not come in time");
	if (!p[0].revents)
		return hark_err_set(err, EPIPE, "trace: the recorder is gone");
	fd = take_fd(t->launch, &what, err);
	if (fd >= 0 && what != HARK_TRACE_USERNS) {
		hark_fd_close(&fd);
		return hark_err_set(err, EPROTO, "trace: hark-launch sent something else");
	}
	return fd;
}

static int confine(struct trace *t, uint32_t uid, uint32_t gid, struct hark_err *err)
{
	hark_autofd userns = await_userns(t, err);
	const char ready = HARK_TRACE_READY;

	if (userns < 0 || trace_enter(userns, uid, gid, err))
		return -1;
	if (write(t->launch, &ready, 1) != 1)
		return hark_err_set(err, EPIPE, "trace: hark-launch is gone");
	return 0;
}

/* ---- the loop ---- */

static enum step on_seed(struct trace *t, const struct hark_msg_seed *msg, struct hark_msg_fds *fds,
			 struct hark_err *err)
{
	if (t->seeded || fds->n > 1) {
		(void)hark_err_set(err, EPROTO, "trace: a seed at the wrong time");
		return FAILED;
	}
	if (fds->n)
		t->spawns = fds->fd[0];
	fds->n = 0;
	t->seeded = true;
	return hark_streams_init(&t->streams, msg->seed, err) ? FAILED : GO_ON;
}

static enum step on_stop(struct trace *t, struct hark_err *err)
{
	union hark_msg msg = {.plain = {{0}}};

	if ((t->seeded && trace_tell_draws(t, err)) ||
	    hark_chan_send(&t->rec, &msg, HARK_MSG_DRAINED, 0, NULL, 0,
			   hark_deadline_ms(TRACE_SEND_MS), err))
		return FAILED;
	return GO_ON;
}

static enum step on_recorder(struct trace *t, struct hark_err *err)
{
	struct hark_msg_fds fds;
	union hark_msg msg;
	enum step next = FAILED;
	const enum hark_rx rx = hark_chan_recv(&t->rec, &msg, &fds, 0);

	if (rx == HARK_RX_EOF)
		return THE_END;
	if (rx == HARK_RX_TIMEOUT)
		return GO_ON;
	if (rx == HARK_RX_MSG && msg.head.type == HARK_MSG_SEED)
		next = on_seed(t, &msg.seed, &fds, err);
	else if (rx == HARK_RX_MSG && msg.head.type == HARK_MSG_STOP)
		next = on_stop(t, err);
	else
		(void)hark_err_set(err, EPROTO, "trace: unexpected message");
	hark_fd_close_all(fds.fd, rx == HARK_RX_MSG ? fds.n : 0);
	explicit_bzero(&msg, sizeof(msg));
	return next;
}

/* The listener comes from the agent's process, which executes the agent next. */
static enum step on_launch(struct trace *t, struct hark_err *err)
{
	char what = 0;
	int fd = take_fd(t->launch, &what, err);

	if (fd < 0) /* no agent: hark-launch tells the recorder, who tells us */
		hark_err_init(err);
	else if (what != HARK_TRACE_LISTENER || !t->seeded)
		hark_fd_close(&fd);
	else
		trace_listen(t, fd);
	hark_fd_close(&t->launch);
	return GO_ON;
}

static enum step on_call(struct trace *t, short events, struct hark_err *err)
{
	if (events & POLLIN)
		return trace_answer(t, err) ? FAILED : GO_ON;
	hark_fd_close(&t->listener); /* no task has the filter any more */
	return GO_ON;
}

static enum step serve(struct trace *t, struct hark_err *err)
{
	enum step next = GO_ON;

	while (next == GO_ON) {
		struct pollfd p[3] = {
			{t->listener, POLLIN, 0}, {t->rec.fd, POLLIN, 0}, {t->launch, POLLIN, 0}};

		if (poll(p, 3, -1) < 0 && errno != EINTR) {
			(void)hark_err_set(err, errno, "trace: poll: %s", strerror(errno));
			return FAILED;
		}
		if (p[0].revents)
			next = on_call(t, p[0].revents, err);
		if (next == GO_ON && p[1].revents)
			next = on_recorder(t, err);
		if (next == GO_ON && p[2].revents)
			next = on_launch(t, err);
	}
	return next;
}

int main(int argc, char **argv)
{
	struct trace t = {.launch = -1, .spawns = -1, .listener = -1};
	enum step end = FAILED;
	struct hark_err err;
	long args[ARGS] = {0};

	hark_err_init(&err);
	if (!parse_args(argc, argv, args, &err) && !trace_limits(&err)) {
		hark_chan_init(&t.rec, (int)args[0]);
		t.launch = (int)args[1];
		if (!trace_answer_init(&t, &err) &&
		    !confine(&t, (uint32_t)args[2], (uint32_t)args[3], &err))
			end = serve(&t, &err);
	}
	if (end == FAILED)
		dprintf(STDERR_FILENO, "hark: error: %s\n", err.what);
	trace_answer_fini(&t);
	return end == THE_END ? 0 : EXIT_HARK;
}
