/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening executables for the recorder, which has no right to. A living process is found by
 * /proc/PID, held open first so that the number cannot be reused in between, and must belong to the
 * run's cgroup; a dead one's path is looked up inside the agent's root. Either way the inode must
 * be the one the kernel record named.
 *
 * The inode number is that of the overlay, as stat(2) inside the run shows it: for a file that
 * never changed it is the layer's own. The device is not compared: the record has that of the
 * superblock, and stat(2) on an overlay whose layers lie on several file systems, or on a btrfs
 * subvolume, shows another, anonymous one. What tells two files of the same number apart is the
 * change time, which the recorder compares (hark/recorder/digest.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch.h"

enum {
	TEXT = 1024,
	START_FIELD = 22, /* of /proc/PID/stat */
	TICK_NS = 10000000
};

static int read_text(int dir, const char *name, char *out, size_t size)
{
	hark_autofd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (n < 0)
		return -1;
	out[n] = 0;
	return 0;
}

/* The folder of the v2 cgroup ends with the path that /proc/PID/cgroup gives after "0::". */
static bool in_run(const struct launch *l, int proc)
{
	char text[TEXT];
	char *at;
	char *end;
	size_t have;
	size_t want;

	if (!l->cgroup.path || read_text(proc, "cgroup", text, sizeof(text)))
		return false;
	at = strncmp(text, "0::", 3) == 0 ? text + 3 : strstr(text, "\n0::");
	if (!at)
		return false;
	at += *at == '\n' ? 4 : 0;
	end = strchr(at, '\n');
	if (!end)
		return false;
	want = (size_t)(end - at);
	have = strlen(l->cgroup.path);
	return want > 1 && have >= want && strncmp(l->cgroup.path + have - want, at, want) == 0;
}

/* The same process as the record's: its start, which proc shows in ticks. */
static bool same_start(int proc, uint64_t start_ns)
{
	char text[TEXT];
	char *p;
	int field;

	if (!start_ns)
		return true;
	if (read_text(proc, "stat", text, sizeof(text)))
		return false;
	p = strrchr(text, ')');
	for (field = 2; p && field < START_FIELD; field++)
		p = strchr(p + 1, ' ');
	return p && strtoull(p + 1, NULL, 10) == start_ns / TICK_NS;
}

static bool same_file(int fd, const struct hark_msg_open_exe *ask)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	return !ask->ino || st.st_ino == ask->ino;
}

static int open_of_process(const struct launch *l, const struct hark_msg_open_exe *ask)
{
	char path[32];
	hark_autofd proc = -1;
	hark_autofd fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%u", ask->tgid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0 || !in_run(l, proc) || !same_start(proc, ask->start_ns))
		return -ESRCH;
	fd = openat(proc, "exe", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -ESRCH;
	return same_file(fd, ask) ? hark_fd_take(&fd) : -ESTALE;
}

static int open_in_root(const struct launch *l, const struct hark_msg_open_exe *ask)
{
	const struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	hark_autofd fd = -1;

	if (ask->path[0] != '/' || !memchr(ask->path, 0, sizeof(ask->path)) || l->root < 0)
		return -ENOENT;
	fd = (int)syscall(SYS_openat2, l->root, ask->path, &how, sizeof(how));
	if (fd < 0)
		return -errno;
	return same_file(fd, ask) ? hark_fd_take(&fd) : -ESTALE;
}

int exe_open(const struct launch *l, const struct hark_msg_open_exe *ask)
{
	int fd = open_of_process(l, ask);

	return fd >= 0 ? fd : open_in_root(l, ask);
}
