/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CBOR profile of docs/spec/bundle.md ("CBOR profile"): one encoding per value, so that equal
 * bytes and equal events are the same thing.
 */
#include <stdbool.h>
#include <string.h>

#include "hark_bundle.h"
#include "hark_cbor.h"

enum {
	MAJOR_UINT = 0,
	MAJOR_NEGATIVE = 1,
	MAJOR_BYTES = 2,
	MAJOR_TEXT = 3,
	MAJOR_ARRAY = 4,
	MAJOR_MAP = 5,
	MAJOR_TAG = 6,
	TAG_BLOB = 40000,
	SIMPLE_FALSE = 20,
	SIMPLE_NULL = 22
};

struct reader {
	const uint8_t *base;
	const uint8_t *p;
	const uint8_t *end;
	struct hark_span *refs;
	uint32_t refs_cap;
	uint32_t refs_len;
	uint32_t items;
	enum hark_cbor_fault fault;
};

struct item {
	uint8_t major;
	uint8_t info;
	uint64_t value;
};

static bool fail(struct reader *r, enum hark_cbor_fault fault)
{
	if (r->fault == HARK_CBOR_OK)
		r->fault = fault;
	return false;
}

static size_t left(const struct reader *r)
{
	return (size_t)(r->end - r->p);
}

/* The number behind a head byte, in its shortest form. */
static bool read_number(struct reader *r, struct item *item)
{
	static const uint64_t shortest[4] = {24, 256, 65536, 4294967296};
	uint8_t step = (uint8_t)(item->info - 24);
	size_t size;

	if (step > 3)
		return fail(r, HARK_CBOR_HEAD);
	size = (size_t)1 << step;
	if (left(r) < size)
		return fail(r, HARK_CBOR_SHORT);
	item->value = 0;
	for (size_t i = 0; i < size; i++)
		item->value = item->value << 8 | r->p[i];
	r->p += size;
	if (item->value < shortest[step])
		return fail(r, HARK_CBOR_LONG);
	return true;
}

static bool read_head(struct reader *r, struct item *item)
{
	if (r->p == r->end)
		return fail(r, HARK_CBOR_SHORT);
	if (r->items == HARK_CBOR_ITEMS_MAX)
		return fail(r, HARK_CBOR_ITEMS);
	r->items++;
	item->major = *r->p >> 5;
	item->info = *r->p & 31;
	item->value = item->info;
	r->p++;
	if (item->major == 7) /* checked whole: a float's bytes are no number */
		return (item->info >= SIMPLE_FALSE && item->info <= SIMPLE_NULL) ||
		       fail(r, HARK_CBOR_VALUE);
	return item->info < 24 || read_number(r, item);
}

/* Length of the UTF-8 sequence at `p`, 0 when it is not one (RFC 3629, section 4). */
static size_t utf8_sequence(const uint8_t *p, size_t n)
{
	uint8_t lead = p[0];
	uint8_t low = 0x80;
	uint8_t high = 0xbf;
	size_t size;

	if (lead >= 0xc2 && lead <= 0xdf)
		size = 2;
	else if ((lead & 0xf0) == 0xe0)
		size = 3;
	else if (lead >= 0xf0 && lead <= 0xf4)
		size = 4;
	else
		return 0;
	if (lead == 0xe0)
		low = 0xa0; /* overlong */
	else if (lead == 0xed)
		high = 0x9f; /* surrogates */
	else if (lead == 0xf0)
		low = 0x90;
	else if (lead == 0xf4)
		high = 0x8f; /* above U+10FFFF */
	if (n < size || p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < size; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return size;
}

static bool utf8_valid(const uint8_t *p, size_t n)
{
	while (n > 0) {
		uint64_t word;
		size_t step = 1;

		if (n >= 8) {
			memcpy(&word, p, 8);
			if (!(word & 0x8080808080808080U)) {
				p += 8;
				n -= 8;
				continue;
			}
		}
		if (*p >= 0x80)
			step = utf8_sequence(p, n);
		if (step == 0)
			return false;
		p += step;
		n -= step;
	}
	return true;
}

static bool skip_string(struct reader *r, const struct item *item)
{
	if (item->value > left(r))
		return fail(r, HARK_CBOR_SHORT);
	if (item->major == MAJOR_TEXT && !utf8_valid(r->p, item->value))
		return fail(r, HARK_CBOR_UTF8);
	r->p += item->value;
	return true;
}

static bool read_numbers(struct reader *r, uint64_t count)
{
	struct item item = {0};

	while (count-- > 0) {
		if (!read_head(r, &item))
			return false;
		if (item.major != MAJOR_UINT)
			return fail(r, HARK_CBOR_REFERENCE);
	}
	return true;
}

/* [length, root, [first, count, first, count …]] behind tag 40000. */
static bool check_reference(struct reader *r, uint32_t event)
{
	uint32_t start = (uint32_t)(r->p - r->base);
	struct item item = {0};

	if (!read_head(r, &item))
		return false;
	if (item.major != MAJOR_ARRAY || item.value != 3)
		return fail(r, HARK_CBOR_REFERENCE);
	if (!read_numbers(r, 1) || !read_head(r, &item))
		return false;
	if (item.major != MAJOR_BYTES || item.value != HARK_HASH_SIZE)
		return fail(r, HARK_CBOR_REFERENCE);
	if (!skip_string(r, &item) || !read_head(r, &item))
		return false;
	if (item.major != MAJOR_ARRAY || item.value % 2 != 0)
		return fail(r, HARK_CBOR_REFERENCE);
	if (!read_numbers(r, item.value))
		return false;
	if (!r->refs)
		return true;
	if (r->refs_len == r->refs_cap)
		return fail(r, HARK_CBOR_REFS);
	r->refs[r->refs_len++] = (struct hark_span){event, start, (uint32_t)(r->p - r->base)};
	return true;
}

static bool check_item(struct reader *r, uint32_t event, int depth);

/* A key, and whether it comes after the one before it, which is `previous[0, size)`. */
static bool check_key(struct reader *r, const uint8_t **previous, size_t *size)
{
	const uint8_t *key = r->p;
	struct item item = {0};
	size_t n;
	size_t common;
	int order;

	if (!read_head(r, &item))
		return false;
	if (item.major != MAJOR_UINT && item.major != MAJOR_TEXT)
		return fail(r, HARK_CBOR_KEY_TYPE);
	if (item.major == MAJOR_TEXT && !skip_string(r, &item))
		return false;
	n = (size_t)(r->p - key);
	if (*previous) {
		if (**previous >> 5 != item.major)
			return fail(r, HARK_CBOR_KEY_TYPE);
		common = n < *size ? n : *size;
		order = memcmp(*previous, key, common);
		if (order > 0 || (order == 0 && *size >= n))
			return fail(r, HARK_CBOR_KEY_ORDER);
	}
	*previous = key;
	*size = n;
	return true;
}

static bool check_map(struct reader *r, uint32_t event, uint64_t count, int depth)
{
	const uint8_t *previous = NULL;
	size_t size = 0;

	while (count-- > 0)
		if (!check_key(r, &previous, &size) || !check_item(r, event, depth))
			return false;
	return true;
}

static bool check_array(struct reader *r, uint32_t event, uint64_t count, int depth)
{
	while (count-- > 0)
		if (!check_item(r, event, depth))
			return false;
	return true;
}

/* `depth` is how many containers may still be opened. */
static bool check_item(struct reader *r, uint32_t event, int depth)
{
	struct item item = {0};

	if (!read_head(r, &item))
		return false;
	switch (item.major) {
	case MAJOR_UINT:
		return true;
	case MAJOR_NEGATIVE:
		return item.value >> 63 == 0 || fail(r, HARK_CBOR_RANGE);
	case MAJOR_BYTES:
	case MAJOR_TEXT:
		return skip_string(r, &item);
	case MAJOR_ARRAY:
	case MAJOR_MAP:
		if (depth == 0)
			return fail(r, HARK_CBOR_DEPTH);
		if (item.major == MAJOR_ARRAY)
			return check_array(r, event, item.value, depth - 1);
		return check_map(r, event, item.value, depth - 1);
	case MAJOR_TAG:
		if (item.value != TAG_BLOB)
			return fail(r, HARK_CBOR_TAG);
		return check_reference(r, event);
	default:
		return true; /* false, true, null: read_head took nothing else */
	}
}

enum hark_cbor_fault hark_cbor_span(const uint8_t *base, const uint8_t *data, size_t size,
				    uint32_t event, struct hark_span *refs, uint32_t cap,
				    uint32_t *len)
{
	struct reader r = {.base = base,
			   .p = data,
			   .end = data + size,
			   .refs = refs,
			   .refs_cap = cap,
			   .refs_len = *len};

	if (check_item(&r, event, HARK_CBOR_DEPTH_MAX) && r.p != r.end)
		(void)fail(&r, HARK_CBOR_TRAILING);
	*len = r.refs_len;
	return r.fault;
}

enum hark_cbor_fault hark_cbor_check(const uint8_t *data, size_t size, struct hark_span *refs,
				     uint32_t cap, uint32_t *len)
{
	uint32_t none = 0;

	return hark_cbor_span(data, data, size, 0, refs, cap, len ? len : &none);
}
