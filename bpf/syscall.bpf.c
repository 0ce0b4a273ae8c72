/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of a run: all of them counted, those seccomp refused told one by one.
 *
 * Rules. seccomp decides before the sys_enter tracepoint and the sys_exit tracepoint always
 * follows, so an exit without an entry that returns an error is a refusal. A thread that was inside
 * a call when it came into the run is not judged by that call.
 */
#include "hark_acts.h"
#include "hark_count.h"
#include "hark_maps.h"

/* The note on the current thread; made when it is in a run and has none yet. */
static __always_inline struct hark_thread *hark_thread_note(struct task_struct *task)
{
	struct hark_thread *thread = hark_thread_known(task);
	__u64 run;

	if (thread)
		return thread;
	run = hark_current_run();
	if (!run)
		return 0;
	thread = bpf_task_storage_get(&hark_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	thread->run = run;
	thread->cgroup = bpf_get_current_cgroup_id();
	thread->start_ns = hark_start_ns(task);
	return thread;
}

/* The run a noted thread is in now. Threads rarely move, so only a move is looked up. */
static __always_inline __u64 hark_thread_run(struct hark_thread *thread)
{
	__u64 cgroup = bpf_get_current_cgroup_id();

	if (thread->cgroup != cgroup) {
		__u64 run = hark_current_run();

		if (run != thread->run)
			hark_count_flush(thread);
		thread->run = run;
		thread->cgroup = cgroup;
		thread->left = 0;
	}
	return thread->run;
}

/* Only marks; sys_exit finds out whether the mark was a run's. */
SEC("tp_btf/sys_enter")
int BPF_PROG(hark_sys_enter, struct pt_regs *regs, long nr)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct hark_thread *thread = hark_thread_note(task);

	if (!thread)
		return 0;
	thread->nr = (__u32)nr;
	thread->ia32 = hark_in_ia32(task);
	thread->in_call = 1;
	return 0;
}

static __always_inline void hark_tell_refused(__u64 run, struct task_struct *task, __u32 nr,
					      _Bool ia32, __u32 err)
{
	struct hark_rec_syscall *rec =
		hark_reserve(run, HARK_RING_BULK, sizeof(*rec), HARK_REC_SYS_REFUSED, 0);

	if (!rec)
		return;
	hark_fill_task(&rec->task, task);
	rec->nr = nr;
	rec->err = err;
	if (ia32)
		rec->head.flags |= HARK_RECF_IA32;
	bpf_ringbuf_submit(rec, 0);
}

/* An exit whose entry was not seen: a child's first return, or an answer of seccomp. */
static __always_inline void hark_unentered(__u64 run, struct task_struct *task,
					   struct hark_thread *thread, struct pt_regs *regs,
					   long ret, __u32 err)
{
	__u32 nr = (__u32)hark_regs_nr(regs);
	_Bool ia32 = hark_in_ia32(task);

	if (thread->newborn) {
		thread->newborn = 0;
		return;
	}
	if (!err && (__u32)ret == nr)
		return; /* rolled back for a SIGSYS, which is told by hark_signal */
	if (err)
		hark_tell_refused(run, task, nr, ia32, err);
	hark_count(run, thread, nr, ia32, err);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(hark_sys_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct hark_thread *thread = hark_thread_known(task);
	__u32 err = ret < 0 && ret >= -HARK_ERRNO_MAX ? (__u32)-ret : 0;
	__u64 run;

	/* Without a note it was inside this call when it came into a run, or is in none. */
	if (!thread)
		return 0;
	run = hark_thread_run(thread);
	if (!thread->in_call) {
		if (run)
			hark_unentered(run, task, thread, regs, ret, err);
		return 0;
	}
	thread->in_call = 0;
	if (hark_is_sigreturn(thread->nr, thread->ia32))
		err = 0;
	if (!run)
		return 0;
	hark_count(run, thread, thread->nr, thread->ia32, err);
	if (!err && !thread->ia32)
		(void)hark_acted(run, thread->nr, ret);
	return 0;
}

/* The kernel asks this of every growing mapping, to know who may overcommit, and of every filter of
 * system calls, to know who may have more of them. What was asked for is not refused.
 */
static __always_inline _Bool hark_asks_for_memory(__u32 nr)
{
	return nr == HARK_NR_MMAP || nr == HARK_NR_BRK || nr == HARK_NR_MPROTECT ||
	       nr == HARK_NR_MREMAP || (nr >= HARK_NR_CLONE && nr <= HARK_NR_EXECVE) ||
	       nr == HARK_NR_EXECVEAT || nr == HARK_NR_SECCOMP;
}

/* Fires for every process of the machine: what was granted, which is nearly all, costs a compare.
 */
SEC("tp_btf/cap_capable")
int BPF_PROG(hark_capable, const void *cred, const void *target, const void *capable, int cap,
	     int ret)
{
	struct task_struct *task;
	struct hark_thread *thread;
	struct hark_rec_cap *rec;

	if (!ret)
		return 0;
	task = bpf_get_current_task_btf();
	thread = hark_thread_known(task);
	if (!thread || !thread->run || !thread->in_call || thread->caps >> (cap & 63) & 1)
		return 0;
	if (cap == HARK_CAP_SYS_ADMIN && hark_asks_for_memory(thread->nr))
		return 0;
	thread->caps |= 1ULL << (cap & 63);
	rec = hark_reserve(thread->run, HARK_RING_BULK, sizeof(*rec), HARK_REC_CAP_REFUSED, 0);
	if (!rec)
		return 0;
	hark_fill_task(&rec->task, task);
	rec->cap = (__u32)cap;
	rec->nr = thread->nr;
	if (thread->ia32)
		rec->head.flags |= HARK_RECF_IA32;
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(hark_signal, int sig, struct kernel_siginfo *info, struct task_struct *task)
{
	struct hark_rec_syscall *rec;
	__u64 run;

	/* 0 and 1 stand for "no information". */
	if (sig != HARK_SIGSYS || (unsigned long)info <= 2)
		return 0;
	if (BPF_CORE_READ(info, si_code) != HARK_SYS_SECCOMP)
		return 0;
	run = hark_current_run();
	if (!run)
		return 0;
	rec = hark_reserve(run, HARK_RING_CONTROL, sizeof(*rec), HARK_REC_SYS_KILLED, 0);
	if (!rec)
		return 0;
	hark_fill_task(&rec->task, bpf_get_current_task_btf());
	rec->nr = (__u32)BPF_CORE_READ(info, _sifields._sigsys._syscall);
	if (!(BPF_CORE_READ(info, _sifields._sigsys._arch) >> HARK_AUDIT_ARCH_64_BIT))
		rec->head.flags |= HARK_RECF_IA32;
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
