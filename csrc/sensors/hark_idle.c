/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_idle.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hark_abi.h"
#include "hark_err.h"

enum { PROGRAMS = 8, PAGE = 4096 };

static const char STATE[] = ".data.idle";
static const char CONSTANTS[] = ".rodata";
static const char BELL[] = "hark_idle_bell";

struct hark_idle_sensor {
	struct bpf_object *object;
	struct bpf_link *links[PROGRAMS];
	size_t links_n;
	struct ring_buffer *bells;
	struct hark_idle *state; /* shared with the programs */
	int bell;
};

/* The two cgroup ids, in the order of idle.bpf.c. */
struct constants {
	uint64_t run;
	uint64_t server;
};

static int ignore(void *ctx, void *data, size_t len)
{
	(void)ctx;
	(void)data;
	(void)len;
	return 0;
}

static struct bpf_map *map_ending_in(struct bpf_object *object, const char *end)
{
	const size_t n = strlen(end);
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
	{
		const char *name = bpf_map__name(map);
		const size_t len = strlen(name);

		if (len >= n && !strcmp(name + len - n, end))
			return map;
	}
	return NULL;
}

static int load(struct hark_idle_sensor *s, const void *bytes, size_t len,
		const struct constants *values, struct hark_err *err)
{
	struct bpf_map *map;
	size_t size;

	s->object = bpf_object__open_mem(bytes, len, NULL);
	if (!s->object)
		return hark_err_set(err, errno, "cannot read the BPF object of the idle count");
	map = map_ending_in(s->object, CONSTANTS);
	if (!map || !bpf_map__initial_value(map, &size) || size < sizeof(*values) ||
	    bpf_map__set_initial_value(map, values, size))
		return hark_err_set(err, EINVAL, "the BPF object of the idle count is another's");
	if (bpf_object__load(s->object))
		return hark_err_set(err, errno, "the kernel did not load the idle count");
	return 0;
}

static int map_state(struct hark_idle_sensor *s, struct hark_err *err)
{
	struct bpf_map *map = map_ending_in(s->object, STATE);
	void *at = MAP_FAILED;

	if (map)
		at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	if (at == MAP_FAILED)
		return hark_err_set(err, errno, "cannot map the idle count");
	s->state = at;
	s->bell = bpf_object__find_map_fd_by_name(s->object, BELL);
	s->bells = s->bell < 0 ? NULL : ring_buffer__new(s->bell, ignore, NULL, NULL);
	return s->bells ? 0 : hark_err_set(err, errno, "cannot map the bell of the idle count");
}

static int attach(struct hark_idle_sensor *s, struct hark_err *err)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, s->object)
	{
		if (s->links_n == PROGRAMS)
			return hark_err_set(err, E2BIG, "the idle count has too many programs");
		s->links[s->links_n] = bpf_program__attach(program);
		if (!s->links[s->links_n])
			return hark_err_set(err, errno, "cannot attach %s",
					    bpf_program__name(program));
		s->links_n++;
	}
	return 0;
}

struct hark_idle_sensor *hark_idle_new(const void *object, size_t object_len, uint64_t run,
				       uint64_t server, struct hark_err *err)
{
	const struct constants values = {run, server};
	struct hark_idle_sensor *s = calloc(1, sizeof(*s));

	if (!s) {
		hark_err_set(err, ENOMEM, "no memory for the idle count");
		return NULL;
	}
	s->bell = -1;
	if (!load(s, object, object_len, &values, err) && !map_state(s, err) && !attach(s, err))
		return s;
	hark_idle_free(s);
	return NULL;
}

void hark_idle_free(struct hark_idle_sensor *s)
{
	if (!s)
		return;
	while (s->links_n)
		bpf_link__destroy(s->links[--s->links_n]);
	ring_buffer__free(s->bells);
	if (s->state)
		(void)munmap(s->state, PAGE);
	bpf_object__close(s->object);
	free(s);
}

int hark_idle_fd(const struct hark_idle_sensor *s)
{
	return s->bell;
}

void hark_idle_arm(struct hark_idle_sensor *s)
{
	__atomic_store_n(&s->state->armed, 1, __ATOMIC_SEQ_CST);
}

void hark_idle_hush(struct hark_idle_sensor *s)
{
	(void)ring_buffer__consume(s->bells);
}

void hark_idle_read(const struct hark_idle_sensor *s, struct hark_idle *out)
{
	out->seq = __atomic_load_n(&s->state->seq, __ATOMIC_SEQ_CST);
	out->active = __atomic_load_n(&s->state->active, __ATOMIC_SEQ_CST);
	out->armed = __atomic_load_n(&s->state->armed, __ATOMIC_SEQ_CST);
	out->since_ns = __atomic_load_n(&s->state->since_ns, __ATOMIC_SEQ_CST);
	out->edges = __atomic_load_n(&s->state->edges, __ATOMIC_SEQ_CST);
	out->missed = __atomic_load_n(&s->state->missed, __ATOMIC_SEQ_CST);
	out->repaired = __atomic_load_n(&s->state->repaired, __ATOMIC_SEQ_CST);
}

/* The number first: a run that became busy meanwhile has another one, or is active. */
int hark_idle_is(const struct hark_idle_sensor *s, uint64_t seq)
{
	const uint64_t now = __atomic_load_n(&s->state->seq, __ATOMIC_SEQ_CST);

	return now == seq && __atomic_load_n(&s->state->active, __ATOMIC_SEQ_CST) == 0 &&
	       __atomic_load_n(&s->state->seq, __ATOMIC_SEQ_CST) == seq;
}
