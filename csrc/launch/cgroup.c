/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run's cgroup: v2 for its id, its kill switch and its counters; v1 folders beside it where
 * limits live there. Folders are named by the plan, made here and removed here. The v2 folder is
 * locked as long as we live, so that a later run can tell it from one that was left over.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

void cgroup_init(struct launch_cgroup *cg)
{
	memset(cg, 0, sizeof(*cg));
	cg->fd = -1;
}

enum { LOCK_TRIES = 1000 }; /* of 1 ms each: a look for leftovers holds the lock for a moment */

/* The folder's mode keeps everybody without rights from opening it and holding its lock. */
static int open_locked(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int i;

	for (i = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == LOCK_TRIES)
			hark_fd_close(&fd);
		(void)poll(NULL, 0, 1);
	}
	return fd;
}

int step_cgroup(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);
	struct stat st;

	if (mkdir(path, 0700) < 0) {
		(void)hark_err_set(err, errno, "cgroup %s: %s", path, strerror(errno));
		return hark_err_hint(err, "is cgroup v2 mounted there, and writable for root?");
	}
	l->cgroup.path = path;
	l->cgroup.fd = open_locked(path);
	if (l->cgroup.fd < 0 || fstat(l->cgroup.fd, &st) < 0)
		return hark_err_set(err, errno, "cgroup %s: %s", path, strerror(errno));
	l->cgroup.id = st.st_ino;
	return 0;
}

int step_limit_v2(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *file = hark_cur_str(&cur);
	const char *value = hark_cur_str(&cur);
	struct hark_err mine;

	hark_err_init(&mine);
	if (!hark_fd_put(l->cgroup.fd, file, value, &mine))
		return 0;
	if (op->flags & HARK_OPF_OPTIONAL)
		return 0;
	return hark_err_set(err, mine.err, "limit %s: %s", file, strerror(mine.err));
}

int cgroup_open(const struct launch_cgroup *cg, const char *v2, const char *v1)
{
	int fd = cg->fd < 0 ? -1 : openat(cg->fd, v2, O_RDONLY | O_CLOEXEC);
	size_t i;

	for (i = 0; i < cg->v1_n && fd < 0; i++) {
		hark_autofd dir = open(cg->v1_path[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

		fd = dir < 0 ? -1 : openat(dir, v1, O_RDONLY | O_CLOEXEC);
	}
	return fd;
}

/* Whether this folder was made by an earlier limit of the same controller. */
static bool has_v1(const struct launch_cgroup *cg, const char *path)
{
	size_t i;

	for (i = 0; i < cg->v1_n; i++)
		if (strcmp(cg->v1_path[i], path) == 0)
			return true;
	return false;
}

/* The folder is remembered before it is filled, so that it goes away also after a failure. */
static int make_v1(struct launch_cgroup *cg, const char *path, struct hark_err *err)
{
	hark_autofd dir = -1;

	if (has_v1(cg, path))
		return 0;
	if (cg->v1_n == LAUNCH_V1)
		return hark_err_set(err, E2BIG, "limit %s: too many", path);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return hark_err_set(err, errno, "limit %s: %s", path, strerror(errno));
	cg->v1_path[cg->v1_n] = path;
	cg->v1_procs[cg->v1_n++] = -1;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		cg->v1_procs[cg->v1_n - 1] = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (cg->v1_procs[cg->v1_n - 1] < 0)
		return hark_err_set(err, errno, "limit %s: %s", path, strerror(errno));
	return 0;
}

static int put_v1(const char *path, const char *file, const char *value, struct hark_err *err)
{
	hark_autofd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return hark_err_set(err, errno, "limit %s: %s", file, strerror(errno));
	return hark_fd_put(dir, file, value, err);
}

int step_limit_v1(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);
	const char *file = hark_cur_str(&cur);
	const char *value = hark_cur_str(&cur);
	struct hark_err mine;

	hark_err_init(&mine);
	if (!make_v1(&l->cgroup, path, &mine) && !put_v1(path, file, value, &mine))
		return 0;
	if (op->flags & HARK_OPF_OPTIONAL)
		return 0;
	return hark_err_set(err, mine.err, "%s", mine.what);
}

int cgroup_enter_v1(const struct launch_cgroup *cg, struct hark_err *err)
{
	size_t i;

	for (i = 0; i < cg->v1_n; i++)
		if (cg->v1_procs[i] >= 0 && hark_fd_write_all(cg->v1_procs[i], "0", 1, err))
			return -1;
	return 0;
}

void cgroup_kill(const struct launch_cgroup *cg)
{
	struct hark_err err;

	hark_err_init(&err);
	if (cg->fd >= 0 && hark_fd_put(cg->fd, "cgroup.kill", "1", &err))
		return; /* the end of init ends the pid namespace all the same */
}

uint32_t cgroup_tasks(const struct launch_cgroup *cg, pid_t except)
{
	uint32_t n = 0;
	FILE *f;
	int fd = cg->fd < 0 ? -1 : openat(cg->fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	char line[32];

	if (fd < 0)
		return 0;
	f = fdopen(fd, "r");
	if (!f) {
		(void)close(fd);
		return 0;
	}
	while (fgets(line, sizeof(line), f))
		n += strtol(line, NULL, 10) != except;
	(void)fclose(f);
	return n;
}

/* 1 when tasks are left, 0 when none, -1 when it cannot be read. */
static int populated(int events)
{
	char buf[256];
	ssize_t n = pread(events, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return -1;
	buf[n] = 0;
	return strstr(buf, "populated 1") != NULL;
}

static int wait_empty(const struct launch_cgroup *cg, uint64_t deadline_ns, struct hark_err *err)
{
	hark_autofd fd = openat(cg->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	int r;

	if (fd < 0)
		return hark_err_set(err, errno, "cgroup.events: %s", strerror(errno));
	while ((r = populated(fd)) == 1) {
		if (poll(&p, 1, hark_deadline_poll(deadline_ns)) == 0)
			return hark_err_set(err, ETIME, "tasks of the run do not end");
	}
	return r < 0 ? hark_err_set(err, errno, "cgroup.events: %s", strerror(errno)) : 0;
}

/* rmdir, again while the kernel still counts a dying task. */
static int remove_dir(const char *path, uint64_t deadline_ns)
{
	while (rmdir(path) < 0) {
		if (errno == ENOENT)
			return 0;
		if (errno != EBUSY || hark_deadline_poll(deadline_ns) == 0)
			return errno;
		(void)poll(NULL, 0, 1);
	}
	return 0;
}

int cgroup_remove(struct launch_cgroup *cg, uint64_t deadline_ns, struct hark_err *err)
{
	int r = 0;

	if (cg->fd >= 0) {
		cgroup_kill(cg);
		r = wait_empty(cg, deadline_ns, err);
		hark_fd_close(&cg->fd);
	}
	if (cg->path && remove_dir(cg->path, deadline_ns))
		r = hark_err_set(err, errno, "cgroup %s: %s", cg->path, strerror(errno));
	while (cg->v1_n) {
		hark_fd_close(&cg->v1_procs[--cg->v1_n]);
		if (remove_dir(cg->v1_path[cg->v1_n], deadline_ns))
			r = hark_err_set(err, errno, "cgroup %s: %s", cg->v1_path[cg->v1_n],
					 strerror(errno));
	}
	cg->path = NULL;
	return r;
}
