/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "blake3.h"
#include "hark_bundle.h"
#include "hark_hash.h"

enum {
	GEAR_WINDOW = 64, /* a bit of the gear hash forgets what is further back */
	NORMALISE_BITS = 2
};

/* Salted chunks that wait to be hashed side by side. */
struct group {
	struct hark_hash_key key;
	uint8_t *scratch; /* HARK_HASH_LANES messages of HARK_HASH_MEDIUM_MAX bytes */
	const uint8_t *in[HARK_HASH_LANES];
	uint32_t sizes[HARK_HASH_LANES];
	uint8_t *out[HARK_HASH_LANES];
	size_t n;
};

static void flush(struct group *g)
{
	hark_hash_medium(&g->key, g->in, g->sizes, g->n, g->out);
	g->n = 0;
}

static void add(struct group *g, const uint8_t *salt, const uint8_t *data, uint32_t size,
		uint8_t *out)
{
	uint8_t *message = g->scratch + g->n * HARK_HASH_MEDIUM_MAX;

	memcpy(message, salt, HARK_SALT_SIZE);
	memcpy(message + HARK_SALT_SIZE, data, size);
	g->in[g->n] = message;
	g->sizes[g->n] = HARK_SALT_SIZE + size;
	g->out[g->n++] = out;
	if (g->n == HARK_HASH_LANES)
		flush(g);
}

static void commit_large(const uint8_t *key, const uint8_t *salt, const uint8_t *data,
			 uint32_t size, uint8_t *out)
{
	blake3_hasher hasher;

	blake3_hasher_init_keyed(&hasher, key);
	blake3_hasher_update(&hasher, salt, HARK_SALT_SIZE);
	blake3_hasher_update(&hasher, data, size);
	blake3_hasher_finalize(&hasher, out, HARK_HASH_SIZE);
}

int hark_chunks_commit(const uint8_t *data, const uint32_t *sizes, const uint8_t *salts, uint32_t n,
		       const uint8_t *key, uint8_t *out)
{
	struct group g = {.n = 0};

	g.scratch = malloc((size_t)HARK_HASH_LANES * HARK_HASH_MEDIUM_MAX);
	if (!g.scratch)
		return -ENOMEM;
	hark_hash_key_init(&g.key, key);
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *salt = salts + (size_t)HARK_SALT_SIZE * i;
		uint8_t *to = out + (size_t)HARK_HASH_SIZE * i;

		if (sizes[i] <= HARK_HASH_MEDIUM_MAX - HARK_SALT_SIZE)
			add(&g, salt, data, sizes[i], to);
		else
			commit_large(key, salt, data, sizes[i], to);
		data += sizes[i];
	}
	flush(&g);
	free(g.scratch);
	return 0;
}

/* Size of the first chunk of `data`. */
static size_t first_cut(const uint8_t *data, size_t size, const uint64_t *gear,
			const struct hark_cut_rule *rule)
{
	uint64_t hard = ~(uint64_t)0 << (64 - (rule->bits + NORMALISE_BITS));
	uint64_t easy = ~(uint64_t)0 << (64 - (rule->bits - NORMALISE_BITS));
	size_t average = (size_t)1 << rule->bits;
	size_t end = size < rule->max ? size : rule->max;
	size_t i = rule->min > GEAR_WINDOW ? rule->min - GEAR_WINDOW : 0;
	uint64_t hash = 0;

	if (size <= rule->min)
		return size;
	if (average > end)
		average = end;
	for (; i < rule->min; i++)
		hash = (hash << 1) + gear[data[i]];
	for (; i < average; i++) {
		hash = (hash << 1) + gear[data[i]];
		if (!(hash & hard))
			return i + 1;
	}
	for (; i < end; i++) {
		hash = (hash << 1) + gear[data[i]];
		if (!(hash & easy))
			return i + 1;
	}
	return end;
}

uint32_t hark_chunks_cut(const uint8_t *data, size_t size, const uint64_t *gear,
			 const struct hark_cut_rule *rule, uint32_t *ends, uint32_t cap)
{
	uint32_t n = 0;
	size_t at = 0;

	while (at < size && n < cap) {
		at += first_cut(data + at, size - at, gear, rule);
		ends[n++] = (uint32_t)at;
	}
	return n;
}

int hark_reserve(int fd, uint64_t from, uint64_t size)
{
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)size) == 0)
		return 0;
	return -errno;
}
