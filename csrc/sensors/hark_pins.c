/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_pins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "hark_abi.h"
#include "hark_abi_check.h"
#include "hark_fd.h"

static const char HOST_BPFFS[] = "/sys/fs/bpf";
static const char HOST_PINS[] = "/sys/fs/bpf/hark";
static const char OWN_BPFFS[] = "/run/hark/bpf";
static const char OWN_PINS[] = "/run/hark/bpf/hark";
static const char STATE[] = "/run/hark/sensors";

/* The name of a member file, taken apart. */
struct member {
	char digest[HARK_PINS_NAME];
	uint64_t run;
	uint32_t level;
};

/* What to do with each entry of a folder; a negative answer stops the walk. */
typedef int (*visit_fn)(int dirfd, const char *name, void *arg);

int hark_pins_path(char out[HARK_PINS_PATH], const char *folder, const char *prefix,
		   const char *name, struct hark_err *err)
{
	if (snprintf(out, HARK_PINS_PATH, "%s/%s%s", folder, prefix, name) >= HARK_PINS_PATH)
		return hark_err_set(err, ENAMETOOLONG, "the path of a pin is too long");
	return 0;
}

static int make_folder(const char *path, struct hark_err *err)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return hark_err_set(err, errno, "cannot make the folder %s", path);
	return 0;
}

static bool is_bpffs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && (uint32_t)fs.f_type == BPF_FS_MAGIC;
}

int hark_pins_host(struct hark_pins *where, struct hark_err *err)
{
	where->digest = NULL;
	where->state = STATE;
	where->pins = HOST_PINS;
	if (is_bpffs(HOST_BPFFS))
		return 0;
	where->pins = OWN_PINS;
	return make_folder("/run/hark", err);
}

static int open_folder(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Under the lock, so that nobody who leaves takes it away between this and its use. */
static int make_place(const struct hark_pins *where, struct hark_err *err)
{
	if (strcmp(where->pins, OWN_PINS) == 0) {
		if (make_folder(OWN_BPFFS, err))
			return -1;
		if (!is_bpffs(OWN_BPFFS) &&
		    mount("bpf", OWN_BPFFS, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700"))
			return hark_err_set(err, errno, "cannot mount a BPF file system at %s",
					    OWN_BPFFS);
	}
	return make_folder(where->pins, err);
}

/* Call `visit` for each entry but . and ..; a folder that is missing has none. */
static int walk(const char *path, visit_fn visit, void *arg, struct hark_err *err)
{
	int fd = open_folder(path);
	struct dirent *entry;
	DIR *dir;
	int r = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : hark_err_set(err, errno, "cannot open %s", path);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return hark_err_set(err, errno, "cannot list %s", path);
	}
	while (r >= 0 && (entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = visit(fd, entry->d_name, arg);
	}
	closedir(dir);
	return r < 0 ? hark_err_set(err, errno, "cannot tidy %s", path) : 0;
}

/* A decimal number that ends at `end`; the place after it, or NULL. */
static const char *parse_number(const char *text, char end, uint64_t *value)
{
	char *rest;

	if (*text < '0' || *text > '9')
		return NULL;
	errno = 0;
	*value = strtoull(text, &rest, 10);
	return errno || *rest != end ? NULL : rest + 1;
}

static bool parse_member(const char *name, struct member *member)
{
	size_t hex = strspn(name, "0123456789abcdef");
	const char *at = name + hex;
	uint64_t level;

	if (!hex || hex >= sizeof(member->digest) || *at++ != '-')
		return false;
	memcpy(member->digest, name, hex);
	member->digest[hex] = '\0';
	at = parse_number(at, '-', &member->run);
	if (!at || !parse_number(at, '\0', &level) || level >= HARK_PINS_DEPTH)
		return false;
	member->level = (uint32_t)level;
	return true;
}

static int take_lock(const struct hark_pins *where, struct hark_err *err)
{
	hark_autofd dir = -1;
	hark_autofd fd = -1;

	if (make_folder(where->state, err))
		return -1;
	dir = open_folder(where->state);
	if (dir < 0)
		return hark_err_set(err, errno, "cannot open %s", where->state);
	fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX))
		return hark_err_set(err, errno, "cannot lock %s/lock", where->state);
	return hark_fd_take(&fd);
}

int hark_pins_lock(const struct hark_pins *where, struct hark_err *err)
{
	hark_autofd fd = take_lock(where, err);

	return fd < 0 || make_place(where, err) ? -1 : hark_fd_take(&fd);
}

static int member_name(char out[HARK_PINS_NAME], const struct hark_pins *where, uint64_t run,
		       uint32_t level)
{
	return snprintf(out, HARK_PINS_NAME, "%s-%" PRIu64 "-%" PRIu32, where->digest, run, level);
}

int hark_pins_join(const struct hark_pins *where, uint64_t run, uint32_t level,
		   struct hark_err *err)
{
	char name[HARK_PINS_NAME];
	hark_autofd dir = -1;
	hark_autofd fd = -1;

	if (level >= HARK_PINS_DEPTH || member_name(name, where, run, level) >= HARK_PINS_NAME)
		return hark_err_set(err, ERANGE, "the run's cgroup lies too deep");
	dir = open_folder(where->state);
	if (dir < 0)
		return hark_err_set(err, errno, "cannot open %s", where->state);
	fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return hark_err_set(err, errno, "cannot make %s/%s", where->state, name);
	if (flock(fd, LOCK_EX | LOCK_NB))
		return hark_err_set(err, errno == EWOULDBLOCK ? EEXIST : errno,
				    "the sensors are attached to cgroup %" PRIu64 " already", run);
	return hark_fd_take(&fd);
}

int hark_pins_present(const struct hark_pins *where)
{
	char path[HARK_PINS_PATH];
	struct hark_err ignored;
	struct stat st;

	hark_err_init(&ignored);
	if (hark_pins_path(path, where->pins, "", where->digest, &ignored))
		return 0;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Members ---------------------------------------------------------------------------------- */

/* A file nobody has locked belongs to a run that is dead. The lock taken here ends with the fd. */
static bool member_alive(int dirfd, const char *name)
{
	hark_autofd fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return false;
	return flock(fd, LOCK_EX | LOCK_NB) != 0;
}

static int forget_dead(int dirfd, const char *name, void *arg)
{
	struct member member;

	(void)arg;
	if (!parse_member(name, &member) || member_alive(dirfd, name))
		return 0;
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -1 : 0;
}

static int forget_run(int dirfd, const char *name, void *arg)
{
	const uint64_t *run = arg;
	struct member member;

	if (!parse_member(name, &member) || member.run != *run)
		return 0;
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -1 : 0;
}

struct census {
	const char *digest;
	unsigned int members;
	uint8_t *used;   /* by level, may be NULL */
	uint64_t filter; /* bit (run & 63) of each member */
};

static int count_member(int dirfd, const char *name, void *arg)
{
	struct census *census = arg;
	struct member member;

	(void)dirfd;
	if (!parse_member(name, &member) || strcmp(member.digest, census->digest) != 0)
		return 0;
	census->members++;
	census->filter |= UINT64_C(1) << (member.run & 63);
	if (census->used)
		census->used[member.level] = 1;
	return 0;
}

int hark_pins_levels(const struct hark_pins *where, uint8_t used[HARK_PINS_DEPTH], uint64_t *filter,
		     struct hark_err *err)
{
	struct census census = {.digest = where->digest, .used = used};
	int r;

	memset(used, 0, HARK_PINS_DEPTH);
	r = walk(where->state, count_member, &census, err);
	*filter = census.filter;
	return r;
}

/* Sets ------------------------------------------------------------------------------------- */

static int unlink_pin(int dirfd, const char *name, void *arg)
{
	(void)arg;
	return unlinkat(dirfd, name, 0) && errno != ENOENT ? -1 : 0;
}

struct sweep {
	const struct hark_pins *where;
	struct hark_err *err;
};

/* Remove a set unless a member uses it. Unlinking its links stops the tracing. */
static int sweep_set(int dirfd, const char *name, void *arg)
{
	struct sweep *sweep = arg;
	struct census census = {.digest = name};
	char path[HARK_PINS_PATH];

	if (walk(sweep->where->state, count_member, &census, sweep->err))
		return -1;
	if (census.members)
		return 0;
	if (hark_pins_path(path, sweep->where->pins, "", name, sweep->err) ||
	    walk(path, unlink_pin, NULL, sweep->err))
		return -1;
	return unlinkat(dirfd, name, AT_REMOVEDIR) && errno != ENOENT ? -1 : 0;
}

int hark_pins_sweep(const struct hark_pins *where, struct hark_err *err)
{
	struct sweep sweep = {.where = where, .err = err};

	if (walk(where->state, forget_dead, NULL, err))
		return -1;
	return walk(where->pins, sweep_set, &sweep, err);
}

/* The last one out leaves the host as it was. A folder in use refuses to go. */
static void remove_place(const struct hark_pins *where)
{
	if (rmdir(where->pins) || strcmp(where->pins, OWN_PINS) != 0)
		return;
	if (umount(OWN_BPFFS) == 0)
		(void)rmdir(OWN_BPFFS);
}

/* A run's maps ----------------------------------------------------------------------------- */

static int bpf_call(enum bpf_cmd cmd, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

/* One map of maps that a run leaves. Each deletion waits for a whole RCU grace period. */
struct removal {
	pthread_t thread;
	const char *map;
	char path[HARK_PINS_PATH];
	const void *keys;
	uint32_t count;
};

static void *remove_keys(void *arg)
{
	struct removal *removal = arg;
	hark_autofd fd = -1;
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.pathname = (uint64_t)(uintptr_t)removal->path;
	fd = bpf_call(BPF_OBJ_GET, &attr);
	if (fd < 0)
		return NULL;
	memset(&attr, 0, sizeof(attr));
	attr.batch.map_fd = (uint32_t)fd;
	attr.batch.keys = (uint64_t)(uintptr_t)removal->keys;
	attr.batch.count = removal->count;
	(void)bpf_call(BPF_MAP_DELETE_BATCH, &attr);
	return NULL;
}

/* Take the run's rings and counters out of a set, so that their memory is freed. In parallel, so
 * that the waits are one. */
static int drop_maps(const char *set, uint64_t run, struct hark_err *err)
{
	struct hark_ring_key rings[HARK_RINGS] = {{.run = run, .ring = HARK_RING_CONTROL},
						  {.run = run, .ring = HARK_RING_BULK},
						  {.run = run, .ring = HARK_RING_SOCKET}};
	struct removal removals[] = {{.map = "hark_stats", .keys = &run, .count = 1},
				     {.map = "hark_counts", .keys = &run, .count = 1},
				     {.map = "hark_spawns", .keys = &run, .count = 1},
				     {.map = "hark_rings", .keys = rings, .count = HARK_RINGS}};
	size_t n = sizeof(removals) / sizeof(removals[0]);
	size_t started;

	for (size_t i = 0; i < n; i++) {
		if (hark_pins_path(removals[i].path, set, "map_", removals[i].map, err))
			return -1;
	}
	for (started = 0; started < n; started++) {
		struct removal *removal = &removals[started];

		if (pthread_create(&removal->thread, NULL, remove_keys, removal))
			break;
	}
	for (size_t i = started; i < n; i++)
		(void)remove_keys(&removals[i]);
	for (size_t i = 0; i < started; i++)
		(void)pthread_join(removals[i].thread, NULL);
	return 0;
}

struct departure {
	const struct hark_pins *where;
	uint64_t run;
	struct hark_err *err;
};

static int drop_from_set(int dirfd, const char *name, void *arg)
{
	const struct departure *departure = arg;
	char set[HARK_PINS_PATH];

	(void)dirfd;
	if (hark_pins_path(set, departure->where->pins, "", name, departure->err))
		return -1;
	return drop_maps(set, departure->run, departure->err);
}

int hark_pins_leave(const struct hark_pins *where, uint64_t run, struct hark_err *err)
{
	struct departure departure = {.where = where, .run = run, .err = err};
	hark_autofd lock = take_lock(where, err);

	if (lock < 0)
		return -1;
	if (walk(where->state, forget_run, &run, err) || hark_pins_sweep(where, err))
		return -1;
	if (walk(where->pins, drop_from_set, &departure, err))
		return -1;
	remove_place(where);
	return 0;
}

int hark_pins_leave_host(uint64_t run, struct hark_err *err)
{
	struct hark_pins where = {.state = STATE};
	hark_autofd state = open_folder(STATE);

	/* No run was ever sensed here, so there is nothing to leave and nothing to make. */
	if (state < 0)
		return errno == ENOENT ? 0 : hark_err_set(err, errno, "cannot open %s", STATE);
	if (is_bpffs(HOST_BPFFS)) {
		where.pins = HOST_PINS;
		return hark_pins_leave(&where, run, err);
	}
	where.pins = OWN_PINS;
	return is_bpffs(OWN_BPFFS) ? hark_pins_leave(&where, run, err) : 0;
}
