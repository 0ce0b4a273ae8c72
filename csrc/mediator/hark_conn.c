/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_mediator.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_fd.h"

enum { TLS_HANDSHAKE_BYTE = 0x16 };

static void conn_ready(struct hark_source *source, uint32_t events);
static void conn_task(struct hark_task *task);
static void read_pass(struct hark_conn *conn);
static void receive(struct hark_conn *conn);
static void record_unsaid(struct hark_conn *conn);

/* ---- life ---- */

static struct hark_conn *conn_new(struct hark_mediator *med, int fd)
{
	struct hark_conn *conn = calloc(1, sizeof(*conn));
	int one = 1;

	if (!conn)
		return NULL;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	hark_stream_init(&conn->stream, &med->loop, fd, conn_ready);
	hark_h1_init(&conn->h1, false, &hark_exchange_request_sink, conn);
	hark_exchange_init(&conn->x);
	hark_buf_init(&conn->in, (size_t)HARK_READ_SIZE * 2);
	conn->task.run = conn_task;
	conn->med = med;
	conn->id = ++med->next_conn;
	conn->next = med->conns;
	med->conns = conn;
	med->nconns++;
	med->loop.timers = true;
	return conn;
}

void hark_conn_accept(struct hark_mediator *med, int fd, const struct sockaddr_storage *peer)
{
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	struct hark_conn *conn;

	memset(&own, 0, sizeof(own));
	if (getsockname(fd, (struct sockaddr *)&own, &len)) {
		hark_fd_close(&fd);
		return;
	}
	conn = conn_new(med, fd);
	if (!conn) {
		hark_fd_close(&fd);
		return;
	}
	conn->src = hark_addr_of(peer);
	conn->dst = hark_addr_of(&own); /* TPROXY: the address the agent dialled */
	hark_record_open(&med->rec, conn->id, &conn->src, &conn->dst);
	receive(conn);
}

/* A service's bytes pass from the first one on; all others begin with a name. */
static void receive(struct hark_conn *conn)
{
	const struct hark_policy *policy = &conn->med->policy;
	const struct hark_host *host = hark_address_host(policy, &conn->dst);
	bool hopeless = hark_address_judge(policy, &conn->dst) != HARK_REASON_COMPLETE;

	if (host && hark_host_port(host, conn->dst.port) & HARK_PORT_OPAQUE) {
		hark_opaque_begin(conn, host);
		return;
	}
	/* Where nothing is allowed, and the client waits for the other end to speak first. */
	hark_conn_deadline(conn, hopeless ? HARK_LIMIT_DENIED_MS : HARK_LIMIT_HELLO_MS,
			   HARK_REASON_CLIENT_SILENT);
	hark_conn_update(conn);
}

/* Why a connection that said nothing, or nothing but a name, would have been refused. */
static enum hark_reason unsaid(const struct hark_conn *conn)
{
	if (conn->judged || conn->x.id || conn->opaque)
		return HARK_REASON_COMPLETE; /* that tells it */
	if (!conn->tls)
		return hark_address_judge(&conn->med->policy, &conn->dst);
	if (!*conn->sni)
		return HARK_REASON_COMPLETE;
	if (!conn->site)
		return HARK_REASON_HOST_DENIED;
	return conn->port_ok ? HARK_REASON_COMPLETE : HARK_REASON_PORT_DENIED;
}

/* The host that a connection without a request means, as well as it is known. */
static const char *named(const struct hark_conn *conn)
{
	const struct hark_host *host = hark_address_host(&conn->med->policy, &conn->dst);

	if (*conn->sni)
		return conn->sni;
	return host ? host->name : "";
}

/* An attempt is an attempt, also when the agent hung up before it had said what it wants. */
static void record_unsaid(struct hark_conn *conn)
{
	enum hark_reason reason = unsaid(conn);

	if (reason != HARK_REASON_COMPLETE)
		(void)hark_record_refused(&conn->med->rec, 0, conn->id, reason, named(conn), "", 0);
}

void hark_conn_refuse(struct hark_conn *conn, enum hark_reason reason, const char *name,
		      const char *detail)
{
	conn->judged = true;
	conn->reason = reason;
	conn->hold_seq = hark_record_refused(&conn->med->rec, 0, conn->id, reason, name, detail,
					     strlen(detail));
	conn->state = HARK_CONN_CLOSING;
	conn->deadline = HARK_TIME_NEVER; /* it waits for the recorder */
	if (hark_stream_watch(&conn->stream, false))
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
}

void hark_conn_kill(struct hark_conn *conn, enum hark_reason reason)
{
	struct hark_mediator *med = conn->med;

	if (conn->state == HARK_CONN_DEAD)
		return;
	conn->state = HARK_CONN_DEAD;
	hark_exchange_abort(conn, reason);
	record_unsaid(conn);
	hark_opaque_end(conn);
	hark_record_close(&med->rec, conn->id, reason, conn->stream.rx, conn->stream.tx);
	hark_loop_unqueue(&med->loop, &conn->task);
	hark_stream_fini(&conn->stream);
	med->nconns--;
	med->any_dead = true;
	hark_links_listen(med, true);
}

void hark_conn_sweep(struct hark_mediator *med)
{
	struct hark_conn **at = &med->conns;

	while (*at) {
		struct hark_conn *conn = *at;

		if (conn->state != HARK_CONN_DEAD) {
			at = &conn->next;
			continue;
		}
		*at = conn->next;
		hark_exchange_fini(&conn->x);
		hark_h1_fini(&conn->h1);
		hark_buf_fini(&conn->in);
		free(conn->opaque);
		free(conn);
	}
}

void hark_conn_deadline(struct hark_conn *conn, enum hark_limit limit, enum hark_reason reason)
{
	conn->deadline = hark_limit_deadline(conn->med, limit);
	conn->deadline_reason = reason;
}

/* ---- interest ---- */

/* More of the current request, or a new one, may be read now. */
static bool wants_input(const struct hark_conn *conn)
{
	const struct hark_exchange *x = &conn->x;

	if (conn->input_over)
		return false;
	if (!x->open)
		return true;
	if (x->refused != HARK_REASON_COMPLETE)
		return x->want_body;
	if (x->request_done)
		return false; /* the next request waits for this response */
	return !conn->up || hark_buf_len(&conn->up->stream.out) < HARK_STREAM_HIGH;
}

static bool wants_read(const struct hark_conn *conn)
{
	switch (conn->state) {
	case HARK_CONN_HANDSHAKE:
		return conn->hello != HARK_HELLO_HELD;
	case HARK_CONN_OPEN:
		return wants_input(conn);
	default:
		return true;
	}
}

void hark_conn_update(struct hark_conn *conn)
{
	bool reading = wants_read(conn);

	if (conn->state == HARK_CONN_DEAD)
		return;
	if (hark_stream_watch(&conn->stream, reading)) {
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
		return;
	}
	if (conn->state == HARK_CONN_OPEN && reading &&
	    (hark_buf_len(&conn->in) || hark_stream_has_pending(&conn->stream)))
		hark_loop_queue(&conn->med->loop, &conn->task);
}

/* ---- writing ---- */

static void shut_when_empty(struct hark_conn *conn)
{
	if (conn->state != HARK_CONN_LINGER || hark_buf_len(&conn->stream.out))
		return;
	hark_stream_shut(&conn->stream);
	hark_conn_deadline(conn, HARK_LIMIT_LINGER_MS, conn->reason);
}

void hark_conn_flush(struct hark_conn *conn)
{
	bool was_full = hark_buf_len(&conn->stream.out) >= HARK_STREAM_LOW;

	if (conn->state != HARK_CONN_OPEN && conn->state != HARK_CONN_LINGER)
		return;
	if (hark_stream_flush(&conn->stream) == HARK_IO_ERROR) {
		hark_conn_kill(conn, HARK_REASON_CLIENT_GONE);
		return;
	}
	shut_when_empty(conn);
	hark_conn_update(conn);
	if (was_full && conn->state == HARK_CONN_OPEN && conn->up &&
	    hark_buf_len(&conn->stream.out) < HARK_STREAM_LOW)
		hark_upstream_update(conn->up);
	hark_play_resume(conn);
}

void hark_conn_finish(struct hark_conn *conn, enum hark_reason reason)
{
	if (conn->state == HARK_CONN_DEAD || conn->state == HARK_CONN_LINGER)
		return;
	conn->state = HARK_CONN_LINGER;
	conn->reason = reason;
	hark_conn_deadline(conn, HARK_LIMIT_RESPONSE_MS, reason); /* a slow reader */
	if (hark_buf_len(&conn->stream.out)) {
		hark_conn_flush(conn);
	} else {
		shut_when_empty(conn);
		hark_conn_update(conn);
	}
}

/* Discard what still comes, below TLS, so that closing does not reset what was sent. */
static void linger(struct hark_conn *conn)
{
	ssize_t n = read(conn->stream.source.fd, conn->med->read_buf, HARK_READ_SIZE);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		conn->lingered += (size_t)n;
	if (n <= 0 || conn->lingered > HARK_LINGER_BYTES)
		hark_conn_kill(conn, conn->reason);
}

/* ---- handshake ---- */

static bool rejects_ca(unsigned long error)
{
	switch (ERR_GET_REASON(error)) {
	case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
	case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
	case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
	case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
		return true;
	default:
		return false;
	}
}

/*
 * Whether our certificate is out and nothing came back for it. Node closes the connection then, and
 * Java's HttpClient the TLS session; neither sends the alert that says why.
 */
static bool certificate_is_out(const SSL *ssl)
{
	switch (SSL_get_state(ssl)) {
	case TLS_ST_SW_SRVR_DONE: /* TLS 1.2 */
	case TLS_ST_SW_FINISHED:  /* TLS 1.3 */
	case TLS_ST_EARLY_DATA:   /* TLS 1.3, and waiting */
		return SSL_session_reused(ssl) == 0;
	default:
		return false;
	}
}

static void handshake_failed(struct hark_conn *conn, enum hark_io io)
{
	const char *detail = io == HARK_IO_ERROR ? hark_stream_says(conn->stream.error)
						 : "the client left during the handshake";
	enum hark_reason reason = HARK_REASON_TLS_HANDSHAKE;

	if (conn->hello == HARK_HELLO_REFUSE) {
		hark_conn_finish(conn, conn->reason); /* recorded; the alert is out */
		return;
	}
	conn->judged = true;
	if (io == HARK_IO_ERROR && rejects_ca(conn->stream.error))
		reason = HARK_REASON_CLIENT_REJECTED_CA;
	else if (io != HARK_IO_ERROR && certificate_is_out(conn->stream.ssl))
		reason = HARK_REASON_CLIENT_LEFT_AT_CERTIFICATE;
	(void)hark_record_refused(&conn->med->rec, 0, conn->id, reason, conn->sni, detail,
				  strlen(detail));
	hark_conn_finish(conn, reason);
}

static void record_tls(struct hark_conn *conn)
{
	SSL *ssl = conn->stream.ssl;
	struct hark_tls_info tls = {.version = SSL_get_version(ssl),
				    .cipher = SSL_get_cipher_name(ssl),
				    .resumed = SSL_session_reused(ssl) != 0};
	const unsigned char *alpn = NULL;
	unsigned n = 0;

	SSL_get0_alpn_selected(ssl, &alpn, &n);
	tls.alpn = (const char *)alpn;
	tls.alpn_len = n;
	hark_record_tls(&conn->med->rec, conn->id, &tls, conn->sni);
}

static void handshake(struct hark_conn *conn)
{
	enum hark_io io = hark_stream_handshake(&conn->stream);

	switch (io) {
	case HARK_IO_OK:
		record_tls(conn);
		conn->state = HARK_CONN_OPEN;
		hark_conn_deadline(conn, HARK_LIMIT_HEAD_MS, HARK_REASON_CLIENT_SILENT);
		hark_conn_update(conn);
		break;
	case HARK_IO_AGAIN:
	case HARK_IO_HELD:
		hark_conn_update(conn);
		break;
	default:
		handshake_failed(conn, io);
		break;
	}
}

static void start_tls(struct hark_conn *conn)
{
	SSL *ssl = SSL_new(conn->med->server);

	conn->stream.ssl = ssl;
	conn->tls = true;
	if (!ssl || SSL_set_fd(ssl, conn->stream.source.fd) != 1 ||
	    SSL_set_app_data(ssl, conn) != 1) {
		hark_conn_kill(conn, HARK_REASON_NO_MEMORY);
		return;
	}
	SSL_set_accept_state(ssl);
	conn->state = HARK_CONN_HANDSHAKE;
	handshake(conn);
}

static void peek(struct hark_conn *conn)
{
	uint8_t byte;
	ssize_t n = recv(conn->stream.source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hark_conn_kill(conn, HARK_REASON_CLIENT_CLOSED);
		return;
	}
	if (byte == TLS_HANDSHAKE_BYTE) {
		start_tls(conn);
		return;
	}
	conn->state = HARK_CONN_OPEN;
	hark_conn_deadline(conn, HARK_LIMIT_HEAD_MS, HARK_REASON_CLIENT_SILENT);
	read_pass(conn);
}

/* ---- reading ---- */

/* Parse as far as the exchange allows; bytes taken. */
static size_t consume(struct hark_conn *conn, const uint8_t *p, size_t n)
{
	size_t taken = 0;

	while (taken < n && conn->state == HARK_CONN_OPEN && wants_input(conn)) {
		bool fresh = conn->h1.in_head && !conn->h1.started;
		size_t used;

		if (hark_h1_feed(&conn->h1, p + taken, n - taken, &used) == HARK_H1_BAD) {
			hark_exchange_bad_request(conn);
			return n;
		}
		taken += used;
		if ((fresh || conn->h1.message_end) && conn->h1.in_head && conn->h1.started)
			hark_conn_deadline(conn, HARK_LIMIT_HEAD_MS, HARK_REASON_HEAD_TIMEOUT);
	}
	return taken;
}

static enum hark_io read_once(struct hark_conn *conn)
{
	uint8_t *buf = conn->med->read_buf;
	size_t got;
	size_t taken;
	enum hark_io io = hark_stream_read(&conn->stream, buf, HARK_READ_SIZE, &got);

	if (io == HARK_IO_AGAIN)
		return io;
	if (io == HARK_IO_EOF || io == HARK_IO_CUT) {
		hark_exchange_client_eof(conn);
		return io;
	}
	if (io != HARK_IO_OK) {
		hark_conn_kill(conn,
			       conn->x.open ? HARK_REASON_CLIENT_GONE : HARK_REASON_CLIENT_CLOSED);
		return io;
	}
	taken = consume(conn, buf, got);
	if (conn->state == HARK_CONN_OPEN && taken < got &&
	    hark_buf_put(&conn->in, buf + taken, got - taken))
		hark_conn_kill(conn, HARK_REASON_NO_MEMORY);
	return io;
}

/* What one pass over the input leaves to do. */
static void settle(struct hark_conn *conn)
{
	if (conn->state != HARK_CONN_OPEN)
		return;
	if (conn->up)
		hark_upstream_flush(conn->up);
	hark_refuse_try(conn);
	if (conn->state == HARK_CONN_OPEN)
		hark_conn_update(conn);
}

static void read_pass(struct hark_conn *conn)
{
	enum hark_io io = HARK_IO_OK;
	int i;

	if (hark_buf_len(&conn->in)) {
		size_t taken = consume(conn, hark_buf_data(&conn->in), hark_buf_len(&conn->in));

		hark_buf_drop(&conn->in, taken);
	}
	for (i = 0; i < HARK_READS_PER_PASS && io == HARK_IO_OK; i++) {
		if (conn->state != HARK_CONN_OPEN || !wants_input(conn) || hark_buf_len(&conn->in))
			break;
		io = read_once(conn);
		if (!hark_stream_has_pending(&conn->stream))
			break;
	}
	settle(conn);
}

void hark_conn_next(struct hark_conn *conn)
{
	if (conn->input_over) { /* half-closed after its last request */
		hark_conn_finish(conn, HARK_REASON_CLIENT_CLOSED);
		return;
	}
	hark_conn_deadline(conn, HARK_LIMIT_IDLE_MS, HARK_REASON_CLIENT_CLOSED);
	hark_conn_flush(conn);
}

/* Something happened while nothing is read: input waits, a reset ends it. */
static void unwanted(struct hark_conn *conn, uint32_t events, enum hark_reason reason)
{
	if (events & (EPOLLERR | EPOLLHUP))
		hark_conn_kill(conn, reason);
	else if (hark_stream_mute(&conn->stream))
		hark_conn_kill(conn, HARK_REASON_INTERNAL);
}

static void conn_ready(struct hark_source *source, uint32_t events)
{
	struct hark_conn *conn = HARK_CONTAINER(source, struct hark_conn, stream.source);

	switch (conn->state) {
	case HARK_CONN_PEEK:
		peek(conn);
		break;
	case HARK_CONN_HANDSHAKE:
		if (conn->hello == HARK_HELLO_HELD)
			unwanted(conn, events, conn->reason);
		else
			handshake(conn);
		break;
	case HARK_CONN_OPEN:
		if (events & EPOLLOUT)
			hark_conn_flush(conn);
		if (conn->state != HARK_CONN_OPEN || !(events & ~(uint32_t)EPOLLOUT))
			break;
		if (conn->stream.reading)
			read_pass(conn);
		else
			unwanted(conn, events, HARK_REASON_CLIENT_GONE);
		break;
	case HARK_CONN_LINGER:
		if (events & EPOLLOUT)
			hark_conn_flush(conn);
		if (conn->state == HARK_CONN_LINGER && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
			linger(conn);
		break;
	case HARK_CONN_OPAQUE:
		hark_opaque_ready(conn, events);
		break;
	case HARK_CONN_CLOSING:
		unwanted(conn, events, conn->reason);
		break;
	default:
		break;
	}
}

static void conn_task(struct hark_task *task)
{
	struct hark_conn *conn = HARK_CONTAINER(task, struct hark_conn, task);

	if (conn->state == HARK_CONN_HANDSHAKE)
		handshake(conn);
	else if (conn->state == HARK_CONN_OPEN)
		read_pass(conn);
	else if (conn->state == HARK_CONN_CLOSING)
		hark_conn_kill(conn, conn->reason);
}

/* ---- time and durability ---- */

/* What this connection holds back until it is on disk is there. */
static bool now_told(const struct hark_conn *conn, uint64_t durable)
{
	if (conn->state == HARK_CONN_CLOSING)
		return durable > conn->hold_seq;
	return conn->state == HARK_CONN_OPEN && conn->x.open &&
	       conn->x.refused != HARK_REASON_COMPLETE && durable > conn->x.hold_seq;
}

void hark_conn_durable(struct hark_mediator *med)
{
	struct hark_conn *conn;

	for (conn = med->conns; conn; conn = conn->next) {
		if (conn->state == HARK_CONN_HANDSHAKE && conn->hello == HARK_HELLO_HELD &&
		    med->durable > conn->hold_seq) {
			conn->hello = HARK_HELLO_REFUSE;
			hark_loop_queue(&med->loop, &conn->task);
		} else if (now_told(conn, med->durable)) {
			hark_loop_queue(&med->loop, &conn->task);
		}
	}
}

static void open_expired(struct hark_conn *conn)
{
	struct hark_exchange *x = &conn->x;

	conn->deadline = HARK_TIME_NEVER;
	if (x->open && x->refused != HARK_REASON_COMPLETE) {
		x->want_body = false; /* enough of the body was waited for */
		hark_refuse_try(conn);
	} else if (x->open && x->response_started) {
		/* Both directions may stream; the upstream's deadline still counts. */
		hark_conn_deadline(conn, HARK_LIMIT_BODY_MS, HARK_REASON_BODY_TIMEOUT);
	} else if (x->open) {
		hark_refuse(conn, conn->deadline_reason, NULL);
	} else if (conn->h1.in_head && conn->h1.started) {
		conn->h1.reason = HARK_REASON_HEAD_TIMEOUT;
		conn->h1.detail = "the head is incomplete";
		hark_exchange_bad_request(conn);
	} else {
		if (conn->deadline_reason == HARK_REASON_CLIENT_SILENT)
			hark_note(conn, HARK_REASON_CLIENT_SILENT, "no request");
		hark_conn_finish(conn, conn->deadline_reason);
	}
	if (conn->state == HARK_CONN_OPEN)
		hark_conn_update(conn);
}

static void silent(struct hark_conn *conn)
{
	enum hark_reason reason = unsaid(conn);

	if (reason != HARK_REASON_COMPLETE) {
		hark_conn_refuse(conn, reason, named(conn), "the client sent nothing");
		return;
	}
	hark_note(conn, HARK_REASON_CLIENT_SILENT, "no hello");
	hark_conn_kill(conn, HARK_REASON_CLIENT_SILENT);
}

static void expired(struct hark_conn *conn)
{
	switch (conn->state) {
	case HARK_CONN_OPEN:
		open_expired(conn);
		break;
	case HARK_CONN_PEEK:
	case HARK_CONN_HANDSHAKE:
		if (conn->hello == HARK_HELLO_HELD)
			break; /* waits for the recorder, not for the agent */
		silent(conn);
		break;
	default:
		hark_conn_kill(conn, conn->reason);
		break;
	}
}

void hark_conn_tick(struct hark_mediator *med, uint64_t now)
{
	struct hark_conn *conn;

	for (conn = med->conns; conn; conn = conn->next) {
		if (conn->state == HARK_CONN_DEAD || now < conn->deadline)
			continue;
		if (!med->loop.ready_for_input(med->loop.ctx))
			return; /* each may record a whole head: the rest waits for the next tick */
		expired(conn);
	}
}
