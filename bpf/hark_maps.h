/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maps of the sensors, how a task is found to be in a run, and how a record leaves.
 *
 * Rules. One set of programs serves all runs of the machine; everything a run owns is an inner map
 * found by the id of its cgroup, so a run's recorder holds descriptors of its own data only. Maps
 * are weak: each object file that uses one defines it, the linker keeps one. Inner maps give sizes
 * instead of types, because clang describes no type behind a pointer inside a map's values.
 */
#ifndef HARK_MAPS_H
#define HARK_MAPS_H

#include "hark_core.h"

#include "hark_abi.h"
#include "hark_abi_check.h"

enum hark_map_limit {
	HARK_RUNS_MAX = 256,    /* runs at one time */
	HARK_FLOWS_MAX = 16384, /* UDP flows remembered, all runs */
	HARK_EXITS_MAX = 4096,  /* processes whose end was told, all runs */
	HARK_USERS = 8          /* power of two: processes of one socket that are told once */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hark_levels);
} hark_levels SEC(".maps") __weak;

struct hark_ring_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, HARK_RINGS *HARK_RUNS_MAX);
	__type(key, struct hark_ring_key);
	__array(values, struct hark_ring_map);
} hark_rings SEC(".maps") __weak;

struct hark_stats_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct hark_run_stats));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, HARK_RUNS_MAX);
	__type(key, __u64);
	__array(values, struct hark_stats_map);
} hark_stats SEC(".maps") __weak;

struct hark_counts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HARK_COUNTS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, sizeof(struct hark_count_key));
	__uint(value_size, sizeof(__u64));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, HARK_RUNS_MAX);
	__type(key, __u64);
	__array(values, struct hark_counts_map);
} hark_counts SEC(".maps") __weak;

struct hark_spawns_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, HARK_SPAWNS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct hark_spawn));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, HARK_RUNS_MAX);
	__type(key, __u64);
	__array(values, struct hark_spawns_map);
} hark_spawns SEC(".maps") __weak;

enum hark_tally_limit {
	HARK_TALLIES = 32,    /* power of two: tallies of one thread */
	HARK_TALLY_MAX = 4096 /* calls a tally holds back while its thread lives */
};

/* Calls of one thread that the counts map does not hold yet. */
struct hark_tally {
	__u16 nr; /* as in struct hark_count_key */
	__u16 err;
	__u32 n; /* 0: free */
};

/*
 * A thread of a run, as long as it lives. Only the thread itself writes here, but for .newborn (set
 * by its parent before it runs) and .left.
 */
struct hark_thread {
	__u64 run;    /* cgroup id of the run it was last seen in, 0 once it left */
	__u64 cgroup; /* its own cgroup when .run was found: unchanged, it is still there */
	__u64 start_ns;
	__u64 path;      /* struct hark_spawn */
	__u32 processes; /* it made */
	__u32 threads;
	__u32 nr;     /* the call it is in */
	__u8 in_call; /* sys_enter was seen and sys_exit was not */
	__u8 newborn; /* its first sys_exit is the second return of its parent's clone */
	__u8 ia32;
	__u8 left;  /* that it left .run was told */
	__u64 caps; /* refusals of these capabilities were told */
	struct hark_tally tally[HARK_TALLIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hark_thread);
} hark_threads SEC(".maps") __weak;

/* The note on the current thread, if any. Most threads of a machine have no storage at all, and to
 * see that costs them nothing; to ask the helper would. */
static __always_inline struct hark_thread *hark_thread_known(struct task_struct *task)
{
	return task->bpf_storage ? bpf_task_storage_get(&hark_threads, task, 0, 0) : 0;
}

static __always_inline __u64 hark_start_ns(struct task_struct *task)
{
	return task->group_leader->start_boottime;
}

static __always_inline _Bool hark_may_be_run(const struct hark_levels *levels, __u64 id)
{
	return (levels->filter >> (id & 63) & 1) != 0;
}

/* The run the current thread is in, nested cgroups included; 0 for none. Every call of every thread
 * of the machine comes here: what lies too high, or has another id, is let go before any look-up.
 */
static __always_inline __u64 hark_current_run(void)
{
	__u32 zero = 0;
	struct hark_levels *levels = bpf_map_lookup_elem(&hark_levels, &zero);
	int depth = bpf_get_current_task_btf()->cgroups->dfl_cgrp->level;
	int i;

	if (!levels)
		return 0;
#pragma unroll
	for (i = 0; i < HARK_LEVELS_MAX; i++) {
		int level = (int)levels->level[i];
		__u64 id;

		if (!level || level > depth)
			continue;
		id = bpf_get_current_ancestor_cgroup_id(level);
		if (hark_may_be_run(levels, id) && bpf_map_lookup_elem(&hark_stats, &id))
			return id;
	}
	return 0;
}

static __always_inline __u64 hark_cgroup_id(struct cgroup *cgroup)
{
	return BPF_CORE_READ(cgroup, kn, id);
}

/* The same for any task. */
static __always_inline __u64 hark_run_of(struct task_struct *task)
{
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	int depth = BPF_CORE_READ(cgroup, level);
	__u64 places = (__u64)cgroup + bpf_core_field_offset(struct cgroup, ancestors);
	__u32 zero = 0;
	struct hark_levels *levels = bpf_map_lookup_elem(&hark_levels, &zero);
	int i;

	if (!levels)
		return 0;
#pragma unroll
	for (i = 0; i < HARK_LEVELS_MAX; i++) {
		__u32 level = levels->level[i];
		struct cgroup *ancestor = 0;
		__u64 id;

		if (!level || (int)level > depth)
			continue;
		if (bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
					  (void *)(places + (__u64)level * sizeof(ancestor))))
			continue;
		id = hark_cgroup_id(ancestor);
		if (id && bpf_map_lookup_elem(&hark_stats, &id))
			return id;
	}
	return 0;
}

static __always_inline struct hark_run_stats *hark_run_stats(__u64 run)
{
	void *inner = bpf_map_lookup_elem(&hark_stats, &run);
	__u32 zero = 0;

	return inner ? bpf_map_lookup_elem(inner, &zero) : 0;
}

static __always_inline void hark_fill_head(struct hark_rec_head *head, __u32 len, __u16 kind,
					   __u64 seq, __u64 subject)
{
	head->len = len;
	head->kind = kind;
	head->flags = 0;
	head->boot_ns = bpf_ktime_get_boot_ns();
	head->seq = seq;
	head->subject = subject;
}

static __always_inline void hark_fill_task(struct hark_rec_task *out, struct task_struct *task)
{
	__u64 ids = bpf_get_current_pid_tgid();

	out->cgroup = bpf_get_current_cgroup_id();
	out->tgid = (__u32)(ids >> 32);
	out->tid = (__u32)ids;
	out->start_ns = hark_start_ns(task);
}

/*
 * Reserve a zeroed record of constant `size`, its head filled; NULL (counted as dropped) when there
 * is no room. A macro's job done by inlining: `ring` and `size` must be constants.
 */
static __always_inline void *hark_reserve(__u64 run, __u32 ring, __u32 size, __u16 kind,
					  __u64 subject)
{
	struct hark_ring_key key = {.run = run, .ring = ring};
	struct hark_run_stats *stats = hark_run_stats(run);
	void *buffer = bpf_map_lookup_elem(&hark_rings, &key);
	struct hark_rec_head *head;
	__u64 seq;

	if (!stats)
		return 0;
	seq = __sync_fetch_and_add(&stats->ring[ring].produced, 1);
	head = buffer ? bpf_ringbuf_reserve(buffer, size, 0) : 0;
	if (!head) {
		__sync_fetch_and_add(&stats->ring[ring].dropped, 1);
		return 0;
	}
	__sync_fetch_and_add(&stats->ring[ring].emitted, 1);
	__builtin_memset(head, 0, size);
	hark_fill_head(head, size, kind, seq, subject);
	return head;
}

/*
 * Put out a record that was made elsewhere, its head filled but for length and number; counted as
 * dropped when there is no room. `ring` and `size`, the most it may be, must be constants.
 */
static __always_inline void hark_put(__u64 run, __u32 ring, struct hark_rec_head *head, __u32 len,
				     __u32 size)
{
	struct hark_ring_key key = {.run = run, .ring = ring};
	struct hark_run_stats *stats = hark_run_stats(run);
	void *buffer = bpf_map_lookup_elem(&hark_rings, &key);

	if (!stats)
		return;
	head->len = len;
	head->seq = __sync_fetch_and_add(&stats->ring[ring].produced, 1);
	if (!buffer || len > size || bpf_ringbuf_output(buffer, head, len, 0))
		__sync_fetch_and_add(&stats->ring[ring].dropped, 1);
	else
		__sync_fetch_and_add(&stats->ring[ring].emitted, 1);
}

#endif
