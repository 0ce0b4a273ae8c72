/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bundle's C core on buffers of exactly the right size, under sanitizers: a byte read too far
 * shows. What the values must be is checked from Python against another implementation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hark_bundle.h"

static const uint8_t KEY[HARK_HASH_SIZE] = {7};

struct row {
	const char *bytes;
	size_t size;
	enum hark_cbor_fault fault;
};

#define ROW(text, fault) {text, sizeof(text) - 1, fault}

static const struct row ROWS[] = {
	ROW("\xa0", HARK_CBOR_OK),
	ROW("\xa1\x01\x43"
	    "abc",
	    HARK_CBOR_OK),
	ROW("", HARK_CBOR_SHORT),
	ROW("\xa1\x01", HARK_CBOR_SHORT),
	ROW("\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", HARK_CBOR_SHORT),
	ROW("\xbb\x7f\xff\xff\xff\xff\xff\xff\xff", HARK_CBOR_SHORT),
	ROW("\x18\x01", HARK_CBOR_LONG),
	ROW("\x9f\xff", HARK_CBOR_HEAD),
	ROW("\x3b\xff\xff\xff\xff\xff\xff\xff\xff", HARK_CBOR_RANGE),
	ROW("\x62\xc0\x80", HARK_CBOR_UTF8),
	ROW("\x61\xe2", HARK_CBOR_UTF8),
	ROW("\xa1\x20\x01", HARK_CBOR_KEY_TYPE),
	ROW("\xa2\x01\x01\x61\x61\x01", HARK_CBOR_KEY_TYPE),
	ROW("\xa2\x02\x01\x01\x01", HARK_CBOR_KEY_ORDER),
	ROW("\xa2\x01\x01\x01\x01", HARK_CBOR_KEY_ORDER),
	ROW("\xc1\x00", HARK_CBOR_TAG),
	ROW("\xd9\x9c\x40\x80", HARK_CBOR_REFERENCE),
	ROW("\xd9\x9c\x40\x83\x00\x40\x80", HARK_CBOR_REFERENCE),
	ROW("\xf9\x3c\x00", HARK_CBOR_VALUE),
	ROW("\xa0\x00", HARK_CBOR_TRAILING),
};

static uint8_t *exactly(const void *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, size);
	return copy;
}

static void test_cbor_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ROWS) / sizeof(*ROWS); i++) {
		uint8_t *data = exactly(ROWS[i].bytes, ROWS[i].size);

		assert_int_equal(hark_cbor_check(data, ROWS[i].size, NULL, 0, NULL), ROWS[i].fault);
		free(data);
	}
}

static void test_cbor_depth(void **state)
{
	uint8_t deep[HARK_CBOR_DEPTH_MAX + 2];

	(void)state;
	memset(deep, 0x81, sizeof(deep));
	deep[HARK_CBOR_DEPTH_MAX] = 0;
	assert_int_equal(hark_cbor_check(deep, HARK_CBOR_DEPTH_MAX + 1, NULL, 0, NULL),
			 HARK_CBOR_OK);
	deep[HARK_CBOR_DEPTH_MAX] = 0x81;
	deep[HARK_CBOR_DEPTH_MAX + 1] = 0;
	assert_int_equal(hark_cbor_check(deep, sizeof(deep), NULL, 0, NULL), HARK_CBOR_DEPTH);
}

static void test_references_need_room(void **state)
{
	uint8_t item[41] = {0xd9, 0x9c, 0x40, 0x83, 0x00, 0x58, 0x20};
	uint8_t *two = malloc(1 + 2 * sizeof(item));
	struct hark_span spans[2];
	uint32_t len = 0;

	(void)state;
	assert_non_null(two);
	item[39] = 0x80;
	two[0] = 0x82;
	memcpy(two + 1, item, 40);
	memcpy(two + 41, item, 40);
	assert_int_equal(hark_cbor_check(two, 81, spans, 2, &len), HARK_CBOR_OK);
	assert_int_equal(len, 2);
	assert_int_equal(spans[1].start, 44);
	assert_int_equal(spans[1].end, 81);
	len = 0;
	assert_int_equal(hark_cbor_check(two, 81, spans, 1, &len), HARK_CBOR_REFS);
	free(two);
}

static void test_frames_cut_anywhere(void **state)
{
	uint8_t section[2 * (HARK_FRAME_HEAD + 2)] = {0};
	uint8_t salts[2 * HARK_SALT_SIZE] = {0};
	uint8_t leaves[2 * HARK_HASH_SIZE];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		section[16 * i + 3] = 2;
		section[16 * i + 14] = 0x81;
	}
	for (size_t size = 0; size <= sizeof(section); size++) {
		uint8_t *data = exactly(section, size);
		struct hark_frames frames = {.data = data,
					     .size = size,
					     .salts = salts,
					     .count = 2,
					     .flags = HARK_FRAMES_STRICT,
					     .leaves = leaves};
		enum hark_frames_fault fault = hark_frames_hash(&frames, KEY, KEY);

		if (size == sizeof(section))
			assert_int_equal(fault, HARK_FRAMES_OK);
		else
			assert_int_not_equal(fault, HARK_FRAMES_OK);
		free(data);
	}
}

static void test_tree_writes_only_its_nodes(void **state)
{
	enum { LEAVES = 1000 };
	uint8_t *leaves = calloc(LEAVES, HARK_HASH_SIZE);
	uint8_t *nodes = malloc((size_t)HARK_HASH_SIZE * (LEAVES / 128 + 64));
	struct hark_mmr *mmr = calloc(1, sizeof(*mmr));

	(void)state;
	assert_non_null(leaves);
	assert_non_null(nodes);
	assert_non_null(mmr);
	/* 3 nodes of level 8 and one of level 9 */
	assert_int_equal(hark_mmr_append(mmr, leaves, LEAVES, KEY, nodes), 4);
	assert_int_equal(mmr->count, LEAVES);
	free(leaves);
	free(nodes);
	free(mmr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cbor_rows),
		cmocka_unit_test(test_cbor_depth),
		cmocka_unit_test(test_references_need_room),
		cmocka_unit_test(test_frames_cut_anywhere),
		cmocka_unit_test(test_tree_writes_only_its_nodes),
	};

	return cmocka_run_group_tests_name("bundle core", tests, NULL, NULL);
}
