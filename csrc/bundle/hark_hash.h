/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many keyed BLAKE3 hashes of short messages at once, over the official implementation's
 * hash-many entry. Rules: messages are public or salted bytes, so nothing here is constant time.
 */
#ifndef HARK_HASH_H
#define HARK_HASH_H

#include <stddef.h>
#include <stdint.h>

enum hark_hash_limit {
	HARK_HASH_LANES = 16,        /* messages per call of the widest implementation */
	HARK_HASH_SHORT_MAX = 1024,  /* one BLAKE3 chunk */
	HARK_HASH_MEDIUM_MAX = 17408 /* 17 of them: a chunk of the small rule and its salt */
};

/* Keys as the words the compression function takes. */
struct hark_hash_key {
	uint32_t words[8];
};

void hark_hash_key_init(struct hark_hash_key *key, const uint8_t bytes[32]);

/* One message of at most 64 bytes; `block` is zero behind `size`. */
void hark_hash_block(const struct hark_hash_key *key, const uint8_t block[64], uint8_t size,
		     uint8_t out[32]);

/* `n` messages of exactly 64 bytes, one after the other. Output may overlap the input's start. */
void hark_hash_pairs(const struct hark_hash_key *key, const uint8_t *in, size_t n, uint8_t *out);

/*
 * Up to HARK_HASH_LANES messages of `sizes[i]` bytes that all have `full` complete blocks before
 * their last one (which holds 1 to 64 bytes). At most HARK_HASH_SHORT_MAX bytes each.
 */
void hark_hash_lanes(const struct hark_hash_key *key, const uint8_t *const *in,
		     const uint32_t *sizes, size_t n, size_t full, uint8_t *const *out);

/*
 * Up to HARK_HASH_LANES messages of 1 to HARK_HASH_MEDIUM_MAX bytes each, whatever their sizes:
 * BLAKE3 chunks of the same number are hashed side by side.
 */
void hark_hash_medium(const struct hark_hash_key *key, const uint8_t *const *in,
		      const uint32_t *sizes, size_t n, uint8_t *const *out);

#endif
