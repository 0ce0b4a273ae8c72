/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process tree of a run: clone, execve, exit, and threads that somebody moves out of it.
 *
 * Rules. Ids and times are the initial namespaces'. A thread belongs to the run its cgroup lies in
 * at that moment. What the agent wrote (argv) is copied, never interpreted.
 */
#include "hark_count.h"
#include "hark_maps.h"
#include "hark_spawn.h"

/* (tgid, start) of processes whose last thread was already told. */
struct hark_process_key {
	__u64 start_ns;
	__u32 tgid;
	__u32 pad0;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, HARK_EXITS_MAX);
	__type(key, struct hark_process_key);
	__type(value, __u8);
} hark_exits SEC(".maps");

/* An exec record is longer than the BPF stack: one per CPU, used by one program only. */
struct hark_exec_space {
	struct hark_rec_exec rec;
	__u8 var[HARK_EXEC_NAME_MAX + HARK_EXEC_ARGV_MAX + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hark_exec_space);
} hark_spaces SEC(".maps");

SEC("tp_btf/task_newtask")
int BPF_PROG(hark_newtask, struct task_struct *child, unsigned long clone_flags)
{
	__u64 run = hark_run_of(child);
	struct hark_thread *thread;
	struct hark_rec_fork *rec;

	if (!run)
		return 0;
	thread = bpf_task_storage_get(&hark_threads, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (thread) {
		thread->run = run;
		thread->cgroup = hark_cgroup_id(BPF_CORE_READ(child, cgroups, dfl_cgrp));
		thread->start_ns = hark_start_ns(child);
		thread->newborn = 1;
		hark_spawn_born(run, child, thread, (clone_flags & HARK_CLONE_THREAD) != 0);
	}
	rec = hark_reserve(run, HARK_RING_CONTROL, sizeof(*rec), HARK_REC_FORK, 0);
	if (!rec)
		return 0;
	hark_fill_task(&rec->task, bpf_get_current_task_btf());
	rec->child_tgid = (__u32)child->tgid;
	rec->child_tid = (__u32)child->pid;
	rec->child_start_ns = hark_start_ns(child);
	if (clone_flags & HARK_CLONE_THREAD)
		rec->head.flags |= HARK_RECF_THREAD;
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

static __always_inline __s64 hark_ctime_ns(struct inode *inode)
{
	struct inode___v6_11 *new = (void *)inode;
	struct inode___v6_6 *mid = (void *)inode;
	struct inode___v6_1 *old = (void *)inode;

	/* Bit 31 of the nanoseconds is I_CTIME_QUERIED, not time, from Linux 6.13 on. */
	if (bpf_core_field_exists(new->i_ctime_sec))
		return BPF_CORE_READ(new, i_ctime_sec) * HARK_NS_PER_S +
		       (BPF_CORE_READ(new, i_ctime_nsec) & HARK_NSEC_MASK);
	if (bpf_core_field_exists(mid->__i_ctime))
		return BPF_CORE_READ(mid, __i_ctime.tv_sec) * HARK_NS_PER_S +
		       BPF_CORE_READ(mid, __i_ctime.tv_nsec);
	return BPF_CORE_READ(old, i_ctime.tv_sec) * HARK_NS_PER_S +
	       BPF_CORE_READ(old, i_ctime.tv_nsec);
}

static __always_inline void hark_fill_exe(struct hark_rec_exec *rec, struct task_struct *task)
{
	struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);

	rec->parent_tgid = (__u32)task->real_parent->tgid;
	rec->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	rec->ino = BPF_CORE_READ(inode, i_ino);
	rec->ctime_ns = hark_ctime_ns(inode);
}

static __always_inline void hark_fill_creds(struct hark_rec_exec *rec, struct task_struct *task)
{
	const struct cred *cred = task->cred;

	rec->uid = BPF_CORE_READ(cred, uid.val);
	rec->gid = BPF_CORE_READ(cred, gid.val);
	rec->euid = BPF_CORE_READ(cred, euid.val);
	rec->egid = BPF_CORE_READ(cred, egid.val);
	bpf_core_read(&rec->cap_effective, sizeof(rec->cap_effective), &cred->cap_effective);
}

/* File name, then arguments, packed. Lengths are bounded for the verifier's sake at each step. */
static __always_inline __u32 hark_fill_names(struct hark_exec_space *space,
					     struct task_struct *task, struct linux_binprm *bprm)
{
	unsigned long start = BPF_CORE_READ(task, mm, arg_start);
	unsigned long end = BPF_CORE_READ(task, mm, arg_end);
	__u64 argv_len = end > start ? end - start : 0;
	long got = bpf_probe_read_kernel_str(space->var, HARK_EXEC_NAME_MAX, bprm->filename);
	__u32 name_len = got > 0 ? (__u32)(got - 1) : 0;

	if (name_len >= HARK_EXEC_NAME_MAX)
		name_len = HARK_EXEC_NAME_MAX - 1;
	if (argv_len > HARK_EXEC_ARGV_MAX) {
		argv_len = HARK_EXEC_ARGV_MAX;
		space->rec.head.flags |= HARK_RECF_TRUNCATED;
	}
	if (bpf_probe_read_user(space->var + name_len, (__u32)argv_len, (void *)start)) {
		argv_len = 0;
		space->rec.head.flags |= HARK_RECF_TRUNCATED;
	}
	space->rec.name_len = (__u16)name_len;
	space->rec.argv_len = (__u16)argv_len;
	return name_len + (__u32)argv_len;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(hark_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	__u64 run = hark_current_run();
	struct hark_exec_space *space;
	__u32 zero = 0;
	__u32 len;

	if (!run)
		return 0;
	hark_spawn_execed(run, task, (__u32)old_pid);
	space = bpf_map_lookup_elem(&hark_spaces, &zero);
	if (!space)
		return 0;
	__builtin_memset(&space->rec, 0, sizeof(space->rec));
	hark_fill_head(&space->rec.head, 0, HARK_REC_EXEC, 0, 0);
	hark_fill_task(&space->rec.task, task);
	hark_fill_exe(&space->rec, task);
	hark_fill_creds(&space->rec, task);
	len = hark_fill_names(space, task, bprm);
	hark_put(run, HARK_RING_CONTROL, &space->rec.head,
		 (__u32)(sizeof(space->rec) + len + 7) & ~7U, sizeof(*space));
	return 0;
}

/* wait(2) status of a whole process once its last thread is here. */
static __always_inline int hark_process_status(struct task_struct *task)
{
	struct signal_struct *signal = task->signal;

	if (signal->flags & HARK_GROUP_EXIT)
		return signal->group_exit_code;
	return task->group_leader->exit_code;
}

/* The last thread, told once: two threads may both see that none is left alive. */
static __always_inline _Bool hark_is_last(struct task_struct *task)
{
	struct hark_process_key key = {.start_ns = hark_start_ns(task), .tgid = (__u32)task->tgid};
	__u8 one = 1;

	if (task->signal->live.counter)
		return 0;
	return bpf_map_update_elem(&hark_exits, &key, &one, BPF_NOEXIST) == 0;
}

/* A call that never returns: exit and exit_group, or one the thread was killed in. Then all. */
static __always_inline void hark_count_last(__u64 run, struct hark_thread *thread)
{
	if (thread->in_call && run && thread->run == run)
		hark_count(run, thread, thread->nr, thread->ia32, 0);
	hark_count_flush(thread);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(hark_exit, struct task_struct *task)
{
	struct hark_thread *thread = hark_thread_known(bpf_get_current_task_btf());
	__u64 run = hark_current_run();
	struct hark_rec_exit *rec;

	if (thread)
		hark_count_last(run, thread);
	if (!run)
		return 0;
	hark_spawn_ended(run, (__u32)task->pid);
	rec = hark_reserve(run, HARK_RING_CONTROL, sizeof(*rec), HARK_REC_EXIT, 0);
	if (!rec)
		return 0;
	hark_fill_task(&rec->task, task);
	if (hark_is_last(task)) {
		rec->status = (__u32)hark_process_status(task);
	} else {
		rec->status = (__u32)task->exit_code;
		rec->head.flags |= HARK_RECF_THREAD;
	}
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

/* Fires after the move, for version 1 hierarchies too: ask where the task is now. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(hark_moved, struct cgroup *to, const char *path, struct task_struct *task,
	     _Bool threadgroup)
{
	struct hark_thread *thread = bpf_task_storage_get(&hark_threads, task, 0, 0);
	__u64 now = hark_run_of(task);
	struct hark_rec_left *rec;
	__u64 before;

	if (!thread || !thread->run)
		return 0;
	before = thread->run;
	if (before == now) {
		thread->left = 0;
		return 0;
	}
	/* .run and the tallies are the thread's own: it will see by itself that it was moved. */
	if (thread->left)
		return 0;
	thread->left = 1;
	rec = hark_reserve(before, HARK_RING_CONTROL, sizeof(*rec), HARK_REC_CGROUP_LEFT, 0);
	if (!rec)
		return 0;
	rec->task.cgroup = before;
	rec->task.tgid = (__u32)task->tgid;
	rec->task.tid = (__u32)task->pid;
	rec->task.start_ns = hark_start_ns(task);
	rec->to_cgroup = hark_cgroup_id(to);
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
