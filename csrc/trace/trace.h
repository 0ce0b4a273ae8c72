/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-trace: answers the run's system calls whose answer must be the same in another execution.
 *
 * Rules. Every register and every byte of the agent is hostile: a length is bounded before use, a
 * write into the agent may fail or be cut short, and a call may be gone before its answer. It reads
 * no file, makes no socket and executes nothing; its one capability, CAP_SYS_PTRACE, holds in the
 * run's own user namespace only. Every wait has a deadline but the one for events, which watches
 * the recorder too. Its end ends the run.
 */
#ifndef HARK_TRACE_H
#define HARK_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "hark_chan.h"
#include "hark_err.h"
#include "hark_stream.h"

/* SECCOMP_IOCTL_NOTIF_SET_FLAGS, Linux 6.6: _IOW('!', 4, __u64). Debian 12's headers lack it. */
#define TRACE_NOTIF_SET_FLAGS 0x40082104UL

enum trace_limit {
	TRACE_START_MS = 30000, /* for hark-launch to come with the user namespace */
	TRACE_SEND_MS = 5000,
	TRACE_PIECE = 65536,    /* bytes that are made and written at once */
	TRACE_DRAW = 33554431,  /* most bytes of one getrandom, as random(4) has it */
	TRACE_DRAWS_TOLD = 8192 /* rows told one by one; the rest is summed up */
};

struct trace {
	struct hark_chan rec;
	int launch; /* from hark-launch: the user namespace, then the listener; closed after that */
	int spawns; /* map of struct hark_spawn by thread id, or -1 */
	int listener;
	bool seeded;
	struct hark_streams streams;
	uint8_t *piece;             /* TRACE_PIECE */
	struct seccomp_notif *call; /* as large as this kernel has it */
	struct seccomp_notif_resp *reply;
	size_t call_size, reply_size;
	uint64_t lost; /* draws whose thread had no row of the spawn map */
};

/* cage.c */
/* Not dumpable, no core file: before anything secret is in memory. */
HARK_MUST_USE int trace_limits(struct hark_err *err);
/* Become uid and gid for ever, with CAP_SYS_PTRACE over `userns` alone, then the filter. */
HARK_MUST_USE int trace_enter(int userns, uint32_t uid, uint32_t gid, struct hark_err *err);

/* answer.c */
HARK_MUST_USE int trace_answer_init(struct trace *t, struct hark_err *err);
void trace_answer_fini(struct trace *t);
/* Take the listener and have its answers wake the caller on this CPU, where the kernel can. */
void trace_listen(struct trace *t, int listener);
/* One notification. 0, or -1 when the listener is of no more use. */
HARK_MUST_USE int trace_answer(struct trace *t, struct hark_err *err);
/* What getrandom(2) says to these arguments before it gives anything: a length, or -errno. */
int64_t trace_random_length(uint64_t length, uint64_t flags);
/* Tell the recorder what every thread has drawn. */
HARK_MUST_USE int trace_tell_draws(struct trace *t, struct hark_err *err);

#endif
