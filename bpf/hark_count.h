/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting the system calls of a run by (process, number, errno).
 *
 * Rules. A thread tallies its calls in its own note, which costs no look-up and no shared cache
 * line, and hands a tally to the run's counts map when another call needs its place, when it is
 * full, when the thread changes runs and when it ends. So counts of ended threads are exact, and a
 * living thread holds back at most HARK_TALLY_MAX calls of a kind.
 */
#ifndef HARK_COUNT_H
#define HARK_COUNT_H

#include "hark_maps.h"

static __always_inline void hark_count_add(__u64 run, struct hark_thread *thread,
					   struct hark_tally *tally)
{
	struct hark_count_key key = {.start_ns = thread->start_ns, .nr = tally->nr};
	void *counts = bpf_map_lookup_elem(&hark_counts, &run);
	struct hark_run_stats *stats;
	__u64 add = tally->n;
	__u64 *n;

	tally->n = 0;
	if (!counts)
		return;
	key.err = tally->err;
	key.tgid = (__u32)(bpf_get_current_pid_tgid() >> 32);
	n = bpf_map_lookup_elem(counts, &key);
	if (!n) {
		if (!bpf_map_update_elem(counts, &key, &add, BPF_NOEXIST))
			return;
		/* Another thread of the process was first, or there is no room. */
		n = bpf_map_lookup_elem(counts, &key);
	}
	if (n) {
		__sync_fetch_and_add(n, add);
		return;
	}
	stats = hark_run_stats(run);
	if (stats)
		__sync_fetch_and_add(&stats->counts_dropped, add);
}

struct hark_flush {
	struct hark_thread *thread;
};

static long hark_flush_one(__u32 i, struct hark_flush *flush)
{
	struct hark_thread *thread = flush->thread;

	if (i >= HARK_TALLIES)
		return 1;
	if (thread->tally[i].n)
		hark_count_add(thread->run, thread, &thread->tally[i]);
	return 0;
}

/* Hand over everything the thread holds back. A loop in here would be verified 32 times over. */
static __always_inline void hark_count_flush(struct hark_thread *thread)
{
	struct hark_flush flush = {.thread = thread};

	bpf_loop(HARK_TALLIES, hark_flush_one, &flush, 0);
}

static __always_inline void hark_count(__u64 run, struct hark_thread *thread, __u32 nr, _Bool ia32,
				       __u32 err)
{
	__u16 number = (__u16)((nr < HARK_NR_MAX ? nr : HARK_NR_OTHER) | (ia32 ? HARK_NR_IA32 : 0));
	struct hark_tally *tally = &thread->tally[(number ^ err) & (HARK_TALLIES - 1)];

	if (tally->n && (tally->nr != number || tally->err != err || tally->n >= HARK_TALLY_MAX))
		hark_count_add(run, thread, tally);
	tally->nr = number;
	tally->err = (__u16)err;
	tally->n++;
}

#endif
