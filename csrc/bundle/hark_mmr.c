/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Merkle Mountain Range (docs/spec/bundle.md, "Tree"). Leaves are taken as the largest aligned
 * subtrees that fit, so that a level is hashed side by side.
 */
#include <string.h>

#include "hark_bundle.h"
#include "hark_hash.h"

enum {
	HASH = HARK_HASH_SIZE,
	SUBTREE_LEVEL = HARK_MMR_STORED_LEVEL,
	SUBTREE_LEAVES = 1 << SUBTREE_LEVEL
};

/* Level of the largest subtree of at most SUBTREE_LEAVES that may start after `count` leaves. */
static unsigned int fitting_level(uint64_t count, uint64_t n)
{
	unsigned int level = 0;

	while (level < SUBTREE_LEVEL && (count >> level & 1) == 0 && n >> (level + 1) != 0)
		level++;
	return level;
}

static void subtree_root(const struct hark_hash_key *key, const uint8_t *leaves, unsigned int level,
			 uint8_t *out)
{
	uint8_t row[SUBTREE_LEAVES / 2 * HASH];
	size_t pairs = ((size_t)1 << level) / 2;

	if (pairs == 0) {
		memcpy(out, leaves, HASH);
		return;
	}
	hark_hash_pairs(key, leaves, pairs, row);
	while (pairs > 1) {
		pairs /= 2;
		hark_hash_pairs(key, row, pairs, row);
	}
	memcpy(out, row, HASH);
}

uint64_t hark_mmr_append(struct hark_mmr *mmr, const uint8_t *leaves, uint64_t n,
			 const uint8_t *node_key, uint8_t *nodes)
{
	struct hark_hash_key key;
	uint8_t *top = mmr->peaks + (size_t)HASH * (size_t)__builtin_popcountll(mmr->count);
	uint64_t written = 0;

	hark_hash_key_init(&key, node_key);
	while (n > 0) {
		unsigned int level = fitting_level(mmr->count, n);

		subtree_root(&key, leaves, level, top);
		leaves += (size_t)HASH << level;
		n -= (uint64_t)1 << level;
		for (;;) { /* a peak of this level is there already: they become one */
			if (level >= HARK_MMR_STORED_LEVEL)
				memcpy(nodes + (size_t)HASH * written++, top, HASH);
			if ((mmr->count >> level & 1) == 0)
				break;
			top -= HASH;
			hark_hash_pairs(&key, top, 1, top);
			mmr->count ^= (uint64_t)1 << level;
			level++;
		}
		mmr->count |= (uint64_t)1 << level;
		top += HASH;
	}
	return written;
}
