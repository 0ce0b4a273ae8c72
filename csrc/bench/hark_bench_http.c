/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking HTTPS for the bench client; see hark_bench_http.h. */
#include "hark_bench_http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

SSL_CTX *bench_ctx_new(const char *ca_file)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	int ok;

	if (!ctx)
		return NULL;
	if (ca_file)
		ok = SSL_CTX_load_verify_locations(ctx, ca_file, NULL);
	else
		ok = SSL_CTX_set_default_verify_paths(ctx);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_read_ahead(ctx, 1);
	if (ok == 1)
		return ctx;
	SSL_CTX_free(ctx);
	return NULL;
}

static int dial_tcp(const char *host, const char *address, const char *port)
{
	const char *node = strcmp(address, "-") == 0 ? host : address;
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	int one = 1, fd = -1;
	int err = getaddrinfo(node, port, &hints, &found);

	if (err != 0) {
		(void)fprintf(stderr, "bench: %s does not resolve: %s\n", node, gai_strerror(err));
		return -1;
	}
	for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
			(void)close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(found);
	if (fd < 0)
		perror("bench: connect");
	else
		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

int bench_dial(struct bench_conn *conn, SSL_CTX *ctx, const char *host, const char *address,
	       const char *port)
{
	conn->ssl = NULL;
	conn->fd = dial_tcp(host, address, port);
	if (conn->fd < 0)
		return -1;
	conn->ssl = SSL_new(ctx);
	if (conn->ssl && SSL_set_fd(conn->ssl, conn->fd) == 1 &&
	    SSL_set_tlsext_host_name(conn->ssl, host) == 1 && SSL_set1_host(conn->ssl, host) == 1 &&
	    SSL_connect(conn->ssl) == 1)
		return 0;
	ERR_print_errors_fp(stderr);
	bench_hang_up(conn);
	return -1;
}

static size_t make_request(char *into, size_t room, const char *host)
{
	int n = snprintf(into, room,
			 "POST /v1/messages HTTP/1.1\r\n"
			 "Host: %s\r\n"
			 "User-Agent: hark-bench/1\r\n"
			 "Accept: */*\r\n"
			 "Content-Type: application/json\r\n"
			 "Content-Length: %d\r\n\r\n",
			 host, BENCH_REQUEST_BODY);

	if (n < 0 || (size_t)n + BENCH_REQUEST_BODY > room)
		return 0;
	memset(into + n, 'q', BENCH_REQUEST_BODY);
	return (size_t)n + BENCH_REQUEST_BODY;
}

/* Length of head plus body when `buf` holds the whole head, 0 when not yet, -1 when it is wrong. */
static long message_length(const char *buf)
{
	const char *end = strstr(buf, "\r\n\r\n");
	const char *field = strcasestr(buf, "content-length:");

	if (!end)
		return 0;
	if (strncmp(buf, "HTTP/1.1 200", 12) != 0 || !field || field > end)
		return -1;
	return (end + 4 - buf) + strtol(field + 15, NULL, 10);
}

static int read_response(SSL *ssl)
{
	char buf[BENCH_BUFFER];
	size_t have = 0;
	long want = 0;

	while (want == 0 || (long)have < want) {
		int n = SSL_read(ssl, buf + have, (int)(sizeof(buf) - 1 - have));

		if (n <= 0)
			break;
		have += (size_t)n;
		buf[have] = '\0';
		if (want == 0)
			want = message_length(buf);
		if (want < 0 || (size_t)want >= sizeof(buf))
			break;
	}
	if (want > 0 && (long)have == want)
		return 0;
	buf[have] = '\0';
	(void)fprintf(stderr, "bench: bad response after %zu bytes: %.120s\n", have, buf);
	return -1;
}

int bench_round_trip(struct bench_conn *conn, const char *host)
{
	char request[BENCH_REQUEST_BODY + 1024];
	size_t len = make_request(request, sizeof(request), host);

	if (len == 0 || SSL_write(conn->ssl, request, (int)len) != (int)len) {
		ERR_print_errors_fp(stderr);
		return -1;
	}
	return read_response(conn->ssl);
}

void bench_hang_up(struct bench_conn *conn)
{
	if (conn->ssl) {
		(void)SSL_shutdown(conn->ssl);
		SSL_free(conn->ssl);
		conn->ssl = NULL;
	}
	if (conn->fd >= 0)
		(void)close(conn->fd);
	conn->fd = -1;
}
