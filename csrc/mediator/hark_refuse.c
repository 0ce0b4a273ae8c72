/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_answer.h"
#include "hark_mediator.h"

#include <stdio.h>

/* The host that was meant, as well as it is known. */
static const char *meant(const struct hark_conn *conn)
{
	const struct hark_exchange *x = &conn->x;

	if (conn->tls)
		return conn->sni;
	return x->open ? x->target.host : "";
}

void hark_note(struct hark_conn *conn, enum hark_reason reason, const char *detail)
{
	if (!conn)
		return;
	if (!detail)
		detail = "";
	(void)hark_record_refused(&conn->med->rec, conn->x.open ? conn->x.id : 0, conn->id, reason,
				  meant(conn), detail, strlen(detail));
}

/* A placeholder in what would have left is the finding of the whole record: say so. */
static void note_placeholder(struct hark_conn *conn)
{
	const struct hark_cred *cred =
		hark_rebuild_cred_in(&conn->h1.head, &conn->med->policy, NULL, false);
	char detail[64];

	if (!cred || conn->x.refused != HARK_REASON_HOST_DENIED)
		return;
	(void)snprintf(detail, sizeof(detail), "secret %u in the request head", cred->secret);
	conn->x.noted_placeholder = true;
	hark_note(conn, HARK_REASON_PLACEHOLDER_DENIED_HOST, detail);
}

/* The client waits for permission to send the body that is to be recorded. */
static void invite_body(struct hark_conn *conn)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

	if (!conn->x.want_body || !conn->x.target.expect_continue || conn->x.request_bytes ||
	    conn->x.interim)
		return;
	hark_record_response(&conn->med->rec, conn->x.id, 100, true, (const uint8_t *)go_on,
			     sizeof(go_on) - 1);
	if (hark_stream_put(&conn->stream, go_on, sizeof(go_on) - 1) == 0)
		hark_conn_flush(conn);
}

/*
 * A refused request is read to its end before it is answered, whoever refused it: what its record
 * holds must not depend on whether a dial failed before or after the body came. Not where the agent
 * kept silent, or hark has no room.
 */
static bool body_follows(const struct hark_conn *conn, enum hark_reason reason)
{
	return !conn->x.request_done && !conn->input_over && reason != HARK_REASON_BODY_TIMEOUT &&
	       reason != HARK_REASON_NO_MEMORY;
}

void hark_refuse(struct hark_conn *conn, enum hark_reason reason, const char *detail)
{
	struct hark_exchange *x = &conn->x;

	if (x->refused != HARK_REASON_COMPLETE || conn->state == HARK_CONN_DEAD)
		return;
	if (!detail)
		detail = "";
	x->refused = reason;
	(void)snprintf(x->detail, sizeof(x->detail), "%s", detail);
	if (conn->up)
		hark_upstream_close(conn->up);
	x->hold_seq = hark_record_refused(&conn->med->rec, x->id, conn->id, reason, meant(conn),
					  detail, strlen(detail));
	note_placeholder(conn);
	x->want_body = body_follows(conn, reason);
	hark_conn_deadline(conn, HARK_LIMIT_DENIED_MS, HARK_REASON_COMPLETE);
	invite_body(conn);
	hark_refuse_try(conn);
}

static int put_answer(struct hark_conn *conn, struct hark_buf *head, struct hark_buf *body)
{
	struct hark_exchange *x = &conn->x;
	struct hark_answer answer = {.reason = x->refused,
				     .host = meant(conn),
				     .detail = x->detail,
				     .exchange = x->id,
				     .head_request = x->head_request};
	struct hark_recorder *rec = &conn->med->rec;
	size_t n;

	if (hark_answer_build(&answer, head, body))
		return -1;
	n = hark_buf_len(body);
	hark_record_response(rec, x->id, hark_reason_status(x->refused), true, hark_buf_data(head),
			     hark_buf_len(head));
	if (n)
		hark_record_body(rec, x->id, true, hark_buf_data(body), n, HARK_RECF_END);
	x->response_bytes = n;
	if (hark_stream_put(&conn->stream, hark_buf_data(head), hark_buf_len(head)))
		return -1;
	return hark_stream_put(&conn->stream, hark_buf_data(body), n);
}

void hark_refuse_try(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;
	struct hark_buf head;
	struct hark_buf body;
	int r;

	if (!x->open || x->refused == HARK_REASON_COMPLETE || x->answered || x->want_body ||
	    conn->med->durable <= x->hold_seq || conn->state != HARK_CONN_OPEN)
		return;
	x->answered = true;
	conn->input_over = true;
	hark_buf_init(&head, 4096);
	hark_buf_init(&body, 8192);
	r = put_answer(conn, &head, &body);
	hark_buf_fini(&head);
	hark_buf_fini(&body);
	hark_record_end(&conn->med->rec, x->id, x->refused, x->request_bytes, x->response_bytes);
	x->open = false;
	if (r)
		hark_conn_kill(conn, HARK_REASON_NO_MEMORY);
	else
		hark_conn_finish(conn, HARK_REASON_LINGERED);
}
