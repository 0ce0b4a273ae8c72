/* SPDX-License-Identifier: Apache-2.0 */
/* Counting one system call of a run by (process, number, errno). */
#ifndef HARK_COUNT_H
#define HARK_COUNT_H

#include "hark_maps.h"

static __always_inline void hark_count(__u64 run, struct hark_thread *thread, __u32 nr, _Bool ia32,
				       __u32 err)
{
	struct hark_count_key key = {.start_ns = thread->start_ns, .err = (__u16)err};
	void *counts = bpf_map_lookup_elem(&hark_counts, &run);
	struct hark_run_stats *stats;
	__u64 one = 1;
	__u64 *n;

	if (!counts)
		return;
	key.tgid = (__u32)(bpf_get_current_pid_tgid() >> 32);
	key.nr = (__u16)((nr < HARK_NR_MAX ? nr : HARK_NR_OTHER) | (ia32 ? HARK_NR_IA32 : 0));
	n = bpf_map_lookup_elem(counts, &key);
	if (!n) {
		if (!bpf_map_update_elem(counts, &key, &one, BPF_NOEXIST))
			return;
		/* Another thread of the process was first, or there is no room. */
		n = bpf_map_lookup_elem(counts, &key);
	}
	if (n) {
		__sync_fetch_and_add(n, 1);
		return;
	}
	stats = hark_run_stats(run);
	if (stats)
		__sync_fetch_and_add(&stats->counts_dropped, 1);
}

#endif
