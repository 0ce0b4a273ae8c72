/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "blake3.h"
#include "hark_bundle.h"

enum {
	GEAR_WINDOW = 64, /* a bit of the gear hash forgets what is further back */
	NORMALISE_BITS = 2
};

int hark_chunks_commit(const uint8_t *data, const uint32_t *sizes, const uint8_t *salts, uint32_t n,
		       const uint8_t *key, uint8_t *out)
{
	blake3_hasher hasher;
	uint8_t *message = NULL;
	size_t room = 0;

	for (uint32_t i = 0; i < n; i++) {
		size_t size = HARK_SALT_SIZE + (size_t)sizes[i];

		if (size > room) {
			free(message);
			room = size * 2;
			message = malloc(room);
			if (!message)
				return -ENOMEM;
		}
		memcpy(message, salts + (size_t)HARK_SALT_SIZE * i, HARK_SALT_SIZE);
		memcpy(message + HARK_SALT_SIZE, data, sizes[i]);
		blake3_hasher_init_keyed(&hasher, key);
		blake3_hasher_update(&hasher, message, size);
		blake3_hasher_finalize(&hasher, out + (size_t)HARK_HASH_SIZE * i, HARK_HASH_SIZE);
		data += sizes[i];
	}
	free(message);
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
