/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void hark_fd_close(int *fd)
{
	int keep = errno;

	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	errno = keep;
}

void hark_fd_close_all(int *fds, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		hark_fd_close(&fds[i]);
}

int hark_fd_write_all(int fd, const void *buf, size_t len, struct hark_err *err)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return hark_err_set(err, errno, "write: %s", strerror(errno));
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int hark_fd_put(int dirfd, const char *path, const char *text, struct hark_err *err)
{
	hark_autofd fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	size_t len = strlen(text);

	if (fd < 0)
		return hark_err_set(err, errno, "open %s: %s", path, strerror(errno));
	if (write(fd, text, len) != (ssize_t)len)
		return hark_err_set(err, errno, "write %s: %s", path, strerror(errno));
	return 0;
}
