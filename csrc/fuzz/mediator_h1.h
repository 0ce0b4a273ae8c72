/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the two HTTP/1 fuzzers: parse whole and in pieces, and compare what was told; rebuild
 * each head, and parse what was rebuilt: it must say the same.
 */
#ifndef MEDIATOR_H1_H
#define MEDIATOR_H1_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hark_check.h"
#include "hark_h1.h"
#include "hark_rebuild.h"

struct told {
	struct hark_h1 *h1;
	uint64_t hash;
	uint64_t body;
	unsigned heads;
	unsigned ends;
	bool rebuild;
};

static void mix(struct told *told, const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n--)
		told->hash = (told->hash ^ *b++) * 1099511628211U;
}

static void on_note(void *ctx, uint32_t secret, const uint8_t *name, size_t n)
{
	(void)ctx;
	(void)secret;
	(void)name;
	(void)n;
}

static int quiet_head(void *ctx, const struct hark_head *head)
{
	struct told *told = ctx;

	told->heads++;
	mix(told, hark_buf_data(&head->raw), hark_buf_len(&head->raw));
	return 0;
}

static int quiet_body(void *ctx, const uint8_t *p, size_t n)
{
	struct told *told = ctx;

	told->body += n;
	mix(told, p, n);
	return 0;
}

static int quiet_chunk(void *ctx)
{
	(void)ctx;
	return 0;
}

static int quiet_end(void *ctx)
{
	struct told *told = ctx;

	told->ends++;
	mix(told, hark_buf_data(&told->h1->trailers), hark_buf_len(&told->h1->trailers));
	return 0;
}

static const struct hark_h1_sink quiet = {quiet_head, quiet_body, quiet_chunk, quiet_end};

/* What hark wrote must be one head to every parser: no more fields, the same framing. */
static void parse_again(const struct hark_buf *out, bool response, const struct hark_head *was,
			bool framing)
{
	struct hark_h1 h1;
	struct told told = {.h1 = &h1};
	size_t used;

	hark_h1_init(&h1, response, &quiet, &told);
	h1.max_fields += HARK_H1_OWN_FIELDS; /* a peer's head may have been full already */
	h1.head.raw.max = HARK_H1_REBUILT;
	if (hark_h1_feed(&h1, hark_buf_data(out), hark_buf_len(out), &used) != HARK_H1_OK ||
	    used != hark_buf_len(out) || told.heads != 1)
		abort();
	if (framing && (h1.head.chunked != was->chunked ||
			(was->has_length && !was->chunked && h1.head.length != was->length)))
		abort();
	hark_h1_fini(&h1);
}

static void on_substituted(void *ctx, uint32_t secret, const uint8_t *name, size_t n, bool basic)
{
	(void)basic;
	on_note(ctx, secret, name, n);
}

static void on_range(void *ctx)
{
	(void)ctx;
}

static void rebuild_request(const struct hark_head *head)
{
	static struct hark_policy policy;
	static struct hark_host host;
	struct hark_rebuild_notes notes = {on_substituted, on_note, on_range, NULL};
	struct hark_target target;
	const char *detail;
	struct hark_buf out;

	if (hark_check_request(head, &target, &detail) != HARK_REASON_COMPLETE)
		return;
	hark_buf_init(&out, HARK_H1_REBUILT);
	if (hark_rebuild_request(head, &target, &policy, &host, &notes, &out))
		abort();
	parse_again(&out, false, head, true);
	hark_buf_fini(&out);
}

static void rebuild_response(const struct hark_head *head)
{
	struct hark_response_plan plan = {.framing = HARK_FRAMING_CHUNKED, .close = true};
	struct hark_buf out;
	uint64_t reflected = 0;

	if (head->status < 200 || head->status == 204 || head->status == 304)
		return;
	hark_buf_init(&out, HARK_H1_REBUILT);
	if (hark_rebuild_response(head, &plan, NULL, 0, &reflected, &out))
		abort();
	parse_again(&out, true, head, false);
	hark_buf_fini(&out);
}

static int loud_head(void *ctx, const struct hark_head *head)
{
	struct told *told = ctx;

	if (told->h1->parser.type == HTTP_RESPONSE)
		rebuild_response(head);
	else
		rebuild_request(head);
	return quiet_head(ctx, head);
}

static const struct hark_h1_sink loud = {loud_head, quiet_body, quiet_chunk, quiet_end};

/* All bytes, in pieces of these sizes (0: all at once). */
static struct told run(const uint8_t *p, size_t n, bool response, const uint8_t *sizes,
		       size_t nsizes)
{
	struct hark_h1 h1;
	struct told told = {.h1 = &h1};
	size_t at = 0;
	size_t turn = 0;
	enum hark_h1_result r = HARK_H1_OK;

	hark_h1_init(&h1, response, nsizes ? &quiet : &loud, &told);
	while (at < n && r == HARK_H1_OK) {
		size_t part = nsizes ? (size_t)sizes[turn++ % nsizes] + 1 : n - at;
		size_t end = part < n - at ? at + part : n;

		while (at < end && r == HARK_H1_OK) {
			size_t used;

			r = hark_h1_feed(&h1, p + at, end - at, &used);
			at += used;
		}
	}
	if (r == HARK_H1_OK)
		r = hark_h1_eof(&h1);
	if (r == HARK_H1_BAD && h1.reason == HARK_REASON_COMPLETE)
		abort();
	told.hash ^= (uint64_t)h1.reason << 56;
	if (h1.detail)
		mix(&told, h1.detail, strlen(h1.detail));
	hark_h1_fini(&h1);
	return told;
}

static int fuzz(const uint8_t *data, size_t size, bool response)
{
	struct told whole;
	struct told split;

	if (size < 4)
		return 0;
	whole = run(data + 4, size - 4, response, NULL, 0);
	split = run(data + 4, size - 4, response, data, 4);
	if (whole.hash != split.hash || whole.body != split.body || whole.heads != split.heads ||
	    whole.ends != split.ends)
		abort();
	return 0;
}

#endif
