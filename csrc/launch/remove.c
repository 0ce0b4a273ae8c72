/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what a run left. The trees were written by the agent, so names are hostile: no link is
 * followed, and depth costs neither stack nor descriptors, because a subfolder is first moved up
 * into the tree's own top.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* A folder being read; .fd belongs to .d. */
struct dir {
	DIR *d;
	int fd;
};

/* 0 or errno. */
static int open_dir(struct dir *dir, int at, const char *name)
{
	dir->d = NULL;
	dir->fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir->fd < 0)
		return errno;
	dir->d = fdopendir(dir->fd);
	if (dir->d)
		return 0;
	hark_fd_close(&dir->fd);
	return ENOMEM;
}

/* The next name but "." and "..", or NULL. */
static const char *next_name(const struct dir *dir)
{
	struct dirent *e;

	while ((e = readdir(dir->d)))
		if (!is_dots(e->d_name))
			return e->d_name;
	return NULL;
}

/* Remove one entry; a folder that is not empty is moved to `top` under a new name. */
static int remove_entry(int dir, const char *name, int top, unsigned int *n)
{
	char moved[32];

	if (unlinkat(dir, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return errno;
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return errno;
	if (dir == top)
		return 0; /* its turn comes */
	do {
		(void)snprintf(moved, sizeof(moved), ".rm%u", (*n)++);
	} while (faccessat(top, moved, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	return renameat(dir, name, top, moved) < 0 ? errno : 0;
}

/* Empty the folder `name` of `top`, moving its own folders up into `top`. */
static int empty_one(int top, const char *name, unsigned int *n)
{
	struct dir dir;
	const char *inner;
	int r = open_dir(&dir, top, name);

	if (r)
		return r == ENOTDIR || r == ELOOP ? 0 : r;
	while (!r && (inner = next_name(&dir)))
		r = remove_entry(dir.fd, inner, top, n);
	(void)closedir(dir.d);
	return r;
}

/* One pass over top: true in *more when something is left to do. */
static int sweep(int top, unsigned int *n, bool *more)
{
	struct dir dir;
	const char *name;
	int r = open_dir(&dir, top, ".");

	*more = false;
	if (r)
		return r;
	while (!r && (name = next_name(&dir))) {
		*more = true;
		r = empty_one(top, name, n);
		if (!r)
			r = remove_entry(top, name, top, n);
	}
	(void)closedir(dir.d);
	return r;
}

int remove_tree(int dirfd_, const char *name)
{
	hark_autofd top = openat(dirfd_, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	unsigned int n = 0;
	bool more = true;
	int r = 0;

	if (top < 0)
		return errno == ENOENT ? 0 : errno;
	while (!r && more)
		r = sweep(top, &n, &more);
	if (r)
		return r;
	return unlinkat(dirfd_, name, AT_REMOVEDIR) < 0 ? errno : 0;
}

static bool is_empty(int at, const char *name)
{
	struct dir dir;
	bool empty;

	if (open_dir(&dir, at, name))
		return true;
	empty = !next_name(&dir);
	(void)closedir(dir.d);
	return empty;
}

/* One layer: its scratch part goes, what the agent wrote stays. True when something stays. */
static bool trim_layer(int layers, const char *name)
{
	hark_autofd layer = openat(layers, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (layer < 0)
		return false;
	(void)remove_tree(layer, "work");
	return !is_empty(layer, "upper");
}

static bool trim_layers(int run)
{
	struct dir dir;
	const char *name;
	bool keep = false;

	if (open_dir(&dir, run, "layers"))
		return false;
	while ((name = next_name(&dir)))
		if (trim_layer(dir.fd, name))
			keep = true;
	(void)closedir(dir.d);
	return keep;
}

/* Kept: what the agent wrote to the workspace, until it is applied or discarded, and a bundle that
 * could not be published. `all`: nothing is kept. */
void remove_run_dir(const struct launch *l, bool all)
{
	hark_autofd run = -1;
	bool keep;

	if (!l->publish.run_name)
		return;
	run = openat(l->fds[l->publish.runs], l->publish.run_name,
		     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (run < 0)
		return;
	(void)remove_tree(run, "home");
	keep = trim_layers(run);
	if (faccessat(run, "run.hark", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		keep = true;
	if (all || !keep)
		(void)remove_tree(l->fds[l->publish.runs], l->publish.run_name);
}
