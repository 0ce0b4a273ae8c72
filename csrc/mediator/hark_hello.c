/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ClientHello decides: it is read before any resumption, minting or dialling. A usable name
 * gets a leaf, allowed or not, so that what a denied client would have sent can be recorded.
 * Without a usable name there is only an alert, and it waits until the refusal is on disk.
 */
#include "hark_mediator.h"

static const unsigned char alpn_http11[] = "\x08http/1.1";

static enum hark_reason reason_of(enum hark_name_kind kind)
{
	switch (kind) {
	case HARK_NAME_ABSENT:
		return HARK_REASON_NO_SNI;
	case HARK_NAME_ADDRESS:
		return HARK_REASON_IP_LITERAL;
	default:
		return HARK_REASON_SNI_INVALID;
	}
}

static int hold(struct hark_conn *conn, enum hark_name_kind kind, const uint8_t *ext, size_t n)
{
	conn->reason = reason_of(kind);
	conn->alert = SSL_AD_UNRECOGNIZED_NAME;
	conn->hello = HARK_HELLO_HELD;
	conn->judged = true;
	conn->hold_seq =
		hark_record_refused(&conn->med->rec, 0, conn->id, conn->reason, "", ext, n);
	return SSL_CLIENT_HELLO_RETRY;
}

static void route(struct hark_conn *conn)
{
	const struct hark_host *host = hark_policy_find(&conn->med->policy, conn->sni);

	conn->site = NULL;
	conn->port_ok = false;
	if (!host)
		return;
	conn->site = &conn->med->sites[host - conn->med->policy.hosts];
	conn->port_ok = (hark_host_port(host, conn->dst.port) & HARK_PORT_TLS) != 0;
}

static int on_hello(SSL *ssl, int *alert, void *arg)
{
	struct hark_conn *conn = SSL_get_app_data(ssl);
	const unsigned char *ext = NULL;
	size_t n = 0;
	enum hark_name_kind kind = HARK_NAME_ABSENT;
	char name[HARK_NAME_SIZE];
	X509 *leaf;

	(void)arg;
	if (conn->hello == HARK_HELLO_REFUSE) {
		*alert = conn->alert;
		return SSL_CLIENT_HELLO_ERROR;
	}
	if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &ext, &n))
		kind = hark_name_from_sni(ext, n, name);
	/* After a HelloRetryRequest the hello comes again, and OpenSSL lets its name change. */
	if (kind == HARK_NAME_OK && *conn->sni && strcmp(conn->sni, name) != 0)
		kind = HARK_NAME_INVALID;
	if (kind != HARK_NAME_OK)
		return hold(conn, kind, ext, n);
	memcpy(conn->sni, name, strlen(name) + 1);
	route(conn);
	leaf = hark_mint_leaf(&conn->med->mint, conn->sni);
	if (leaf && SSL_use_certificate(ssl, leaf) == 1 &&
	    SSL_use_PrivateKey(ssl, conn->med->mint.leaf_key) == 1)
		return SSL_CLIENT_HELLO_SUCCESS;
	conn->reason = HARK_REASON_INTERNAL;
	*alert = SSL_AD_INTERNAL_ERROR;
	return SSL_CLIENT_HELLO_ERROR;
}

/* http/1.1 where it is offered; a client that offers other protocols only goes on without ALPN. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *outlen,
		   const unsigned char *in, unsigned inlen, void *arg)
{
	unsigned char *chosen = NULL;

	(void)ssl;
	(void)arg;
	if (SSL_select_next_proto(&chosen, outlen, alpn_http11, sizeof(alpn_http11) - 1, in,
				  inlen) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

SSL_CTX *hark_hello_ctx_new(struct hark_mediator *med)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	if (!ctx)
		return NULL;
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"hark", 4) != 1) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	SSL_CTX_set_client_hello_cb(ctx, on_hello, med);
	SSL_CTX_set_alpn_select_cb(ctx, on_alpn, med);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, HARK_READ_SIZE);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	(void)SSL_CTX_set_num_tickets(ctx, 1);
	return ctx;
}
