/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_mediator.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_fd.h"

static const unsigned char alpn_http11[] = "\x08http/1.1";

/* ---- context and sites ---- */

/* TLS 1.3 tickets come after the handshake: keep the newest. */
static int new_session(SSL *ssl, SSL_SESSION *session)
{
	struct hark_upstream *up = SSL_get_app_data(ssl);

	if (!up)
		return 0;
	SSL_SESSION_free(up->site->session);
	up->site->session = session;
	return 1;
}

/* How many certificates of the text were added. */
static size_t add_pem(X509_STORE *store, const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *x;
	size_t n = 0;

	while (bio && (x = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
		n += X509_STORE_add_cert(store, x) == 1;
		X509_free(x);
	}
	BIO_free(bio);
	ERR_clear_error();
	return n;
}

static X509_STORE *store_from_pem(const char *pem)
{
	X509_STORE *store = X509_STORE_new();

	if (store && add_pem(store, pem))
		return store;
	X509_STORE_free(store);
	return NULL;
}

/* Make one kind of form for each credential of a site: 0 and 1 plain, 2 to 4 inside base64. */
static int add_forms(struct hark_site *site, const struct hark_policy *policy, size_t kind)
{
	size_t i;

	for (i = 0; i < policy->ncreds; i++) {
		const struct hark_cred *cred = &policy->creds[i];
		struct hark_form *form = &site->forms[site->nforms_basic];
		int r;

		if (!hark_cred_for_host(cred, site->host->index))
			continue;
		if (kind == 0)
			r = hark_form_plain(cred, form);
		else if (kind == 1)
			r = hark_form_percent(cred, form);
		else
			r = hark_form_base64(cred, kind - 2, form);
		if (r < 0)
			return -1;
		site->nforms_basic += (size_t)r;
	}
	return 0;
}

static void search_for(struct hark_site *site, size_t nforms)
{
	size_t i;

	site->nforms = nforms;
	site->same_length = true;
	for (i = 0; i < nforms; i++)
		site->same_length &= site->forms[i].real_len == site->forms[i].placeholder_len;
}

void hark_site_basic(struct hark_site *site)
{
	if (site->nforms != site->nforms_basic)
		search_for(site, site->nforms_basic);
}

static int setup_forms(struct hark_site *site, const struct hark_policy *policy)
{
	size_t kind;

	site->forms = calloc(policy->ncreds * HARK_FORMS_PER_CRED + 1, sizeof(*site->forms));
	if (!site->forms)
		return -1;
	for (kind = 0; kind < HARK_FORMS_PER_CRED; kind++) {
		if (kind == 2)
			search_for(site, site->nforms_basic);
		if (add_forms(site, policy, kind))
			return -1;
	}
	return 0;
}

void hark_site_fini(struct hark_site *site)
{
	size_t i;

	for (i = 0; i < site->nforms_basic; i++)
		hark_form_fini(&site->forms[i]);
	free(site->forms);
	X509_STORE_free(site->store);
	SSL_SESSION_free(site->session);
}

static int setup_site(struct hark_mediator *med, size_t i, struct hark_err *err)
{
	struct hark_site *site = &med->sites[i];

	site->host = &med->policy.hosts[i];
	if (setup_forms(site, &med->policy))
		return hark_err_set(err, ENOMEM, "no memory for hosts");
	if (!site->host->ca_pem)
		return 0;
	site->store = store_from_pem(site->host->ca_pem);
	if (site->store)
		return 0;
	return hark_err_set(err, EINVAL, "no certificate in the CA given for %s", site->host->name);
}

/* A file, not a directory: OpenSSL would open a directory's files later, inside the filter. */
static int load_system_ca(struct hark_mediator *med, struct hark_err *err)
{
	size_t i;

	for (i = 0; i < med->policy.nhosts; i++) {
		if (!med->sites[i].store)
			break;
	}
	if (i == med->policy.nhosts || med->policy.play)
		return 0; /* nobody needs it, and it costs 20 ms */
	if (med->policy.extra_ca &&
	    !add_pem(SSL_CTX_get_cert_store(med->client), med->policy.extra_ca))
		return hark_err_set(err, EINVAL, "no certificate in the policy's upstream CA");
	if (!med->policy.system_ca)
		return hark_err_set(err, EINVAL, "no CA bundle for hosts without their own");
	if (SSL_CTX_load_verify_file(med->client, med->policy.system_ca) == 1)
		return 0;
	(void)hark_err_set(err, EINVAL, "cannot read CA bundle %s", med->policy.system_ca);
	return hark_err_hint(err, "install the package ca-certificates");
}

int hark_upstream_setup(struct hark_mediator *med, struct hark_err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	size_t i;

	med->client = ctx;
	med->sites = calloc(med->policy.nhosts + 1, sizeof(*med->sites));
	if (!ctx || !med->sites || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_alpn_protos(ctx, alpn_http11, sizeof(alpn_http11) - 1) != 0)
		return hark_err_set(err, EIO, "TLS client context");
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_security_level(ctx, 2); /* whatever the distribution's default: no RSA below
					       2048 bits, no SHA-1 */
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, HARK_READ_SIZE);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(ctx, new_session);
	for (i = 0; i < med->policy.nhosts; i++) {
		if (setup_site(med, i, err))
			return -1;
	}
	return load_system_ca(med, err);
}

/* ---- life ---- */

static void up_ready(struct hark_source *source, uint32_t events);
static void up_task(struct hark_task *task);

static void touch(struct hark_upstream *up)
{
	up->deadline = hark_limit_deadline(up->med, HARK_LIMIT_RESPONSE_MS);
}

static struct hark_upstream *up_new(struct hark_mediator *med, struct hark_site *site,
				    uint16_t port, bool tls)
{
	struct hark_upstream *up = calloc(1, sizeof(*up));

	if (!up)
		return NULL;
	hark_stream_init(&up->stream, &med->loop, -1, up_ready);
	hark_h1_init(&up->h1, true, &hark_exchange_response_sink, up);
	up->task.run = up_task;
	up->med = med;
	up->site = site;
	up->tls = tls;
	up->dial_fd = -1;
	up->dial_id = ++med->next_dial;
	up->deadline = hark_limit_deadline(med, HARK_LIMIT_DIAL_MS);
	up->info.host = site->host->index;
	up->port = port;
	up->next = med->upstreams;
	med->upstreams = up;
	med->loop.timers = true;
	return up;
}

static void leave_pool(struct hark_upstream *up)
{
	struct hark_upstream **at = &up->site->pool;

	while (*at && *at != up)
		at = &(*at)->pool_next;
	if (!*at)
		return;
	*at = up->pool_next;
	up->site->npool--;
	up->med->npool--;
}

void hark_upstream_close(struct hark_upstream *up)
{
	if (up->state == HARK_UP_DEAD)
		return;
	if (up->state == HARK_UP_IDLE)
		leave_pool(up);
	up->state = HARK_UP_DEAD;
	if (up->conn)
		up->conn->up = NULL;
	up->conn = NULL;
	hark_loop_unqueue(&up->med->loop, &up->task);
	hark_stream_fini(&up->stream);
	hark_fd_close(&up->dial_fd);
	up->med->any_dead = true;
}

void hark_upstream_sweep(struct hark_mediator *med)
{
	struct hark_upstream **at = &med->upstreams;

	while (*at) {
		struct hark_upstream *up = *at;

		if (up->state != HARK_UP_DEAD) {
			at = &up->next;
			continue;
		}
		*at = up->next;
		hark_h1_fini(&up->h1);
		free(up);
	}
}

/* ---- pool ---- */

static struct hark_upstream *from_pool(struct hark_site *site, uint16_t port, bool tls,
				       bool repeatable)
{
	uint64_t now = hark_time_ns(CLOCK_MONOTONIC);
	struct hark_upstream *up = site->pool;

	while (up) {
		struct hark_upstream *next = up->pool_next;
		uint64_t age_ms = (now - up->idle_since) / HARK_NS_PER_MS;

		if (up->port == port && up->tls == tls &&
		    (repeatable || age_ms < HARK_POOL_FRESH_MS)) {
			if (hark_stream_quiet(&up->stream)) {
				leave_pool(up);
				return up;
			}
			/* It left, or sent a ticket: let its own reading find out which. */
		}
		up = next;
	}
	return NULL;
}

static void attach(struct hark_upstream *up, struct hark_conn *conn)
{
	up->conn = conn;
	conn->up = up;
	up->answered = false;
	up->complete = false;
	up->final = false;
	up->h1.skip_body = conn->x.head_request;
}

struct hark_upstream *hark_upstream_get(struct hark_conn *conn, struct hark_site *site,
					uint16_t port, bool tls, bool repeatable, bool fresh)
{
	struct hark_mediator *med = conn->med;
	struct hark_upstream *up = fresh ? NULL : from_pool(site, port, tls, repeatable);

	if (up) {
		up->state = HARK_UP_READY;
		up->pooled = true;
		touch(up);
		attach(up, conn);
		hark_exchange_connected(up);
		return up;
	}
	up = up_new(med, site, port, tls);
	if (!up)
		return NULL;
	attach(up, conn);
	if (hark_links_dial(med, up->dial_id, site->host->index, port, conn->id)) {
		hark_upstream_close(up);
		return NULL;
	}
	return up;
}

void hark_upstream_put(struct hark_upstream *up, bool reusable)
{
	struct hark_site *site = up->site;

	if (!reusable || hark_buf_len(&up->stream.out) || up->med->stopping ||
	    up->med->npool >= HARK_POOL_TOTAL) {
		hark_upstream_close(up);
		return;
	}
	while (site->npool >= HARK_POOL_PER_SITE) {
		struct hark_upstream *oldest = site->pool;

		while (oldest->pool_next)
			oldest = oldest->pool_next;
		hark_upstream_close(oldest);
	}
	if (up->conn)
		up->conn->up = NULL;
	up->conn = NULL;
	up->state = HARK_UP_IDLE;
	up->idle_since = hark_time_ns(CLOCK_MONOTONIC);
	up->deadline = hark_limit_deadline(up->med, HARK_LIMIT_POOL_MS);
	up->pool_next = site->pool;
	site->pool = up;
	site->npool++;
	up->med->npool++;
	hark_upstream_update(up);
}

/* ---- failure ---- */

static void fail(struct hark_upstream *up, enum hark_reason reason, const char *detail)
{
	if (up->conn)
		hark_exchange_upstream_failed(up, reason, detail);
	else
		hark_upstream_close(up);
}

enum hark_reason hark_dial_reason(uint32_t status)
{
	switch (status) {
	case HARK_DIAL_DENIED:
		return HARK_REASON_DIAL_DENIED;
	case HARK_DIAL_RESOLVE:
		return HARK_REASON_DIAL_RESOLVE;
	case HARK_DIAL_PRIVATE:
		return HARK_REASON_DIAL_PRIVATE;
	case HARK_DIAL_TIMEOUT:
		return HARK_REASON_DIAL_TIMEOUT;
	case HARK_DIAL_UNRECORDED:
		return HARK_REASON_DIAL_UNRECORDED;
	case HARK_DIAL_PROXY_UNREACHABLE:
		return HARK_REASON_PROXY_UNREACHABLE;
	case HARK_DIAL_PROXY_AUTH:
		return HARK_REASON_PROXY_AUTH;
	case HARK_DIAL_PROXY_REFUSED:
		return HARK_REASON_PROXY_REFUSED;
	case HARK_DIAL_PROXY_FAILED:
		return HARK_REASON_PROXY_FAILED;
	case HARK_DIAL_PROXY_BROKEN:
		return HARK_REASON_PROXY_BROKEN;
	default:
		return HARK_REASON_DIAL_CONNECT;
	}
}

/* What the broker's number says: an errno, or the status a proxy gave. */
const char *hark_dial_detail(const struct hark_msg_dialed *dial, char *text, size_t size)
{
	if (!dial->err)
		return "";
	if (dial->status < HARK_DIAL_PROXY_AUTH)
		return strerror((int)dial->err);
	(void)snprintf(text, size, "the proxy answered %" PRIu32, dial->err);
	return text;
}

/* ---- dialling and handshake ---- */

void hark_upstream_dialled(struct hark_mediator *med, const struct hark_msg_dialed *msg, int fd)
{
	struct hark_upstream *up = med->upstreams;

	while (up &&
	       (up->state != HARK_UP_DIALLING || up->has_answer || up->dial_id != msg->head.id))
		up = up->next;
	if (!up) {
		if (!hark_opaque_dialled(med, msg, fd))
			hark_fd_close(&fd); /* the agent left meanwhile */
		return;
	}
	up->has_answer = true;
	up->dial = *msg;
	up->dial_fd = fd;
	hark_loop_queue(&med->loop, &up->task); /* not now: there may be no room for records */
}

static int start_tls(struct hark_upstream *up)
{
	SSL *ssl = SSL_new(up->med->client);
	const char *name = up->site->host->name;

	up->stream.ssl = ssl;
	if (!ssl || SSL_set_fd(ssl, up->stream.source.fd) != 1 || SSL_set_app_data(ssl, up) != 1 ||
	    SSL_set_tlsext_host_name(ssl, name) != 1 || SSL_set1_host(ssl, name) != 1)
		return -1;
	/* Names stand in the SAN extension and nowhere else (RFC 9525, 6.3). */
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
				       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (up->site->store && SSL_set1_verify_cert_store(ssl, up->site->store) != 1)
		return -1;
	if (up->site->session && SSL_set_session(ssl, up->site->session) != 1)
		return -1;
	SSL_set_connect_state(ssl);
	return 0;
}

static void note_peer(struct hark_upstream *up)
{
	SSL *ssl = up->stream.ssl;
	X509 *leaf = SSL_get1_peer_certificate(ssl);
	unsigned n = sizeof(up->info.cert_sha256);
	const char *version = SSL_get_version(ssl);
	const char *cipher = SSL_get_cipher_name(ssl);

	if (leaf)
		(void)X509_digest(leaf, EVP_sha256(), up->info.cert_sha256, &n);
	X509_free(leaf);
	memcpy(up->info.version, version, strnlen(version, sizeof(up->info.version)));
	memcpy(up->info.cipher, cipher, strnlen(cipher, sizeof(up->info.cipher)));
	up->info.resumed = SSL_session_reused(ssl) != 0;
}

static void handshake_failed(struct hark_upstream *up)
{
	long verify = SSL_get_verify_result(up->stream.ssl);

	if (verify != X509_V_OK)
		fail(up, HARK_REASON_UPSTREAM_CERTIFICATE, X509_verify_cert_error_string(verify));
	else
		fail(up, HARK_REASON_UPSTREAM_TLS, hark_stream_says(up->stream.error));
}

static void now_ready(struct hark_upstream *up)
{
	up->state = HARK_UP_READY;
	touch(up);
	hark_exchange_connected(up);
	hark_upstream_flush(up);
}

static void handshake(struct hark_upstream *up)
{
	switch (hark_stream_handshake(&up->stream)) {
	case HARK_IO_OK:
		note_peer(up);
		now_ready(up);
		break;
	case HARK_IO_AGAIN:
		hark_upstream_update(up);
		break;
	default:
		handshake_failed(up);
		break;
	}
}

static void take_answer(struct hark_upstream *up)
{
	int one = 1;

	up->has_answer = false;
	up->stream.source.fd = hark_fd_take(&up->dial_fd);
	if (up->dial.status != HARK_DIAL_OK || up->stream.source.fd < 0) {
		char detail[64];

		fail(up, hark_dial_reason(up->dial.status),
		     hark_dial_detail(&up->dial, detail, sizeof(detail)));
		return;
	}
	up->info.family = up->dial.family;
	up->info.port = up->dial.port;
	memcpy(up->info.addr, up->dial.addr, sizeof(up->info.addr));
	(void)setsockopt(up->stream.source.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (fcntl(up->stream.source.fd, F_SETFL, O_NONBLOCK)) {
		fail(up, HARK_REASON_INTERNAL, "the dialled socket cannot be used");
	} else if (!up->tls) {
		now_ready(up);
	} else if (start_tls(up)) {
		fail(up, HARK_REASON_INTERNAL, "TLS could not start");
	} else {
		up->state = HARK_UP_HANDSHAKE;
		up->deadline = hark_limit_deadline(up->med, HARK_LIMIT_DIAL_MS);
		handshake(up);
	}
}

/* ---- reading ---- */

/* Record what came unasked, without the credentials that may be in it. */
static void record_smuggled(struct hark_upstream *up, const uint8_t *p, size_t n)
{
	const struct hark_site *site = up->site;
	struct hark_scan scan;
	struct hark_buf clean;
	enum hark_scan_result r;

	hark_scan_init(&scan, site->forms, site->nforms_basic);
	hark_buf_init(&clean, HARK_STREAM_MAX);
	r = hark_scan_feed(&scan, p, n, false, &clean); /* a tail that may begin one stays out */
	if (r != HARK_SCAN_SAME) {
		p = hark_buf_data(&clean);
		n = hark_buf_len(&clean);
	}
	(void)hark_record_refused(&up->med->rec, 0, 0, HARK_REASON_RESPONSE_SMUGGLED,
				  site->host->name, p, n);
	hark_scan_fini(&scan);
	hark_buf_fini(&clean);
}

/* Bytes or an end on a connection that no exchange uses. Tickets are read inside OpenSSL. */
static void read_idle(struct hark_upstream *up)
{
	size_t got;

	if (hark_stream_read(&up->stream, up->med->read_buf, HARK_READ_SIZE, &got) == HARK_IO_AGAIN)
		return;
	if (got)
		record_smuggled(up, up->med->read_buf, got);
	hark_upstream_close(up);
}

static void feed(struct hark_upstream *up, const uint8_t *p, size_t n)
{
	while (n && up->state == HARK_UP_READY) {
		size_t used;
		enum hark_h1_result r = hark_h1_feed(&up->h1, p, n, &used);

		p += used;
		n -= used;
		if (r == HARK_H1_BAD) {
			fail(up, up->h1.reason, up->h1.detail);
			return;
		}
		if (r == HARK_H1_STOP)
			return; /* the exchange has dealt with it */
		if (!up->complete)
			continue;
		if (n)
			hark_note(up->conn, HARK_REASON_RESPONSE_SMUGGLED,
				  "bytes after the response");
		hark_exchange_response_done(up, n == 0);
		return;
	}
}

static void ended(struct hark_upstream *up, bool cut)
{
	bool in_message = up->h1.started && !up->h1.message_end;

	if (!cut && !up->h1.in_head && hark_h1_eof(&up->h1) == HARK_H1_OK && up->complete)
		hark_exchange_response_done(up, false);
	else if (in_message || up->conn->x.response_started)
		fail(up, HARK_REASON_UPSTREAM_TRUNCATED, "");
	else
		fail(up, HARK_REASON_UPSTREAM_CLOSED, "");
}

static bool has_room(const struct hark_upstream *up)
{
	return up->conn && hark_buf_len(&up->conn->stream.out) < HARK_STREAM_HIGH;
}

static enum hark_io read_once(struct hark_upstream *up)
{
	size_t got;
	enum hark_io io = hark_stream_read(&up->stream, up->med->read_buf, HARK_READ_SIZE, &got);

	switch (io) {
	case HARK_IO_OK:
		touch(up);
		up->answered = true;
		feed(up, up->med->read_buf, got);
		break;
	case HARK_IO_AGAIN:
		break;
	case HARK_IO_EOF:
	case HARK_IO_CUT:
		ended(up, io == HARK_IO_CUT);
		break;
	default:
		if (up->conn->x.response_started)
			fail(up, HARK_REASON_UPSTREAM_TRUNCATED,
			     hark_stream_says(up->stream.error));
		else
			fail(up, HARK_REASON_UPSTREAM_CLOSED, hark_stream_says(up->stream.error));
		break;
	}
	return io;
}

static void read_pass(struct hark_upstream *up)
{
	struct hark_conn *conn = up->conn;
	enum hark_io io = HARK_IO_OK;
	int i;

	for (i = 0; i < HARK_READS_PER_PASS && io == HARK_IO_OK; i++) {
		if (up->state != HARK_UP_READY || up->conn != conn || !has_room(up))
			break;
		io = read_once(up);
		if (i + 1 < HARK_READS_PER_PASS && up->state == HARK_UP_READY &&
		    !hark_stream_has_pending(&up->stream))
			break; /* most likely empty: epoll will tell */
	}
	if (conn->x.open)
		hark_exchange_pass_end(conn);
	if (up->state != HARK_UP_DEAD)
		hark_upstream_update(up);
}

static void up_ready(struct hark_source *source, uint32_t events)
{
	struct hark_upstream *up = HARK_CONTAINER(source, struct hark_upstream, stream.source);

	if (up->state == HARK_UP_HANDSHAKE) {
		handshake(up);
		return;
	}
	if (up->state == HARK_UP_IDLE) {
		read_idle(up);
		return;
	}
	if (up->state != HARK_UP_READY)
		return;
	if (events & EPOLLOUT)
		hark_upstream_flush(up);
	if (up->state != HARK_UP_READY || !(events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
		return;
	if (has_room(up))
		read_pass(up);
	else if (hark_stream_mute(&up->stream))
		fail(up, HARK_REASON_INTERNAL, "epoll");
}

static void up_task(struct hark_task *task)
{
	struct hark_upstream *up = HARK_CONTAINER(task, struct hark_upstream, task);

	if (up->state == HARK_UP_DIALLING && up->has_answer)
		take_answer(up);
	else if (up->state == HARK_UP_READY)
		read_pass(up);
}

/* ---- writing and interest ---- */

void hark_upstream_flush(struct hark_upstream *up)
{
	size_t before = hark_buf_len(&up->stream.out);

	if (up->state != HARK_UP_READY || !before)
		return;
	if (hark_stream_flush(&up->stream) == HARK_IO_ERROR) {
		/* It may have answered before it closed (413): read that first. */
		hark_buf_clear(&up->stream.out);
		up->stream.want_write = false;
		hark_loop_queue(&up->med->loop, &up->task);
		return;
	}
	touch(up);
	hark_upstream_update(up);
	if (up->conn && before >= HARK_STREAM_LOW)
		hark_conn_update(up->conn);
}

void hark_upstream_update(struct hark_upstream *up)
{
	bool reading = up->state != HARK_UP_READY || has_room(up);

	if (up->state == HARK_UP_DIALLING || up->state == HARK_UP_DEAD)
		return;
	if (hark_stream_watch(&up->stream, reading)) {
		fail(up, HARK_REASON_INTERNAL, "epoll");
		return;
	}
	if (reading && up->state == HARK_UP_READY && hark_stream_has_pending(&up->stream))
		hark_loop_queue(&up->med->loop, &up->task);
}

void hark_upstream_tick(struct hark_mediator *med, uint64_t now)
{
	struct hark_upstream *up;

	for (up = med->upstreams; up; up = up->next) {
		if (up->state == HARK_UP_DEAD || now < up->deadline)
			continue;
		if (!med->loop.ready_for_input(med->loop.ctx))
			return;
		if (up->state == HARK_UP_IDLE)
			hark_upstream_close(up);
		else if (up->state == HARK_UP_DIALLING)
			fail(up, HARK_REASON_DIAL_TIMEOUT, "");
		else
			fail(up, HARK_REASON_UPSTREAM_TIMEOUT, "");
	}
}
