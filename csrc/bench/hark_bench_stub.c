/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-bench-stub CHAIN.pem KEY.pem: the upstream of the latency bench. TLS 1.2 and 1.3 on
 * loopback, keep-alive, the same 4 KiB answer to every request. Prints its port.
 *
 * Rules. A fixed pool of threads, each serving one connection at a time: a new thread per
 * connection costs OpenSSL 3.0 about two milliseconds of seeding, which would be measured. It is a
 * stub: it looks for the end of a head and for Content-Length, and at nothing else.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_bench_tcp.h"

enum stub_limit { THREADS = 16, BUFFER = 65536, ANSWER = 4096, HEAD = 256 };

struct stub {
	SSL_CTX *ctx;
	int listener;
	char answer[HEAD + ANSWER];
	int answer_len;
};

/* Read one request. 0 when it is whole, -1 when the connection is over. */
static int read_request(SSL *ssl, char *buf)
{
	size_t have = 0, want = 0;

	while (want == 0 || have < want) {
		int n = SSL_read(ssl, buf + have, (int)(BUFFER - 1 - have));
		const char *end, *field;

		if (n <= 0)
			return -1;
		have += (size_t)n;
		buf[have] = '\0';
		end = want == 0 ? strstr(buf, "\r\n\r\n") : NULL;
		if (!end)
			continue;
		field = strcasestr(buf, "content-length:");
		want = (size_t)(end + 4 - buf);
		if (field && field < end)
			want += strtoul(field + 15, NULL, 10);
		if (want >= BUFFER)
			return -1;
	}
	return have == want ? 0 : -1; /* the bench client never pipelines */
}

static void serve(const struct stub *stub, int fd, char *buf)
{
	SSL *ssl = SSL_new(stub->ctx);
	int one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (ssl && SSL_set_fd(ssl, fd) == 1 && SSL_accept(ssl) == 1)
		while (read_request(ssl, buf) == 0 &&
		       SSL_write(ssl, stub->answer, stub->answer_len) == stub->answer_len)
			;
	if (ssl)
		(void)SSL_shutdown(ssl);
	SSL_free(ssl);
	ERR_clear_error();
	(void)close(fd);
}

static void *work(void *arg)
{
	const struct stub *stub = arg;
	char *buf = malloc(BUFFER);

	while (buf) {
		int fd = accept4(stub->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			serve(stub, fd, buf);
	}
	return NULL;
}

static int set_up(struct stub *stub, const char *chain, const char *key)
{
	stub->ctx = SSL_CTX_new(TLS_server_method());
	if (!stub->ctx || SSL_CTX_use_certificate_chain_file(stub->ctx, chain) != 1 ||
	    SSL_CTX_use_PrivateKey_file(stub->ctx, key, SSL_FILETYPE_PEM) != 1) {
		ERR_print_errors_fp(stderr);
		return -1;
	}
	SSL_CTX_set_read_ahead(stub->ctx, 1);
	stub->answer_len = snprintf(stub->answer, HEAD,
				    "HTTP/1.1 200 OK\r\n"
				    "Content-Type: application/json\r\n"
				    "X-Hark-Stub: the bench stub; no service is behind it\r\n"
				    "Content-Length: %d\r\n\r\n",
				    ANSWER);
	memset(stub->answer + stub->answer_len, 'r', ANSWER);
	stub->answer_len += ANSWER;
	return 0;
}

int main(int argc, char **argv)
{
	static struct stub stub;

	if (argc != 3) {
		(void)fprintf(stderr, "usage: hark-bench-stub CHAIN.pem KEY.pem\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	if (set_up(&stub, argv[1], argv[2]) != 0)
		return 1;
	stub.listener = bench_listen_and_announce();
	if (stub.listener < 0)
		return 1;
	for (int i = 1; i < THREADS; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, work, &stub) != 0)
			return 1;
	}
	(void)work(&stub);
	return 1;
}
