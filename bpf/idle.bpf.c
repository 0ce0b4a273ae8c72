/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a run is idle: no task of it runs, can run, or is being woken. An object of its own, loaded
 * only for a run that needs it, since it looks at every switch of the machine.
 *
 * Rules. Two bits for each task: on a run queue, and wake-up under way. Both are needed. A waker
 * may sleep before the other CPU has queued whom it woke, and a wake-up may hit a task that has not
 * yet switched out: with one bit, either gives a moment at which nobody seems to be active. Only
 * interruptible sleep is idle. Who waits for a disk, for a vfork or for its tracer will be served
 * by somebody, so the run is busy; a task that a signal has stopped waits for nobody.
 *
 * Reads of the kernel's structs are direct, not by helper: that halves the cost of a switch.
 */
#include "hark_core.h"

#include "hark_abi.h"
#include "hark_abi_check.h"

enum hark_activity {
	HARK_QUEUED = 1, /* on a run queue */
	HARK_WAKING = 2  /* a wake-up is under way */
};

/* include/linux/sched.h */
enum hark_task_state {
	HARK_ASLEEP = 0x1,               /* TASK_INTERRUPTIBLE */
	HARK_STOPPED = 0x4,              /* __TASK_STOPPED */
	HARK_TRACED = 0x8,               /* __TASK_TRACED */
	HARK_ENDED = 0x10 | 0x20 | 0x80, /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */
	HARK_SERVED = 0x2 | HARK_STOPPED |
		HARK_TRACED,   /* TASK_UNINTERRUPTIBLE, and the two above */
	HARK_GROUP_STOPPED = 1 /* SIGNAL_STOP_STOPPED of signal_struct.flags */
};

const volatile __u64 hark_idle_run = 0;    /* cgroup id of the run */
const volatile __u64 hark_idle_server = 0; /* of who serves it: its work is the run's; 0: nobody */

struct hark_idle hark_idle SEC(".data.idle");

struct hark_idle_task {
	__u64 active; /* enum hark_activity */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hark_idle_task);
} hark_idlers SEC(".maps");

/* Its records are bells: what they say stands in hark_idle. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HARK_IDLE_RING);
} hark_idle_bell SEC(".maps");

static __always_inline _Bool hark_is_ours(struct task_struct *task)
{
	__u64 id = task->cgroups->dfl_cgrp->kn->id;

	return id == hark_idle_run || (hark_idle_server && id == hark_idle_server);
}

static __always_inline struct hark_idle_task *hark_note_of(struct task_struct *task)
{
	struct hark_idle_task *note =
		bpf_task_storage_get(&hark_idlers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!note)
		__sync_fetch_and_add(&hark_idle.missed, 1);
	return note;
}

static __always_inline void hark_one_more(void)
{
	if (__sync_fetch_and_add(&hark_idle.active, 1) == 0)
		__sync_fetch_and_add(&hark_idle.seq, 1);
}

static __always_inline void hark_ring_bell(void)
{
	__u64 *bell;

	if (!__sync_lock_test_and_set(&hark_idle.armed, 0))
		return;
	bell = bpf_ringbuf_reserve(&hark_idle_bell, sizeof(*bell), 0);
	if (!bell)
		return; /* one is in it that nobody has answered yet */
	*bell = hark_idle.seq;
	bpf_ringbuf_submit(bell, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void hark_one_less(void)
{
	if (__sync_fetch_and_add(&hark_idle.active, -1) != 1)
		return;
	__sync_fetch_and_add(&hark_idle.edges, 1);
	hark_idle.since_ns = bpf_ktime_get_ns();
	hark_ring_bell();
}

static __always_inline void hark_set(struct hark_idle_task *note, __u64 bit)
{
	if (__sync_fetch_and_or(&note->active, bit) == 0)
		hark_one_more();
}

#ifndef HARK_MUTANT_NO_WAKING
SEC("tp_btf/sched_waking")
int BPF_PROG(hark_idle_waking, struct task_struct *task)
{
	struct hark_idle_task *note;

	if (!hark_is_ours(task))
		return 0;
	note = hark_note_of(task);
	if (note)
		hark_set(note, HARK_WAKING);
	return 0;
}
#endif

SEC("tp_btf/sched_wakeup")
int BPF_PROG(hark_idle_wakeup, struct task_struct *task)
{
	struct hark_idle_task *note;

	if (!hark_is_ours(task))
		return 0;
	note = hark_note_of(task);
	if (!note)
		return 0;
	hark_set(note, HARK_QUEUED);
	__sync_fetch_and_and(&note->active, ~(__u64)HARK_WAKING);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(hark_idle_newtask, struct task_struct *task)
{
	struct hark_idle_task *note;

	if (!hark_is_ours(task))
		return 0;
	note = hark_note_of(task);
	if (note)
		hark_set(note, HARK_QUEUED);
	return 0;
}

/* Under a tracer, whom a signal has stopped is traced, too: only its process tells the difference.
 */
static __always_inline _Bool hark_is_waiting(struct task_struct *task, unsigned int state)
{
	if (state & HARK_STOPPED)
		return 1;
	if (state & HARK_TRACED)
		return (task->signal->flags & HARK_GROUP_STOPPED) != 0;
#ifndef HARK_MUTANT_DISK_IS_IDLE
	if (state & HARK_SERVED)
		return 0;
#endif
	return (state & (HARK_ASLEEP | HARK_ENDED | HARK_SERVED)) != 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(hark_idle_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int state)
{
	struct hark_idle_task *note;

	/* Who comes is counted before who goes, so that a task first met here leaves no gap. */
	if (hark_is_ours(next)) {
		note = hark_note_of(next);
		if (note && !(note->active & HARK_QUEUED)) {
			hark_set(note, HARK_QUEUED);
			__sync_fetch_and_add(&hark_idle.repaired, 1);
		}
	}
	if (preempt || !hark_is_waiting(prev, state) || !hark_is_ours(prev))
		return 0;
	note = hark_note_of(prev);
	if (note && __sync_fetch_and_and(&note->active, ~(__u64)HARK_QUEUED) == HARK_QUEUED)
		hark_one_less();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
