/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-bench-forward TO-PORT: a raw TCP forwarder on loopback, the floor of what a process between
 * two others can cost. One epoll thread, no TLS, no look at the bytes. Prints its own port.
 *
 * Rules. It is the reference, so it does the least that forwards: a read and a write per segment.
 * A write that does not take everything is done again, blocking; one benchmark connection never
 * fills a socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_bench_tcp.h"

enum forward_limit { FD_MAX = 1024, BATCH = 64, PIECE = 65536 };

struct forward {
	int epoll;
	int listener;
	struct sockaddr_in to;
	int peer[FD_MAX]; /* the other side of each connected descriptor */
};

static int watch(const struct forward *forward, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(forward->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void join(struct forward *forward, int near)
{
	int one = 1;
	int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (near < 0 || far < 0 || near >= FD_MAX || far >= FD_MAX ||
	    connect(far, (const struct sockaddr *)&forward->to, sizeof(forward->to)) != 0) {
		perror("forward: join");
		(void)close(near);
		(void)close(far);
		return;
	}
	(void)setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	forward->peer[near] = far;
	forward->peer[far] = near;
	if (watch(forward, near) != 0 || watch(forward, far) != 0)
		perror("forward: epoll");
}

static int send_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return -1;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static void pass_on(struct forward *forward, int fd)
{
	static char piece[PIECE];
	int other = forward->peer[fd];
	ssize_t n;

	if (other < 0)
		return; /* closed earlier in this batch */
	n = recv(fd, piece, sizeof(piece), 0);
	if (n > 0 && send_all(other, piece, (size_t)n) == 0)
		return;
	forward->peer[fd] = -1;
	forward->peer[other] = -1;
	(void)close(fd);
	(void)close(other);
}

static int serve(struct forward *forward)
{
	struct epoll_event events[BATCH];

	for (;;) {
		int n = epoll_wait(forward->epoll, events, BATCH, -1);

		if (n < 0 && errno != EINTR)
			return 1;
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd == forward->listener)
				join(forward, accept4(fd, NULL, NULL, SOCK_CLOEXEC));
			else
				pass_on(forward, fd);
		}
	}
}

int main(int argc, char **argv)
{
	static struct forward forward;
	unsigned long port = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

	if (port == 0 || port > UINT16_MAX) {
		(void)fprintf(stderr, "usage: hark-bench-forward TO-PORT\n");
		return 2;
	}
	memset(forward.peer, -1, sizeof(forward.peer));
	forward.to = (struct sockaddr_in){.sin_family = AF_INET,
					  .sin_port = htons((uint16_t)port),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	forward.epoll = epoll_create1(EPOLL_CLOEXEC);
	forward.listener = bench_listen_and_announce();
	if (forward.epoll < 0 || forward.listener < 0 || watch(&forward, forward.listener) != 0)
		return 1;
	return serve(&forward);
}
