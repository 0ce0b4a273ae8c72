/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_answer.h"

#include <inttypes.h>

static const char *phrase(unsigned status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 414:
		return "URI Too Long";
	case 417:
		return "Expectation Failed";
	case 421:
		return "Misdirected Request";
	case 431:
		return "Request Header Fields Too Large";
	case 501:
		return "Not Implemented";
	case 502:
		return "Bad Gateway";
	case 503:
		return "Service Unavailable";
	case 504:
		return "Gateway Timeout";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Internal Server Error";
	}
}

/* A JSON string; bytes outside printable ASCII become \u00XX. */
static int put_json(struct hark_buf *out, const char *text)
{
	const char *p;

	if (hark_buf_put(out, "\"", 1))
		return -1;
	for (p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;
		int r;

		if (c == '"' || c == '\\')
			r = hark_buf_printf(out, "\\%c", c);
		else if (c < ' ' || c > '~')
			r = hark_buf_printf(out, "\\u%04x", c);
		else
			r = hark_buf_put(out, p, 1);
		if (r)
			return -1;
	}
	return hark_buf_put(out, "\"", 1);
}

static int put_member(struct hark_buf *out, const char *key, const char *value)
{
	if (hark_buf_printf(out, ", \"%s\": ", key))
		return -1;
	return put_json(out, value);
}

/* What an operator would look up: the list that decides, or the protocol rule. */
static const char *rule_of(enum hark_reason reason)
{
	switch (reason) {
	case HARK_REASON_HOST_DENIED:
		return "allow_hosts";
	case HARK_REASON_PORT_DENIED:
	case HARK_REASON_PLAIN_HTTP_DENIED:
	case HARK_REASON_PLAIN_HTTP_ON_TLS_PORT:
		return "host.ports";
	case HARK_REASON_CREDENTIAL_WRONG_HOST:
		return "secrets";
	default:
		return "protocol";
	}
}

static int put_body(const struct hark_answer *answer, struct hark_buf *body)
{
	bool denial = hark_reason_denial(answer->reason);

	if (hark_buf_printf(body, "{\"error\": {\"type\": \"%s\"",
			    denial ? "hark_denied" : "hark_error") ||
	    put_member(body, "rule", rule_of(answer->reason)) ||
	    put_member(body, "reason", hark_reason_name(answer->reason)) ||
	    put_member(body, "message", hark_reason_says(answer->reason)) ||
	    put_member(body, "next_step", hark_reason_next(answer->reason)))
		return -1;
	if (*answer->host && put_member(body, "host", answer->host))
		return -1;
	if (*answer->detail && put_member(body, "detail", answer->detail))
		return -1;
	return hark_buf_printf(body, ", \"event\": \"exchange %" PRIu64 "\"}}\n", answer->exchange);
}

int hark_answer_build(const struct hark_answer *answer, struct hark_buf *head,
		      struct hark_buf *body)
{
	unsigned status = hark_reason_status(answer->reason);

	if (put_body(answer, body))
		return -1;
	if (hark_buf_printf(head,
			    "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
			    "Content-Length: %zu\r\nConnection: close\r\nX-Hark-Error: %s\r\n\r\n",
			    status, phrase(status), hark_buf_len(body),
			    hark_reason_name(answer->reason)))
		return -1;
	if (answer->head_request)
		hark_buf_clear(body);
	return 0;
}
