/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The private root: a tmpfs that holds only what the plan grants. Shared trees come as read-only
 * overlays over idmapped layers (an overlay also disarms unix sockets bound by outsiders: they are
 * matched by inode), the workspace as a writable overlay. Runs in init, in its own mount namespace.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "launch.h"
#include "layers.h"

/* <sys/mount.h> and <linux/mount.h> cannot be included together on older C libraries. */
int mount(const char *source, const char *target, const char *type, unsigned long flags,
	  const void *data);
int umount2(const char *target, int flags);

#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif

enum {
	LAYER_PATH = 320,
	DEV_BYTES = 65536,
	INODE_BYTES = 4096,
	INODES_LEAST = 1024,
	RO = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
	RW = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
};

/* Where a layer or tree comes from. */
struct source {
	int fd;     /* a detached mount, or -1 */
	int userns; /* idmap, or -1 */
	const char *path;
	const char *to;
};

static struct source read_source(const struct launch *l, struct hark_cur *cur)
{
	uint16_t fd = hark_cur_u16(cur);
	uint16_t ns = hark_cur_u16(cur);
	struct source s;

	s.fd = fd == HARK_PLAN_NO_FD ? -1 : l->fds[fd];
	s.userns = ns == HARK_PLAN_NO_FD ? -1 : l->userns[ns];
	s.path = hark_cur_str(cur);
	s.to = hark_cur_str(cur);
	return s;
}

int root_detach_sources(struct launch *l, struct hark_err *err)
{
	uint32_t i;

	for (i = 0; i < l->plan.n; i++) {
		const struct plan_op *op = &l->plan.ops[i];
		struct hark_cur cur = op->body;
		uint16_t at;
		int mnt;

		if (op->op != HARK_OP_TREE && op->op != HARK_OP_ONE_FILE &&
		    op->op != HARK_OP_WORKSPACE && op->op != HARK_OP_DIRECT)
			continue;
		at = hark_cur_u16(&cur);
		if (at == HARK_PLAN_NO_FD || (op->flags & HARK_OPF_RUN_IDS))
			continue; /* nothing, or a detached mount already */
		l->at_op = op->index;
		(void)hark_cur_u16(&cur);
		mnt = detach_clone(l->fds[at], hark_cur_str(&cur), err);
		if (mnt < 0)
			return -1;
		hark_fd_close(&l->fds[at]);
		l->fds[at] = mnt;
	}
	return 0;
}

int step_hostname(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *name = hark_cur_str(&cur);

	(void)l;
	if (sethostname(name, strlen(name)) < 0)
		return hark_err_set(err, errno, "host name: %s", strerror(errno));
	return 0;
}

/* From here on files are made as `owner`, with the capabilities kept: an overlay remembers its
 * mounter's ids, and uid 0 has no image in an idmapped upper layer. The kernel would then mount it
 * read-only without an error (EOVERFLOW on work/work). */
static int act_as(uint32_t owner, struct hark_err *err)
{
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
		return hark_err_set(err, errno, "securebits: %s", strerror(errno));
	(void)setfsgid(owner);
	(void)setfsuid(owner);
	if ((uint32_t)setfsuid((uid_t)-1) != owner)
		return hark_err_set(err, EPERM, "cannot make files as uid %u", owner);
	return 0;
}

/* Empty files cost kernel memory that `size` does not count: their number is bounded too. */
static int new_tmpfs(const char *mode, uint32_t uid, uint32_t gid, uint64_t bytes,
		     unsigned int attr, struct hark_err *err)
{
	const uint64_t inodes = bytes / INODE_BYTES;
	char size[32];
	char files[32];
	char u[16];
	char g[16];
	const struct fs_opt opts[] = {{"mode", mode}, {"size", size},       {"uid", u},
				      {"gid", g},     {"nr_inodes", files}, {0}};

	(void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	(void)snprintf(files, sizeof(files), "%llu",
		       (unsigned long long)(inodes > INODES_LEAST ? inodes : INODES_LEAST));
	(void)snprintf(u, sizeof(u), "%u", uid);
	(void)snprintf(g, sizeof(g), "%u", gid);
	return fs_new("tmpfs", opts, attr, err);
}

/* Attach a new tmpfs at `path` of this process and open it. */
static int tmpfs_at(const char *path, uint32_t owner, uint64_t bytes, struct hark_err *err)
{
	hark_autofd mnt = new_tmpfs("0755", owner, owner, bytes, RW, err);
	hark_autofd place = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (mnt < 0)
		return -1;
	if (place < 0)
		return hark_err_set(err, errno, "%s: %s", path, strerror(errno));
	if (attach(mnt, place, path, err))
		return -1;
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return hark_err_set(err, errno, "%s: %s", path, strerror(errno));
	return fd;
}

static int make_stage(struct launch_root *r, uint32_t owner, uint64_t bytes, struct hark_err *err)
{
	if (mkdirat(r->fd, ".hark", 0755) < 0)
		return hark_err_set(err, errno, "/.hark: %s", strerror(errno));
	r->stage = tmpfs_at(r->path, owner, bytes, err);
	if (r->stage < 0)
		return -1;
	if (mkdirat(r->stage, "l", 0755) < 0 || mkdirat(r->stage, "over", 0755) < 0 ||
	    mkdirat(r->stage, "empty", 0755) < 0)
		return hark_err_set(err, errno, "/.hark: %s", strerror(errno));
	return 0;
}

int step_root(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct launch_root *r = &l->new_root;
	struct hark_cur cur = op->body;
	const char *scratch = hark_cur_str(&cur);
	uint32_t owner = hark_cur_u32(&cur);
	uint64_t bytes = hark_cur_u64(&cur);
	int n = snprintf(r->path, sizeof(r->path), "%s/.hark", scratch);

	if (n < 0 || (size_t)n >= sizeof(r->path) || strpbrk(scratch, ":,\\"))
		return hark_err_set(err, EINVAL, "%s: not usable as scratch folder", scratch);
	if (mount(NULL, "/", NULL, 0x4000 | 0x40000 /* MS_REC | MS_PRIVATE */, NULL) < 0)
		return hark_err_set(err, errno, "mount namespace: %s", strerror(errno));
	if (act_as(owner, err))
		return -1;
	r->owner = owner;
	r->fd = tmpfs_at(scratch, owner, bytes, err);
	return r->fd < 0 ? -1 : make_stage(r, owner, bytes, err);
}

/* Split off the last component: `*name` points into path; the parent is made and opened. */
static int make_parent(int root, const char *path, const char **name, struct hark_err *err)
{
	const char *slash = strrchr(path, '/');
	char parent[LAUNCH_PATH];

	if (!slash || !slash[1] || (size_t)(slash - path) >= sizeof(parent))
		return hark_err_set(err, EINVAL, "%s: not an absolute path", path);
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = 0;
	*name = slash + 1;
	return make_dirs(root, parent, 0755, err);
}

static int open_over(const struct launch *l, struct hark_err *err)
{
	int fd = openat(l->new_root.stage, "over", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? hark_err_set(err, errno, "/.hark/over: %s", strerror(errno)) : fd;
}

int step_link(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *target = hark_cur_str(&cur);
	const char *path = hark_cur_str(&cur);
	const bool staged = op->flags & HARK_OPF_STAGED;
	hark_autofd over = staged ? open_over(l, err) : -1;
	hark_autofd dir = -1;
	const char *name = "";

	if (staged && over < 0)
		return -1;
	dir = make_parent(staged ? over : l->new_root.fd, path, &name, err);
	if (dir < 0)
		return -1;
	if (symlinkat(target, dir, name) < 0)
		return hark_err_set(err, errno, "link %s: %s", path, strerror(errno));
	return 0;
}

static int make_opaque(int dir, const char *path, struct hark_err *err)
{
	hark_autofd fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0)
		return hark_err_set(err, errno, "stage %s: opaque: %s", path, strerror(errno));
	return 0;
}

int step_stage_dir(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);
	uint32_t mode = hark_cur_u32(&cur);
	uint32_t uid = hark_cur_u32(&cur);
	uint32_t gid = hark_cur_u32(&cur);
	hark_autofd over = open_over(l, err);
	hark_autofd dir = over < 0 ? -1 : make_dirs(over, path, 0755, err);

	if (dir < 0)
		return -1;
	if (fchownat(dir, "", uid, gid, AT_EMPTY_PATH) < 0 || fchmodat(dir, ".", mode, 0) < 0)
		return hark_err_set(err, errno, "stage %s: %s", path, strerror(errno));
	return op->flags & HARK_OPF_OPAQUE ? make_opaque(dir, path, err) : 0;
}

int step_stage_file(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);
	uint32_t mode = hark_cur_u32(&cur);
	uint32_t uid = hark_cur_u32(&cur);
	uint32_t gid = hark_cur_u32(&cur);
	uint32_t len = hark_cur_u32(&cur);
	const uint8_t *data = hark_cur_bytes(&cur, len);
	hark_autofd over = open_over(l, err);
	hark_autofd dir = -1;
	hark_autofd fd = -1;
	const char *name = "";

	dir = over < 0 ? -1 : make_parent(over, path, &name, err);
	if (dir < 0)
		return -1;
	fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return hark_err_set(err, errno, "stage %s: %s", path, strerror(errno));
	if (hark_fd_write_all(fd, data, len, err))
		return -1;
	if (fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
		return hark_err_set(err, errno, "stage %s: %s", path, strerror(errno));
	return 0;
}

/* A folder of overlayfs' marks for removed entries: laid over another one, it hides these names. */
int step_mask(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);
	uint32_t n = hark_cur_u32(&cur);
	hark_autofd over = open_over(l, err);
	hark_autofd dir = over < 0 ? -1 : make_dirs(over, path, 0755, err);

	if (dir < 0)
		return -1;
	while (n--) {
		const char *name = hark_cur_str(&cur);

		if (strchr(name, '/') || mknodat(dir, name, S_IFCHR, 0) < 0)
			return hark_err_set(err, errno, "hide %s: %s", name, strerror(errno));
	}
	return 0;
}

/* Attach a layer at a scratch place; `out` gets that place's path. The person's own path never
 * reaches a mount option, where ':' and ',' would be read. */
static int add_layer(struct launch *l, const struct source *src, unsigned int attr, bool need_idmap,
		     char *out, struct hark_err *err)
{
	struct launch_root *r = &l->new_root;
	struct hark_err mine;
	hark_autofd mnt = -1;
	hark_autofd place = -1;
	char name[24];

	hark_err_init(&mine);
	mnt = clone_mount(src->fd, src->path, src->userns, attr, &mine);
	if (mnt == -2 && !need_idmap) {
		hark_err_init(&mine);
		mnt = clone_mount(src->fd, src->path, -1, attr, &mine);
	}
	if (mnt < 0) {
		*err = mine;
		return -1;
	}
	(void)snprintf(name, sizeof(name), "l/%u", r->layers++);
	(void)snprintf(out, LAYER_PATH, "%s/%s", r->path, name);
	if (mkdirat(r->stage, name, 0755) < 0)
		return hark_err_set(err, errno, "layer: %s", strerror(errno));
	place = openat(r->stage, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (place < 0)
		return hark_err_set(err, errno, "layer: %s", strerror(errno));
	return attach(mnt, place, src->path, err);
}

/* The staged folder of `to`, when the plan staged something there. */
static bool staged_path(const struct launch *l, const char *to, char *out)
{
	const struct launch_root *r = &l->new_root;
	struct stat st;
	int n = snprintf(out, LAYER_PATH, "%s/over%s", r->path, to);

	return n > 0 && n < LAYER_PATH && !strpbrk(to, ":,\\") && lstat(out, &st) == 0 &&
	       S_ISDIR(st.st_mode);
}

/* "top:bottom", with the staged folder on top, or an empty folder below a single layer. */
static int lower_option(const struct launch *l, bool staged, const char *to, const char *layer,
			char *out, size_t size, struct hark_err *err)
{
	char over[LAYER_PATH];
	int n;

	if (staged && staged_path(l, to, over))
		n = snprintf(out, size, "%s%s%s", over, layer ? ":" : "", layer ? layer : "");
	else if (layer)
		n = snprintf(out, size, "%s:%s/empty", layer, l->new_root.path);
	else
		n = snprintf(out, size, "%s/empty", l->new_root.path);
	if (n < 0 || (size_t)n >= size)
		return hark_err_set(err, ENAMETOOLONG, "%s: path too long", to);
	return 0;
}

static int attach_in(struct launch *l, int mnt, const char *to, struct hark_err *err)
{
	hark_autofd place = make_dirs(l->new_root.fd, to, 0755, err);

	return place < 0 ? -1 : attach(mnt, place, to, err);
}

static int mount_tree(struct launch *l, const struct plan_op *op, const struct source *src,
		      const char *layer, struct hark_err *err)
{
	char lower[(size_t)2 * LAYER_PATH];
	const struct fs_opt opts[] = {{"lowerdir", lower}, {0}};
	hark_autofd mnt = -1;

	if (lower_option(l, op->flags & HARK_OPF_STAGED, src->to, layer, lower, sizeof(lower), err))
		return -1;
	mnt = fs_new("overlay", opts, RO, err);
	return mnt < 0 ? -1 : attach_in(l, mnt, src->to, err);
}

int step_tree(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct source src = read_source(l, &cur);
	struct hark_err mine;
	char layer[LAYER_PATH];
	int r;

	hark_err_init(&mine);
	if (add_layer(l, &src, RO, !(op->flags & HARK_OPF_IDMAP_OPTIONAL), layer, &mine)) {
		if ((op->flags & HARK_OPF_OPTIONAL) && mine.err == ENOENT)
			return 0;
		*err = mine;
		return -1;
	}
	r = mount_tree(l, op, &src, layer, err);
	(void)umount2(layer, MNT_DETACH); /* the overlay holds its own clone */
	return r;
}

/* A socket or device mounted read-only still works: only the file it was when granted will do. */
static int clone_file(const struct source *src, bool idmap_optional, struct hark_err *err)
{
	hark_autofd mnt = clone_mount(src->fd, src->path, src->userns, RO, err);
	struct stat st;

	if (mnt == -2 && idmap_optional) {
		hark_err_init(err);
		mnt = clone_mount(src->fd, src->path, -1, RO, err);
	}
	if (mnt < 0)
		return -1;
	if (fstat(mnt, &st) < 0 || !S_ISREG(st.st_mode))
		return hark_err_set(err, EINVAL, "%s: not a regular file", src->path);
	return hark_fd_take(&mnt);
}

int step_one_file(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct source src = read_source(l, &cur);
	struct hark_err mine;
	hark_autofd place = -1;
	hark_autofd mnt = -1;

	hark_err_init(&mine);
	mnt = clone_file(&src, op->flags & HARK_OPF_IDMAP_OPTIONAL, &mine);
	if (mnt < 0) {
		if ((op->flags & HARK_OPF_OPTIONAL) && mine.err == ENOENT)
			return 0;
		*err = mine;
		return -1;
	}
	place = make_file(l->new_root.fd, src.to, err);
	return place < 0 ? -1 : attach(mnt, place, src.to, err);
}

int step_tmpfs(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *path = hark_cur_str(&cur);
	uint32_t mode = hark_cur_u32(&cur);
	uint32_t uid = hark_cur_u32(&cur);
	uint32_t gid = hark_cur_u32(&cur);
	uint64_t bytes = hark_cur_u64(&cur);
	hark_autofd mnt = -1;
	char text[16];

	(void)snprintf(text, sizeof(text), "%04o", mode & 07777);
	mnt = new_tmpfs(text, uid, gid, bytes, RW, err);
	return mnt < 0 ? -1 : attach_in(l, mnt, path, err);
}

static int bind_device(struct launch *l, const char *path, struct hark_err *err)
{
	hark_autofd mnt = clone_mount(-1, path, -1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
	hark_autofd place = mnt < 0 ? -1 : make_file(l->new_root.fd, path, err);

	return place < 0 ? -1 : attach(mnt, place, path, err);
}

static int dev_links(struct launch *l, struct hark_err *err)
{
	static const char *const links[][2] = {
		{"pts/ptmx", "ptmx"},          {"/proc/self/fd", "fd"},
		{"/proc/self/fd/0", "stdin"},  {"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"},
	};
	hark_autofd dev = open_in(l->new_root.fd, "/dev", O_DIRECTORY);
	size_t i;

	for (i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (dev < 0 || symlinkat(links[i][0], dev, links[i][1]) < 0)
			return hark_err_set(err, errno, "/dev links: %s", strerror(errno));
	return 0;
}

/* A terminal of its own: with one from outside `tty` would say "not a tty". Their number comes out
 * of one pool of the machine (kernel.pty.max), which no run may empty. */
static int dev_pts(struct launch *l, struct hark_err *err)
{
	static const struct fs_opt opts[] = {
		{"newinstance", NULL}, {"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "256"}, {0}};
	hark_autofd mnt = fs_new("devpts", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);

	return mnt < 0 ? -1 : attach_in(l, mnt, "/dev/pts", err);
}

int step_dev(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	static const char *const nodes[] = {"/dev/null",   "/dev/zero",    "/dev/full",
					    "/dev/random", "/dev/urandom", "/dev/tty"};
	struct hark_cur cur = op->body;
	uint64_t shm_bytes = hark_cur_u64(&cur);
	const uint32_t owner = l->new_root.owner;
	hark_autofd dev = new_tmpfs("0755", owner, owner, DEV_BYTES,
				    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
	hark_autofd shm = -1;
	size_t i;

	if (dev < 0 || attach_in(l, dev, "/dev", err))
		return -1;
	for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		if (bind_device(l, nodes[i], err))
			return -1;
	if (dev_pts(l, err) || dev_links(l, err))
		return -1;
	shm = new_tmpfs("1777", owner, owner, shm_bytes, RW, err);
	return shm < 0 ? -1 : attach_in(l, shm, "/dev/shm", err);
}

int step_proc(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	static const struct fs_opt opts[] = {{"hidepid", "invisible"}, {0}};
	const unsigned int attr = RW | MOUNT_ATTR_NOEXEC;
	hark_autofd mnt = fs_new("proc", opts, attr, err);
	hark_autofd sys = -1;
	hark_autofd ro = -1;
	hark_autofd ro_set = -1;

	(void)op;
	if (mnt < 0 || attach_in(l, mnt, "/proc", err))
		return -1;
	sys = open_in(l->new_root.fd, "/proc/sys", O_DIRECTORY);
	if (sys < 0)
		return hark_err_set(err, errno, "/proc/sys: %s", strerror(errno));
	ro = detach_clone(sys, "/proc/sys", err);
	if (ro < 0)
		return -1;
	ro_set = clone_mount(ro, "/proc/sys", -1, RO | MOUNT_ATTR_NOEXEC, err);
	return ro_set < 0 ? -1 : attach(ro_set, sys, "/proc/sys", err);
}

/* A mount that silently became read-only is a failure. */
static int check_writable(int mnt, const char *to, struct hark_err *err)
{
	struct statvfs st;

	if (fstatvfs(mnt, &st) < 0)
		return hark_err_set(err, errno, "%s: %s", to, strerror(errno));
	if (st.f_flag & ST_RDONLY)
		return hark_err_set(err, EROFS, "%s: the overlay came up read-only", to);
	return 0;
}

/* `throwaway`: nothing is synced to disk, neither for the agent's fsync nor at the unmount, where
 * the kernel would otherwise sync the whole file system that holds the layer. */
static int mount_overlay(struct launch *l, const char *lower, const char *upper_layer,
			 const char *to, bool throwaway, struct hark_err *err)
{
	char upper[LAYER_PATH + 8];
	char work[LAYER_PATH + 8];
	const struct fs_opt opts[] = {{"lowerdir", lower},
				      {"upperdir", upper},
				      {"workdir", work},
				      {"redirect_dir", "on"},
				      {"metacopy", "off"},
				      {"index", "on"},
				      {throwaway ? "volatile" : NULL, NULL},
				      {0}};
	hark_autofd mnt = -1;

	(void)snprintf(upper, sizeof(upper), "%s/upper", upper_layer);
	(void)snprintf(work, sizeof(work), "%s/work", upper_layer);
	mnt = fs_new("overlay", opts, RW, err);
	if (mnt < 0 || check_writable(mnt, to, err))
		return -1;
	return attach_in(l, mnt, to, err);
}

int step_workspace(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	const bool has_source = !(op->flags & HARK_OPF_NO_SOURCE);
	struct hark_cur cur = op->body;
	struct source src = read_source(l, &cur);
	struct source top = {.fd = -1, .userns = src.userns, .path = hark_cur_str(&cur)};
	char lower[(size_t)2 * LAYER_PATH];
	char below[LAYER_PATH];
	char above[LAYER_PATH];
	const char *mask = hark_cur_str(&cur);
	int r;

	if (op->flags & HARK_OPF_RUN_IDS)
		src.userns = -1;
	if (has_source && add_layer(l, &src, RO, true, below, err))
		return -1;
	if (add_layer(l, &top, RW, true, above, err))
		return -1;
	if (lower_option(l, *mask || (op->flags & HARK_OPF_STAGED), *mask ? mask : src.to,
			 has_source ? below : NULL, lower, sizeof(lower), err))
		return -1;
	r = mount_overlay(l, lower, above, src.to, !has_source, err);
	(void)umount2(above, MNT_DETACH);
	if (has_source)
		(void)umount2(below, MNT_DETACH);
	return r;
}

int step_direct(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct source src = read_source(l, &cur);
	hark_autofd mnt = clone_mount(src.fd, src.path, src.userns, RW, err);

	return mnt < 0 ? -1 : attach_in(l, mnt, src.to, err);
}

int step_cover(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	const char *from = hark_cur_str(&cur);
	const char *to = hark_cur_str(&cur);
	hark_autofd place = open_in(l->new_root.fd, to, 0);
	hark_autofd mnt = -1;
	char path[LAUNCH_PATH + 300];
	struct stat st;

	if (place < 0 || fstat(place, &st) < 0 || !S_ISREG(st.st_mode)) {
		if (op->flags & HARK_OPF_OPTIONAL)
			return 0;
		return hark_err_set(err, ENOENT, "%s: no file to replace", to);
	}
	(void)snprintf(path, sizeof(path), "%s/over%s", l->new_root.path, from);
	mnt = clone_mount(-1, path, -1, RO, err);
	return mnt < 0 ? -1 : attach(mnt, place, to, err);
}

static int seal_root(struct hark_err *err)
{
	struct mount_attr a = {.attr_set = RO};

	if (umount2("/.hark", MNT_DETACH) < 0 || rmdir("/.hark") < 0)
		return hark_err_set(err, errno, "/.hark: %s", strerror(errno));
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &a, sizeof(a)) < 0)
		return hark_err_set(err, errno, "read-only root: %s", strerror(errno));
	return 0;
}

int step_pivot(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct launch_root *r = &l->new_root;

	(void)op;
	if (fchdir(r->fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return hark_err_set(err, errno, "pivot_root: %s", strerror(errno));
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return hark_err_set(err, errno, "old root: %s", strerror(errno));
	hark_fd_close(&r->stage);
	hark_fd_close(&r->fd);
	(void)setfsuid(0);
	(void)setfsgid(0);
	return seal_root(err);
}
