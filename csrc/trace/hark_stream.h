/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run's randomness: one endless stream of bytes for each thread, known by its spawn path.
 *
 *   stream(path) = BLAKE3 keyed with the seed, of "hark/random/1" and the path, as long as wanted
 *
 * BLAKE3's extended output is a pseudorandom function of key, input and position (BLAKE3 paper,
 * section 2.6), so a place in a stream costs nothing to come back to. docs/spec/replay.md,
 * "Randomness", is the authority. Pure: no system call.
 *
 * Rules. The agent chooses how many threads it has and when they draw, so the table is bounded;
 * what does not fit shares the stream of path 0 and is counted.
 */
#ifndef HARK_STREAM_H
#define HARK_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hark_err.h"

enum hark_stream_limit {
	HARK_SEED_BYTES = 32,
	HARK_STREAMS_MAX = 262144 /* threads that drew, of one run; power of two */
};

/* One thread's draws so far. The ids are those of the thread that drew first by this path. */
struct hark_draws {
	uint64_t path;
	uint64_t bytes; /* also the place in the stream */
	uint64_t calls; /* 0: a free place */
	uint64_t start_ns;
	uint32_t tgid;
	uint32_t tid;
};

struct hark_streams {
	uint8_t seed[HARK_SEED_BYTES];
	struct hark_draws *rows;
	size_t cap; /* power of two */
	size_t n;
	struct hark_draws rest; /* of threads without a path or a place */
};

HARK_MUST_USE int hark_streams_init(struct hark_streams *s, const uint8_t seed[HARK_SEED_BYTES],
				    struct hark_err *err);
void hark_streams_fini(struct hark_streams *s);

/* The row of a path; never NULL. Path 0 is the rest. Valid until the next call. */
struct hark_draws *hark_streams_find(struct hark_streams *s, uint64_t path);

/* Bytes of a row's stream from `at` on. */
void hark_streams_read(const struct hark_streams *s, const struct hark_draws *row, uint64_t at,
		       void *out, size_t n);

#endif
