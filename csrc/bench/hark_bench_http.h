/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One keep-alive HTTPS connection of the bench client: dial, one round trip, hang up.
 *
 * Rules. Blocking, one thread, fixed buffers. The request is the same bytes every time; a response
 * that is not `200` with a Content-Length is an error. Nothing is measured here: the caller reads
 * the clock.
 */
#ifndef HARK_BENCH_HTTP_H
#define HARK_BENCH_HTTP_H

#include <openssl/ssl.h>

enum bench_limit {
	BENCH_REQUEST_BODY = 2048,
	BENCH_RESPONSE_BODY = 4096,
	BENCH_BUFFER = 65536,
	BENCH_NAME = 256
};

struct bench_conn {
	int fd;
	SSL *ssl; /* owned */
};

/* A client context that trusts `ca_file`, or the environment's default when it is NULL. */
SSL_CTX *bench_ctx_new(const char *ca_file) __attribute__((warn_unused_result));

/* Connect to `address`:`port`, or to what `host` resolves to when `address` is "-". 0 or -1. */
int bench_dial(struct bench_conn *conn, SSL_CTX *ctx, const char *host, const char *address,
	       const char *port) __attribute__((warn_unused_result));

/* One POST and its whole response. 0, or -1 with a line on stderr. */
int bench_round_trip(struct bench_conn *conn, const char *host) __attribute__((warn_unused_result));

void bench_hang_up(struct bench_conn *conn);

#endif
