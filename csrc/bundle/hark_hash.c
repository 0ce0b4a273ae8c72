/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_hash.h"

#include <string.h>

#include "blake3.h"
#include "blake3_impl.h"
#include "hark_bundle.h"

enum {
	BLOCK = BLAKE3_BLOCK_LEN,
	HASH = HARK_HASH_SIZE,
	WHOLE = KEYED_HASH | CHUNK_START | CHUNK_END | ROOT /* a message of one block */
};

void hark_hash_key_init(struct hark_hash_key *key, const uint8_t bytes[32])
{
	load_key_words(bytes, key->words);
}

void hark_hash_block(const struct hark_hash_key *key, const uint8_t block[64], uint8_t size,
		     uint8_t out[32])
{
	uint32_t cv[8];

	memcpy(cv, key->words, sizeof(cv));
	blake3_compress_in_place(cv, block, size, 0, WHOLE);
	store_cv_words(out, cv);
}

void hark_hash_pairs(const struct hark_hash_key *key, const uint8_t *in, size_t n, uint8_t *out)
{
	const uint8_t *p[HARK_HASH_LANES];
	uint8_t cvs[HARK_HASH_LANES * HASH];

	while (n > 0) {
		size_t lanes = n < HARK_HASH_LANES ? n : HARK_HASH_LANES;

		for (size_t i = 0; i < lanes; i++)
			p[i] = in + BLOCK * i;
		blake3_hash_many(p, lanes, 1, key->words, 0, false, KEYED_HASH, CHUNK_START,
				 CHUNK_END | ROOT, cvs);
		memcpy(out, cvs, HASH * lanes); /* only now: `out` may be `in` */
		in += BLOCK * lanes;
		out += HASH * lanes;
		n -= lanes;
	}
}

/* The last block of a message whose first `full` blocks gave the chaining value `cv`. */
static void finish(uint32_t cv[8], const uint8_t *in, uint32_t size, size_t full, uint8_t *out)
{
	uint8_t last[BLOCK] = {0};
	size_t left = size - BLOCK * full;
	uint8_t flags = KEYED_HASH | CHUNK_END | ROOT;

	if (full == 0)
		flags |= CHUNK_START;
	memcpy(last, in + BLOCK * full, left);
	blake3_compress_in_place(cv, last, (uint8_t)left, 0, flags);
	store_cv_words(out, cv);
}

void hark_hash_lanes(const struct hark_hash_key *key, const uint8_t *const *in,
		     const uint32_t *sizes, size_t n, size_t full, uint8_t *const *out)
{
	uint8_t cvs[HARK_HASH_LANES * HASH];
	uint32_t cv[8];

	if (full > 0)
		blake3_hash_many(in, n, full, key->words, 0, false, KEYED_HASH, CHUNK_START, 0,
				 cvs);
	for (size_t i = 0; i < n; i++) {
		if (full > 0)
			load_key_words(cvs + HASH * i, cv);
		else
			memcpy(cv, key->words, sizeof(cv));
		finish(cv, in[i], sizes[i], full, out[i]);
	}
}

void hark_keyed(const uint8_t *key, const uint8_t *data, size_t size, uint8_t *out)
{
	blake3_hasher hasher;

	blake3_hasher_init_keyed(&hasher, key);
	blake3_hasher_update(&hasher, data, size);
	blake3_hasher_finalize(&hasher, out, HASH);
}

void hark_keyed_xof(const uint8_t *key, const uint8_t *label, size_t label_size, uint64_t seek,
		    uint8_t *out, size_t size)
{
	blake3_hasher hasher;

	blake3_hasher_init_keyed(&hasher, key);
	blake3_hasher_update(&hasher, label, label_size);
	blake3_hasher_finalize_seek(&hasher, seek, out, size);
}
