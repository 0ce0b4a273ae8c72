/* SPDX-License-Identifier: Apache-2.0 */
/* Control socket to the recorder and dial socket to the broker; the agent's listeners. */
#include "hark_mediator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_fd.h"

enum { SEND_MS = 5000, ACCEPTS_PER_PASS = 16 };

/* ---- listeners ---- */

void hark_links_listen(struct hark_mediator *med, bool on)
{
	size_t i;

	if (med->listening == on || (on && med->stopping))
		return;
	med->listening = on;
	for (i = 0; i < med->nlisteners; i++) {
		struct hark_source *source = &med->listeners[i].source;

		if (!on)
			hark_loop_forget(&med->loop, source);
		else if (hark_loop_watch(&med->loop, source, EPOLLIN))
			hark_mediator_fail(med, "epoll for a listener");
	}
}

/* At a limit the backlog waits; a connection that ends takes accepting up again. */
static void pause_accept(struct hark_mediator *med, const char *why)
{
	if (!med->listening)
		return;
	hark_links_listen(med, false);
	(void)hark_record_refused(&med->rec, 0, 0, HARK_REASON_CONN_LIMIT, "", why, strlen(why));
}

static void accept_ready(struct hark_source *source, uint32_t events)
{
	struct hark_listener *listener = HARK_CONTAINER(source, struct hark_listener, source);
	struct hark_mediator *med = listener->med;
	int i;

	(void)events;
	for (i = 0; i < ACCEPTS_PER_PASS; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int fd;

		if (med->nconns >= med->policy.limits[HARK_LIMIT_CONNECTIONS]) {
			pause_accept(med, "connections");
			return;
		}
		fd = accept4(source->fd, (struct sockaddr *)&peer, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				pause_accept(med, "descriptors");
			return;
		}
		hark_conn_accept(med, fd, &peer);
	}
}

static void take_listeners(struct hark_mediator *med, struct hark_msg_fds *fds)
{
	size_t i;

	if (med->nlisteners || !fds->n || fds->n > 2) {
		hark_fd_close_all(fds->fd, fds->n);
		hark_mediator_fail(med, "LISTEN with the wrong descriptors");
		return;
	}
	for (i = 0; i < fds->n; i++) {
		struct hark_listener *listener = &med->listeners[i];

		listener->med = med;
		listener->source.fd = fds->fd[i];
		listener->source.ready = accept_ready;
		if (fcntl(fds->fd[i], F_SETFL, O_NONBLOCK))
			hark_mediator_fail(med, "a listener cannot be used");
	}
	med->nlisteners = fds->n;
	med->listening = false;
	hark_links_listen(med, true);
}

/* ---- control ---- */

static void take_control(struct hark_mediator *med, const union hark_msg *msg,
			 struct hark_msg_fds *fds)
{
	switch (msg->head.type) {
	case HARK_MSG_LISTEN:
		take_listeners(med, fds);
		return;
	case HARK_MSG_DURABLE:
		if (msg->durable.below > med->durable)
			med->durable = msg->durable.below;
		hark_conn_durable(med);
		break;
	case HARK_MSG_PLAY:
		hark_play_take(med, &msg->play);
		break;
	case HARK_MSG_STOP:
		med->stopping = true;
		med->loop.draining = true;
		break;
	default:
		hark_mediator_fail(med, "an unknown message on the control socket");
		break;
	}
	hark_fd_close_all(fds->fd, fds->n);
}

static void control_ready(struct hark_source *source, uint32_t events)
{
	struct hark_mediator *med = HARK_CONTAINER(source, struct hark_mediator, control_source);
	union hark_msg msg;
	struct hark_msg_fds fds;

	(void)events;
	while (!med->loop.stop) {
		switch (hark_chan_recv(&med->control, &msg, &fds, 0)) {
		case HARK_RX_MSG:
			take_control(med, &msg, &fds);
			break;
		case HARK_RX_TIMEOUT:
			return;
		case HARK_RX_EOF:
			med->loop.stop = true; /* the recorder is gone: so are we */
			med->failed |= !med->stopping;
			return;
		default:
			hark_mediator_fail(med, "a broken message on the control socket");
			return;
		}
	}
}

/* ---- broker ---- */

static void broker_ready(struct hark_source *source, uint32_t events)
{
	struct hark_mediator *med = HARK_CONTAINER(source, struct hark_mediator, broker_source);
	union hark_msg msg;
	struct hark_msg_fds fds;

	(void)events;
	while (!med->loop.stop) {
		enum hark_rx rx = hark_chan_recv(&med->broker, &msg, &fds, 0);

		if (rx == HARK_RX_TIMEOUT)
			return;
		if (rx == HARK_RX_EOF && med->stopping) {
			med->loop.stop = true;
			return;
		}
		if (rx != HARK_RX_MSG || msg.head.type != HARK_MSG_DIALED || fds.n > 1) {
			hark_mediator_fail(med, rx == HARK_RX_EOF
							? "the broker is gone"
							: "a broken message from the broker");
			if (rx == HARK_RX_MSG)
				hark_fd_close_all(fds.fd, fds.n);
			return;
		}
		hark_upstream_dialled(med, &msg.dialed, fds.n ? fds.fd[0] : -1);
	}
}

int hark_links_dial(struct hark_mediator *med, uint32_t id, uint32_t host, uint16_t port,
		    uint64_t conn)
{
	union hark_msg msg;
	struct hark_err err;

	hark_err_init(&err);
	memset(&msg.dial, 0, sizeof(msg.dial));
	msg.dial.host = host;
	msg.dial.port = port;
	msg.dial.conn = conn;
	if (!hark_chan_send(&med->broker, &msg, HARK_MSG_DIAL, id, NULL, 0,
			    hark_deadline_ms(SEND_MS), &err))
		return 0;
	hark_mediator_fail(med, err.what);
	return -1;
}

static void space_ready(struct hark_source *source, uint32_t events)
{
	uint64_t n;

	(void)events;
	if (read(source->fd, &n, sizeof(n)) < 0)
		return; /* somebody read it already */
}

/* ---- set-up ---- */

int hark_links_send_ca(struct hark_mediator *med, struct hark_err *err)
{
	union hark_msg msg;

	memset(&msg.ca, 0, sizeof(msg.ca));
	if (hark_mint_pem(&med->mint, msg.ca.pem, sizeof(msg.ca.pem), err))
		return -1;
	return hark_chan_send(&med->control, &msg, HARK_MSG_CA, 0, NULL, 0,
			      hark_deadline_ms(SEND_MS), err);
}

int hark_links_drained(struct hark_mediator *med, struct hark_err *err)
{
	union hark_msg msg;

	memset(&msg.plain, 0, sizeof(msg.plain));
	return hark_chan_send(&med->control, &msg, HARK_MSG_DRAINED, 0, NULL, 0,
			      hark_deadline_ms(SEND_MS), err);
}

int hark_links_init(struct hark_mediator *med, int control, int broker, int space,
		    struct hark_err *err)
{
	hark_chan_init(&med->control, control);
	hark_chan_init(&med->broker, broker);
	med->control_source = (struct hark_source){.fd = control, .ready = control_ready};
	med->broker_source = (struct hark_source){.fd = broker, .ready = broker_ready};
	med->space_source = (struct hark_source){.fd = space, .ready = space_ready};
	if (hark_loop_urgent(&med->loop, &med->control_source) ||
	    hark_loop_urgent(&med->loop, &med->broker_source) ||
	    hark_loop_urgent(&med->loop, &med->space_source))
		return hark_err_set(err, errno, "mediator's sockets cannot be watched");
	return 0;
}
