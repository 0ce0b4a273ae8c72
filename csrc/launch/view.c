/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder's view of what the agent wrote: a read-only clone of each layer's upper folder,
 * idmapped so that the person's files are the recorder's own there, and nobody else's are. So the
 * recorder can list and hash the write set without any privilege; hark-launch reads nothing of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <unistd.h>

#include "launch.h"
#include "layers.h"

enum { VIEW_LAYERS = 64, VIEW_ATTR = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };

int step_view(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	if (step_userns(l, op, err))
		return -1;
	l->view = l->userns[--l->userns_n];
	return 0;
}

static int view_layer(const struct launch *l, int run, unsigned int number)
{
	hark_autofd upper = -1;
	hark_autofd mnt = -1;
	struct hark_err err;
	char path[32];

	hark_err_init(&err);
	(void)snprintf(path, sizeof(path), "layers/%u/upper", number);
	upper = openat(run, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper < 0)
		return -errno;
	mnt = detach_clone(upper, path, &err);
	if (mnt < 0)
		return -EIO;
	return clone_mount(mnt, path, l->view, VIEW_ATTR, &err) < 0 ? -EIO : hark_fd_take(&mnt);
}

size_t view_open(const struct launch *l, int *fds, size_t most)
{
	hark_autofd run = -1;
	unsigned int number;
	size_t n = 0;

	if (l->view < 0 || !l->publish.run_name)
		return 0;
	run = openat(l->fds[l->publish.runs], l->publish.run_name,
		     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (number = 0; run >= 0 && number < VIEW_LAYERS && n < most; number++) {
		int fd = view_layer(l, run, number);

		if (fd == -ENOENT)
			continue;
		if (fd < 0) { /* no idmapped mounts here: better none than one in another's place */
			hark_fd_close_all(fds, n);
			return 0;
		}
		fds[n++] = fd;
	}
	return n;
}
