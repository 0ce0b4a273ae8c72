/* SPDX-License-Identifier: Apache-2.0 */
/* The listener of the bench's servers; see hark_bench_tcp.h. */
#include "hark_bench_tcp.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum listen_limit { BACKLOG = 128 };

int bench_listen_and_announce(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, BACKLOG) == 0 &&
	    getsockname(fd, (struct sockaddr *)&at, &len) == 0 &&
	    printf("%u\n", ntohs(at.sin_port)) > 0 && fflush(stdout) == 0)
		return fd;
	perror("bench: listen");
	(void)close(fd);
	return -1;
}
