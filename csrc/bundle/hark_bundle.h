/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot part of a bundle in C: hashes, strict CBOR, the leaves of a batch, the Merkle Mountain
 * Range, content-defined chunks (docs/spec/bundle.md). cffi reads this header too.
 *
 * Rules. Bytes in, bytes out: no I/O, no state between calls, no thread-local. Every input may be
 * hostile. The twin in hark/bundle/pure.py returns the same values for the same bytes. Sizes are
 * bytes, numbers in byte strings are big-endian.
 */
#ifndef HARK_BUNDLE_H
#define HARK_BUNDLE_H

#include <stddef.h>
#include <stdint.h>

enum hark_bundle_size {
	HARK_HASH_SIZE = 32,
	HARK_SALT_SIZE = 16,
	HARK_LOCATOR_SIZE = 4,
	HARK_FRAME_HEAD = 14, /* u32 length, u16 kind, u64 time */
	HARK_MMR_PEAKS = 64,
	HARK_MMR_STORED_LEVEL = 8,   /* nodes from here on up go into the index */
	HARK_FRAME_REDACTED = 0x8000 /* bit of a frame's kind */
};

enum hark_bundle_limit {
	HARK_PAYLOAD_MAX = 8388608,
	HARK_CBOR_DEPTH_MAX = 16,
	HARK_CBOR_ITEMS_MAX = 65536
};

/* Why a payload is not canonical CBOR. The names are repeated in hark/bundle/cbor.py. */
enum hark_cbor_fault {
	HARK_CBOR_OK = 0,
	HARK_CBOR_SHORT,     /* ends inside an item */
	HARK_CBOR_DEPTH,     /* nested too deep */
	HARK_CBOR_ITEMS,     /* too many items */
	HARK_CBOR_HEAD,      /* indefinite length or reserved head */
	HARK_CBOR_LONG,      /* a number not in its shortest form */
	HARK_CBOR_RANGE,     /* an integer below -2^63 */
	HARK_CBOR_UTF8,      /* text that is not UTF-8 */
	HARK_CBOR_KEY_TYPE,  /* a key neither unsigned nor text, or both in one map */
	HARK_CBOR_KEY_ORDER, /* keys not ascending, or one twice */
	HARK_CBOR_TAG,       /* a tag other than the blob reference */
	HARK_CBOR_REFERENCE, /* a blob reference of the wrong shape */
	HARK_CBOR_VALUE,     /* a float or a simple value other than false, true, null */
	HARK_CBOR_TRAILING,  /* bytes after the item */
	HARK_CBOR_REFS       /* more blob references than the caller has room for */
};

/* Where a blob reference lies: the array behind the tag, as offsets into the bytes given. */
struct hark_span {
	uint32_t event; /* index in the batch, 0 for hark_cbor_check */
	uint32_t start;
	uint32_t end;
};

/* Check one payload. `refs` may be NULL; else up to `cap` spans are stored and counted in `len`. */
enum hark_cbor_fault hark_cbor_check(const uint8_t *data, size_t size, struct hark_span *refs,
				     uint32_t cap, uint32_t *len);

void hark_keyed(const uint8_t *key, const uint8_t *data, size_t size, uint8_t *out);

/* `size` bytes of BLAKE3 keyed output over a label, from byte `seek` on. */
void hark_keyed_xof(const uint8_t *key, const uint8_t *label, size_t label_size, uint64_t seek,
		    uint8_t *out, size_t size);

enum hark_frames_flag {
	HARK_FRAMES_STRICT = 1, /* check payloads and collect references */
	HARK_FRAMES_SPARSE = 2  /* redacted frames are allowed */
};

enum hark_frames_fault {
	HARK_FRAMES_OK = 0,
	HARK_FRAMES_HEAD,     /* ends inside a frame head */
	HARK_FRAMES_LENGTH,   /* a payload that is too long, or longer than what is left */
	HARK_FRAMES_COUNT,    /* more or fewer frames than announced */
	HARK_FRAMES_REDACTED, /* a redacted frame in a dense batch */
	HARK_FRAMES_CBOR,     /* `cbor` says why */
	HARK_FRAMES_LOCATOR,  /* the leaf does not start with its locator: this event was changed */
	HARK_FRAMES_MEMORY
};

/* The events section of a batch, and what hark_frames_hash makes of it. */
struct hark_frames {
	const uint8_t *data;
	uint64_t size;
	const uint8_t *salts;    /* count * 16 */
	const uint8_t *locators; /* count * 4, or NULL: not compared */
	uint64_t first_seq;
	uint32_t count;
	uint32_t flags;         /* enum hark_frames_flag */
	uint8_t *leaves;        /* out: count * 32 */
	struct hark_span *refs; /* out: room for refs_cap, may be NULL */
	uint32_t refs_cap;
	uint32_t refs_len; /* out */
	uint64_t kinds;    /* out: bit min(kind, 63) of every kind seen */
	uint32_t redacted; /* out: redacted frames */
	uint32_t bad;      /* out: index of the first event at fault */
	uint32_t cbor;     /* out: enum hark_cbor_fault of that event */
};

/* Leaves of all frames, in order; stops at the first fault. */
enum hark_frames_fault hark_frames_hash(struct hark_frames *frames, const uint8_t *payload_key,
					const uint8_t *leaf_key);

/* The peaks of a Merkle Mountain Range over `count` leaves, highest first. */
struct hark_mmr {
	uint64_t count;
	uint8_t peaks[2048]; /* HARK_MMR_PEAKS * HARK_HASH_SIZE */
};

/*
 * Append `n` leaves. Nodes of HARK_MMR_STORED_LEVEL and above are written to `nodes` in post order;
 * it needs room for n / 128 + 64 of them. Returns how many were written.
 */
uint64_t hark_mmr_append(struct hark_mmr *mmr, const uint8_t *leaves, uint64_t n,
			 const uint8_t *node_key, uint8_t *nodes);

/* Keyed hash of salt and chunk for each of `n` chunks that lie one after the other in `data`. */
int hark_chunks_commit(const uint8_t *data, const uint32_t *sizes, const uint8_t *salts, uint32_t n,
		       const uint8_t *key, uint8_t *out);

/* How bytes are cut into chunks: sizes in bytes, `bits` the binary logarithm of the average. */
struct hark_cut_rule {
	uint32_t min;
	uint32_t bits;
	uint32_t max;
};

/*
 * Content-defined cuts by a gear hash with a secret table of 256 words, normalised by two bits
 * around the average (FastCDC, USENIX ATC 2016, section 3). Writes ascending end offsets, at most
 * `cap`; returns how many. The last one is `size` unless there was no room.
 */
uint32_t hark_chunks_cut(const uint8_t *data, size_t size, const uint64_t *gear,
			 const struct hark_cut_rule *rule, uint32_t *ends, uint32_t cap);

/* Allocate file blocks for [from, from + size) without changing the file's size. 0 or -errno. */
int hark_reserve(int fd, uint64_t from, uint64_t size);

#endif
