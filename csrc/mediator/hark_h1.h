/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.x messages of one direction: bytes in, a parsed head and body spans out. llhttp (strict)
 * finds the structure; hark_check.h judges what it found. No I/O.
 *
 * Rules. A feed stops after each complete message, so pipelined messages come one by one. The head
 * is kept as received; its fields are offsets into it. Body spans borrow from the input and never
 * hold transfer coding. Every limit is checked while bytes arrive, not afterwards. The reason for
 * BAD is that of the first byte that broke a rule: it does not depend on how the bytes were cut.
 */
#ifndef HARK_H1_H
#define HARK_H1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hark_buf.h"
#include "hark_reason.h"
#include "llhttp.h"

enum hark_h1_limit {
	HARK_H1_HEAD = 65536,
	HARK_H1_REBUILT = 73728, /* one that hark wrote anew: HARK_MED_HEAD */
	HARK_H1_FIELDS = 128,    /* of a peer */
	HARK_H1_OWN_FIELDS = 2,  /* what hark adds at most when it writes a head anew */
	HARK_H1_VALUE = 32768,
	HARK_H1_TARGET = 16384,
	HARK_H1_TRAILERS = 8192,
	HARK_H1_EXTENSION = 256 /* chunk extension bytes per message */
};

/* A span of head.raw. */
struct hark_span {
	uint32_t at;
	uint32_t len;
};

struct hark_field {
	struct hark_span name;
	struct hark_span value; /* without surrounding white space */
};

struct hark_head {
	struct hark_buf raw; /* as received, with its final empty line */
	struct hark_span target;
	struct hark_span reason_phrase;
	struct hark_field fields[HARK_H1_FIELDS + HARK_H1_OWN_FIELDS];
	size_t nfields;
	uint16_t status; /* responses */
	uint8_t method;  /* enum llhttp_method, requests */
	uint8_t major;
	uint8_t minor;
	bool chunked;
	bool other_coding; /* Transfer-Encoding that is not exactly one "chunked" */
	bool has_length;
	bool upgrade; /* Upgrade and Connection: upgrade */
	uint64_t length;
};

struct hark_h1;

/* What the parser tells its owner. A callback that returns non-zero stops the feed (HARK_H1_STOP).
 */
struct hark_h1_sink {
	int (*head)(void *ctx, const struct hark_head *head);
	int (*body)(void *ctx, const uint8_t *p, size_t n);
	int (*chunk_end)(void *ctx); /* one chunk of a chunked body is complete */
	int (*end)(void *ctx);       /* trailers, if any, are in h1->trailers */
};

enum hark_h1_result { HARK_H1_OK = 0, HARK_H1_BAD = -1, HARK_H1_STOP = -2 };

struct hark_h1 {
	llhttp_t parser;
	llhttp_settings_t settings;
	const struct hark_h1_sink *sink; /* borrowed */
	void *ctx;                       /* borrowed */
	struct hark_head head;
	struct hark_buf trailers; /* "name: value" lines as received */
	const char *base;         /* input of the running execute */
	size_t base_at;           /* where that input stands in head.raw */
	size_t max_fields;        /* HARK_H1_FIELDS, more only for a head that hark wrote */
	enum hark_reason reason;  /* after HARK_H1_BAD */
	const char *detail;       /* llhttp's words, static */
	bool in_head;
	bool started;     /* a byte of the current message was seen */
	bool message_end; /* paused after a message */
	bool head_ready;
	bool in_value;
	bool skip_body; /* set by the owner before the head ends: response to HEAD */
	bool extension_seen;
	bool stopped; /* a callback asked to stop */
	size_t extension_bytes;
};

void hark_h1_init(struct hark_h1 *h1, bool response, const struct hark_h1_sink *sink, void *ctx);
void hark_h1_fini(struct hark_h1 *h1);

/* Parse bytes until they end or a message does; *used says how many were taken. */
HARK_MUST_USE enum hark_h1_result hark_h1_feed(struct hark_h1 *h1, const uint8_t *p, size_t n,
					       size_t *used);

/* The peer closed. Ends an EOF-framed response; OK between messages; BAD inside one. */
HARK_MUST_USE enum hark_h1_result hark_h1_eof(struct hark_h1 *h1);

/* The response body has no length and lasts until the connection ends (RFC 9112, 6.3 rule 8). */
bool hark_h1_eof_framed(const struct hark_h1 *h1);

/* The connection may carry another message after this one. Valid in and after the end callback. */
bool hark_h1_keep_alive(const struct hark_h1 *h1);

/* Field values. hark_head_find returns how many fields have this (lower-case) name and sets *out
 * to the first. */
size_t hark_head_find(const struct hark_head *head, const char *name, struct hark_span *out);
static inline const uint8_t *hark_head_at(const struct hark_head *head, struct hark_span span)
{
	return hark_buf_data(&head->raw) + span.at;
}

/* Case-insensitive comparison of a span with a lower-case text. */
bool hark_head_is(const struct hark_head *head, struct hark_span span, const char *lower);

/* Whether a comma-separated list value holds this lower-case token. */
bool hark_head_has_token(const struct hark_head *head, struct hark_span list, const char *lower);

#endif
