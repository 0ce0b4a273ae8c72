/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hark-launch has to do with hark-trace: bring the run's user namespace, wait until it has
 * given up everything else, and hand the listener of the agent's filter over.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

static int send_fd(int sock, char what, int fd, struct hark_err *err)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} ctl = {{0}};
	struct iovec iov = {&what, 1};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		return hark_err_set(err, errno, "hark-trace: %s", strerror(errno));
	return 0;
}

/* The agent must not exist before its tracer is confined to the run. */
int step_trace(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const uint16_t at = hark_cur_u16(&cur);
	const uint16_t userns = hark_cur_u16(&cur);
	struct pollfd p = {.fd = l->fds[at], .events = POLLIN};
	char ready = 0;

	if (userns >= l->userns_n)
		return hark_err_set(err, EINVAL, "hark-trace: no user namespace");
	l->tracer = l->fds[at];
	if (send_fd(l->tracer, HARK_TRACE_USERNS, l->userns[userns], err))
		return -1;
	if (poll(&p, 1, hark_deadline_poll(hark_deadline_ms(l->setup_ms))) != 1 ||
	    read(l->tracer, &ready, 1) != 1 || ready != HARK_TRACE_READY)
		return hark_err_set(err, EPIPE, "hark-trace: it did not become ready");
	return 0;
}

int tracer_give(const struct launch *l, int listener, struct hark_err *err)
{
	hark_autofd fd = listener;

	if (l->tracer < 0)
		return hark_err_set(err, EPROTO, "plan: a listener without hark-trace");
	return send_fd(l->tracer, HARK_TRACE_LISTENER, fd, err);
}
