/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An events section: first byte the count, second the flags, the rest frames. Oracle: what is
 * accepted has the same leaves when its events are hashed one at a time, in a tree that is the same
 * when it grows leaf by leaf; the chunker's cuts cover the bytes, and its chunks hash together as
 * alone.
 */
#include <stdlib.h>
#include <string.h>

#include "hark_bundle.h"

enum { COUNT_MAX = 40, SPANS = 64, ENDS = 64 };

static const uint8_t KEY_A[HARK_HASH_SIZE] = {1};
static const uint8_t KEY_B[HARK_HASH_SIZE] = {2};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_one_by_one(const struct hark_frames *all)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < all->count; i++) {
		const uint8_t *p = all->data + at;
		uint32_t length =
			(uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
		uint32_t stored = p[4] & 0x80 ? HARK_HASH_SIZE : length;
		uint8_t leaf[HARK_HASH_SIZE];
		struct hark_frames one = {.data = p,
					  .size = HARK_FRAME_HEAD + stored,
					  .salts = all->salts + HARK_SALT_SIZE * i,
					  .locators = all->leaves + HARK_HASH_SIZE * i,
					  .first_seq = all->first_seq + i,
					  .count = 1,
					  .flags = all->flags & HARK_FRAMES_SPARSE,
					  .leaves = leaf};

		if (hark_frames_hash(&one, KEY_A, KEY_B) != HARK_FRAMES_OK ||
		    memcmp(leaf, all->leaves + HARK_HASH_SIZE * i, HARK_HASH_SIZE) != 0)
			abort();
		at += one.size;
	}
}

static void check_tree(const struct hark_frames *all)
{
	uint8_t nodes[64 * HARK_HASH_SIZE];
	struct hark_mmr whole = {0};
	struct hark_mmr grown = {0};

	hark_mmr_append(&whole, all->leaves, all->count, KEY_A, nodes);
	for (uint32_t i = 0; i < all->count; i++)
		hark_mmr_append(&grown, all->leaves + HARK_HASH_SIZE * i, 1, KEY_A, nodes);
	if (whole.count != grown.count ||
	    memcmp(whole.peaks, grown.peaks,
		   HARK_HASH_SIZE * (size_t)__builtin_popcountll(whole.count)) != 0)
		abort();
}

/* Chunks of any sizes, hashed together, are what each is alone. */
static void check_commitments(const uint8_t *data, const uint32_t *ends, uint32_t n)
{
	static uint8_t salts[ENDS * HARK_SALT_SIZE];
	uint8_t together[ENDS * HARK_HASH_SIZE];
	uint8_t alone[HARK_HASH_SIZE];
	uint8_t message[HARK_SALT_SIZE + 65536];
	uint32_t sizes[ENDS];
	uint32_t start = 0;

	for (uint32_t i = 0; i < n; i++) {
		sizes[i] = ends[i] - start;
		if (sizes[i] > 65536)
			return;
		start = ends[i];
	}
	if (hark_chunks_commit(data, sizes, salts, n, KEY_A, together) != 0)
		return;
	memset(message, 0, HARK_SALT_SIZE);
	for (uint32_t i = 0; i < n; data += sizes[i++]) {
		memcpy(message + HARK_SALT_SIZE, data, sizes[i]);
		hark_keyed(KEY_A, message, HARK_SALT_SIZE + sizes[i], alone);
		if (memcmp(alone, together + HARK_HASH_SIZE * i, HARK_HASH_SIZE) != 0)
			abort();
	}
}

static void check_cuts(const uint8_t *data, size_t size)
{
	static const struct hark_cut_rule rule = {32, 6, 512};
	static uint64_t gear[256];
	uint32_t ends[ENDS];
	uint32_t n;

	for (int i = 0; i < 256 && !gear[255]; i++)
		gear[i] = 0x9e3779b97f4a7c15U * (uint64_t)(i + 1);
	n = hark_chunks_cut(data, size, gear, &rule, ends, ENDS);
	for (uint32_t i = 0; i < n; i++)
		if (ends[i] > size || (i > 0 && ends[i] <= ends[i - 1]))
			abort();
	if (size > 0 && n < ENDS && ends[n - 1] != size)
		abort();
	check_commitments(data, ends, n);
	if (n >= 2) { /* and in two pieces, of which one may be large */
		ends[1] = ends[n - 1];
		check_commitments(data, ends, 2);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t salts[COUNT_MAX * HARK_SALT_SIZE];
	uint8_t leaves[COUNT_MAX * HARK_HASH_SIZE];
	struct hark_span spans[SPANS];
	struct hark_frames frames = {
		.salts = salts, .leaves = leaves, .refs = spans, .refs_cap = SPANS};
	uint8_t *copy;

	if (size < 2)
		return 0;
	size -= 2;
	copy = malloc(size ? size : 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 2, size);
	frames.data = copy;
	frames.size = size;
	frames.count = data[0] % (COUNT_MAX + 1);
	frames.flags = data[1] & 3;
	frames.first_seq = data[1];
	if (hark_frames_hash(&frames, KEY_A, KEY_B) == HARK_FRAMES_OK) {
		check_one_by_one(&frames);
		check_tree(&frames);
	}
	check_cuts(copy, size);
	free(copy);
	return 0;
}
