/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_play.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "hark_mediator.h"

enum { SEND_MS = 5000, FIXED = offsetof(struct hark_msg_play, data) };

void hark_play_init(struct hark_play *play)
{
	hark_buf_init(&play->queue, HARK_PLAY_QUEUE);
	hark_buf_init(&play->part, HARK_PLAY_PART);
	hark_buf_init(&play->trailers, HARK_H1_TRAILERS);
}

void hark_play_fini(struct hark_play *play)
{
	hark_buf_fini(&play->queue);
	hark_buf_fini(&play->part);
	hark_buf_fini(&play->trailers);
}

int hark_play_isolate(struct hark_err *err)
{
	if (unshare(CLONE_NEWNET) == 0)
		return 0;
	return hark_err_set(err, errno, "the mediator cannot leave the network: %s",
			    strerror(errno));
}

void hark_play_wanted(struct hark_conn *conn)
{
	struct hark_mediator *med = conn->med;
	union hark_msg msg;
	struct hark_err err;

	if (conn->x.refused != HARK_REASON_COMPLETE || conn->state != HARK_CONN_OPEN)
		return;
	hark_err_init(&err);
	memset(&msg.play_wanted, 0, sizeof(msg.play_wanted));
	msg.play_wanted.exchange = conn->x.id;
	if (hark_chan_send(&med->control, &msg, HARK_MSG_PLAY_WANTED, 0, NULL, 0,
			   hark_deadline_ms(SEND_MS), &err))
		hark_mediator_fail(med, err.what);
}

/* ---- what one message does ---- */

static int play_head(struct hark_conn *conn, const struct hark_msg_play *item,
		     const struct hark_buf *head)
{
	struct hark_exchange *x = &conn->x;

	if (item->what == HARK_PLAY_HEAD) {
		x->plan = (struct hark_response_plan){.framing = (enum hark_framing)item->framing,
						      .length = item->length};
		x->close_client |= (item->flags & HARK_PLAY_CLOSE) != 0;
		x->response_started = true;
	}
	hark_record_response(&conn->med->rec, x->id, item->status, false, hark_buf_data(head),
			     hark_buf_len(head));
	return hark_stream_put(&conn->stream, hark_buf_data(head), hark_buf_len(head));
}

static int play_end(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;
	const struct hark_buf *trailers = &x->play.trailers;

	if (x->response_bytes && x->plan.framing != HARK_FRAMING_LENGTH)
		hark_record_body(&conn->med->rec, x->id, true, (const uint8_t *)"", 0,
				 HARK_RECF_END);
	if (x->plan.framing == HARK_FRAMING_CHUNKED) {
		if (hark_buf_len(trailers))
			hark_record_trailers(&conn->med->rec, x->id, true, hark_buf_data(trailers),
					     hark_buf_len(trailers));
		if (hark_exchange_last_chunk(&conn->stream, trailers))
			return -1;
	}
	hark_exchange_finish(conn);
	return 0;
}

/* The upstream's failure, as it was recorded: before its answer hark's own, inside it an end. */
static void play_failure(struct hark_conn *conn, const struct hark_msg_play *item)
{
	enum hark_reason reason = (enum hark_reason)item->reason;
	char detail[128];

	(void)snprintf(detail, sizeof(detail), "%.*s", (int)item->size, item->data);
	if (item->what == HARK_PLAY_REFUSE) {
		hark_refuse(conn, reason, detail);
		return;
	}
	hark_note(conn, reason, detail);
	hark_conn_flush(conn);
	hark_conn_kill(conn, reason);
}

static int play(struct hark_conn *conn, const struct hark_msg_play *item,
		const struct hark_buf *part)
{
	switch (item->what) {
	case HARK_PLAY_INTERIM:
	case HARK_PLAY_HEAD:
		return play_head(conn, item, part);
	case HARK_PLAY_BODY:
		return hark_exchange_deliver(conn, hark_buf_data(part), hark_buf_len(part));
	case HARK_PLAY_TRAILERS:
		return hark_buf_put(&conn->x.play.trailers, hark_buf_data(part),
				    hark_buf_len(part));
	case HARK_PLAY_END:
		return play_end(conn);
	default:
		play_failure(conn, item);
		return 0;
	}
}

/* ---- the queue ---- */

static bool has_work(const struct hark_conn *conn)
{
	return conn->state == HARK_CONN_OPEN && conn->x.open &&
	       hark_buf_len(&conn->x.play.queue) >= FIXED &&
	       hark_buf_len(&conn->stream.out) < HARK_STREAM_HIGH;
}

/* Bytes of the message that was handed on, or kept until the rest of its part is there. */
static size_t play_next(struct hark_conn *conn)
{
	struct hark_play *p = &conn->x.play;
	const uint8_t *front = p->queue.mem + p->queue.from; /* has_work(): there is a message */
	struct hark_msg_play item;
	uint64_t id = conn->x.id;
	bool more;
	int r;

	memcpy(&item, front, FIXED);
	memcpy(item.data, front + FIXED, item.size);
	hark_buf_drop(&p->queue, FIXED + item.size);
	more = (item.flags & HARK_PLAY_MORE) != 0;
	r = hark_buf_put(&p->part, item.data, item.size);
	if (!r && !more)
		r = play(conn, &item, &p->part);
	if (r)
		hark_conn_kill(conn, HARK_REASON_NO_MEMORY);
	if (conn->state == HARK_CONN_DEAD)
		return item.size;
	if (!more && conn->x.id == id)
		hark_buf_clear(&p->part);
	if (!more)
		hark_conn_flush(conn); /* one delivery, one write */
	return item.size;
}

/* The connection whose next message came first: the recorder's order holds between exchanges. */
static struct hark_conn *next_conn(struct hark_mediator *med)
{
	struct hark_conn *first = NULL;
	struct hark_conn *conn;
	uint64_t least = UINT64_MAX;

	for (conn = med->conns; conn; conn = conn->next) {
		struct hark_msg_head head;

		if (!has_work(conn))
			continue;
		memcpy(&head, hark_buf_data(&conn->x.play.queue), sizeof(head));
		if (head.seq < least) {
			least = head.seq;
			first = conn;
		}
	}
	return first;
}

static void play_task(struct hark_task *task)
{
	struct hark_mediator *med = HARK_CONTAINER(task, struct hark_mediator, play_task);
	struct hark_conn *conn;
	size_t done = 0;

	while (done < HARK_PLAY_PER_PASS && (conn = next_conn(med)))
		done += play_next(conn) + FIXED;
	if (next_conn(med))
		hark_loop_queue(&med->loop, &med->play_task);
}

void hark_play_setup(struct hark_mediator *med)
{
	med->play_task.run = play_task;
}

void hark_play_resume(struct hark_conn *conn)
{
	if (has_work(conn))
		hark_loop_queue(&conn->med->loop, &conn->med->play_task);
}

void hark_play_take(struct hark_mediator *med, const struct hark_msg_play *msg)
{
	struct hark_conn *conn = med->conns;
	struct hark_buf *queue;

	if (!med->policy.play || msg->size > HARK_MSG_PLAY_DATA || msg->what > HARK_PLAY_CUT ||
	    msg->framing > HARK_FRAMING_EOF || msg->reason >= HARK_REASON_COUNT) {
		hark_mediator_fail(med, "a malformed PLAY message");
		return;
	}
	while (conn && !(conn->x.open && conn->x.id == msg->exchange))
		conn = conn->next;
	if (!conn)
		return; /* the agent left meanwhile */
	queue = &conn->x.play.queue;
	if (hark_buf_put(queue, msg, FIXED) || hark_buf_put(queue, msg->data, msg->size)) {
		hark_mediator_fail(med, "more PLAY messages than one exchange can hold");
		return;
	}
	hark_loop_queue(&med->loop, &med->play_task);
}
