/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving the bundle to where the person wants it. A child that is wholly the person does it, below
 * a folder the person opened: root's rights never meet a path of theirs. Nothing is overwritten,
 * and the name appears only when the bytes are on disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

enum { CHUNK = 1 << 20, GROUPS_MAX_ = 1024 };

static int copy_bytes(int from, int to)
{
	char *buf;
	ssize_t n;
	int r = 0;

	do { /* shares extents where the file system can */
		n = copy_file_range(from, NULL, to, NULL, (size_t)CHUNK << 10, 0);
	} while (n > 0);
	if (n == 0)
		return 0;
	buf = malloc(CHUNK);
	if (!buf)
		return ENOMEM;
	while (!r && (n = read(from, buf, CHUNK)) != 0) {
		struct hark_err err;

		hark_err_init(&err);
		if (n < 0)
			r = errno == EINTR ? 0 : errno;
		else if (hark_fd_write_all(to, buf, (size_t)n, &err))
			r = err.err;
	}
	free(buf);
	return r;
}

/* Where the file system has no O_TMPFILE: the name appears at once, and goes again on failure. */
static int copy_named(int bundle, int dest, const char *name)
{
	const int flags = O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
	hark_autofd to = openat(dest, name, flags, 0600);
	int r;

	if (to < 0)
		return errno;
	r = copy_bytes(bundle, to);
	if (!r && fsync(to) < 0)
		r = errno;
	if (r)
		(void)unlinkat(dest, name, 0);
	return r;
}

static int copy_as_person(int bundle, int dest, const char *name)
{
	hark_autofd to = openat(dest, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	char path[32];
	int r;

	if (to < 0)
		return copy_named(bundle, dest, name);
	r = copy_bytes(bundle, to);
	if (r)
		return r;
	if (fsync(to) < 0)
		return errno;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	if (linkat(AT_FDCWD, path, dest, name, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	if (errno == EEXIST)
		return EEXIST;
	return lseek(bundle, 0, SEEK_SET) < 0 ? errno : copy_named(bundle, dest, name);
}

static int become_person(const struct launch_publish *p)
{
	struct hark_cur cur = p->groups;
	gid_t groups[GROUPS_MAX_];
	uint32_t i;

	if (p->groups_n > GROUPS_MAX_)
		return E2BIG;
	for (i = 0; i < p->groups_n; i++)
		groups[i] = hark_cur_u32(&cur);
	if (setgroups(p->groups_n, groups) < 0 || setresgid(p->gid, p->gid, p->gid) < 0 ||
	    setresuid(p->uid, p->uid, p->uid) < 0)
		return errno;
	/* /proc/self belongs to root otherwise */
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? errno : 0;
}

static int open_run(const struct launch *l)
{
	return openat(l->fds[l->publish.runs], l->publish.run_name,
		      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int in_child(const struct launch *l, int bundle)
{
	const struct launch_publish *p = &l->publish;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int r = become_person(p);

		_exit(r ? r : copy_as_person(bundle, l->fds[p->dest], p->dest_name));
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return errno;
	if (!WIFEXITED(status))
		return EINTR;
	if (WEXITSTATUS(status) == 0 && fsync(l->fds[p->dest]) < 0 && errno != EINVAL)
		return errno;
	return WEXITSTATUS(status);
}

int publish_bundle(const struct launch *l)
{
	hark_autofd run = -1;
	hark_autofd bundle = -1;
	int r;

	if (!l->publish.run_name || !l->publish.dest_name)
		return 0;
	run = open_run(l);
	if (run < 0)
		return errno;
	bundle = openat(run, "run.hark", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (bundle < 0)
		return errno;
	r = in_child(l, bundle);
	if (!r && unlinkat(run, "run.hark", 0) < 0)
		r = errno;
	return r;
}
