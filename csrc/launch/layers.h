/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mount building blocks. All work in the run's own mount namespace, before the root is switched.
 * Places inside the new root are reached by RESOLVE_IN_ROOT, so that a link in the person's files
 * never leads out; everything is attached by descriptor.
 */
#ifndef HARK_LAUNCH_LAYERS_H
#define HARK_LAUNCH_LAYERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "hark_err.h"

enum { FS_OPTS = 8 };

struct fs_opt {
	const char *key;
	const char *value; /* NULL: a flag */
};

/* A new file system of a type, not yet attached; attr: MOUNT_ATTR_*. */
HARK_MUST_USE int fs_new(const char *type, const struct fs_opt *opts, unsigned int attr,
			 struct hark_err *err);

/* A detached clone of the one mount at `path`, or of what the O_PATH descriptor `fd` names when it
 * is not -1. Must run in the mount namespace where that lies. */
HARK_MUST_USE int detach_clone(int fd, const char *path, struct hark_err *err);

/* A detached clone of `path`, or the detached mount `fd` itself when it is not -1, with attributes
 * set and, when userns >= 0, idmapped. -2 when only the idmap was refused. */
HARK_MUST_USE int clone_mount(int fd, const char *path, int userns, unsigned int attr,
			      struct hark_err *err);

/* Attach a detached mount on top of an open place. */
HARK_MUST_USE int attach(int mount, int place, const char *what, struct hark_err *err);

/* Open a place inside `root`: O_PATH, links resolved inside. -1 with errno. */
int open_in(int root, const char *path, uint64_t extra_flags);

/* Folder `path` inside root, made with all its parents where missing. */
HARK_MUST_USE int make_dirs(int root, const char *path, mode_t mode, struct hark_err *err);

/* An empty file `path` inside root, with its parents; opened O_PATH. */
HARK_MUST_USE int make_file(int root, const char *path, struct hark_err *err);

#endif
