/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_tlv.h"

#include <errno.h>
#include <string.h>

void hark_cur_init(struct hark_cur *cur, const void *buf, size_t len)
{
	cur->p = buf;
	cur->left = len;
	cur->bad = false;
}

const uint8_t *hark_cur_bytes(struct hark_cur *cur, size_t len)
{
	const uint8_t *p = cur->p;

	if (cur->bad || len > cur->left) {
		cur->bad = true;
		return NULL;
	}
	cur->p += len;
	cur->left -= len;
	return p;
}

static void take(struct hark_cur *cur, void *to, size_t len)
{
	const uint8_t *p = hark_cur_bytes(cur, len);

	if (p)
		memcpy(to, p, len);
	else
		memset(to, 0, len);
}

uint8_t hark_cur_u8(struct hark_cur *cur)
{
	uint8_t v;

	take(cur, &v, sizeof(v));
	return v;
}

uint16_t hark_cur_u16(struct hark_cur *cur)
{
	uint16_t v;

	take(cur, &v, sizeof(v));
	return v;
}

uint32_t hark_cur_u32(struct hark_cur *cur)
{
	uint32_t v;

	take(cur, &v, sizeof(v));
	return v;
}

uint64_t hark_cur_u64(struct hark_cur *cur)
{
	uint64_t v;

	take(cur, &v, sizeof(v));
	return v;
}

const char *hark_cur_str(struct hark_cur *cur)
{
	uint32_t len = hark_cur_u32(cur);
	const uint8_t *p = len == UINT32_MAX ? NULL : hark_cur_bytes(cur, (size_t)len + 1);

	if (!p || p[len] != 0 || memchr(p, 0, len)) {
		cur->bad = true;
		return "";
	}
	return (const char *)p;
}

bool hark_cur_done(const struct hark_cur *cur)
{
	return !cur->bad && cur->left == 0;
}

int hark_tlv_init(struct hark_tlv *tlv, const void *buf, size_t len, uint32_t magic,
		  uint32_t version, struct hark_err *err)
{
	uint32_t got;

	hark_cur_init(&tlv->cur, buf, len);
	tlv->index = 0;
	got = hark_cur_u32(&tlv->cur);
	tlv->version = hark_cur_u32(&tlv->cur);
	tlv->count = hark_cur_u32(&tlv->cur);
	if (tlv->cur.bad || got != magic)
		return hark_err_set(err, EPROTO, "compiled table: wrong magic");
	if (tlv->version != version)
		return hark_err_set(err, EPROTO, "compiled table: version %u, want %u",
				    tlv->version, version);
	return 0;
}

enum hark_tlv_result hark_tlv_next(struct hark_tlv *tlv, struct hark_tlv_item *item)
{
	uint32_t len;
	const uint8_t *p;

	if (tlv->index == tlv->count)
		return hark_cur_done(&tlv->cur) ? HARK_TLV_END : HARK_TLV_BAD;
	item->op = hark_cur_u16(&tlv->cur);
	item->flags = hark_cur_u16(&tlv->cur);
	len = hark_cur_u32(&tlv->cur);
	p = hark_cur_bytes(&tlv->cur, len);
	if (!p)
		return HARK_TLV_BAD;
	hark_cur_init(&item->body, p, len);
	tlv->index++;
	return HARK_TLV_ITEM;
}
