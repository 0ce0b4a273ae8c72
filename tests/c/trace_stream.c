/* SPDX-License-Identifier: Apache-2.0 */
/* Streams by path: any cut of a stream is the stream, rows survive growth, the table is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "hark_stream.h"

static const uint8_t seed[HARK_SEED_BYTES] = {1, 2, 3};

static struct hark_streams new_streams(void)
{
	struct hark_streams s;
	struct hark_err err;

	hark_err_init(&err);
	assert_int_equal(hark_streams_init(&s, seed, &err), 0);
	return s;
}

static void test_any_cut_is_the_stream(void **state)
{
	struct hark_streams s = new_streams();
	const struct hark_draws *row = hark_streams_find(&s, 42);
	uint8_t whole[1000];
	uint8_t part[1000];
	size_t at;
	size_t n;

	(void)state;
	hark_streams_read(&s, row, 0, whole, sizeof(whole));
	for (n = 1; n < 200; n += 7) {
		for (at = 0; at + n <= sizeof(whole); at += n)
			hark_streams_read(&s, row, at, part + at, n);
		assert_memory_equal(part, whole, at);
	}
	hark_streams_fini(&s);
}

/* `blake3.blake3(b"hark/random/1" + (1 << 56 | 2).to_bytes(8, "big"), key=seed).digest(16, seek=5)`
 */
static void test_vector(void **state)
{
	static const uint8_t wanted[16] = {0x4c, 0xd4, 0x5b, 0xfa, 0x69, 0x1a, 0x08, 0xed,
					   0x70, 0xd2, 0x86, 0x95, 0xad, 0xf7, 0x95, 0x14};
	struct hark_streams s = new_streams();
	uint8_t got[16];

	(void)state;
	hark_streams_read(&s, hark_streams_find(&s, UINT64_C(1) << 56 | 2), 5, got, sizeof(got));
	assert_memory_equal(got, wanted, sizeof(got));
	hark_streams_fini(&s);
}

static void test_streams_differ(void **state)
{
	struct hark_streams s = new_streams();
	uint8_t a[32];
	uint8_t b[32];

	(void)state;
	hark_streams_read(&s, hark_streams_find(&s, 1), 0, a, sizeof(a));
	hark_streams_read(&s, hark_streams_find(&s, 2), 0, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	hark_streams_read(&s, hark_streams_find(&s, 0), 0, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	s.seed[31] ^= 1;
	hark_streams_read(&s, hark_streams_find(&s, 1), 0, b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	hark_streams_fini(&s);
}

/* All with the same low bits, which is the worst an agent could do. */
static void test_rows_survive_growth(void **state)
{
	struct hark_streams s = new_streams();
	uint64_t i;

	(void)state;
	for (i = 1; i < 5000; i++)
		hark_streams_find(&s, i << 40)->calls = i;
	for (i = 1; i < 5000; i++)
		assert_int_equal(hark_streams_find(&s, i << 40)->calls, i);
	assert_int_equal(s.n, 4999);
	hark_streams_fini(&s);
}

static void test_a_full_table_shares_the_rest(void **state)
{
	struct hark_streams s = new_streams();
	uint64_t i;

	(void)state;
	for (i = 1; i <= HARK_STREAMS_MAX; i++)
		hark_streams_find(&s, i)->calls++;
	assert_int_equal(s.cap, HARK_STREAMS_MAX);
	assert_int_equal(s.n, HARK_STREAMS_MAX / 4 * 3);
	assert_int_equal(s.rest.calls, HARK_STREAMS_MAX / 4);
	assert_ptr_equal(hark_streams_find(&s, HARK_STREAMS_MAX), &s.rest);
	assert_int_equal(hark_streams_find(&s, 1)->calls, 1);
	hark_streams_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_cut_is_the_stream),
		cmocka_unit_test(test_vector),
		cmocka_unit_test(test_streams_differ),
		cmocka_unit_test(test_rows_survive_growth),
		cmocka_unit_test(test_a_full_table_shares_the_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
