/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a service of [forward] that is not spoken to as HTTP: bytes pass as they are,
 * both ways, with back-pressure and half-closes. Recorded are the connection, the dial, what was
 * reached, the counts and the end; the bytes are not.
 */
#include "hark_mediator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "hark_fd.h"

static void service_ready(struct hark_source *source, uint32_t events);
static void opaque_task(struct hark_task *task);

/* ---- one way ---- */

/* All that came from `from` is out at `to`, and `to` was told that nothing more comes. */
static bool way_over(const struct hark_way *way)
{
	return way->eof && way->shut;
}

static enum hark_io read_some(struct hark_mediator *med, struct hark_way *way)
{
	size_t got;
	enum hark_io io = hark_stream_read(way->from, med->read_buf, HARK_READ_SIZE, &got);

	if (io == HARK_IO_EOF)
		way->eof = true;
	if (got && hark_stream_put(way->to, med->read_buf, got))
		return HARK_IO_ERROR;
	return io;
}

/* Read while there is something and the other side takes it. */
static int pump(struct hark_mediator *med, struct hark_way *way)
{
	enum hark_io io = HARK_IO_OK;
	int i;

	for (i = 0; i < HARK_READS_PER_PASS && io == HARK_IO_OK && !way->eof; i++) {
		if (hark_buf_len(&way->to->out) >= HARK_STREAM_HIGH)
			break;
		io = read_some(med, way);
	}
	return io == HARK_IO_ERROR ? -1 : 0;
}

static int push(struct hark_way *way)
{
	if (hark_stream_flush(way->to) == HARK_IO_ERROR)
		return -1;
	if (way->eof && !way->shut && !hark_buf_len(&way->to->out)) {
		hark_stream_shut(way->to);
		way->shut = true;
	}
	return 0;
}

static bool wants_more(const struct hark_way *way)
{
	return !way->eof && hark_buf_len(&way->to->out) < HARK_STREAM_HIGH;
}

/* ---- both ways ---- */

/* A side that has ended both ways only reports its hang-up, again and again. */
static int watch_side(struct hark_opaque *op, struct hark_stream *side, const struct hark_way *in,
		      const struct hark_way *out)
{
	if (in->eof && out->shut) {
		hark_loop_forget(&op->conn->med->loop, &side->source);
		return 0;
	}
	return hark_stream_watch(side, wants_more(in));
}

static void settle(struct hark_opaque *op)
{
	struct hark_conn *conn = op->conn;

	if (way_over(&op->up) && way_over(&op->down)) {
		hark_conn_kill(conn, HARK_REASON_COMPLETE);
		return;
	}
	if (watch_side(op, &conn->stream, &op->up, &op->down) ||
	    watch_side(op, &op->stream, &op->down, &op->up))
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
}

/* One of the two sockets is ready; `in` is the way that begins at it, `out` the one that ends. */
static void turn(struct hark_opaque *op, struct hark_way *in, struct hark_way *out, uint32_t events,
		 enum hark_reason lost)
{
	struct hark_conn *conn = op->conn;

	if (events & EPOLLERR) {
		hark_conn_kill(conn, lost);
		return;
	}
	/* A hang-up without an error is an end both ways: what it sent before is still to be read.
	 */
	if ((events & (EPOLLIN | EPOLLHUP)) && !wants_more(in) && hark_stream_mute(in->from)) {
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
		return;
	}
	if (pump(conn->med, in)) {
		hark_conn_kill(conn, lost);
		return;
	}
	if (push(in) || push(out)) {
		hark_conn_kill(conn, in == &op->up ? HARK_REASON_UPSTREAM_CLOSED
						   : HARK_REASON_CLIENT_GONE);
		return;
	}
	settle(op);
}

static void service_ready(struct hark_source *source, uint32_t events)
{
	struct hark_opaque *op = HARK_CONTAINER(source, struct hark_opaque, stream.source);

	turn(op, &op->down, &op->up, events, HARK_REASON_UPSTREAM_CLOSED);
}

void hark_opaque_ready(struct hark_conn *conn, uint32_t events)
{
	struct hark_opaque *op = conn->opaque;

	if (op->connected) {
		turn(op, &op->up, &op->down, events, HARK_REASON_CLIENT_GONE);
		return;
	}
	/* Nobody takes what it says yet. */
	if (events & (EPOLLERR | EPOLLHUP))
		hark_conn_kill(conn, HARK_REASON_CLIENT_GONE);
	else if (hark_stream_mute(&conn->stream))
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
}

/* ---- dialling ---- */

static int start(struct hark_opaque *op)
{
	struct hark_conn *conn = op->conn;
	struct hark_rec_upstream info;

	op->stream.source.fd = hark_fd_take(&op->dial_fd);
	if (fcntl(op->stream.source.fd, F_SETFL, O_NONBLOCK))
		return -1;
	memset(&info, 0, sizeof(info));
	info.conn = conn->id;
	info.host = op->host->index;
	info.family = op->dial.family;
	info.port = op->dial.port;
	memcpy(info.addr, op->dial.addr, sizeof(info.addr));
	hark_record_upstream(&conn->med->rec, 0, &info);
	op->connected = true;
	conn->deadline = HARK_TIME_NEVER; /* a session may be silent for hours */
	return 0;
}

/* The broker has answered; now there is room for records. */
static void opaque_task(struct hark_task *task)
{
	struct hark_opaque *op = HARK_CONTAINER(task, struct hark_opaque, task);
	struct hark_conn *conn = op->conn;
	char detail[64];

	if (op->dial.status != HARK_DIAL_OK || op->dial_fd < 0) {
		hark_conn_refuse(conn, hark_dial_reason(op->dial.status), op->host->name,
				 hark_dial_detail(&op->dial, detail, sizeof(detail)));
	} else if (start(op)) {
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
	} else {
		turn(op, &op->up, &op->down, EPOLLIN, HARK_REASON_CLIENT_GONE);
	}
}

static struct hark_opaque *opaque_new(struct hark_conn *conn, const struct hark_host *host)
{
	struct hark_opaque *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	hark_stream_init(&op->stream, &conn->med->loop, -1, service_ready);
	op->task.run = opaque_task;
	op->conn = conn;
	op->host = host;
	op->dial_fd = -1;
	op->dial_id = ++conn->med->next_dial;
	op->up = (struct hark_way){.from = &conn->stream, .to = &op->stream};
	op->down = (struct hark_way){.from = &op->stream, .to = &conn->stream};
	return op;
}

void hark_opaque_begin(struct hark_conn *conn, const struct hark_host *host)
{
	struct hark_mediator *med = conn->med;

	if (med->policy.play) {
		hark_conn_refuse(conn, HARK_REASON_NOT_REPLAYED, host->name, "");
		return;
	}
	conn->state = HARK_CONN_OPAQUE;
	conn->opaque = opaque_new(conn, host);
	if (!conn->opaque) {
		hark_conn_kill(conn, HARK_REASON_NO_MEMORY);
		return;
	}
	conn->reason = HARK_REASON_DIAL_TIMEOUT;
	hark_conn_deadline(conn, HARK_LIMIT_DIAL_MS, HARK_REASON_DIAL_TIMEOUT);
	if (hark_links_dial(med, conn->opaque->dial_id, host->index, conn->dst.port, conn->id) ||
	    hark_stream_watch(&conn->stream, false))
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
}

bool hark_opaque_dialled(struct hark_mediator *med, const struct hark_msg_dialed *msg, int fd)
{
	struct hark_conn *conn = med->conns;

	while (conn && !(conn->state == HARK_CONN_OPAQUE && !conn->opaque->connected &&
			 conn->opaque->dial_id == msg->head.id))
		conn = conn->next;
	if (!conn)
		return false;
	conn->opaque->dial = *msg;
	conn->opaque->dial_fd = fd;
	hark_loop_queue(&med->loop, &conn->opaque->task); /* later: records need room */
	return true;
}

void hark_opaque_end(struct hark_conn *conn)
{
	struct hark_opaque *op = conn->opaque;

	if (!op)
		return;
	hark_loop_unqueue(&conn->med->loop, &op->task);
	hark_stream_fini(&op->stream);
	hark_fd_close(&op->dial_fd);
}
