/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_h1.h"

#include <strings.h>

/* ---- llhttp callbacks: note spans, nothing else ---- */

static size_t raw_offset(const struct hark_h1 *h1, const char *at)
{
	return h1->base_at + (size_t)(at - h1->base);
}

/* Start a span or extend it: one value may come in several pieces, adjacent in the raw head. */
static void extend(const struct hark_h1 *h1, struct hark_span *span, const char *at, size_t n)
{
	if (!span->len)
		span->at = (uint32_t)raw_offset(h1, at);
	span->len += (uint32_t)n;
}

static int fail(struct hark_h1 *h1, enum hark_reason reason, const char *detail)
{
	h1->reason = reason;
	h1->detail = detail;
	return HPE_USER;
}

static enum hark_reason too_large(const struct hark_h1 *h1)
{
	return h1->parser.type == HTTP_RESPONSE ? HARK_REASON_RESPONSE_TOO_LARGE
						: HARK_REASON_HEAD_TOO_LARGE;
}

static int on_url(llhttp_t *p, const char *at, size_t n)
{
	struct hark_h1 *h1 = p->data;

	extend(h1, &h1->head.target, at, n);
	if (h1->head.target.len > HARK_H1_TARGET)
		return fail(h1, HARK_REASON_URI_TOO_LONG, "target over 16 KiB");
	return 0;
}

static int on_status(llhttp_t *p, const char *at, size_t n)
{
	struct hark_h1 *h1 = p->data;

	extend(h1, &h1->head.reason_phrase, at, n);
	return 0;
}

static int trailer_bytes(struct hark_h1 *h1, const char *at, size_t n)
{
	if (hark_buf_put(&h1->trailers, at, n))
		return fail(h1, HARK_REASON_BAD_TRAILER, "trailers over 8 KiB");
	return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t n)
{
	struct hark_h1 *h1 = p->data;
	struct hark_head *head = &h1->head;

	if (!h1->in_head)
		return trailer_bytes(h1, at, n);
	if (h1->in_value || head->nfields == 0) {
		if (head->nfields == h1->max_fields)
			return fail(h1, too_large(h1), "more than 128 fields");
		memset(&head->fields[head->nfields++], 0, sizeof(head->fields[0]));
		h1->in_value = false;
	}
	extend(h1, &head->fields[head->nfields - 1].name, at, n);
	return 0;
}

static int on_field_complete(llhttp_t *p)
{
	struct hark_h1 *h1 = p->data;

	return h1->in_head ? 0 : trailer_bytes(h1, ": ", 2);
}

static int on_value(llhttp_t *p, const char *at, size_t n)
{
	struct hark_h1 *h1 = p->data;
	struct hark_field *field;

	if (!h1->in_head)
		return trailer_bytes(h1, at, n);
	field = &h1->head.fields[h1->head.nfields - 1];
	extend(h1, &field->value, at, n);
	if (field->value.len > HARK_H1_VALUE)
		return fail(h1, too_large(h1), "a field value over 32 KiB");
	return 0;
}

static int on_value_complete(llhttp_t *p)
{
	struct hark_h1 *h1 = p->data;

	h1->in_value = true;
	return h1->in_head ? 0 : trailer_bytes(h1, "\r\n", 2);
}

static int on_headers_complete(llhttp_t *p)
{
	struct hark_h1 *h1 = p->data;

	h1->head.upgrade = p->upgrade && p->type == HTTP_REQUEST && p->method != HTTP_CONNECT;
	h1->head.chunked = (p->flags & F_CHUNKED) != 0;
	h1->head.has_length = (p->flags & F_CONTENT_LENGTH) != 0;
	h1->head.length = p->content_length;
	h1->head.status = p->status_code;
	h1->head.method = p->method;
	h1->head.major = p->http_major;
	h1->head.minor = p->http_minor;
	h1->head_ready = true;
	/* The owner strips or refuses every upgrade, so the body is an ordinary one. */
	p->upgrade = 0;
	if (h1->skip_body)
		p->flags |= F_SKIPBODY;
	return HPE_PAUSED; /* the error position is then the exact end of the head */
}

static int stop_if(struct hark_h1 *h1, int asked)
{
	if (!asked)
		return 0;
	h1->stopped = true;
	return HPE_USER;
}

static int on_body(llhttp_t *p, const char *at, size_t n)
{
	struct hark_h1 *h1 = p->data;

	return stop_if(h1, h1->sink->body(h1->ctx, (const uint8_t *)at, n));
}

static int on_extension(llhttp_t *p, const char *at, size_t n)
{
	struct hark_h1 *h1 = p->data;

	(void)at;
	h1->extension_seen = true;
	h1->extension_bytes += n;
	if (h1->extension_bytes > HARK_H1_EXTENSION)
		return fail(h1,
			    p->type == HTTP_RESPONSE ? HARK_REASON_BAD_RESPONSE
						     : HARK_REASON_BAD_REQUEST,
			    "chunk extensions over 256 bytes");
	return 0;
}

static int on_chunk_complete(llhttp_t *p)
{
	struct hark_h1 *h1 = p->data;

	return stop_if(h1, h1->sink->chunk_end(h1->ctx));
}

static int on_message_complete(llhttp_t *p)
{
	struct hark_h1 *h1 = p->data;

	h1->message_end = true;
	return HPE_PAUSED;
}

/* ---- feeding ---- */

static void begin_message(struct hark_h1 *h1)
{
	struct hark_head *head = &h1->head;

	hark_buf_clear(&head->raw);
	hark_buf_clear(&h1->trailers);
	head->target = (struct hark_span){0, 0};
	head->reason_phrase = (struct hark_span){0, 0};
	head->nfields = 0;
	h1->in_head = true;
	h1->started = false;
	h1->message_end = false;
	h1->head_ready = false;
	h1->in_value = false;
	h1->extension_seen = false;
	h1->extension_bytes = 0;
}

void hark_h1_init(struct hark_h1 *h1, bool response, const struct hark_h1_sink *sink, void *ctx)
{
	memset(h1, 0, sizeof(*h1));
	llhttp_settings_init(&h1->settings);
	h1->settings.on_url = on_url;
	h1->settings.on_status = on_status;
	h1->settings.on_header_field = on_field;
	h1->settings.on_header_field_complete = on_field_complete;
	h1->settings.on_header_value = on_value;
	h1->settings.on_header_value_complete = on_value_complete;
	h1->settings.on_headers_complete = on_headers_complete;
	h1->settings.on_body = on_body;
	h1->settings.on_chunk_extension_name = on_extension;
	h1->settings.on_chunk_extension_value = on_extension;
	h1->settings.on_chunk_complete = on_chunk_complete;
	h1->settings.on_message_complete = on_message_complete;
	llhttp_init(&h1->parser, response ? HTTP_RESPONSE : HTTP_REQUEST, &h1->settings);
	h1->parser.data = h1;
	h1->sink = sink;
	h1->ctx = ctx;
	h1->max_fields = HARK_H1_FIELDS;
	hark_buf_init(&h1->head.raw, HARK_H1_HEAD);
	hark_buf_init(&h1->trailers, HARK_H1_TRAILERS);
	begin_message(h1);
}

void hark_h1_fini(struct hark_h1 *h1)
{
	hark_buf_fini(&h1->head.raw);
	hark_buf_fini(&h1->trailers);
}

static enum hark_reason map_error(const struct hark_h1 *h1, llhttp_errno_t e)
{
	if (h1->parser.type == HTTP_RESPONSE)
		return HARK_REASON_BAD_RESPONSE;
	switch (e) {
	case HPE_INVALID_CONTENT_LENGTH:
	case HPE_UNEXPECTED_CONTENT_LENGTH:
	case HPE_INVALID_TRANSFER_ENCODING:
		return HARK_REASON_BAD_FRAMING;
	case HPE_INVALID_VERSION: /* also a bare LF after a good version */
		return h1->parser.http_major == 1 && h1->parser.http_minor <= 1
			       ? HARK_REASON_BAD_REQUEST
			       : HARK_REASON_BAD_VERSION;
	case HPE_PAUSED_H2_UPGRADE:
		return HARK_REASON_H2_PREFACE;
	default:
		return HARK_REASON_BAD_REQUEST;
	}
}

static enum hark_h1_result bad(struct hark_h1 *h1, llhttp_errno_t e)
{
	if (h1->stopped)
		return HARK_H1_STOP;
	if (h1->reason == HARK_REASON_COMPLETE) {
		h1->reason = map_error(h1, e);
		h1->detail = llhttp_get_error_reason(&h1->parser);
		if (!h1->detail || !*h1->detail)
			h1->detail = llhttp_errno_name(e);
	}
	return HARK_H1_BAD;
}

/*
 * llhttp gave up in the running feed. It tells a span at its end or at the end of the input, so an
 * error inside a name, a value or a target leaves the bytes before it untold. Had the input ended
 * just there, they would have been told and their limit checked. Tell them now: the reason is then
 * that of the first byte that broke a rule, however the bytes arrived.
 */
static enum hark_h1_result gave_up(struct hark_h1 *h1, llhttp_errno_t e)
{
	typedef int (*span_fn)(llhttp_t *parser, const char *from, const char *to);
	const char *from = h1->parser._span_pos0;
	const char *to = llhttp_get_error_pos(&h1->parser);

	if (!h1->stopped && h1->reason == HARK_REASON_COMPLETE && from && to > from)
		(void)((span_fn)h1->parser._span_cb0)(&h1->parser, from, to);
	return bad(h1, e);
}

static void trim(const struct hark_head *head, struct hark_span *span)
{
	const uint8_t *p = hark_head_at(head, *span);

	while (span->len && (p[span->len - 1] == ' ' || p[span->len - 1] == '\t'))
		span->len--;
}

/* "gzip, chunked" is legal, but nobody sends it, and hark frames bodies anew: it would be lost. */
static bool other_coding(const struct hark_head *head)
{
	struct hark_span value = {0, 0};
	size_t n = hark_head_find(head, "transfer-encoding", &value);

	return n > 1 || (n == 1 && !hark_head_is(head, value, "chunked"));
}

/* The head is complete and raw ends with it. */
static enum hark_h1_result finish_head(struct hark_h1 *h1)
{
	size_t i;

	for (i = 0; i < h1->head.nfields; i++)
		trim(&h1->head, &h1->head.fields[i].value);
	h1->head.other_coding = other_coding(&h1->head);
	h1->in_head = false;
	h1->in_value = false;
	llhttp_resume(&h1->parser);
	return h1->sink->head(h1->ctx, &h1->head) ? HARK_H1_STOP : HARK_H1_OK;
}

static enum hark_h1_result feed_head(struct hark_h1 *h1, const uint8_t *p, size_t n, size_t *used)
{
	struct hark_buf *raw = &h1->head.raw;
	size_t room = raw->max - hark_buf_len(raw);
	size_t take = n < room ? n : room;
	llhttp_errno_t e;

	if (!room)
		return fail(h1, too_large(h1), "head over 64 KiB"), HARK_H1_BAD;
	h1->base = (const char *)p;
	h1->base_at = hark_buf_len(raw);
	if (hark_buf_put(raw, p, take))
		return fail(h1, HARK_REASON_NO_MEMORY, "no memory"), HARK_H1_BAD;
	h1->started = true;
	e = llhttp_execute(&h1->parser, h1->base, take);
	*used = take;
	if (e == HPE_OK)
		return HARK_H1_OK;
	if (e != HPE_PAUSED || !h1->head_ready)
		return gave_up(h1, e);
	*used = (size_t)(llhttp_get_error_pos(&h1->parser) - h1->base);
	raw->to = raw->from + h1->base_at + *used;
	return finish_head(h1);
}

/* Also runs with n == 0 right after a head, so that a message without a body ends at once. */
static enum hark_h1_result feed_body(struct hark_h1 *h1, const uint8_t *p, size_t n, size_t *used)
{
	llhttp_errno_t e;

	h1->base = (const char *)p;
	h1->base_at = 0;
	e = llhttp_execute(&h1->parser, h1->base, n);
	*used = n;
	if (e == HPE_OK)
		return HARK_H1_OK;
	if (e != HPE_PAUSED || !h1->message_end)
		return gave_up(h1, e);
	*used = (size_t)(llhttp_get_error_pos(&h1->parser) - h1->base);
	return h1->sink->end(h1->ctx) ? HARK_H1_STOP : HARK_H1_OK;
}

enum hark_h1_result hark_h1_feed(struct hark_h1 *h1, const uint8_t *p, size_t n, size_t *used)
{
	enum hark_h1_result r = HARK_H1_OK;
	size_t step = 0;

	*used = 0;
	if (h1->reason != HARK_REASON_COMPLETE)
		return HARK_H1_BAD;
	if (h1->message_end) {
		begin_message(h1);
		llhttp_resume(&h1->parser);
	}
	while (*used < n && h1->in_head && r == HARK_H1_OK) {
		r = feed_head(h1, p + *used, n - *used, &step);
		*used += step;
	}
	if (r != HARK_H1_OK || h1->in_head)
		return r;
	r = feed_body(h1, p + *used, n - *used, &step);
	*used += step;
	return r;
}

enum hark_h1_result hark_h1_eof(struct hark_h1 *h1)
{
	llhttp_errno_t e;

	if (h1->reason != HARK_REASON_COMPLETE)
		return HARK_H1_BAD;
	if (h1->message_end || (h1->in_head && !h1->started))
		return HARK_H1_OK;
	if (h1->in_head)
		return bad(h1, HPE_INVALID_EOF_STATE);
	e = llhttp_finish(&h1->parser);
	if (e != HPE_OK && e != HPE_PAUSED)
		return bad(h1, e);
	if (!h1->message_end)
		return HARK_H1_OK;
	return h1->sink->end(h1->ctx) ? HARK_H1_STOP : HARK_H1_OK;
}

bool hark_h1_eof_framed(const struct hark_h1 *h1)
{
	return h1->parser.type == HTTP_RESPONSE && llhttp_message_needs_eof(&h1->parser);
}

bool hark_h1_keep_alive(const struct hark_h1 *h1)
{
	return llhttp_should_keep_alive(&h1->parser);
}

/* ---- reading a head ---- */

bool hark_head_is(const struct hark_head *head, struct hark_span span, const char *lower)
{
	size_t n = strlen(lower);

	return span.len == n && strncasecmp((const char *)hark_head_at(head, span), lower, n) == 0;
}

size_t hark_head_find(const struct hark_head *head, const char *name, struct hark_span *out)
{
	size_t found = 0;
	size_t i;

	for (i = 0; i < head->nfields; i++) {
		if (!hark_head_is(head, head->fields[i].name, name))
			continue;
		if (!found++)
			*out = head->fields[i].value;
	}
	return found;
}

bool hark_head_has_token(const struct hark_head *head, struct hark_span list, const char *lower)
{
	uint32_t i = 0;

	while (i < list.len) {
		const uint8_t *p = hark_head_at(head, list);
		uint32_t from = i;
		uint32_t to;

		while (i < list.len && p[i] != ',')
			i++;
		to = i++;
		while (from < to && (p[from] == ' ' || p[from] == '\t'))
			from++;
		while (to > from && (p[to - 1] == ' ' || p[to - 1] == '\t'))
			to--;
		if (hark_head_is(head, (struct hark_span){list.at + from, to - from}, lower))
			return true;
	}
	return false;
}
