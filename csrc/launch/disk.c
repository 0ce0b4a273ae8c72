/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much disk the layers of a run hold. The agent makes the names and changes the folders while
 * they are read: no link is followed, and depth is bounded, since each level costs a descriptor.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

enum {
	DISK_DEPTH = 256,  /* folders inside each other; a deeper one counts as too much */
	DISK_SECTOR = 512, /* unit of st_blocks */
	DISK_ENTRY = 256   /* what a name and its inode cost at least, also when empty */
};

/* A folder being read; .fd belongs to .d. */
struct level {
	DIR *d;
	int fd;
};

struct walk {
	struct level level[DISK_DEPTH];
	int depth;
	uint64_t used;
	uint64_t enough;
};

/* False: too deep. A folder that is gone again, or cannot be read, holds nothing. */
static bool enter(struct walk *w, int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		hark_fd_close(&fd);
		return true;
	}
	if (w->depth == DISK_DEPTH) {
		(void)closedir(d);
		return false;
	}
	w->level[w->depth++] = (struct level){d, fd};
	return true;
}

/* A file of several names counts once in all, in equal parts. */
static uint64_t size_of(const struct stat *st)
{
	const uint64_t bytes = (uint64_t)st->st_blocks * DISK_SECTOR;

	return DISK_ENTRY +
	       (S_ISREG(st->st_mode) && st->st_nlink > 1 ? bytes / st->st_nlink : bytes);
}

/* One entry of the innermost folder; false when the walk is over. */
static bool step(struct walk *w)
{
	const struct level in = w->level[w->depth - 1];
	struct dirent *e = readdir(in.d);
	struct stat st;

	if (!e) {
		(void)closedir(in.d);
		return --w->depth > 0;
	}
	if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
	    fstatat(in.fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return true;
	w->used += size_of(&st);
	if (S_ISDIR(st.st_mode) && !enter(w, in.fd, e->d_name))
		w->used = UINT64_MAX;
	return w->used <= w->enough;
}

uint64_t disk_used(int at, const char *name, uint64_t enough)
{
	struct walk w = {.depth = 0, .enough = enough};

	if (enter(&w, at, name) && w.depth)
		while (step(&w))
			;
	while (w.depth)
		(void)closedir(w.level[--w.depth].d);
	return w.used;
}
