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

/* Chaining values of one message's BLAKE3 chunks, and how many whole ones come before its tail. */
struct medium {
	uint8_t cvs[HARK_HASH_MEDIUM_MAX / BLAKE3_CHUNK_LEN * HASH];
	size_t tail;
};

/* BLAKE3 chunk number `k` of every message in which it is whole and not the last. */
static void hash_column(const struct hark_hash_key *key, const uint8_t *const *in, size_t n,
			size_t k, struct medium *messages)
{
	const uint8_t *p[HARK_HASH_LANES];
	size_t who[HARK_HASH_LANES];
	uint8_t cvs[HARK_HASH_LANES * HASH];
	size_t lanes = 0;

	for (size_t i = 0; i < n; i++)
		if (k < messages[i].tail) {
			who[lanes] = i;
			p[lanes++] = in[i] + BLAKE3_CHUNK_LEN * k;
		}
	blake3_hash_many(p, lanes, BLAKE3_CHUNK_LEN / BLOCK, key->words, k, false, KEYED_HASH,
			 CHUNK_START, CHUNK_END, cvs);
	for (size_t i = 0; i < lanes; i++)
		memcpy(messages[who[i]].cvs + HASH * k, cvs + HASH * i, HASH);
}

/* The last BLAKE3 chunk of a message, of 1 to 1024 bytes. */
static void hash_tail(const struct hark_hash_key *key, const uint8_t *in, size_t size,
		      struct medium *m)
{
	uint8_t end = m->tail == 0 ? CHUNK_END | ROOT : CHUNK_END;
	uint8_t start = CHUNK_START;
	uint8_t last[BLOCK] = {0};
	uint32_t cv[8];

	memcpy(cv, key->words, sizeof(cv));
	for (; size > BLOCK; size -= BLOCK, in += BLOCK, start = 0)
		blake3_compress_in_place(cv, in, BLOCK, m->tail, KEYED_HASH | start);
	memcpy(last, in, size);
	blake3_compress_in_place(cv, last, (uint8_t)size, m->tail,
				 (uint8_t)(KEYED_HASH | start | end));
	store_cv_words(m->cvs + HASH * m->tail, cv);
}

/* Pair neighbours until one is left; an odd one moves up. This is BLAKE3's left-full tree. */
static void join(const struct hark_hash_key *key, struct medium *m)
{
	size_t count = m->tail + 1;
	uint32_t cv[8];

	while (count > 1) {
		uint8_t flags = KEYED_HASH | PARENT | (count == 2 ? ROOT : 0);

		for (size_t i = 0; i < count / 2; i++) {
			memcpy(cv, key->words, sizeof(cv));
			blake3_compress_in_place(cv, m->cvs + BLOCK * i, BLOCK, 0, flags);
			store_cv_words(m->cvs + HASH * i, cv);
		}
		if (count % 2 != 0)
			memcpy(m->cvs + HASH * (count / 2), m->cvs + HASH * (count - 1), HASH);
		count = (count + 1) / 2;
	}
}

void hark_hash_medium(const struct hark_hash_key *key, const uint8_t *const *in,
		      const uint32_t *sizes, size_t n, uint8_t *const *out)
{
	struct medium messages[HARK_HASH_LANES];
	size_t longest = 0;

	for (size_t i = 0; i < n; i++) {
		messages[i].tail = (sizes[i] - 1) / BLAKE3_CHUNK_LEN;
		if (messages[i].tail > longest)
			longest = messages[i].tail;
	}
	for (size_t k = 0; k < longest; k++)
		hash_column(key, in, n, k, messages);
	for (size_t i = 0; i < n; i++) {
		size_t at = BLAKE3_CHUNK_LEN * messages[i].tail;

		hash_tail(key, in[i] + at, sizes[i] - at, &messages[i]);
		join(key, &messages[i]);
		memcpy(out[i], messages[i].cvs, HASH);
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
