/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the frames of a batch to its leaves. Frames are parsed and checked in order; then messages
 * with the same number of blocks are hashed side by side, whatever their place in the batch.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "blake3.h"
#include "hark_bundle.h"
#include "hark_cbor.h"
#include "hark_hash.h"

enum {
	BLOCK = 64,
	BUCKETS = HARK_HASH_SHORT_MAX / BLOCK, /* by number of full blocks before the last */
	LONG = BUCKETS,                        /* bucket of payloads over one BLAKE3 chunk */
	STORED = BUCKETS + 1,                  /* redacted: the commitment stands in the frame */
	LEAF_SIZE = 54
};

/* One parsed frame. */
struct frame {
	uint32_t at; /* of its head, in the section */
	uint32_t length;
	uint16_t kind; /* as stored, with the redacted bit */
	uint16_t bucket;
};

struct work {
	struct hark_frames *in;
	struct hark_hash_key payload;
	struct hark_hash_key leaf;
	const uint8_t *payload_key;
	struct frame *frames;
	uint32_t *order; /* frame numbers, by bucket */
};

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 7; i >= 0; i--, v >>= 8)
		p[i] = (uint8_t)v;
}

static uint32_t stored_size(const struct frame *f)
{
	return f->kind & HARK_FRAME_REDACTED ? HARK_HASH_SIZE : f->length;
}

static uint16_t bucket_of(const struct frame *f)
{
	if (f->kind & HARK_FRAME_REDACTED)
		return STORED;
	if (f->length > HARK_HASH_SHORT_MAX - HARK_SALT_SIZE)
		return LONG;
	return (uint16_t)((f->length + HARK_SALT_SIZE - 1) / BLOCK);
}

static enum hark_frames_fault check_payload(struct work *w, const struct frame *f, uint32_t index)
{
	struct hark_frames *in = w->in;

	if (!(in->flags & HARK_FRAMES_STRICT) || f->kind & HARK_FRAME_REDACTED)
		return HARK_FRAMES_OK;
	in->cbor = hark_cbor_span(in->data, in->data + f->at + HARK_FRAME_HEAD, f->length, index,
				  in->refs, in->refs_cap, &in->refs_len);
	return in->cbor == HARK_CBOR_OK ? HARK_FRAMES_OK : HARK_FRAMES_CBOR;
}

/* Parse the frame at `at`. */
static enum hark_frames_fault read_frame(struct work *w, uint64_t at, struct frame *f)
{
	struct hark_frames *in = w->in;
	const uint8_t *p = in->data + at;

	if (in->size - at < HARK_FRAME_HEAD)
		return HARK_FRAMES_HEAD;
	f->at = (uint32_t)at;
	f->length = get32(p);
	f->kind = (uint16_t)(p[4] << 8 | p[5]);
	if (f->length > HARK_PAYLOAD_MAX || stored_size(f) > in->size - at - HARK_FRAME_HEAD)
		return HARK_FRAMES_LENGTH;
	if (f->kind & HARK_FRAME_REDACTED && !(in->flags & HARK_FRAMES_SPARSE))
		return HARK_FRAMES_REDACTED;
	f->bucket = bucket_of(f);
	return HARK_FRAMES_OK;
}

static void note_kind(struct hark_frames *in, uint16_t stored)
{
	uint16_t kind = stored & (HARK_FRAME_REDACTED - 1);

	in->kinds |= (uint64_t)1 << (kind < 63 ? kind : 63);
	if (stored & HARK_FRAME_REDACTED)
		in->redacted++;
}

static enum hark_frames_fault parse(struct work *w)
{
	struct hark_frames *in = w->in;
	enum hark_frames_fault fault;
	uint64_t at = 0;

	for (in->bad = 0; in->bad < in->count; in->bad++) {
		struct frame *f = &w->frames[in->bad];

		if (at == in->size)
			return HARK_FRAMES_COUNT;
		fault = read_frame(w, at, f);
		if (fault == HARK_FRAMES_OK)
			fault = check_payload(w, f, in->bad);
		if (fault != HARK_FRAMES_OK)
			return fault;
		note_kind(in, f->kind);
		at += HARK_FRAME_HEAD + stored_size(f);
	}
	return at == in->size ? HARK_FRAMES_OK : HARK_FRAMES_COUNT;
}

/* Counting sort of the frame numbers by bucket; `ends[b]` is where bucket b ends. */
static void sort(struct work *w, uint32_t ends[STORED + 1])
{
	uint32_t starts[STORED + 1];
	uint32_t sum = 0;

	memset(ends, 0, sizeof(*ends) * (STORED + 1));
	for (uint32_t i = 0; i < w->in->count; i++)
		ends[w->frames[i].bucket]++;
	for (int b = 0; b <= STORED; b++) {
		starts[b] = sum;
		sum += ends[b];
		ends[b] = sum;
	}
	for (uint32_t i = 0; i < w->in->count; i++)
		w->order[starts[w->frames[i].bucket]++] = i;
}

static const uint8_t *payload_of(const struct work *w, uint32_t i)
{
	return w->in->data + w->frames[i].at + HARK_FRAME_HEAD;
}

/* Commitments of up to HARK_HASH_LANES frames of one bucket, written where their leaves will be. */
static void commit_lanes(const struct work *w, const uint32_t *order, size_t n, size_t full)
{
	uint8_t scratch[HARK_HASH_LANES][HARK_HASH_SHORT_MAX];
	const uint8_t *in[HARK_HASH_LANES];
	uint8_t *out[HARK_HASH_LANES];
	uint32_t sizes[HARK_HASH_LANES];

	for (size_t i = 0; i < n; i++) {
		uint32_t f = order[i];

		memcpy(scratch[i], w->in->salts + (size_t)HARK_SALT_SIZE * f, HARK_SALT_SIZE);
		memcpy(scratch[i] + HARK_SALT_SIZE, payload_of(w, f), w->frames[f].length);
		in[i] = scratch[i];
		sizes[i] = HARK_SALT_SIZE + w->frames[f].length;
		out[i] = w->in->leaves + (size_t)HARK_HASH_SIZE * f;
	}
	hark_hash_lanes(&w->payload, in, sizes, n, full, out);
}

static void commit_long(const struct work *w, uint32_t f)
{
	blake3_hasher hasher;

	blake3_hasher_init_keyed(&hasher, w->payload_key);
	blake3_hasher_update(&hasher, w->in->salts + (size_t)HARK_SALT_SIZE * f, HARK_SALT_SIZE);
	blake3_hasher_update(&hasher, payload_of(w, f), w->frames[f].length);
	blake3_hasher_finalize(&hasher, w->in->leaves + (size_t)HARK_HASH_SIZE * f, HARK_HASH_SIZE);
}

static void commit_all(struct work *w)
{
	uint32_t ends[STORED + 1];
	uint32_t i = 0;

	sort(w, ends);
	for (size_t b = 0; b < BUCKETS; b++)
		while (i < ends[b]) {
			size_t n = ends[b] - i;

			n = n < HARK_HASH_LANES ? n : HARK_HASH_LANES;
			commit_lanes(w, w->order + i, n, b);
			i += (uint32_t)n;
		}
	for (; i < ends[LONG]; i++)
		commit_long(w, w->order[i]);
	for (; i < ends[STORED]; i++)
		memcpy(w->in->leaves + (size_t)HARK_HASH_SIZE * w->order[i],
		       payload_of(w, w->order[i]), HARK_HASH_SIZE);
}

/* Turn the commitments in `leaves` into leaves: seq, time, kind, length, commitment. */
static enum hark_frames_fault make_leaves(struct work *w)
{
	struct hark_frames *in = w->in;

	for (in->bad = 0; in->bad < in->count; in->bad++) {
		const uint8_t *head = in->data + w->frames[in->bad].at;
		uint8_t *leaf = in->leaves + (size_t)HARK_HASH_SIZE * in->bad;
		uint8_t block[BLOCK] = {0};

		put64(block, in->first_seq + in->bad);
		memcpy(block + 8, head + 6, 8);
		memcpy(block + 16, head + 4, 2);
		block[16] &= 0x7f; /* a leaf does not know whether its payload is still there */
		memcpy(block + 18, head, 4);
		memcpy(block + 22, leaf, HARK_HASH_SIZE);
		hark_hash_block(&w->leaf, block, LEAF_SIZE, leaf);
		if (in->locators && memcmp(leaf, in->locators + (size_t)HARK_LOCATOR_SIZE * in->bad,
					   HARK_LOCATOR_SIZE) != 0)
			return HARK_FRAMES_LOCATOR;
	}
	return HARK_FRAMES_OK;
}

static enum hark_frames_fault run(struct work *w)
{
	enum hark_frames_fault fault = parse(w);

	if (fault != HARK_FRAMES_OK)
		return fault;
	commit_all(w);
	return make_leaves(w);
}

enum hark_frames_fault hark_frames_hash(struct hark_frames *frames, const uint8_t *payload_key,
					const uint8_t *leaf_key)
{
	struct work w = {.in = frames, .payload_key = payload_key};
	enum hark_frames_fault fault = HARK_FRAMES_MEMORY;

	frames->refs_len = 0;
	frames->kinds = 0;
	frames->redacted = 0;
	frames->bad = 0;
	frames->cbor = HARK_CBOR_OK;
	if (frames->size > UINT32_MAX)
		return HARK_FRAMES_LENGTH;
	hark_hash_key_init(&w.payload, payload_key);
	hark_hash_key_init(&w.leaf, leaf_key);
	w.frames = calloc((size_t)frames->count + 1, sizeof(*w.frames));
	w.order = calloc((size_t)frames->count + 1, sizeof(*w.order));
	if (w.frames && w.order)
		fault = run(&w);
	free(w.frames);
	free(w.order);
	return fault;
}
