/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of compiled tables: `{u32 magic, u32 version, u32 count}`, then `count` items
 * `{u16 op, u16 flags, u32 len, payload[len]}`, native byte order, without padding. Pure: bytes in,
 * values out, no allocation. Views borrow from the buffer.
 */
#ifndef HARK_TLV_H
#define HARK_TLV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hark_err.h"

enum hark_tlv_result {
	HARK_TLV_ITEM = 0,
	HARK_TLV_END = 1, /* all items were read and no byte is left */
	HARK_TLV_BAD = 2
};

/* A cursor over one span of bytes. A read past the end sets .bad and yields zeros. */
struct hark_cur {
	const uint8_t *p;
	size_t left;
	bool bad;
};

struct hark_tlv {
	struct hark_cur cur;
	uint32_t version;
	uint32_t count; /* as the head says */
	uint32_t index; /* items read so far */
};

struct hark_tlv_item {
	uint16_t op;
	uint16_t flags;
	struct hark_cur body;
};

void hark_cur_init(struct hark_cur *cur, const void *buf, size_t len);
uint8_t hark_cur_u8(struct hark_cur *cur);
uint16_t hark_cur_u16(struct hark_cur *cur);
uint32_t hark_cur_u32(struct hark_cur *cur);
uint64_t hark_cur_u64(struct hark_cur *cur);
/* `len` raw bytes, borrowed; NULL (and .bad) when fewer are left. */
const uint8_t *hark_cur_bytes(struct hark_cur *cur, size_t len);
/* `{u32 len, bytes, 0}`: a text, borrowed; refused when a NUL lies inside. Never NULL. */
const char *hark_cur_str(struct hark_cur *cur);
/* Everything was read and nothing was missing. */
HARK_MUST_USE bool hark_cur_done(const struct hark_cur *cur);

HARK_MUST_USE int hark_tlv_init(struct hark_tlv *tlv, const void *buf, size_t len, uint32_t magic,
				uint32_t version, struct hark_err *err);
HARK_MUST_USE enum hark_tlv_result hark_tlv_next(struct hark_tlv *tlv, struct hark_tlv_item *item);

#endif
