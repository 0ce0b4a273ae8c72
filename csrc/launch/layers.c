/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hark_fd.h"

enum { PATH_BYTES = 4096 };

/* The kernel's own words about a refused mount, where the context has any. */
static int fs_failed(int fs, const char *type, int code, struct hark_err *err)
{
	char text[160];
	ssize_t n = read(fs, text, sizeof(text) - 1);

	if (n <= 0)
		return hark_err_set(err, code, "mount %s: %s", type, strerror(code));
	text[n] = 0;
	return hark_err_set(err, code, "mount %s: %s (%s)", type, strerror(code), text);
}

static int fs_config(int fs, const struct fs_opt *opt)
{
	const unsigned int cmd = opt->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

	return (int)syscall(SYS_fsconfig, fs, cmd, opt->key, opt->value, 0);
}

int fs_new(const char *type, const struct fs_opt *opts, unsigned int attr, struct hark_err *err)
{
	hark_autofd fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
	int mnt;

	if (fs < 0)
		return hark_err_set(err, errno, "mount %s: %s", type, strerror(errno));
	for (; opts && opts->key; opts++)
		if (fs_config(fs, opts) < 0)
			return fs_failed(fs, type, errno, err);
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fs_failed(fs, type, errno, err);
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attr);
	if (mnt < 0)
		return fs_failed(fs, type, errno, err);
	return mnt;
}

static int set_attr(int mnt, uint64_t attr, int userns)
{
	struct mount_attr a = {.attr_set = attr};

	if (userns >= 0) {
		a.attr_set |= MOUNT_ATTR_IDMAP;
		a.userns_fd = (unsigned int)userns;
	}
	return (int)syscall(SYS_mount_setattr, mnt, "", AT_EMPTY_PATH, &a, sizeof(a));
}

int detach_clone(int fd, const char *path, struct hark_err *err)
{
	const unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
	int mnt = fd >= 0 ? (int)syscall(SYS_open_tree, fd, "", flags | AT_EMPTY_PATH)
			  : (int)syscall(SYS_open_tree, AT_FDCWD, path, flags);

	if (mnt < 0)
		return hark_err_set(err, errno, "%s: %s", path, strerror(errno));
	return mnt;
}

int clone_mount(int fd, const char *path, int userns, unsigned int attr, struct hark_err *err)
{
	hark_autofd mnt = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : detach_clone(-1, path, err);

	if (mnt < 0)
		return hark_err_set(err, errno, "%s: %s", path, strerror(errno));
	if (userns >= 0 && set_attr(mnt, 0, userns) < 0) {
		(void)hark_err_set(err, errno, "%s: no idmapped mount here: %s", path,
				   strerror(errno));
		(void)hark_err_hint(err,
				    "the file system below it does not support idmapped mounts");
		return -2;
	}
	if (set_attr(mnt, attr, -1) < 0)
		return hark_err_set(err, errno, "%s: mount attributes: %s", path, strerror(errno));
	return hark_fd_take(&mnt);
}

int attach(int mount, int place, const char *what, struct hark_err *err)
{
	const unsigned int flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;

	if (syscall(SYS_move_mount, mount, "", place, "", flags) < 0)
		return hark_err_set(err, errno, "mount on %s: %s", what, strerror(errno));
	return 0;
}

int open_in(int root, const char *path, uint64_t extra_flags)
{
	const struct open_how how = {.flags = (unsigned int)O_PATH | (unsigned int)O_CLOEXEC |
					      extra_flags,
				     .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

	return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* Open folder `part`, making its last component `name` below `parent` when it is missing. */
static int enter_dir(int root, int parent, const char *part, const char *name, mode_t mode)
{
	int fd = open_in(root, part, O_DIRECTORY);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(parent, name, mode) < 0)
		return -1;
	return open_in(root, part, O_DIRECTORY);
}

int make_dirs(int root, const char *path, mode_t mode, struct hark_err *err)
{
	hark_autofd at = open_in(root, "/", O_DIRECTORY);
	char part[PATH_BYTES];
	const char *end = path;

	if (strlen(path) >= sizeof(part))
		return hark_err_set(err, ENAMETOOLONG, "%s", path);
	while (at >= 0 && *end) {
		const char *name = end + strspn(end, "/");
		int next;

		end = name + strcspn(name, "/");
		if (end == name)
			break;
		memcpy(part, path, (size_t)(end - path));
		part[end - path] = 0;
		next = enter_dir(root, at, part, part + (name - path), mode);
		hark_fd_close(&at);
		at = next;
	}
	if (at < 0)
		return hark_err_set(err, errno, "make folder %s: %s", path, strerror(errno));
	return hark_fd_take(&at);
}

int make_file(int root, const char *path, struct hark_err *err)
{
	const char *slash = strrchr(path, '/');
	hark_autofd dir = -1;
	char parent[PATH_BYTES];
	int fd;

	if (!slash || (size_t)(slash - path) >= sizeof(parent))
		return hark_err_set(err, EINVAL, "%s: not an absolute path", path);
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = 0;
	dir = make_dirs(root, parent, 0755, err);
	if (dir < 0)
		return -1;
	fd = openat(dir, slash + 1, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0644);
	if (fd >= 0)
		(void)close(fd);
	else if (errno != EEXIST)
		return hark_err_set(err, errno, "make file %s: %s", path, strerror(errno));
	fd = open_in(root, path, 0);
	if (fd < 0)
		return hark_err_set(err, errno, "make file %s: %s", path, strerror(errno));
	return fd;
}
