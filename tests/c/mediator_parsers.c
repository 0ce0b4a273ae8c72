/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mediator's pure parsers on tables of cases: every case whole, byte by byte and at every
 * single split, and all three must end alike.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hark_address.h"
#include "hark_base64.h"
#include "hark_check.h"
#include "hark_cred.h"
#include "hark_h1.h"
#include "hark_name.h"
#include "hark_rebuild.h"

/* ---- names ---- */

struct name_case {
	const char *in;
	enum hark_name_kind kind;
	const char *out;
};

static const struct name_case names[] = {
	{"api.stub.test", HARK_NAME_OK, "api.stub.test"},
	{"API.Stub.TEST", HARK_NAME_OK, "api.stub.test"},
	{"localhost", HARK_NAME_OK, "localhost"},
	{"a-b.c", HARK_NAME_OK, "a-b.c"},
	{"1.2.3.4.in-addr.arpa", HARK_NAME_OK, "1.2.3.4.in-addr.arpa"},
	{"xn--bcher-kva.example", HARK_NAME_OK, "xn--bcher-kva.example"},
	{"", HARK_NAME_INVALID, NULL},
	{".", HARK_NAME_INVALID, NULL},
	{"a.", HARK_NAME_INVALID, NULL},
	{".a", HARK_NAME_INVALID, NULL},
	{"a..b", HARK_NAME_INVALID, NULL},
	{"-a.b", HARK_NAME_INVALID, NULL},
	{"a-.b", HARK_NAME_INVALID, NULL},
	{"a_b.c", HARK_NAME_INVALID, NULL},
	{"a b", HARK_NAME_INVALID, NULL},
	{"a/b", HARK_NAME_INVALID, NULL},
	{"\xc3\xa9.fr", HARK_NAME_INVALID, NULL},
	{"127.0.0.1", HARK_NAME_ADDRESS, NULL},
	{"127.1", HARK_NAME_ADDRESS, NULL},
	{"2130706433", HARK_NAME_ADDRESS, NULL},
	{"0x7f.1", HARK_NAME_ADDRESS, NULL},
	{"foo.0x7f", HARK_NAME_ADDRESS, NULL},
	{"::1", HARK_NAME_ADDRESS, NULL},
};

static void test_names(void **state)
{
	char out[HARK_NAME_SIZE];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct name_case *c = &names[i];

		assert_int_equal(hark_name_parse((const uint8_t *)c->in, strlen(c->in), out),
				 c->kind);
		if (c->out)
			assert_string_equal(out, c->out);
	}
}

static void test_name_lengths(void **state)
{
	uint8_t name[300];
	char out[HARK_NAME_SIZE];

	(void)state;
	memset(name, 'a', sizeof(name));
	assert_int_equal(hark_name_parse(name, 63, out), HARK_NAME_OK);
	assert_int_equal(hark_name_parse(name, 64, out), HARK_NAME_INVALID);
	name[63] = name[127] = name[191] = '.';
	assert_int_equal(hark_name_parse(name, 253, out), HARK_NAME_OK);
	assert_int_equal(hark_name_parse(name, 254, out), HARK_NAME_INVALID);
}

static void test_sni_structure(void **state)
{
	static const uint8_t good[] = {0, 6, 0, 0, 3, 'a', '.', 'b'};
	uint8_t bad[sizeof(good)];
	char out[HARK_NAME_SIZE];
	size_t i;

	(void)state;
	assert_int_equal(hark_name_from_sni(good, sizeof(good), out), HARK_NAME_OK);
	for (i = 0; i < sizeof(good); i++)
		assert_int_equal(hark_name_from_sni(good, i, out), HARK_NAME_INVALID);
	for (i = 0; i < 5; i++) {
		memcpy(bad, good, sizeof(good));
		bad[i]++;
		assert_int_equal(hark_name_from_sni(bad, sizeof(bad), out), HARK_NAME_INVALID);
	}
}

static void test_host_fields(void **state)
{
	static const struct {
		const char *in;
		enum hark_name_kind kind;
		unsigned port;
	} cases[] = {
		{"a.b", HARK_NAME_OK, 0},
		{"a.b:443", HARK_NAME_OK, 443},
		{"a.b:65535", HARK_NAME_OK, 65535},
		{"a.b:", HARK_NAME_INVALID, 0},
		{"a.b:0", HARK_NAME_INVALID, 0},
		{"a.b:65536", HARK_NAME_INVALID, 0},
		{"a.b:4 3", HARK_NAME_INVALID, 0},
		{"a.b:443:443", HARK_NAME_INVALID, 0},
		{"user@a.b", HARK_NAME_INVALID, 0},
		{"[::1]:80", HARK_NAME_ADDRESS, 0},
		{"10.0.0.1:80", HARK_NAME_ADDRESS, 80},
		{"", HARK_NAME_ABSENT, 0},
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char out[HARK_NAME_SIZE];
		uint16_t port = 1;

		assert_int_equal(hark_name_from_host((const uint8_t *)cases[i].in,
						     strlen(cases[i].in), out, &port),
				 cases[i].kind);
		if (cases[i].kind == HARK_NAME_OK)
			assert_int_equal(port, cases[i].port);
	}
}

/* ---- messages ---- */

/* A transcript of what the parser told: "H<status or method>|", body bytes, "E<trailers>|". */
struct log {
	char text[65536];
	size_t len;
	bool close;
	struct hark_h1 *h1;
};

static void say(struct log *log, const void *p, size_t n)
{
	assert_true(log->len + n < sizeof(log->text));
	memcpy(log->text + log->len, p, n);
	log->len += n;
}

static int log_head(void *ctx, const struct hark_head *head)
{
	struct log *log = ctx;
	struct hark_target target;
	const char *detail;
	char line[128];
	int n;

	if (log->h1->parser.type == HTTP_REQUEST)
		n = snprintf(line, sizeof(line), "H%u,%zu,%s|", head->method, head->nfields,
			     hark_reason_name(hark_check_request(head, &target, &detail)));
	else
		n = snprintf(line, sizeof(line), "H%u,%zu|", head->status, head->nfields);
	say(log, line, (size_t)n);
	return 0;
}

static int log_body(void *ctx, const uint8_t *p, size_t n)
{
	say(ctx, p, n);
	return 0;
}

static int log_chunk(void *ctx)
{
	(void)ctx;
	return 0;
}

static int log_end(void *ctx)
{
	struct log *log = ctx;

	say(log, "E", 1);
	say(log, hark_buf_data(&log->h1->trailers), hark_buf_len(&log->h1->trailers));
	say(log, hark_h1_keep_alive(log->h1) ? "k|" : "c|", 2);
	return 0;
}

static const struct hark_h1_sink log_sink = {log_head, log_body, log_chunk, log_end};

/* Feed [from, to) of a message; false when the parser gave up. */
static bool feed(struct hark_h1 *h1, const char *data, size_t n)
{
	while (n) {
		size_t used;

		if (h1->message_end && !hark_h1_keep_alive(h1))
			return true; /* the mediator would read no more */
		if (hark_h1_feed(h1, (const uint8_t *)data, n, &used) != HARK_H1_OK)
			return false;
		data += used;
		n -= used;
	}
	return true;
}

static void run(const char *data, bool response, size_t step, size_t first, struct log *log)
{
	struct hark_h1 h1;
	size_t n = strlen(data);
	size_t at = 0;
	bool ok = true;

	memset(log, 0, sizeof(*log));
	log->h1 = &h1;
	hark_h1_init(&h1, response, &log_sink, log);
	while (ok && at < n) {
		size_t part = at == 0 && first ? first : step;

		if (part > n - at)
			part = n - at;
		ok = feed(&h1, data + at, part);
		at += part;
	}
	if (ok && hark_h1_eof(&h1) != HARK_H1_OK)
		ok = false;
	if (!ok) {
		say(log, "!", 1);
		say(log, hark_reason_name(h1.reason), strlen(hark_reason_name(h1.reason)));
	}
	hark_h1_fini(&h1);
}

struct message {
	const char *data;
	const char *want;
};

#define R "HTTP/1.1\r\nHost: a\r\n"

static const struct message requests[] = {
	{"GET / " R "\r\n", "H1,1,complete|Ek|"},
	{"\r\n\r\nGET / " R "\r\n", "H1,1,complete|Ek|"},
	{"POST / " R "Content-Length: 5\r\n\r\nabcde", "H3,2,complete|abcdeEk|"},
	{"POST / " R "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\nT: 1\r\n\r\n",
	 "H3,2,complete|abcET: 1\r\nk|"},
	{"GET / " R "\r\nGET / " R "X: 1\r\n\r\n", "H1,1,complete|Ek|H1,2,complete|Ek|"},
	{"GET / " R "Connection: close\r\n\r\nGET / " R "\r\n", "H1,2,complete|Ec|"},
	{"GET / HTTP/1.0\r\nHost: a\r\n\r\n", "H1,1,complete|Ec|"},
	{"GET / " R "X:\r\n\r\n", "H1,2,complete|Ek|"},
	{"GET / " R "X:   v \t \r\n\r\n", "H1,2,complete|Ek|"},
	{"POST / " R "Content-Length: 5\r\n\r\nabc", "H3,2,complete|abc!bad_request"},
	{"GET / HTTP/1.1\r\nHost", "!bad_request"},
	{"POST / " R "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	 "!bad_framing"},
	{"POST / " R "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	 "!bad_framing"},
	{"POST / " R "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", "!bad_framing"},
	{"POST / " R "Content-Length: 5, 5\r\n\r\nabcde", "!bad_framing"},
	{"POST / " R "Content-Length: -1\r\n\r\n", "!bad_framing"},
	{"POST / " R "Content-Length: 18446744073709551616\r\n\r\n", "!bad_framing"},
	{"POST / " R "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "H3,2,bad_framing|Ek|"},
	{"POST / " R "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n", "H3,2,complete|Ek|"},
	{"GET / " R "X: 1\r\n 2\r\n\r\n", "!bad_request"},
	{"GET / HTTP/1.1\nHost: a\n\n", "!bad_request"},
	{"GET / " R "X: a\rb\r\n\r\n", "!bad_request"},
	{"GET / " R "X: a\x01\r\n\r\n", "!bad_request"},
	{"GET / " R "X : a\r\n\r\n", "!bad_request"},
	{"GET / " R "Host: b\r\n\r\n", "H1,2,host_duplicate|Ek|"},
	{"GET / HTTP/1.1\r\n\r\n", "H1,0,host_missing|Ek|"},
	{"GET http://b/ " R "\r\n", "H1,1,host_mismatch|Ek|"},
	{"GET https://a/x " R "\r\n", "H1,1,complete|Ek|"},
	{"GET / " R "Expect: x\r\n\r\n", "H1,2,bad_expect|Ek|"},
	{"GET / " R "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
	 "H1,3,upgrade_refused|Ek|"},
	{"GET / " R "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", "H1,3,complete|Ek|"},
	{"SSH-2.0-x\r\n", "!bad_request"},
	{"GET / HTTP/1.2\r\nHost: a\r\n\r\n", "!bad_version"},
	{"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "H1,1,bad_version|Ec|"},
};

static const struct message responses[] = {
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "H200,1|okEk|"},
	{"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "H200,1|Ek|"},
	{"HTTP/1.1 204 No Content\r\n\r\n", "H204,0|Ek|"},
	{"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "H304,1|Ek|"},
	{"HTTP/1.1 200 OK\r\n\r\nuntil the end", "H200,0|until the endEc|"},
	{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	 "H100,0|Ek|H200,1|Ek|"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	 "H200,1|okEk|"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
	 "H200,1|ok!bad_response"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "H200,1|abc!bad_response"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	 "!bad_response"},
	{"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "!bad_response"},
	{"hello", "!bad_response"},
};

static void check_message(const struct message *m, bool response)
{
	static struct log whole;
	static struct log other;
	size_t n = strlen(m->data);
	size_t i;

	run(m->data, response, n, 0, &whole);
	if (strcmp(whole.text, m->want) != 0)
		print_error("%s\n", m->data);
	assert_string_equal(whole.text, m->want);
	run(m->data, response, 1, 0, &other);
	assert_string_equal(other.text, m->want);
	for (i = 1; i < n; i++) {
		run(m->data, response, n, i, &other);
		assert_string_equal(other.text, m->want);
	}
}

static void test_requests(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		check_message(&requests[i], false);
}

static void test_responses(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(responses) / sizeof(responses[0]); i++)
		check_message(&responses[i], true);
}

/*
 * Limits, and a wrong byte beyond or at them: the first byte that breaks a rule gives the reason,
 * whole and in pieces of any size. A message is its start, count times its unit, and its end.
 */
struct limit {
	bool response;
	const char *start;
	const char *unit;
	size_t count;
	const char *end;
	const char *want; /* how the transcript ends */
};

#define CHUNKED R "Transfer-Encoding: chunked\r\n\r\n"

static const struct limit limits[] = {
	/* 128 fields are allowed; the 129th begins with its first byte. */
	{false, "GET / HTTP/1.1\r\n", "a:\r\n", 127, "Host: a\r\n\r\n", "|Ek|"},
	{false, "GET / HTTP/1.1\r\n", "a:\r\n", 128, "\001b:\r\n\r\n", "!bad_request"},
	{false, "GET / HTTP/1.1\r\n", "a:\r\n", 128, "b\001:\r\n\r\n", "!head_too_large"},
	{false, "GET / HTTP/1.1\r\n", "a:\r\n", 128, "b:\r\n\r\n", "!head_too_large"},
	{false, "GET / HTTP/1.1\r\n", "a:\r\n", 127, "b\001:\r\n\r\n", "!bad_request"},
	{true, "HTTP/1.1 200 OK\r\n", "a:\r\n", 128, "b\001:\r\n\r\n", "!response_too_large"},
	{true, "HTTP/1.1 200 OK\r\n", "a:\r\n", 128, "\001:\r\n\r\n", "!bad_response"},
	/* 32 KiB of one value. */
	{false, "GET / " R "X: ", "v", 32768, "\r\n\r\n", "|Ek|"},
	{false, "GET / " R "X: ", "v", 32768, "\001\r\n\r\n", "!bad_request"},
	{false, "GET / " R "X: ", "v", 32769, "\001\r\n\r\n", "!head_too_large"},
	{false, "GET / " R "X: ", "v", 32769, "\r\n\r\n", "!head_too_large"},
	{true, "HTTP/1.1 204 No Content\r\nX: ", "v", 32769, "\001\r\n\r\n", "!response_too_large"},
	/* 16 KiB of target. */
	{false, "GET /", "t", 16383, " " R "\r\n", "|Ek|"},
	{false, "GET /", "t", 16383, "\001 " R "\r\n", "!bad_request"},
	{false, "GET /", "t", 16384, "\001 " R "\r\n", "!uri_too_long"},
	{false, "GET /", "t", 16384, " " R "\r\n", "!uri_too_long"},
	{false, "GET /", "t", 70000, " " R "\r\n", "!uri_too_long"},
	/* 64 KiB of head. */
	{false, "GET / " R, "X: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789\r\n",
	 1040, "\r\n", "!head_too_large"},
	{false, "GET / " R, "Y: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789\r\n",
	 120, "Y: \001\r\n\r\n", "!bad_request"},
	/* 256 bytes of chunk extensions in one message. */
	{false, "POST / " CHUNKED "1;", "x", 256, "\r\na\r\n0\r\n\r\n", "|aEk|"},
	{false, "POST / " CHUNKED "1;", "x", 257, "\001\r\na\r\n0\r\n\r\n", "|!bad_request"},
	{false, "POST / " CHUNKED, "1;xxxxxxxx\r\na\r\n", 33, "0\r\n\r\n", "!bad_request"},
	/* 8 KiB of trailers: "T: " and "\r\n" are 5. */
	{false, "POST / " CHUNKED "0\r\nT: ", "t", 8187, "\r\n\r\n", "\r\nk|"},
	{false, "POST / " CHUNKED "0\r\nT: ", "t", 8188, "\r\n\r\n", "!bad_trailer"},
	{false, "POST / " CHUNKED "0\r\nT: ", "t", 8189, "\001\r\n\r\n", "!bad_request"},
	{false, "POST / " CHUNKED "0\r\nT: ", "t", 8190, "\001\r\n\r\n", "!bad_trailer"},
	{false, "POST / " CHUNKED "0\r\n", "t", 8193, "\001\r\n\r\n", "!bad_trailer"},
};

static char *limit_message(const struct limit *c)
{
	size_t unit = strlen(c->unit);
	char *text = malloc(strlen(c->start) + unit * c->count + strlen(c->end) + 1);
	char *at = text;
	size_t i;

	assert_non_null(text);
	at = stpcpy(at, c->start);
	for (i = 0; i < c->count; i++)
		at = stpcpy(at, c->unit);
	stpcpy(at, c->end);
	return text;
}

static void check_limit(const struct limit *c, const char *text, size_t step, size_t first)
{
	static struct log log;
	size_t want = strlen(c->want);

	run(text, c->response, step, first, &log);
	if (log.len < want || strcmp(log.text + log.len - want, c->want) != 0)
		print_error("%.40s... steps of %zu after %zu\n", text, step, first);
	assert_true(log.len >= want);
	assert_string_equal(log.text + log.len - want, c->want);
}

static void test_reasons_do_not_depend_on_pieces(void **state)
{
	static const size_t steps[] = {1, 2, 3, 7, 129, 4096, 16384, 65536};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		char *text = limit_message(&limits[i]);
		size_t n = strlen(text);
		size_t near = n - strlen(limits[i].end);
		size_t k;

		check_limit(&limits[i], text, n, 0);
		for (k = 0; k < sizeof(steps) / sizeof(steps[0]); k++)
			check_limit(&limits[i], text, steps[k], 0);
		for (k = near > 40 ? near - 40 : 1; k < n; k++)
			check_limit(&limits[i], text, n, k);
		free(text);
	}
}

/* Lengths beyond 2^31 and 2^32 are counted in full. */
static void test_long_body(void **state)
{
	static uint8_t block[1 << 20];
	static struct log log;
	struct hark_h1 h1;
	const char *head = "POST / " R "Content-Length: 5368709120\r\n\r\n";
	uint64_t left = 5368709120;
	size_t used;

	(void)state;
	memset(&log, 0, sizeof(log));
	log.h1 = &h1;
	hark_h1_init(&h1, false, &log_sink, &log);
	assert_int_equal(hark_h1_feed(&h1, (const uint8_t *)head, strlen(head), &used), HARK_H1_OK);
	assert_true(h1.head.length == left);
	h1.settings.on_body = NULL; /* only the counting is of interest */
	while (left) {
		assert_false(h1.message_end);
		assert_int_equal(hark_h1_feed(&h1, block, sizeof(block), &used), HARK_H1_OK);
		assert_true(used == sizeof(block));
		left -= used;
	}
	assert_true(h1.message_end);
	hark_h1_fini(&h1);
}

/* ---- rebuilding ---- */

static void note_plain(void *ctx, uint32_t secret, const uint8_t *name, size_t n)
{
	(void)secret;
	(void)name;
	(void)n;
	++*(int *)ctx;
}

static void note(void *ctx, uint32_t secret, const uint8_t *name, size_t n, bool basic)
{
	(void)basic;
	note_plain(ctx, secret, name, n);
}

static void note_range(void *ctx)
{
	++*(int *)ctx;
}

static struct hark_head *head_of(struct hark_h1 *h1, struct log *log, const char *text)
{
	size_t used;

	memset(log, 0, sizeof(*log));
	log->h1 = h1;
	hark_h1_init(h1, false, &log_sink, log);
	assert_int_equal(hark_h1_feed(h1, (const uint8_t *)text, strlen(text), &used), HARK_H1_OK);
	return &h1->head;
}

static void test_rebuilt_request(void **state)
{
	static struct log log;
	struct hark_policy policy = {0};
	struct hark_host host = {.name = (char *)(uintptr_t)"a"};
	int notes = 0;
	struct hark_rebuild_notes told = {note, note_plain, note_range, &notes};
	struct hark_target target;
	struct hark_buf out;
	struct hark_h1 h1;
	const char *detail;
	const struct hark_head *head =
		head_of(&h1, &log,
			"GET https://a?x " R "X-One:  1 \r\nConnection: x-two, host\r\nX-Two: 2\r\n"
			"Keep-Alive: 1\r\nProxy-Connection: x\r\nTE: trailers\r\nY: 3\r\n\r\n");

	(void)state;
	assert_int_equal(hark_check_request(head, &target, &detail), HARK_REASON_COMPLETE);
	hark_buf_init(&out, 65536);
	assert_int_equal(hark_rebuild_request(head, &target, &policy, &host, &told, &out), 0);
	assert_int_equal(hark_buf_put(&out, "", 1), 0);
	assert_string_equal((const char *)hark_buf_data(&out),
			    "GET /?x HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nY: 3\r\n\r\n");
	assert_int_equal(notes, 0);
	hark_buf_fini(&out);
	hark_h1_fini(&h1);
}

/* ---- credentials ---- */

static char real_a[] = "sk-abcabcabd";
static char real_b[] = "sk-abcabcabdEXTRA"; /* begins with the other one */
static char hold_a[] = "hark-A";
static char hold_b[] = "hark-placeholder-B";
static const struct hark_cred cred_b = {
	.real = real_b, .real_len = 17, .placeholder = hold_b, .placeholder_len = 18};
static const struct hark_form both[] = {{real_a, 12, hold_a, 6}, {real_b, 17, hold_b, 18}};

struct swap_case {
	const char *in;
	const char *out;
};

static const struct swap_case swaps[] = {
	{"", ""},
	{"nothing", "nothing"},
	{"sk-abc", "sk-abc"},
	{"sk-abcabcabd", "hark-A"},
	{"sk-abcabcabdEXTR", "hark-AEXTR"},
	{"sk-abcabcabdEXTRA", "hark-placeholder-B"},
	{"sk-abcabcabcabd", "sk-abcabcabcabd"},
	{"sk-sk-abcabcabd", "sk-hark-A"},
	{"xsk-abcabcabdsk-abcabcabdy", "xhark-Ahark-Ay"},
	{"sk-abcsk-abcabcabdEXTRAsk-", "sk-abchark-placeholder-Bsk-"},
};

static void pass(struct hark_scan *scan, const char *p, size_t n, bool final, struct hark_buf *out)
{
	enum hark_scan_result r = hark_scan_feed(scan, (const uint8_t *)p, n, final, out);

	assert_true(r != HARK_SCAN_FAIL);
	if (r == HARK_SCAN_SAME)
		assert_int_equal(hark_buf_put(out, p, n), 0);
}

/* A head with as many fields as a peer may send still has room for what hark adds. */
static void test_a_full_head_is_rebuilt_whole(void **state)
{
	static struct log log;
	static const struct limit full = {true, "HTTP/1.1 200 OK\r\n", "a: b\r\n", 128, "\r\n", ""};
	struct hark_response_plan plan = {.framing = HARK_FRAMING_CHUNKED, .close = true};
	char *text = limit_message(&full);
	uint64_t reflected = 0;
	struct hark_h1 h1;
	struct hark_h1 again;
	struct hark_buf out;
	size_t used;

	(void)state;
	memset(&log, 0, sizeof(log));
	log.h1 = &h1;
	hark_h1_init(&h1, true, &log_sink, &log);
	assert_int_equal(hark_h1_feed(&h1, (const uint8_t *)text, strlen(text), &used), HARK_H1_OK);
	hark_buf_init(&out, HARK_H1_REBUILT);
	assert_int_equal(hark_rebuild_response(&h1.head, &plan, NULL, 0, &reflected, &out), 0);
	log.h1 = &again;
	hark_h1_init(&again, true, &log_sink, &log);
	again.max_fields += HARK_H1_OWN_FIELDS;
	assert_int_equal(hark_h1_feed(&again, hark_buf_data(&out), hark_buf_len(&out), &used),
			 HARK_H1_OK);
	assert_int_equal(again.head.nfields, HARK_H1_FIELDS + HARK_H1_OWN_FIELDS);
	assert_true(again.head.chunked);
	hark_h1_fini(&again);
	hark_h1_fini(&h1);
	hark_buf_fini(&out);
	free(text);
}

static void test_values_come_back_as_placeholders(void **state)
{
	size_t i;
	size_t cut;
	size_t second;

	(void)state;
	for (i = 0; i < sizeof(swaps) / sizeof(swaps[0]); i++) {
		size_t n = strlen(swaps[i].in);

		for (cut = 0; cut <= n; cut++) {
			for (second = cut; second <= n; second++) {
				struct hark_scan scan;
				struct hark_buf out;

				hark_scan_init(&scan, both, 2);
				hark_buf_init(&out, 4096);
				pass(&scan, swaps[i].in, cut, false, &out);
				pass(&scan, swaps[i].in + cut, second - cut, false, &out);
				pass(&scan, swaps[i].in + second, n - second, true, &out);
				assert_int_equal(hark_buf_put(&out, "", 1), 0);
				assert_string_equal((const char *)hark_buf_data(&out),
						    swaps[i].out);
				hark_buf_fini(&out);
				hark_scan_fini(&scan);
			}
		}
	}
}

static void test_nothing_is_held_back_without_need(void **state)
{
	struct hark_scan scan;
	struct hark_buf out;

	(void)state;
	hark_scan_init(&scan, both, 2);
	hark_buf_init(&out, 4096);
	assert_int_equal(hark_scan_feed(&scan, (const uint8_t *)"data: x\n\n", 9, false, &out),
			 HARK_SCAN_SAME);
	assert_int_equal(hark_scan_feed(&scan, (const uint8_t *)"data: s", 7, false, &out),
			 HARK_SCAN_OUT);
	assert_int_equal(hark_buf_len(&out), 6);
	hark_buf_fini(&out);
	hark_scan_fini(&scan);
}

static void test_base64(void **state)
{
	static const char *const good[][2] = {
		{"", ""}, {"Zg==", "f"}, {"Zm8=", "fo"}, {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}};
	static const char *const bad[] = {"Z",        "Zg",   "Zg=",  "Zh==", "Zm9=",  "====",
					  "Zg==Zg==", "Z===", "Zm 9", "Zm9-", "Zm9v\n"};
	struct hark_buf out;
	size_t i;

	(void)state;
	hark_buf_init(&out, 64);
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		hark_buf_clear(&out);
		assert_int_equal(
			hark_base64_get((const uint8_t *)good[i][0], strlen(good[i][0]), &out), 0);
		assert_int_equal(hark_buf_put(&out, "", 1), 0);
		assert_string_equal((const char *)hark_buf_data(&out), good[i][1]);
		hark_buf_clear(&out);
		assert_int_equal(
			hark_base64_put((const uint8_t *)good[i][1], strlen(good[i][1]), &out), 0);
		assert_int_equal(hark_buf_put(&out, "", 1), 0);
		assert_string_equal((const char *)hark_buf_data(&out), good[i][0]);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		hark_buf_clear(&out);
		assert_int_equal(hark_base64_get((const uint8_t *)bad[i], strlen(bad[i]), &out),
				 -1);
	}
	hark_buf_fini(&out);
}

/* Whatever stands around a credential, its base64 holds the form for that distance. */
static void test_every_base64_around_a_value_is_found(void **state)
{
	const char *before = "user:";
	const char *after = ":tail";
	size_t i;
	size_t j;

	(void)state;
	for (i = 0; i <= strlen(before); i++) {
		for (j = 0; j <= strlen(after); j++) {
			struct hark_form form;
			struct hark_buf text;
			struct hark_buf out;

			assert_int_equal(hark_form_base64(&cred_b, i % 3, &form), 1);
			hark_buf_init(&text, 256);
			hark_buf_init(&out, 256);
			assert_int_equal(hark_buf_put(&text, before, i), 0);
			assert_int_equal(hark_buf_text(&text, real_b), 0);
			assert_int_equal(hark_buf_put(&text, after, j), 0);
			assert_int_equal(
				hark_base64_put(hark_buf_data(&text), hark_buf_len(&text), &out),
				0);
			assert_non_null(memmem(hark_buf_data(&out), hark_buf_len(&out), form.real,
					       form.real_len));
			hark_buf_fini(&text);
			hark_buf_fini(&out);
			hark_form_fini(&form);
		}
	}
}

static void test_watch_sees_every_split(void **state)
{
	struct hark_cred cred = cred_b;
	struct hark_policy policy = {.creds = &cred, .ncreds = 1};
	const char *body = "xx hark-placeholder-B yy";
	size_t n = strlen(body);
	size_t cut;
	size_t i;

	(void)state;
	for (cut = 0; cut <= n; cut++) {
		struct hark_watch watch;
		int hits = 0;

		hark_watch_init(&watch, &policy);
		hits += hark_watch_feed(&watch, (const uint8_t *)body, cut) != NULL;
		hits += hark_watch_feed(&watch, (const uint8_t *)body + cut, n - cut) != NULL;
		assert_int_equal(hits, 1);
		hark_watch_fini(&watch);
		hark_watch_init(&watch, &policy);
		for (hits = 0, i = 0; i < n; i++)
			hits += hark_watch_feed(&watch, (const uint8_t *)body + i, 1) != NULL;
		assert_true(hits >= 1);
		hark_watch_fini(&watch);
	}
}

static void test_reasons_have_texts(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < HARK_REASON_COUNT; i++) {
		assert_non_null(hark_reason_name((enum hark_reason)i));
		assert_true(hark_reason_status((enum hark_reason)i) >= 200);
		assert_non_null(hark_reason_says((enum hark_reason)i));
		if (hark_reason_denial((enum hark_reason)i))
			assert_true(*hark_reason_next((enum hark_reason)i));
		assert_false(hark_reason_denial((enum hark_reason)i) &&
			     hark_reason_outside((enum hark_reason)i));
	}
	assert_true(hark_reason_outside(HARK_REASON_DIAL_CONNECT));
	assert_true(hark_reason_outside(HARK_REASON_UPSTREAM_CLOSED));
	assert_false(hark_reason_outside(HARK_REASON_REFLECTED));
	assert_false(hark_reason_outside(HARK_REASON_NO_MEMORY));
}

/* ---- addresses ---- */

static struct hark_addr v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d, uint16_t port)
{
	return (struct hark_addr){.family = AF_INET, .port = port, .addr = {a, b, c, d}};
}

static struct hark_addr v6(uint8_t kind, uint8_t high, uint8_t low, uint16_t port)
{
	return (struct hark_addr){
		.family = AF_INET6,
		.port = port,
		.addr = {0xfd, 0x68, 0x61, 0x72, 0x6b, 0, 0, kind, 0, 0, 0, 0, 0, 0, high, low}};
}

/* As hark/mediator/dns.py gives them: places count from 1. */
static void test_addresses_stand_for_rows(void **state)
{
	const struct {
		struct hark_addr addr;
		enum hark_address_kind kind;
		uint32_t index;
	} cases[] = {
		{v4(198, 18, 0, 1, 0), HARK_ADDRESS_ALLOWED, 0},
		{v4(198, 18, 1, 0, 0), HARK_ADDRESS_ALLOWED, 255},
		{v4(198, 18, 255, 255, 0), HARK_ADDRESS_ALLOWED, 65534},
		{v4(198, 18, 0, 0, 0), HARK_ADDRESS_RAW, 9},
		{v4(198, 19, 0, 1, 0), HARK_ADDRESS_DENIED, 9},
		{v4(198, 17, 0, 1, 0), HARK_ADDRESS_RAW, 9},
		{v4(127, 0, 0, 1, 0), HARK_ADDRESS_RAW, 9},
		{v6(1, 0, 1, 0), HARK_ADDRESS_ALLOWED, 0},
		{v6(1, 1, 2, 0), HARK_ADDRESS_ALLOWED, 257},
		{v6(1, 0, 0, 0), HARK_ADDRESS_RAW, 9},
		{v6(2, 0, 1, 0), HARK_ADDRESS_DENIED, 9},
		{v6(3, 0, 1, 0), HARK_ADDRESS_RAW, 9},
	};
	struct hark_addr beyond = v6(1, 0, 1, 0);
	uint32_t index;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		index = 9;
		assert_int_equal(hark_address_kind(&cases[i].addr, &index), cases[i].kind);
		assert_int_equal(index, cases[i].index);
	}
	for (i = 8; i < 13; i++) { /* 65537 and above: there is no such row */
		beyond.addr[i] = 1;
		assert_int_equal(hark_address_kind(&beyond, &index), HARK_ADDRESS_RAW);
		beyond.addr[i] = 0;
	}
}

static void test_addresses_are_judged_with_their_port(void **state)
{
	char name[] = "api.example";
	struct hark_port ports[] = {{443, HARK_PORT_TLS}, {80, HARK_PORT_PLAIN}};
	struct hark_host host = {.index = 4, .name = name, .ports = ports, .nports = 2};
	const struct hark_policy policy = {.hosts = &host, .nhosts = 1};
	const struct {
		struct hark_addr addr;
		enum hark_reason reason;
	} cases[] = {
		{v4(198, 18, 0, 5, 443), HARK_REASON_COMPLETE},
		{v6(1, 0, 5, 80), HARK_REASON_COMPLETE},
		{v4(198, 18, 0, 5, 22), HARK_REASON_PORT_DENIED},
		{v4(198, 18, 0, 4, 443), HARK_REASON_TCP_DENIED}, /* no such row */
		{v4(198, 19, 0, 5, 443), HARK_REASON_TCP_DENIED},
		{v6(2, 0, 5, 443), HARK_REASON_TCP_DENIED},
		{v4(10, 0, 0, 1, 443), HARK_REASON_COMPLETE}, /* a name may follow */
		{v4(10, 0, 0, 1, 22), HARK_REASON_TCP_DENIED},
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(hark_address_judge(&policy, &cases[i].addr), cases[i].reason);
	assert_ptr_equal(hark_address_host(&policy, &cases[0].addr), &host);
	assert_null(hark_address_host(&policy, &cases[3].addr));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_name_lengths),
		cmocka_unit_test(test_sni_structure),
		cmocka_unit_test(test_host_fields),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_responses),
		cmocka_unit_test(test_reasons_do_not_depend_on_pieces),
		cmocka_unit_test(test_long_body),
		cmocka_unit_test(test_rebuilt_request),
		cmocka_unit_test(test_a_full_head_is_rebuilt_whole),
		cmocka_unit_test(test_values_come_back_as_placeholders),
		cmocka_unit_test(test_nothing_is_held_back_without_need),
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_every_base64_around_a_value_is_found),
		cmocka_unit_test(test_watch_sees_every_split),
		cmocka_unit_test(test_reasons_have_texts),
		cmocka_unit_test(test_addresses_stand_for_rows),
		cmocka_unit_test(test_addresses_are_judged_with_their_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
