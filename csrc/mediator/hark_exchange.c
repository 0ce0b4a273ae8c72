/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_mediator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static const size_t replay_max = 2 * (size_t)HARK_MED_HEAD;
_Static_assert((int)HARK_H1_REBUILT == (int)HARK_MED_HEAD, "one bound for what hark writes");

void hark_exchange_init(struct hark_exchange *x)
{
	memset(x, 0, sizeof(*x));
	hark_buf_init(&x->pending, HARK_STREAM_MAX);
	hark_buf_init(&x->replay, replay_max);
	hark_play_init(&x->play);
}

void hark_exchange_fini(struct hark_exchange *x)
{
	hark_watch_fini(&x->watch);
	if (x->scanning)
		hark_scan_fini(&x->scan);
	hark_buf_fini(&x->pending);
	hark_buf_wipe(&x->replay);
	hark_play_fini(&x->play);
}

static void begin(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;

	hark_exchange_fini(x);
	hark_exchange_init(x);
	x->id = ++conn->med->next_exchange;
	x->open = true;
	hark_watch_init(&x->watch, &conn->med->policy);
}

static void end(struct hark_conn *conn, enum hark_reason reason)
{
	struct hark_exchange *x = &conn->x;

	if (!x->open)
		return;
	x->open = false;
	hark_record_end(&conn->med->rec, x->id, reason, x->request_bytes, x->response_bytes);
}

void hark_exchange_abort(struct hark_conn *conn, enum hark_reason reason)
{
	if (conn->up)
		hark_upstream_close(conn->up);
	end(conn, reason);
}

static struct hark_site *site_of(struct hark_mediator *med, const struct hark_host *host)
{
	return &med->sites[host - med->policy.hosts];
}

/* ---- request head: which host, may it go there ---- */

static enum hark_reason route_tls(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;

	if (!conn->site)
		return HARK_REASON_HOST_DENIED;
	x->host = conn->site->host;
	return conn->port_ok ? HARK_REASON_COMPLETE : HARK_REASON_PORT_DENIED;
}

static enum hark_reason route_plain(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;
	unsigned mode;

	x->host = *x->target.host ? hark_policy_find(&conn->med->policy, x->target.host) : NULL;
	if (!x->host)
		return HARK_REASON_HOST_DENIED;
	mode = hark_host_port(x->host, conn->dst.port);
	if (mode & HARK_PORT_PLAIN)
		return HARK_REASON_COMPLETE;
	return mode ? HARK_REASON_PLAIN_HTTP_ON_TLS_PORT : HARK_REASON_PLAIN_HTTP_DENIED;
}

static enum hark_reason check_name(const struct hark_conn *conn)
{
	const struct hark_target *target = &conn->x.target;

	if (conn->tls && strcmp(target->host, conn->sni) != 0)
		return HARK_REASON_HOST_MISMATCH;
	if (target->port && target->port != conn->dst.port)
		return HARK_REASON_HOST_MISMATCH;
	return HARK_REASON_COMPLETE;
}

/*
 * The order matters: a host that is not allowed is named as such whatever else is wrong; a request
 * that lies about its host never gets as far as a credential.
 */
static enum hark_reason judge(struct hark_conn *conn, const struct hark_head *head,
			      const char **detail)
{
	struct hark_exchange *x = &conn->x;
	enum hark_reason protocol = hark_check_request(head, &x->target, detail);
	enum hark_reason route = conn->tls ? route_tls(conn) : HARK_REASON_COMPLETE;

	if (route != HARK_REASON_COMPLETE)
		return route;
	if (protocol != HARK_REASON_COMPLETE)
		return protocol;
	route = conn->tls ? HARK_REASON_COMPLETE : route_plain(conn);
	if (route == HARK_REASON_COMPLETE)
		route = check_name(conn);
	if (route == HARK_REASON_COMPLETE &&
	    hark_rebuild_cred_in(head, &conn->med->policy, x->host, false))
		route = HARK_REASON_CREDENTIAL_WRONG_HOST;
	return route;
}

static void note_secret(struct hark_conn *conn, enum hark_reason reason, uint32_t secret,
			const char *where, size_t n)
{
	char detail[128];

	(void)snprintf(detail, sizeof(detail), "secret %" PRIu32 " in %.*s", secret, (int)n, where);
	hark_note(conn, reason, detail);
}

/* ---- request on its way out ---- */

static void on_substituted(void *ctx, uint32_t secret, const uint8_t *name, size_t n, bool basic)
{
	struct hark_conn *conn = ctx;
	static const char target[] = "(request target)";

	if (conn->med->policy.play)
		return; /* nothing goes out */
	if (!n) {
		name = (const uint8_t *)target;
		n = sizeof(target) - 1;
	}
	if (basic)
		hark_site_basic(site_of(conn->med, conn->x.host));
	conn->x.substituted = true;
	hark_record_substituted(&conn->med->rec, conn->x.id, secret, name, n);
}

static void on_elsewhere(void *ctx, uint32_t secret, const uint8_t *name, size_t n)
{
	const char *where = n ? (const char *)name : "the request target";

	note_secret(ctx, HARK_REASON_PLACEHOLDER_ELSEWHERE, secret, where,
		    n ? (n < 64 ? n : 64) : strlen(where));
}

static void on_range_removed(void *ctx)
{
	hark_note(ctx, HARK_REASON_RANGE_REMOVED, NULL);
}

static bool may_repeat(const struct hark_head *head)
{
	bool body = head->chunked || (head->has_length && head->length);

	switch (head->method) {
	case HTTP_GET:
	case HTTP_HEAD:
	case HTTP_OPTIONS:
	case HTTP_DELETE:
		return !body;
	default:
		return false;
	}
}

/* Servers exist that take such a body for the next request; its answer would be the next one's. */
static bool odd_body(const struct hark_head *head)
{
	bool body = head->chunked || (head->has_length && head->length);

	return body && (head->method == HTTP_GET || head->method == HTTP_HEAD ||
			head->method == HTTP_DELETE || head->method == HTTP_TRACE);
}

static void relay_request(struct hark_conn *conn, const struct hark_head *head)
{
	struct hark_mediator *med = conn->med;
	struct hark_exchange *x = &conn->x;
	struct hark_rebuild_notes notes = {on_substituted, on_elsewhere, on_range_removed, conn};
	struct hark_upstream *up;

	x->repeatable = may_repeat(head);
	x->odd_body = odd_body(head);
	if (x->target.strip_upgrade)
		hark_note(conn, HARK_REASON_UPGRADE_STRIPPED, "h2c");
	if (hark_rebuild_request(head, &x->target, conn->tls ? &med->policy : &med->no_creds,
				 x->host, &notes, &x->replay)) {
		hark_refuse(conn, HARK_REASON_NO_MEMORY, NULL);
		return;
	}
	if (!conn->tls && x->host->has_creds &&
	    hark_rebuild_cred_in(head, &med->policy, x->host, true))
		hark_note(conn, HARK_REASON_PLACEHOLDER_ELSEWHERE, "clear text");
	if (med->policy.play) {
		hark_buf_wipe(&x->replay);
		return; /* hark_play_wanted, when it is complete */
	}
	up = hark_upstream_get(conn, site_of(med, x->host), conn->dst.port, conn->tls,
			       x->repeatable, false);
	if (!up ||
	    hark_stream_put(&up->stream, hark_buf_data(&x->replay), hark_buf_len(&x->replay)))
		hark_refuse(conn, HARK_REASON_NO_MEMORY, NULL);
	if (!x->repeatable)
		hark_buf_wipe(&x->replay);
}

static int32_t host_index(const struct hark_exchange *x)
{
	return x->host ? (int32_t)x->host->index : -1;
}

static int on_request_head(void *ctx, const struct hark_head *head)
{
	struct hark_conn *conn = ctx;
	struct hark_exchange *x = &conn->x;
	const char *detail = NULL;
	enum hark_reason reason;

	begin(conn);
	reason = judge(conn, head, &detail);
	x->head_request = head->method == HTTP_HEAD;
	x->client_10 = head->minor == 0;
	x->close_client = !hark_h1_keep_alive(&conn->h1);
	hark_record_request(&conn->med->rec, x->id, conn->id, host_index(x),
			    hark_buf_data(&head->raw), hark_buf_len(&head->raw));
	hark_conn_deadline(conn, HARK_LIMIT_BODY_MS, HARK_REASON_BODY_TIMEOUT);
	if (reason != HARK_REASON_COMPLETE)
		hark_refuse(conn, reason, detail);
	else
		relay_request(conn, head);
	return 0; /* the body is still parsed: recorded for a denied host, relayed otherwise */
}

/* ---- request body ---- */

static int put_chunk(struct hark_stream *to, const uint8_t *p, size_t n)
{
	char size[24];
	int len = snprintf(size, sizeof(size), "%zx\r\n", n);

	if (hark_stream_put(to, size, (size_t)len) || hark_stream_put(to, p, n))
		return -1;
	return hark_stream_put(to, "\r\n", 2);
}

/* What of these bytes is recorded: the first part of a body that was refused at its head, all of
 * one that was relayed, also when the upstream failed in the middle of it. */
static size_t recorded_part(struct hark_conn *conn, size_t n)
{
	struct hark_exchange *x = &conn->x;
	uint64_t cap = conn->med->policy.limits[HARK_LIMIT_DENIED_BODY];
	uint64_t left;

	if (x->refused == HARK_REASON_COMPLETE || hark_reason_outside(x->refused))
		return n;
	left = cap > x->request_bytes ? cap - x->request_bytes : 0;
	return left < n ? (size_t)left : n;
}

static void watch_body(struct hark_conn *conn, const uint8_t *p, size_t n)
{
	struct hark_exchange *x = &conn->x;
	const struct hark_cred *cred = hark_watch_feed(&x->watch, p, n);

	if (!cred || x->noted_placeholder)
		return;
	x->noted_placeholder = true;
	note_secret(conn,
		    x->refused == HARK_REASON_HOST_DENIED ? HARK_REASON_PLACEHOLDER_DENIED_HOST
							  : HARK_REASON_PLACEHOLDER_ELSEWHERE,
		    cred->secret, "the request body", 16);
}

static int on_request_body(void *ctx, const uint8_t *p, size_t n)
{
	struct hark_conn *conn = ctx;
	struct hark_exchange *x = &conn->x;
	size_t part = recorded_part(conn, n);
	bool chunked = conn->h1.head.chunked;
	bool last = !chunked && x->request_bytes + n == conn->h1.head.length;

	if (part)
		hark_record_body(&conn->med->rec, x->id, false, p, part,
				 last && part == n ? HARK_RECF_END : 0);
	watch_body(conn, p, n);
	x->request_bytes += n;
	if (x->refused != HARK_REASON_COMPLETE) {
		if (part < n)
			x->want_body = false;
		else if (hark_reason_outside(x->refused)) /* as long as it comes */
			hark_conn_deadline(conn, HARK_LIMIT_DENIED_MS, HARK_REASON_COMPLETE);
		return 0;
	}
	hark_conn_deadline(conn, HARK_LIMIT_BODY_MS, HARK_REASON_BODY_TIMEOUT);
	if (!conn->up)
		return 0; /* the response is complete already; the rest is read and dropped */
	if (chunked ? put_chunk(&conn->up->stream, p, n) : hark_stream_put(&conn->up->stream, p, n))
		hark_refuse(conn, HARK_REASON_NO_MEMORY, NULL);
	return 0;
}

static int on_request_chunk(void *ctx)
{
	(void)ctx;
	return 0;
}

int hark_exchange_last_chunk(struct hark_stream *to, const struct hark_buf *trailers)
{
	if (hark_stream_put(to, "0\r\n", 3) ||
	    hark_stream_put(to, hark_buf_data(trailers), hark_buf_len(trailers)))
		return -1;
	return hark_stream_put(to, "\r\n", 2);
}

static int finish_request_body(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;
	struct hark_buf trailers;
	uint64_t ignored = 0;
	int r;

	if (x->request_bytes)
		hark_record_body(&conn->med->rec, x->id, false, (const uint8_t *)"", 0,
				 HARK_RECF_END);
	hark_buf_init(&trailers, HARK_H1_TRAILERS);
	r = hark_rebuild_trailers(&conn->h1.trailers, NULL, 0, &ignored, &trailers);
	if (!r && hark_buf_len(&trailers))
		hark_record_trailers(&conn->med->rec, x->id, false, hark_buf_data(&trailers),
				     hark_buf_len(&trailers));
	if (!r && conn->up)
		r = hark_exchange_last_chunk(&conn->up->stream, &trailers);
	hark_buf_fini(&trailers);
	return r;
}

static int on_request_end(void *ctx)
{
	struct hark_conn *conn = ctx;
	struct hark_exchange *x = &conn->x;

	x->request_done = true;
	x->want_body = false;
	conn->deadline = HARK_TIME_NEVER; /* from here on the upstream's deadlines count */
	if (conn->h1.extension_seen)
		hark_note(conn, HARK_REASON_CHUNK_EXTENSION, "request");
	if (conn->h1.head.chunked && finish_request_body(conn))
		hark_refuse(conn, HARK_REASON_NO_MEMORY, NULL);
	if (conn->med->policy.play)
		hark_play_wanted(conn);
	return 0;
}

const struct hark_h1_sink hark_exchange_request_sink = {
	.head = on_request_head,
	.body = on_request_body,
	.chunk_end = on_request_chunk,
	.end = on_request_end,
};

/* Another protocol: to where the policy allows nothing, that is what is to be told. */
static enum hark_reason not_http(const struct hark_conn *conn)
{
	enum hark_reason reason = hark_address_judge(&conn->med->policy, &conn->dst);

	return reason == HARK_REASON_COMPLETE ? HARK_REASON_NOT_HTTP : reason;
}

/* The parser gave up. Inside a head there is no exchange yet: make one, so that what was tried is
 * recorded and the answer has an id. */
void hark_exchange_bad_request(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;
	const struct hark_buf *raw = &conn->h1.head.raw;
	bool denied = conn->tls && !conn->site;

	conn->input_over = true;
	if (!conn->tls && conn->h1.in_head && !conn->h1.head.target.len &&
	    conn->h1.reason == HARK_REASON_BAD_REQUEST)
		conn->h1.reason = not_http(conn);
	if (!x->open) {
		begin(conn);
		x->host = conn->site ? conn->site->host : NULL;
		hark_record_request(&conn->med->rec, x->id, conn->id, host_index(x),
				    hark_buf_data(raw), hark_buf_len(raw));
	}
	if (x->refused != HARK_REASON_COMPLETE) {
		x->want_body = false; /* refused already: answer with what was seen */
		hark_refuse_try(conn);
		return;
	}
	hark_refuse(conn, denied ? HARK_REASON_HOST_DENIED : conn->h1.reason, conn->h1.detail);
	x->want_body = false;
	hark_refuse_try(conn);
}

void hark_exchange_client_eof(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;

	conn->input_over = true;
	if (x->open && x->refused != HARK_REASON_COMPLETE) {
		x->want_body = false;
		hark_refuse_try(conn);
	} else if (x->open && x->request_done) {
		x->close_client = true; /* half-closed: the response still goes out */
	} else if (x->open) {
		hark_note(conn, HARK_REASON_TRUNCATED_REQUEST, "");
		hark_conn_kill(conn, HARK_REASON_TRUNCATED_REQUEST);
	} else if (conn->h1.in_head && conn->h1.started) {
		const struct hark_buf *raw = &conn->h1.head.raw;

		(void)hark_record_refused(&conn->med->rec, 0, conn->id,
					  HARK_REASON_TRUNCATED_REQUEST, conn->sni,
					  hark_buf_data(raw), hark_buf_len(raw));
		hark_conn_kill(conn, HARK_REASON_TRUNCATED_REQUEST);
	} else {
		hark_conn_finish(conn, HARK_REASON_CLIENT_CLOSED);
	}
}

/* ---- upstream ---- */

void hark_exchange_connected(struct hark_upstream *up)
{
	struct hark_conn *conn = up->conn;

	up->info.conn = conn->id;
	up->info.pooled = up->pooled;
	hark_record_upstream(&conn->med->rec, conn->x.id, &up->info);
}

/* A pooled connection may die just as it is used again: a request that may be repeated is. */
static bool retry(struct hark_conn *conn, const struct hark_upstream *up)
{
	struct hark_exchange *x = &conn->x;
	bool may = up->pooled && !up->answered && x->repeatable && x->request_done;
	struct hark_site *site = up->site;

	if (!may)
		return false;
	hark_upstream_close(conn->up);
	if (!hark_upstream_get(conn, site, conn->dst.port, conn->tls, true, true))
		return false;
	return hark_stream_put(&conn->up->stream, hark_buf_data(&x->replay),
			       hark_buf_len(&x->replay)) == 0;
}

void hark_exchange_upstream_failed(struct hark_upstream *up, enum hark_reason reason,
				   const char *detail)
{
	struct hark_conn *conn = up->conn;
	struct hark_exchange *x = &conn->x;

	if (reason == HARK_REASON_UPSTREAM_CLOSED && retry(conn, up))
		return;
	hark_upstream_close(up);
	if (!x->response_started) {
		hark_refuse(conn, reason, detail);
		hark_conn_update(conn); /* it may have waited for the upstream to take more */
		return;
	}
	hark_note(conn, reason, detail);
	hark_exchange_pass_end(conn);
	hark_conn_kill(conn, reason);
}

/* ---- response head ---- */

static int fail_response(struct hark_upstream *up, enum hark_reason reason, const char *detail)
{
	hark_exchange_upstream_failed(up, reason, detail);
	return 1;
}

static int send_head(struct hark_conn *conn, const struct hark_head *head,
		     const struct hark_response_plan *plan)
{
	struct hark_exchange *x = &conn->x;
	const struct hark_site *site = conn->up->site;
	struct hark_buf out;
	uint64_t reflected = 0;
	int r;

	hark_buf_init(&out, HARK_MED_HEAD);
	r = hark_rebuild_response(head, plan, site->forms, site->nforms, &reflected, &out);
	if (!r) {
		size_t n = hark_buf_len(&out);

		hark_record_response(&conn->med->rec, x->id, head->status, false,
				     hark_buf_data(&out), n);
		r = hark_stream_put(&conn->stream, hark_buf_data(&out), n);
	}
	hark_buf_fini(&out);
	if (reflected)
		hark_note(conn, HARK_REASON_REFLECTED, "response head");
	return r;
}

static int on_interim(struct hark_upstream *up, const struct hark_head *head)
{
	struct hark_conn *conn = up->conn;
	struct hark_exchange *x = &conn->x;
	struct hark_response_plan plan = {.framing = HARK_FRAMING_NONE};

	if (head->status == 101)
		return fail_response(up, HARK_REASON_SWITCHED_UNASKED, NULL);
	if (++x->interim > HARK_INTERIM_MAX)
		return fail_response(up, HARK_REASON_TOO_MANY_INTERIM, NULL);
	if (x->client_10)
		return 0; /* an HTTP/1.0 client knows none */
	if (send_head(conn, head, &plan))
		return fail_response(up, HARK_REASON_RESPONSE_TOO_LARGE, NULL);
	hark_conn_flush(conn);
	return conn->state == HARK_CONN_DEAD;
}

/* A compressed answer to a request that carried a credential cannot be searched for it. */
static bool unscannable(const struct hark_exchange *x, const struct hark_head *head)
{
	struct hark_span value = {0, 0};

	return x->substituted && hark_head_find(head, "content-encoding", &value) &&
	       !hark_head_is(head, value, "identity");
}

static bool bodiless(const struct hark_exchange *x, unsigned status)
{
	return x->head_request || status == 204 || status == 304;
}

static enum hark_framing choose_framing(struct hark_upstream *up, const struct hark_head *head)
{
	struct hark_exchange *x = &up->conn->x;
	enum hark_framing stream = x->client_10 ? HARK_FRAMING_EOF : HARK_FRAMING_CHUNKED;

	if (bodiless(x, head->status))
		return HARK_FRAMING_NONE;
	if (head->chunked || hark_h1_eof_framed(&up->h1))
		return stream;
	if (!x->scanning || up->site->same_length || !head->length)
		return HARK_FRAMING_LENGTH;
	/* Putting placeholders back may change the length: wait for it, or announce none. */
	x->whole = head->length <= HARK_WHOLE_BYTES;
	return x->whole ? HARK_FRAMING_LENGTH : stream;
}

static bool event_stream(const struct hark_head *head)
{
	static const char type[] = "text/event-stream";
	struct hark_span value = {0, 0};

	return hark_head_find(head, "content-type", &value) && value.len >= sizeof(type) - 1 &&
	       strncasecmp((const char *)hark_head_at(head, value), type, sizeof(type) - 1) == 0;
}

static void make_plan(struct hark_upstream *up, const struct hark_head *head)
{
	struct hark_exchange *x = &up->conn->x;
	struct hark_response_plan *plan = &x->plan;

	plan->framing = choose_framing(up, head);
	plan->length = head->length;
	x->close_client |= plan->framing == HARK_FRAMING_EOF;
	plan->close = x->close_client;
	plan->keep_alive_10 = x->client_10 && !x->close_client;
	plan->keep_length = x->head_request || head->status == 304;
}

static int start_response(struct hark_conn *conn, const struct hark_head *head)
{
	if (send_head(conn, head, &conn->x.plan))
		return -1;
	conn->x.response_started = true;
	hark_buf_wipe(&conn->x.replay);
	return 0;
}

static int on_response_head(void *ctx, const struct hark_head *head)
{
	struct hark_upstream *up = ctx;
	struct hark_conn *conn = up->conn;
	struct hark_exchange *x = &conn->x;

	if (head->major != 1)
		return fail_response(up, HARK_REASON_BAD_RESPONSE, "not HTTP/1");
	if (head->other_coding)
		return fail_response(up, HARK_REASON_BAD_RESPONSE, "unknown transfer coding");
	if (head->status < 200)
		return on_interim(up, head);
	up->final = true;
	if (unscannable(x, head))
		return fail_response(up, HARK_REASON_ENCODING_UNSCANNABLE, NULL);
	x->scanning = up->site->nforms > 0;
	if (x->scanning)
		hark_scan_init(&x->scan, up->site->forms, up->site->nforms);
	x->sse = event_stream(head);
	make_plan(up, head);
	if (!bodiless(x, head->status) && hark_h1_eof_framed(&up->h1))
		hark_note(conn, HARK_REASON_EOF_FRAMED, "");
	if (!x->whole && start_response(conn, head))
		return fail_response(up, HARK_REASON_RESPONSE_TOO_LARGE, NULL);
	return 0;
}

/* ---- response body: deliveries ---- */

int hark_exchange_deliver(struct hark_conn *conn, const uint8_t *p, size_t n)
{
	struct hark_exchange *x = &conn->x;
	bool last;

	if (!n)
		return 0;
	x->response_bytes += n;
	last = x->plan.framing == HARK_FRAMING_LENGTH && x->response_bytes == x->plan.length;
	hark_record_body(&conn->med->rec, x->id, true, p, n, last ? HARK_RECF_END : 0);
	if (x->plan.framing == HARK_FRAMING_CHUNKED)
		return put_chunk(&conn->stream, p, n);
	return hark_stream_put(&conn->stream, p, n);
}

static int deliver_pending(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;
	int r = hark_exchange_deliver(conn, hark_buf_data(&x->pending), hark_buf_len(&x->pending));

	hark_buf_clear(&x->pending);
	return r;
}

/*
 * An event stream keeps its boundaries: one span, one delivery, one write. Elsewhere the small
 * chunks of one pass are joined, up to a TLS record.
 */
static int hand_on(struct hark_conn *conn, const uint8_t *p, size_t n)
{
	struct hark_exchange *x = &conn->x;

	if (x->whole)
		return hark_buf_put(&x->pending, p, n);
	if (x->sse) {
		if (hark_exchange_deliver(conn, p, n))
			return -1;
		hark_conn_flush(conn);
		return 0;
	}
	if (n < HARK_STREAM_RECORD) {
		if (hark_buf_put(&x->pending, p, n))
			return -1;
		return hark_buf_len(&x->pending) >= HARK_STREAM_RECORD ? deliver_pending(conn) : 0;
	}
	return deliver_pending(conn) ? -1 : hark_exchange_deliver(conn, p, n);
}

static int pass_scan(struct hark_conn *conn, const uint8_t *p, size_t n, bool final)
{
	struct hark_exchange *x = &conn->x;
	struct hark_buf out;
	enum hark_scan_result scan;
	uint64_t hits = x->scan.hits;
	int r = -1;

	hark_buf_init(&out, HARK_STREAM_MAX);
	scan = hark_scan_feed(&x->scan, p, n, final, &out);
	if (scan == HARK_SCAN_SAME)
		r = n ? hand_on(conn, p, n) : 0;
	else if (scan == HARK_SCAN_OUT)
		r = hark_buf_len(&out) ? hand_on(conn, hark_buf_data(&out), hark_buf_len(&out)) : 0;
	hark_buf_fini(&out);
	if (!hits && x->scan.hits)
		hark_note(conn, HARK_REASON_REFLECTED, "response body");
	return r;
}

static int on_response_body(void *ctx, const uint8_t *p, size_t n)
{
	struct hark_upstream *up = ctx;
	struct hark_conn *conn = up->conn;
	int r = conn->x.scanning ? pass_scan(conn, p, n, false) : hand_on(conn, p, n);

	if (conn->state == HARK_CONN_DEAD)
		return 1; /* the agent left while this was written */
	return r ? fail_response(up, HARK_REASON_NO_MEMORY, NULL) : 0;
}

static int on_response_chunk(void *ctx)
{
	(void)ctx;
	return 0;
}

static int finish_response_body(struct hark_upstream *up)
{
	struct hark_conn *conn = up->conn;
	struct hark_exchange *x = &conn->x;
	struct hark_buf trailers;
	uint64_t reflected = 0;
	int r;

	if (x->scanning && pass_scan(conn, (const uint8_t *)"", 0, true))
		return -1;
	if (conn->state == HARK_CONN_DEAD)
		return -1;
	if (x->whole) {
		x->plan.length = hark_buf_len(&x->pending);
		if (start_response(conn, &up->h1.head))
			return -1;
	}
	if (deliver_pending(conn))
		return -1;
	if (x->response_bytes && x->plan.framing != HARK_FRAMING_LENGTH)
		hark_record_body(&conn->med->rec, x->id, true, (const uint8_t *)"", 0,
				 HARK_RECF_END);
	if (x->plan.framing != HARK_FRAMING_CHUNKED)
		return 0;
	hark_buf_init(&trailers, (size_t)HARK_STREAM_RECORD * 2);
	r = hark_rebuild_trailers(&up->h1.trailers, up->site->forms, up->site->nforms, &reflected,
				  &trailers);
	if (!r && hark_buf_len(&trailers))
		hark_record_trailers(&conn->med->rec, x->id, true, hark_buf_data(&trailers),
				     hark_buf_len(&trailers));
	if (!r)
		r = hark_exchange_last_chunk(&conn->stream, &trailers);
	hark_buf_fini(&trailers);
	return r;
}

static int on_response_end(void *ctx)
{
	struct hark_upstream *up = ctx;
	struct hark_conn *conn = up->conn;

	if (!up->final)
		return 0; /* an interim response */
	if (up->h1.extension_seen)
		hark_note(conn, HARK_REASON_CHUNK_EXTENSION, "response");
	if (finish_response_body(up)) {
		if (conn->state == HARK_CONN_DEAD)
			return 1;
		return fail_response(up, HARK_REASON_NO_MEMORY, NULL);
	}
	up->complete = true;
	return 0;
}

const struct hark_h1_sink hark_exchange_response_sink = {
	.head = on_response_head,
	.body = on_response_body,
	.chunk_end = on_response_chunk,
	.end = on_response_end,
};

void hark_exchange_finish(struct hark_conn *conn)
{
	end(conn, HARK_REASON_COMPLETE);
	if (conn->x.close_client)
		hark_conn_finish(conn, HARK_REASON_COMPLETE);
	else
		hark_conn_next(conn);
}

void hark_exchange_response_done(struct hark_upstream *up, bool clean)
{
	struct hark_conn *conn = up->conn;
	struct hark_exchange *x = &conn->x;

	if (!x->request_done)
		x->close_client = true; /* answered early: the rest of the body is not wanted */
	hark_upstream_put(up, clean && x->request_done && !x->odd_body &&
				      hark_h1_keep_alive(&up->h1) &&
				      !hark_stream_has_pending(&up->stream));
	hark_exchange_finish(conn);
}

void hark_exchange_pass_end(struct hark_conn *conn)
{
	if (conn->state == HARK_CONN_DEAD || !conn->x.open || !conn->x.response_started)
		return;
	if (deliver_pending(conn)) {
		hark_conn_kill(conn, HARK_REASON_NO_MEMORY);
		return;
	}
	hark_conn_flush(conn);
}
