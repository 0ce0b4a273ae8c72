/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_sensors.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hark_abi.h"
#include "hark_abi_check.h"
#include "hark_err.h"
#include "hark_fd.h"
#include "hark_pins.h"

/* A program of the run's cgroup: its pin and where it attaches. */
struct hook {
	const char *program;
	enum bpf_attach_type type;
};

static const struct hook HOOKS[] = {
	{"hark_connect4", BPF_CGROUP_INET4_CONNECT}, {"hark_connect6", BPF_CGROUP_INET6_CONNECT},
	{"hark_sendmsg4", BPF_CGROUP_UDP4_SENDMSG},  {"hark_sendmsg6", BPF_CGROUP_UDP6_SENDMSG},
	{"hark_sockops", BPF_CGROUP_SOCK_OPS},       {"hark_egress", BPF_CGROUP_INET_EGRESS},
};

static const char TRACING[] = "tp_btf/";
static const char LINK[] = "link_";

static const uint64_t PREPARING = UINT64_C(1) << 63;

enum {
	HOOK_COUNT = sizeof(HOOKS) / sizeof(HOOKS[0]),
	/* What one ring may put into a buffer before the other has its turn, in quarters. */
	CONTROL_SHARE = 3,
	/* Looks at counters that change meanwhile. */
	STATS_TRIES = 1000,
	/* More than there are tracing programs. */
	TRACES_MAX = 32,
	INSERTIONS = 4 /* maps of maps that a run has a row in */
};

/* Where a ring's records go during one read. */
struct sink {
	uint8_t *buf;
	size_t len;
	size_t cap;
};

struct hark_sensors {
	char pins[HARK_PINS_NAME];
	char state[HARK_PINS_NAME];
	uint64_t run;
	int member;
	int epoll;
	int links[HOOK_COUNT];
	int traces[TRACES_MAX];
	uint32_t ntraces;
	int rings[HARK_RINGS]; /* maps */
	int counts;
	int stats;
	int spawns;
	uint32_t rows;
	struct ring_buffer *readers[HARK_RINGS];
	struct sink sink;
};

/* Loading the set ---------------------------------------------------------------------------- */

static int quiet(enum libbpf_print_level level, const char *fmt, va_list args)
{
	(void)level;
	(void)fmt;
	(void)args;
	return 0;
}

static bool is_tracing(const struct bpf_program *program)
{
	return !strncmp(bpf_program__section_name(program), TRACING, sizeof(TRACING) - 1);
}

/* Turn off programs of tracepoints that this kernel lacks. How many. */
static unsigned int skip_missing(struct bpf_object *object)
{
	struct bpf_program *program;
	unsigned int missing = 0;

	bpf_object__for_each_program(program, object)
	{
		const char *point = bpf_program__section_name(program) + sizeof(TRACING) - 1;

		if (is_tracing(program) &&
		    libbpf_find_vmlinux_btf_id(point, BPF_TRACE_RAW_TP) < 0) {
			(void)bpf_program__set_autoload(program, false);
			missing++;
		}
	}
	return missing;
}

static struct bpf_object *open_object(const void *bytes, size_t len, struct hark_err *err)
{
	struct bpf_object *object;

	libbpf_set_print(quiet);
	object = bpf_object__open_mem(bytes, len, NULL);
	if (!object)
		hark_err_set(err, errno, "cannot read the BPF object");
	return object;
}

/* One missing tracepoint fails the whole object. Asking for each costs more than the load, so only
 * a failed load asks, and tries again without those. */
static struct bpf_object *load(const void *bytes, size_t len, struct hark_err *err)
{
	struct bpf_object *object = open_object(bytes, len, err);
	int code;

	if (!object || !bpf_object__load(object))
		return object;
	code = errno;
	bpf_object__close(object);
	object = open_object(bytes, len, err);
	if (object && skip_missing(object) && !bpf_object__load(object))
		return object;
	bpf_object__close(object);
	hark_err_set(err, code, "the kernel did not load the BPF programs");
	hark_err_hint(err, "run `hark doctor`; the sensors need root, BTF and Linux 6.1");
	return NULL;
}

int hark_sensors_try(const void *object, size_t object_len, struct hark_err *err)
{
	struct bpf_object *loaded = load(object, object_len, err);

	bpf_object__close(loaded);
	return loaded ? 0 : -1;
}

static int pin_maps(struct bpf_object *object, const char *folder, struct hark_err *err)
{
	char path[HARK_PINS_PATH];
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
	{
		const char *name = bpf_map__name(map);

		if (strchr(name, '.'))
			continue; /* libbpf's own */
		if (hark_pins_path(path, folder, "map_", name, err))
			return -1;
		if (bpf_map__pin(map, path))
			return hark_err_set(err, errno, "cannot pin the map %s", name);
	}
	return 0;
}

static int pin_link(struct bpf_program *program, const char *path, struct hark_err *err)
{
	struct bpf_link *link = bpf_program__attach(program);
	int r = 0;

	if (!link || bpf_link__pin(link, path))
		r = hark_err_set(err, errno, "cannot attach the tracing program %s",
				 bpf_program__name(program));
	/* The pin keeps it; a link that was not pinned ends here. */
	bpf_link__destroy(link);
	return r;
}

/* Cgroup programs are pinned for later runs to link; tracing programs are linked now, for all. */
static int pin_programs(struct bpf_object *object, const char *folder, struct hark_err *err)
{
	char path[HARK_PINS_PATH];
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		const char *name = bpf_program__name(program);
		bool tracing = is_tracing(program);

		if (!bpf_program__autoload(program))
			continue;
		if (hark_pins_path(path, folder, tracing ? LINK : "prog_", name, err))
			return -1;
		if (tracing && pin_link(program, path, err))
			return -1;
		if (!tracing && bpf_program__pin(program, path))
			return hark_err_set(err, errno, "cannot pin the program %s", name);
	}
	return 0;
}

/* First run in: load, pin, attach, then make it visible under its name. */
static int make_set(const struct hark_sensors_plan *plan, const struct hark_pins *where,
		    struct hark_err *err)
{
	struct bpf_object *object = load(plan->object, plan->object_len, err);
	char fresh[HARK_PINS_PATH];
	char final[HARK_PINS_PATH];
	int r = -1;

	if (!object)
		return -1;
	if (hark_pins_path(fresh, where->pins, "new-", where->digest, err) ||
	    hark_pins_path(final, where->pins, "", where->digest, err))
		r = -1;
	else if (mkdir(fresh, 0700))
		hark_err_set(err, errno, "cannot make the folder %s", fresh);
	else if (!pin_maps(object, fresh, err) && !pin_programs(object, fresh, err))
		r = rename(fresh, final) ? hark_err_set(err, errno, "cannot name %s", final) : 0;
	bpf_object__close(object);
	return r;
}

/* The run's own maps ------------------------------------------------------------------------- */

static int open_pin(const struct hark_pins *where, const char *prefix, const char *name,
		    struct hark_err *err)
{
	char folder[HARK_PINS_PATH];
	char path[HARK_PINS_PATH];
	int fd;

	if (hark_pins_path(folder, where->pins, "", where->digest, err) ||
	    hark_pins_path(path, folder, prefix, name, err))
		return -1;
	fd = bpf_obj_get(path);
	return fd < 0 ? hark_err_set(err, errno, "cannot open the pinned %s", name) : fd;
}

static int make_map(enum bpf_map_type type, const char *name, uint32_t key, uint32_t value,
		    uint32_t entries, uint32_t flags, struct hark_err *err)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = flags);
	int fd = bpf_map_create(type, name, key, value, entries, &opts);

	return fd < 0 ? hark_err_set(err, errno, "cannot make the map %s", name) : fd;
}

static int make_maps(struct hark_sensors *s, const struct hark_sensors_plan *plan,
		     struct hark_err *err)
{
	s->rows = HARK_COUNTS_MAX;
	s->rings[HARK_RING_CONTROL] =
		make_map(BPF_MAP_TYPE_RINGBUF, "hark_control", 0, 0, plan->control_bytes, 0, err);
	s->rings[HARK_RING_BULK] =
		make_map(BPF_MAP_TYPE_RINGBUF, "hark_bulk", 0, 0, plan->bulk_bytes, 0, err);
	s->rings[HARK_RING_SOCKET] =
		make_map(BPF_MAP_TYPE_RINGBUF, "hark_socket", 0, 0, plan->socket_bytes, 0, err);
	s->counts = make_map(BPF_MAP_TYPE_HASH, "hark_count", sizeof(struct hark_count_key),
			     sizeof(uint64_t), s->rows, BPF_F_NO_PREALLOC, err);
	s->stats = make_map(BPF_MAP_TYPE_ARRAY, "hark_stat", sizeof(uint32_t),
			    sizeof(struct hark_run_stats), 1, 0, err);
	s->spawns = make_map(BPF_MAP_TYPE_HASH, "hark_spawn", sizeof(uint32_t),
			     sizeof(struct hark_spawn), HARK_SPAWNS_MAX, BPF_F_NO_PREALLOC, err);
	return err->err ? -1 : 0;
}

/* One insertion into a map of maps: the kernel makes each wait for a whole RCU grace period. */
struct insertion {
	pthread_t thread;
	int map;
	int inner[HARK_RINGS];
	uint64_t run;
	uint32_t count; /* 1: key is the run; HARK_RINGS: the keys of its rings */
	int err;
};

static void *insert(void *arg)
{
	struct insertion *in = arg;
	struct hark_ring_key keys[HARK_RINGS];
	uint32_t count = in->count;

	memset(keys, 0, sizeof(keys));
	for (uint32_t i = 0; i < HARK_RINGS; i++) {
		keys[i].run = in->run;
		keys[i].ring = i;
	}
	if (bpf_map_update_batch(in->map, count == 1 ? (void *)&in->run : keys, in->inner, &count,
				 NULL))
		in->err = errno;
	return NULL;
}

/* In parallel, so that the waits are one. */
static int insert_all(struct insertion in[INSERTIONS], struct hark_err *err)
{
	int started[INSERTIONS];

	for (int i = 0; i < INSERTIONS; i++) {
		started[i] = !pthread_create(&in[i].thread, NULL, insert, &in[i]);
		if (!started[i])
			(void)insert(&in[i]);
	}
	for (int i = 0; i < INSERTIONS; i++) {
		if (started[i])
			(void)pthread_join(in[i].thread, NULL);
		if (in[i].err)
			hark_err_set(err, in[i].err, "cannot register the run's maps");
	}
	return err->err ? -1 : 0;
}

static int register_maps(struct hark_sensors *s, const struct hark_pins *where,
			 struct hark_err *err)
{
	hark_autofd rings = open_pin(where, "map_", "hark_rings", err);
	hark_autofd counts = open_pin(where, "map_", "hark_counts", err);
	hark_autofd stats = open_pin(where, "map_", "hark_stats", err);
	hark_autofd spawns = open_pin(where, "map_", "hark_spawns", err);
	struct insertion in[INSERTIONS] = {
		{.map = rings,
		 .inner = {s->rings[0], s->rings[1], s->rings[2]},
		 .count = HARK_RINGS},
		{.map = counts, .inner = {s->counts}, .count = 1},
		{.map = stats, .inner = {s->stats}, .count = 1},
		{.map = spawns, .inner = {s->spawns}, .count = 1},
	};

	if (err->err)
		return -1;
	for (int i = 0; i < INSERTIONS; i++)
		in[i].run = s->run;
	return insert_all(in, err);
}

/* Attaching ---------------------------------------------------------------------------------- */

/* Each place keeps its level as long as a run is there; ours takes a free one if it has none. */
static int place_level(uint32_t place[HARK_LEVELS_MAX], const uint8_t used[HARK_PINS_DEPTH],
		       uint32_t level)
{
	uint32_t *free_place = NULL;

	for (int i = 0; i < HARK_LEVELS_MAX; i++) {
		if (place[i] == level)
			return 0;
		if (!used[place[i] % HARK_PINS_DEPTH])
			place[i] = 0;
		if (!place[i])
			free_place = &place[i];
	}
	if (!free_place)
		return -1;
	*free_place = level;
	return 0;
}

static int add_level(const struct hark_pins *where, uint32_t level, struct hark_err *err)
{
	hark_autofd fd = open_pin(where, "map_", "hark_levels", err);
	uint8_t used[HARK_PINS_DEPTH];
	struct hark_levels levels;
	uint64_t filter;
	uint32_t zero = 0;

	if (fd < 0 || hark_pins_levels(where, used, &filter, err))
		return -1;
	if (bpf_map_lookup_elem(fd, &zero, &levels))
		return hark_err_set(err, errno, "cannot read the levels of runs");
	if (place_level(levels.level, used, level))
		return hark_err_set(err, EBUSY, "runs lie at too many different cgroup depths");
	levels.filter = filter;
	if (bpf_map_update_elem(fd, &zero, &levels, BPF_ANY))
		return hark_err_set(err, errno, "cannot store the level of the run");
	return 0;
}

static int link_hooks(struct hark_sensors *s, const struct hark_pins *where, int cgroup_fd,
		      struct hark_err *err)
{
	for (int i = 0; i < HOOK_COUNT; i++) {
		hark_autofd program = open_pin(where, "prog_", HOOKS[i].program, err);

		if (program < 0)
			return -1;
		s->links[i] = bpf_link_create(program, cgroup_fd, HOOKS[i].type, NULL);
		if (s->links[i] < 0)
			return hark_err_set(err, errno, "cannot attach %s to the run's cgroup",
					    HOOKS[i].program);
	}
	return 0;
}

/*
 * Keep the set's tracing links. A pin alone does not: another root on this BPF file system with a
 * /run of its own (a container, a chroot) sees no member of ours and sweeps the set; the tracing
 * would end in the middle of the run, and no counter would tell.
 */
static int hold_traces(struct hark_sensors *s, const struct hark_pins *where, struct hark_err *err)
{
	char folder[HARK_PINS_PATH];
	struct dirent *entry;
	DIR *dir;

	if (hark_pins_path(folder, where->pins, "", where->digest, err))
		return -1;
	dir = opendir(folder);
	if (!dir)
		return hark_err_set(err, errno, "cannot open %s", folder);
	while (!err->err && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, LINK, sizeof(LINK) - 1) != 0)
			continue;
		if (s->ntraces == TRACES_MAX)
			hark_err_set(err, ENOSPC, "there are too many tracing programs");
		else if ((s->traces[s->ntraces] = open_pin(where, "", entry->d_name, err)) >= 0)
			s->ntraces++;
	}
	closedir(dir);
	if (!err->err && !s->ntraces)
		hark_err_set(err, ENOENT, "there is no tracing program in %s", folder);
	return err->err ? -1 : 0;
}

/* Tell the cgroup's programs whose they are: the storage came into being with the links. */
static int name_run(const struct hark_sensors *s, const struct hark_pins *where,
		    struct hark_err *err)
{
	hark_autofd fd = open_pin(where, "map_", "hark_attached", err);

	if (fd < 0)
		return -1;
	if (bpf_map_update_elem(fd, &s->run, &s->run, BPF_EXIST))
		return hark_err_set(err, errno, "cannot name the run to its cgroup programs");
	return 0;
}

static int take_record(void *arg, void *data, size_t len)
{
	struct sink *sink = arg;

	memcpy(sink->buf + sink->len, data, len);
	sink->len += len;
	/* The record is taken; any negative value ends this round. */
	return sink->cap - sink->len < HARK_KERNEL_REC_MAX ? -ENOBUFS : 0;
}

static int open_readers(struct hark_sensors *s, struct hark_err *err)
{
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll < 0)
		return hark_err_set(err, errno, "cannot make an epoll descriptor");
	for (int i = 0; i < HARK_RINGS; i++) {
		struct epoll_event event = {.events = EPOLLIN};

		s->readers[i] = ring_buffer__new(s->rings[i], take_record, &s->sink, NULL);
		if (!s->readers[i] || epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->rings[i], &event))
			return hark_err_set(err, errno, "cannot map a ring");
	}
	return 0;
}

/* Under the lock. The level comes last: from then on the tracing programs look for the run. */
static int attach_locked(struct hark_sensors *s, const struct hark_sensors_plan *plan,
			 const struct hark_pins *where, struct hark_err *err)
{
	if (hark_pins_sweep(where, err))
		return -1;
	s->member = hark_pins_join(where, s->run, plan->level, err);
	if (s->member < 0)
		return -1;
	if (!hark_pins_present(where) && make_set(plan, where, err))
		return -1;
	if (hold_traces(s, where, err))
		return -1;
	if (make_maps(s, plan, err) || open_readers(s, err) || register_maps(s, where, err))
		return -1;
	if (link_hooks(s, where, plan->cgroup_fd, err) || name_run(s, where, err))
		return -1;
	return add_level(where, plan->level, err);
}

/* Where the plan's set lies; paths stay the plan's or static. */
static int find_place(const struct hark_sensors_plan *plan, struct hark_pins *where,
		      struct hark_err *err)
{
	where->pins = plan->pins;
	where->state = plan->state;
	if (!plan->pins && hark_pins_host(where, err))
		return -1;
	where->digest = plan->digest;
	return 0;
}

static int attach(struct hark_sensors *s, const struct hark_sensors_plan *plan,
		  struct hark_err *err)
{
	struct hark_pins where;
	hark_autofd lock = -1;

	if (find_place(plan, &where, err))
		return -1;
	if (snprintf(s->pins, sizeof(s->pins), "%s", where.pins) >= (int)sizeof(s->pins) ||
	    snprintf(s->state, sizeof(s->state), "%s", where.state) >= (int)sizeof(s->state))
		return hark_err_set(err, ENAMETOOLONG, "the path for pinned programs is too long");
	lock = hark_pins_lock(&where, err);
	return lock < 0 ? -1 : attach_locked(s, plan, &where, err);
}

int hark_sensors_prepare(const struct hark_sensors_plan *plan, struct hark_err *err)
{
	struct hark_pins where;
	hark_autofd lock = -1;
	hark_autofd member = -1;

	if (find_place(plan, &where, err))
		return -1;
	lock = hark_pins_lock(&where, err);
	if (lock < 0 || hark_pins_sweep(&where, err))
		return -1;
	/* No cgroup has such an id: a member for as long as we are at it, at no depth. */
	member = hark_pins_join(&where, PREPARING | (uint64_t)getpid(), 0, err);
	if (member < 0 || (!hark_pins_present(&where) && make_set(plan, &where, err)))
		return -1;
	return hark_fd_take(&member);
}

struct hark_sensors *hark_sensors_new(const struct hark_sensors_plan *plan, struct hark_err *err)
{
	struct hark_sensors *s = calloc(1, sizeof(*s));

	if (!s) {
		hark_err_set(err, ENOMEM, "no memory for the sensors");
		return NULL;
	}
	s->run = plan->cgroup_id;
	s->member = s->epoll = s->counts = s->stats = s->spawns = -1;
	memset(s->links, -1, sizeof(s->links));
	memset(s->rings, -1, sizeof(s->rings));
	memset(s->traces, -1, sizeof(s->traces));
	if (!attach(s, plan, err))
		return s;
	/* A member that is held by somebody else is not ours to drop. */
	if (s->member >= 0) {
		struct hark_err ignored;

		hark_err_init(&ignored);
		(void)hark_sensors_leave(s, &ignored);
	}
	hark_sensors_free(s);
	return NULL;
}

int hark_sensors_leave(struct hark_sensors *s, struct hark_err *err)
{
	struct hark_pins where = {.pins = s->pins, .state = s->state};

	hark_fd_close_all(s->links, HOOK_COUNT);
	hark_fd_close_all(s->traces, TRACES_MAX);
	return hark_pins_leave(&where, s->run, err);
}

void hark_sensors_free(struct hark_sensors *s)
{
	if (!s)
		return;
	for (int i = 0; i < HARK_RINGS; i++)
		ring_buffer__free(s->readers[i]);
	hark_fd_close_all(s->links, HOOK_COUNT);
	hark_fd_close_all(s->traces, TRACES_MAX);
	hark_fd_close_all(s->rings, HARK_RINGS);
	hark_fd_close(&s->counts);
	hark_fd_close(&s->stats);
	hark_fd_close(&s->spawns);
	hark_fd_close(&s->epoll);
	hark_fd_close(&s->member);
	free(s);
}

/* Reading ------------------------------------------------------------------------------------ */

int hark_sensors_fd(const struct hark_sensors *s)
{
	return s->epoll;
}

int hark_sensors_spawns(const struct hark_sensors *s)
{
	return s->spawns;
}

int64_t hark_sensors_read(struct hark_sensors *s, void *buf, size_t size)
{
	s->sink.buf = buf;
	s->sink.len = 0;
	s->sink.cap = size / 4 * CONTROL_SHARE;
	if (size < (size_t)2 * HARK_KERNEL_REC_MAX)
		return -EINVAL;
	(void)ring_buffer__consume(s->readers[HARK_RING_CONTROL]);
	if (s->sink.cap - s->sink.len >= HARK_KERNEL_REC_MAX)
		(void)ring_buffer__consume(s->readers[HARK_RING_SOCKET]);
	s->sink.cap = size;
	(void)ring_buffer__consume(s->readers[HARK_RING_BULK]);
	return (int64_t)s->sink.len;
}

uint32_t hark_sensors_rows(const struct hark_sensors *s)
{
	return s->rows;
}

int64_t hark_sensors_counts(struct hark_sensors *s, void *keys, uint64_t *values, uint32_t rows)
{
	uint32_t done = 0;
	uint32_t place = 0; /* the kernel's cursor */
	void *from = NULL;

	while (done < rows) {
		uint32_t n = rows - done;
		int r = bpf_map_lookup_batch(s->counts, from, &place,
					     (struct hark_count_key *)keys + done, values + done,
					     &n, NULL);

		if (r && errno != ENOENT)
			return -errno;
		done += n;
		from = &place;
		if (r)
			break; /* ENOENT: the end */
	}
	return done;
}

uint32_t hark_sensors_forget(struct hark_sensors *s, const void *keys, uint32_t rows)
{
	uint32_t n = rows;

	if (!rows)
		return 0;
	(void)bpf_map_delete_batch(s->counts, keys, &n, NULL);
	return n;
}

static bool settled(const struct hark_run_stats *stats)
{
	for (int i = 0; i < HARK_RINGS; i++) {
		const struct hark_ring_stats *ring = &stats->ring[i];

		if (ring->produced != ring->emitted + ring->dropped)
			return false;
	}
	return true;
}

/* A record that is being made was produced and neither emitted nor dropped: look again. */
int hark_sensors_stats(struct hark_sensors *s, void *stats)
{
	uint32_t zero = 0;

	for (int i = 0; i < STATS_TRIES; i++) {
		if (bpf_map_lookup_elem(s->stats, &zero, stats))
			return -errno;
		if (settled(stats))
			break;
	}
	return 0;
}
