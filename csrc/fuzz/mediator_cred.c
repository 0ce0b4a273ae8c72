/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real values in a stream: any split gives the same output, no real value survives, and without one
 * the bytes are unchanged. A placeholder is found wherever it is split.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hark_cred.h"

static char real_a[] = "aab";
static char real_b[] = "aabaabX";
static char hold_a[] = "<A>";
static char hold_b[] = "<the other>";
static struct hark_cred creds[] = {
	{.real = real_a, .real_len = 3, .placeholder = hold_a, .placeholder_len = 3},
	{.real = real_b, .real_len = 7, .placeholder = hold_b, .placeholder_len = 11},
};
static const struct hark_form both[] = {{real_a, 3, hold_a, 3}, {real_b, 7, hold_b, 11}};

static void feed(struct hark_scan *scan, const uint8_t *p, size_t n, bool final,
		 struct hark_buf *out)
{
	enum hark_scan_result r = hark_scan_feed(scan, p, n, final, out);

	if (r == HARK_SCAN_FAIL || (r == HARK_SCAN_SAME && hark_buf_put(out, p, n)))
		abort();
}

static uint64_t scan_all(const uint8_t *p, size_t n, const uint8_t *sizes, size_t nsizes,
			 struct hark_buf *out)
{
	struct hark_scan scan;
	size_t turn = 0;
	uint64_t hits;

	hark_scan_init(&scan, both, 2);
	while (nsizes && n) {
		/* Empty pieces too, but not for ever. */
		size_t part = sizes[turn % nsizes] % 9 + (turn % nsizes == 0);

		part = part < n ? part : n;
		feed(&scan, p, part, false, out);
		p += part;
		n -= part;
		turn++;
	}
	feed(&scan, p, n, true, out);
	hits = scan.hits;
	hark_scan_fini(&scan);
	return hits;
}

static void watch_all(const uint8_t *p, size_t n, const uint8_t *sizes)
{
	struct hark_policy policy = {.creds = creds, .ncreds = 2};
	struct hark_watch watch;
	bool there = memmem(p, n, hold_a, 3) || memmem(p, n, hold_b, 11);
	bool seen = false;
	size_t turn = 0;

	hark_watch_init(&watch, &policy);
	while (n) {
		size_t part = sizes[turn++ % 4] % 9 + 1;

		part = part < n ? part : n;
		seen |= hark_watch_feed(&watch, p, part) != NULL;
		p += part;
		n -= part;
	}
	hark_watch_fini(&watch);
	if (there != seen)
		abort();
}

/* A value and a target on their way out, with every place bound: no placeholder stays in what was
 * replaced, and base64 that is canonical stays so. */
static void way_out(const uint8_t *p, size_t n)
{
	static char name[] = "a";
	static char *names[] = {name};
	static uint32_t hosts[] = {0};
	struct hark_cred cred = creds[1];
	struct hark_policy policy = {.creds = &cred, .ncreds = 1};
	struct hark_host host = {.name = name, .has_creds = true};
	struct hark_cred_report report;
	struct hark_buf out;

	cred.headers = cred.queries = names;
	cred.nheaders = cred.nqueries = cred.nhosts = 1;
	cred.hosts = hosts;
	hark_buf_init(&out, 1 << 20);
	if (hark_cred_value(&policy, &host, "GET", (const uint8_t *)name, 1, p, n, &out, &report))
		abort();
	if (!report.elsewhere && memmem(hark_buf_data(&out), hark_buf_len(&out), hold_b, 11))
		abort();
	hark_buf_clear(&out);
	if (hark_cred_target(&policy, &host, "GET", p, n, &out, &report))
		abort();
	if (!report.elsewhere && memmem(hark_buf_data(&out), hark_buf_len(&out), hold_b, 11))
		abort();
	hark_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hark_buf whole;
	struct hark_buf split;
	uint64_t hits;

	if (size < 4 || size > 4096)
		return 0;
	hark_buf_init(&whole, 1 << 20);
	hark_buf_init(&split, 1 << 20);
	hits = scan_all(data + 4, size - 4, NULL, 0, &whole);
	if (scan_all(data + 4, size - 4, data, 4, &split) != hits ||
	    hark_buf_len(&whole) != hark_buf_len(&split) ||
	    memcmp(hark_buf_data(&whole), hark_buf_data(&split), hark_buf_len(&whole)) != 0)
		abort();
	if (memmem(hark_buf_data(&whole), hark_buf_len(&whole), real_a, 3))
		abort();
	if (!hits && (hark_buf_len(&whole) != size - 4 ||
		      memcmp(hark_buf_data(&whole), data + 4, size - 4) != 0))
		abort();
	watch_all(data + 4, size - 4, data);
	way_out(data + 4, size - 4);
	hark_buf_fini(&whole);
	hark_buf_fini(&split);
	return 0;
}
