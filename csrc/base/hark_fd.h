/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File descriptors with owners. An `hark_autofd` is closed when it leaves scope; `hark_fd_take`
 * moves it out. All functions keep errno.
 */
#ifndef HARK_FD_H
#define HARK_FD_H

#include <stddef.h>
#include <sys/types.h>

#include "hark_err.h"

/* Close *fd when it is open and set it to -1. */
void hark_fd_close(int *fd);

/* Close all of fds[0..n) and set them to -1. */
void hark_fd_close_all(int *fds, size_t n);

/* Move the descriptor out: the variable no longer owns it. */
static inline int hark_fd_take(int *fd)
{
	int r = *fd;

	*fd = -1;
	return r;
}

#define hark_autofd __attribute__((cleanup(hark_fd_close))) int

/* Write all of buf, going on after EINTR and short writes. */
HARK_MUST_USE int hark_fd_write_all(int fd, const void *buf, size_t len, struct hark_err *err);

/* Open `path` below `dirfd` (or AT_FDCWD) for writing and write the text in one call, as proc and
 * cgroup files want it. */
HARK_MUST_USE int hark_fd_put(int dirfd, const char *path, const char *text, struct hark_err *err);

#endif
