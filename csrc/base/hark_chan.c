/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_chan.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "hark_fd.h"

union fd_control {
	char buf[CMSG_SPACE(sizeof(int) * HARK_CHAN_FDS)];
	struct cmsghdr align;
};

void hark_chan_init(struct hark_chan *chan, int fd)
{
	chan->fd = fd;
	chan->tx_seq = 0;
	chan->rx_seq = 0;
}

static const struct {
	uint16_t type;
	uint16_t size;
} messages[] = {
	{HARK_MSG_GO, sizeof(struct hark_msg_plain)},
	{HARK_MSG_KILL, sizeof(struct hark_msg_plain)},
	{HARK_MSG_FDS, sizeof(struct hark_msg_plain)},
	{HARK_MSG_PLAN, sizeof(struct hark_msg_plain)},
	{HARK_MSG_STOP, sizeof(struct hark_msg_plain)},
	{HARK_MSG_LISTEN, sizeof(struct hark_msg_plain)},
	{HARK_MSG_DRAINED, sizeof(struct hark_msg_plain)},
	{HARK_MSG_RESOLVE_SOCKETS, sizeof(struct hark_msg_plain)},
	{HARK_MSG_DIAL_RECORDED, sizeof(struct hark_msg_plain)},
	{HARK_MSG_BROKER_READY, sizeof(struct hark_msg_plain)},
	{HARK_MSG_NET_READY, sizeof(struct hark_msg_net_ready)},
	{HARK_MSG_STARTED, sizeof(struct hark_msg_started)},
	{HARK_MSG_EXITED, sizeof(struct hark_msg_exited)},
	{HARK_MSG_PUBLISHED, sizeof(struct hark_msg_published)},
	{HARK_MSG_FAILED, sizeof(struct hark_msg_failed)},
	{HARK_MSG_EXE, sizeof(struct hark_msg_exe)},
	{HARK_MSG_JOB, sizeof(struct hark_msg_job)},
	{HARK_MSG_SIGNAL, sizeof(struct hark_msg_signal)},
	{HARK_MSG_OPEN_EXE, sizeof(struct hark_msg_open_exe)},
	{HARK_MSG_SEALED, sizeof(struct hark_msg_sealed)},
	{HARK_MSG_CA, sizeof(struct hark_msg_ca)},
	{HARK_MSG_DURABLE, sizeof(struct hark_msg_durable)},
	{HARK_MSG_PLAY_WANTED, sizeof(struct hark_msg_play_wanted)},
	{HARK_MSG_PLAY, sizeof(struct hark_msg_play)},
	{HARK_MSG_DIAL, sizeof(struct hark_msg_dial)},
	{HARK_MSG_DIALED, sizeof(struct hark_msg_dialed)},
	{HARK_MSG_DNS, sizeof(struct hark_msg_dns)},
	{HARK_MSG_DIAL_INTENT, sizeof(struct hark_msg_dial_intent)},
	{HARK_MSG_DIAL_RESULT, sizeof(struct hark_msg_dial_intent)},
	{HARK_MSG_SIGN, sizeof(struct hark_msg_sign)},
	{HARK_MSG_SIGNED, sizeof(struct hark_msg_signed)},
	{HARK_MSG_SIGNER_READY, sizeof(struct hark_msg_signer_ready)},
	{HARK_MSG_WRAP, sizeof(struct hark_msg_wrap)},
	{HARK_MSG_WRAPPED, sizeof(struct hark_msg_wrapped)},
	{HARK_MSG_UNWRAP, sizeof(struct hark_msg_unwrap)},
	{HARK_MSG_UNWRAPPED, sizeof(struct hark_msg_unwrapped)},
	{HARK_MSG_SEED, sizeof(struct hark_msg_seed)},
	{HARK_MSG_DRAWS, sizeof(struct hark_msg_draws)},
};

size_t hark_msg_size(uint16_t type)
{
	size_t i;

	for (i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
		if (messages[i].type == type)
			return messages[i].size;
	return 0;
}

static void attach_fds(struct msghdr *mh, union fd_control *ctl, const int *fds, size_t nfds)
{
	struct cmsghdr *c;

	memset(ctl, 0, sizeof(*ctl));
	mh->msg_control = ctl->buf;
	mh->msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
	c = CMSG_FIRSTHDR(mh);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
}

/* 1 ready, 0 deadline passed, -1 error in errno. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n;

	do {
		n = poll(&p, 1, hark_deadline_poll(deadline_ns));
	} while (n < 0 && errno == EINTR);
	return n;
}

int hark_chan_send(struct hark_chan *chan, union hark_msg *msg, uint16_t type, uint32_t id,
		   const int *fds, size_t nfds, uint64_t deadline_ns, struct hark_err *err)
{
	size_t len = hark_msg_size(type);
	struct iovec iov = {msg, len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	union fd_control ctl;

	if (!len || nfds > HARK_CHAN_FDS)
		return hark_err_set(err, EINVAL, "control message %u cannot be sent", type);
	msg->head = (struct hark_msg_head){type, (uint16_t)len, id, chan->tx_seq};
	if (nfds)
		attach_fds(&mh, &ctl, fds, nfds);
	for (;;) {
		ssize_t n = sendmsg(chan->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n == (ssize_t)len)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && wait_for(chan->fd, POLLOUT, deadline_ns) > 0)
			continue;
		return hark_err_set(err, errno, "control message %u: %s", type, strerror(errno));
	}
	chan->tx_seq++;
	return 0;
}

/* Collect every descriptor of the message, also of a malformed one, so that none leaks. */
static void collect_fds(struct msghdr *mh, struct hark_msg_fds *fds)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		if (n > HARK_CHAN_FDS - fds->n)
			n = HARK_CHAN_FDS - fds->n;
		memcpy(fds->fd + fds->n, CMSG_DATA(c), n * sizeof(int));
		fds->n += n;
	}
}

static int well_formed(const struct hark_chan *chan, const union hark_msg *msg, size_t n, int flags)
{
	if ((unsigned int)flags & (unsigned int)(MSG_TRUNC | MSG_CTRUNC) || n < sizeof(msg->head))
		return 0;
	return n == hark_msg_size(msg->head.type) && n == msg->head.len &&
	       msg->head.seq == chan->rx_seq;
}

enum hark_rx hark_chan_recv(struct hark_chan *chan, union hark_msg *msg, struct hark_msg_fds *fds,
			    uint64_t deadline_ns)
{
	union fd_control ctl;
	struct iovec iov = {msg, sizeof(*msg)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf};
	ssize_t n;

	fds->n = 0;
	for (;;) {
		mh.msg_controllen = sizeof(ctl.buf);
		n = recvmsg(chan->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n >= 0)
			break;
		if (errno == EINTR)
			continue;
		if (errno == ECONNRESET)
			return HARK_RX_EOF;
		if (errno != EAGAIN)
			return HARK_RX_BAD;
		if (wait_for(chan->fd, POLLIN, deadline_ns) <= 0)
			return HARK_RX_TIMEOUT;
	}
	collect_fds(&mh, fds);
	if (n == 0 && fds->n == 0)
		return HARK_RX_EOF;
	if (!well_formed(chan, msg, (size_t)n, mh.msg_flags)) {
		hark_fd_close_all(fds->fd, fds->n);
		fds->n = 0;
		return HARK_RX_BAD;
	}
	chan->rx_seq++;
	return HARK_RX_MSG;
}
