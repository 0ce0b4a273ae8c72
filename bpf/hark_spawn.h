/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a thread is called by how it came to be (struct hark_spawn): kept for who answers the run's
 * questions for randomness, which must be the same for the same thread of another execution.
 *
 * Rules. A row is there before its thread runs and goes when the thread ends. Only the thread that
 * forks counts its children, so no order between threads is in a name. A full map loses a row, and
 * whoever asks for it learns that there is none.
 */
#ifndef HARK_SPAWN_H
#define HARK_SPAWN_H

#include "hark_maps.h"

enum hark_spawn_const {
	HARK_SPAWN_STEP = 2, /* numbers of processes are even, those of threads odd */
};

/* The path of a thread that nobody of the run made: its init. Any odd number would do. */
static const __u64 HARK_SPAWN_ROOT = 0x6861726b2f312f01;

/* Child of a path: one round of splitmix64 (Steele, Lea, Flood 2014) over both. */
static __always_inline __u64 hark_spawn_child(__u64 parent, __u32 number, _Bool thread)
{
	__u64 x = parent + ((__u64)number * HARK_SPAWN_STEP + thread) * 0x9e3779b97f4a7c15;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	x ^= x >> 31;
	return x ? x : HARK_SPAWN_ROOT;
}

static __always_inline void hark_spawn_put(__u64 run, struct task_struct *task, __u64 path)
{
	void *rows = bpf_map_lookup_elem(&hark_spawns, &run);
	struct hark_spawn row = {.path = path, .start_ns = hark_start_ns(task)};
	__u32 tid = (__u32)task->pid;

	row.tgid = (__u32)task->tgid;
	if (rows)
		(void)bpf_map_update_elem(rows, &tid, &row, BPF_ANY);
}

/* In the thread that forks, before the child can run. */
static __always_inline void hark_spawn_born(__u64 run, struct task_struct *child,
					    struct hark_thread *note, _Bool thread)
{
	struct hark_thread *maker = hark_thread_known(bpf_get_current_task_btf());
	__u64 parent = HARK_SPAWN_ROOT;
	__u32 number = 1;

	if (maker && maker->path) {
		parent = maker->path;
		number = thread ? ++maker->threads : ++maker->processes;
	}
	note->path = hark_spawn_child(parent, number, thread);
	hark_spawn_put(run, child, note->path);
}

static __always_inline void hark_spawn_ended(__u64 run, __u32 tid)
{
	void *rows = bpf_map_lookup_elem(&hark_spawns, &run);

	if (rows)
		(void)bpf_map_delete_elem(rows, &tid);
}

/* A thread that is not the first of its process has taken the id of that one. */
static __always_inline void hark_spawn_execed(__u64 run, struct task_struct *task, __u32 old_tid)
{
	struct hark_thread *note;

	if (old_tid == (__u32)task->pid)
		return;
	note = hark_thread_known(bpf_get_current_task_btf());
	hark_spawn_ended(run, old_tid);
	if (note && note->path)
		hark_spawn_put(run, task, note->path);
}

#endif
