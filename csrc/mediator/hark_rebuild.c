/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_rebuild.h"

#include <inttypes.h>
#include <strings.h>

static const char *const hop_by_hop[] = {"connection",
					 "proxy-connection",
					 "keep-alive",
					 "te",
					 "upgrade",
					 "http2-settings",
					 "trailer",
					 "transfer-encoding",
					 "content-length",
					 "alt-svc",
					 "proxy-authenticate",
					 "proxy-authorization"};

/* End-to-end whatever Connection says: dropping them would change what the request means. */
static const char *const never_nominated[] = {"host", "content-type", "expect", "authorization"};

static const char *const no_trailer[] = {"transfer-encoding",
					 "content-length",
					 "host",
					 "connection",
					 "trailer",
					 "te",
					 "authorization",
					 "cookie",
					 "set-cookie",
					 "content-encoding",
					 "content-type",
					 "content-range",
					 "keep-alive",
					 "proxy-connection",
					 "upgrade",
					 "expect",
					 "www-authenticate"};

static bool in_list(const uint8_t *name, size_t n, const char *const *list, size_t nlist)
{
	size_t i;

	for (i = 0; i < nlist; i++) {
		if (strlen(list[i]) == n && strncasecmp((const char *)name, list[i], n) == 0)
			return true;
	}
	return false;
}

#define IN_LIST(name, n, list) in_list(name, n, list, sizeof(list) / sizeof((list)[0]))

static bool nominated(const struct hark_head *head, const uint8_t *name, size_t n)
{
	char lower[128];
	size_t i;

	if (n >= sizeof(lower) || IN_LIST(name, n, never_nominated))
		return false;
	for (i = 0; i < n; i++)
		lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
	lower[n] = 0;
	for (i = 0; i < head->nfields; i++) {
		if (hark_head_is(head, head->fields[i].name, "connection") &&
		    hark_head_has_token(head, head->fields[i].value, lower))
			return true;
	}
	return false;
}

static bool dropped(const struct hark_head *head, const struct hark_field *field)
{
	const uint8_t *name = hark_head_at(head, field->name);

	return IN_LIST(name, field->name.len, hop_by_hop) || nominated(head, name, field->name.len);
}

static int put_span(const struct hark_head *head, struct hark_span span, struct hark_buf *out)
{
	return hark_buf_put(out, hark_head_at(head, span), span.len);
}

static int put_framing(enum hark_framing framing, uint64_t length, struct hark_buf *out)
{
	if (framing == HARK_FRAMING_CHUNKED)
		return hark_buf_text(out, "Transfer-Encoding: chunked\r\n");
	if (framing == HARK_FRAMING_LENGTH)
		return hark_buf_printf(out, "Content-Length: %" PRIu64 "\r\n", length);
	return 0;
}

/* ---- request ---- */

struct request {
	const struct hark_head *head;
	const struct hark_policy *policy;
	const struct hark_host *host;
	const struct hark_rebuild_notes *notes;
	const char *method;
	bool partial; /* it may carry a credential, so it asks for the whole */
};

/* Without a name: the request target. */
static void note_all(const struct request *rq, const struct hark_cred_report *report,
		     const uint8_t *name, size_t nname)
{
	size_t i;

	for (i = 0; i < report->nsubstituted; i++)
		rq->notes->substituted(rq->notes->ctx, report->substituted[i], name, nname,
				       report->basic);
	if (report->elsewhere)
		rq->notes->elsewhere(rq->notes->ctx, report->elsewhere_of, name, nname);
}

/* Of an answer to part of a resource, a piece of the credential could come back unnoticed. */
static bool partial_wish(const struct request *rq, const struct hark_field *field)
{
	return rq->partial && (hark_head_is(rq->head, field->name, "range") ||
			       hark_head_is(rq->head, field->name, "if-range"));
}

static int put_request_field(const struct request *rq, const struct hark_field *field,
			     struct hark_buf *out)
{
	const uint8_t *name = hark_head_at(rq->head, field->name);
	struct hark_cred_report report;

	/* A compressed answer could repeat the credential unseen. */
	if (rq->host->has_creds && hark_head_is(rq->head, field->name, "accept-encoding"))
		return 0;
	if (partial_wish(rq, field)) {
		rq->notes->range_removed(rq->notes->ctx);
		return 0;
	}
	if (hark_buf_put(out, name, field->name.len) || hark_buf_put(out, ": ", 2))
		return -1;
	if (hark_cred_value(rq->policy, rq->host, rq->method, name, field->name.len,
			    hark_head_at(rq->head, field->value), field->value.len, out, &report))
		return -1;
	note_all(rq, &report, name, field->name.len);
	return hark_buf_put(out, "\r\n", 2);
}

static int put_request_line(const struct request *rq, const struct hark_target *target,
			    struct hark_buf *out)
{
	const uint8_t *path = hark_head_at(rq->head, target->path);
	struct hark_cred_report report;

	if (hark_buf_text(out, rq->method) || hark_buf_put(out, " ", 1))
		return -1;
	/* Absolute form may lack a path, or start with its query. */
	if ((!target->path.len || (path[0] != '/' && path[0] != '*')) && hark_buf_put(out, "/", 1))
		return -1;
	if (hark_cred_target(rq->policy, rq->host, rq->method, path, target->path.len, out,
			     &report))
		return -1;
	note_all(rq, &report, (const uint8_t *)"", 0);
	return hark_buf_text(out, " HTTP/1.1\r\n");
}

const struct hark_cred *hark_rebuild_cred_in(const struct hark_head *head,
					     const struct hark_policy *policy,
					     const struct hark_host *host, bool bound)
{
	const struct hark_cred *cred = hark_cred_in(policy, hark_buf_data(&head->raw),
						    hark_buf_len(&head->raw), host, bound);
	size_t i;

	for (i = 0; i < head->nfields && !cred; i++) {
		struct hark_span value = head->fields[i].value;

		cred = hark_cred_in_basic(policy, hark_head_at(head, value), value.len, host,
					  bound);
	}
	return cred;
}

int hark_rebuild_request(const struct hark_head *head, const struct hark_target *target,
			 const struct hark_policy *policy, const struct hark_host *host,
			 const struct hark_rebuild_notes *notes, struct hark_buf *out)
{
	struct request rq = {head,
			     policy,
			     host,
			     notes,
			     llhttp_method_name(head->method),
			     hark_rebuild_cred_in(head, policy, host, true) != NULL};
	enum hark_framing framing = HARK_FRAMING_NONE;
	size_t i;

	if (put_request_line(&rq, target, out))
		return -1;
	for (i = 0; i < head->nfields; i++) {
		if (!dropped(head, &head->fields[i]) &&
		    put_request_field(&rq, &head->fields[i], out))
			return -1;
	}
	if (head->chunked)
		framing = HARK_FRAMING_CHUNKED;
	else if (head->has_length)
		framing = HARK_FRAMING_LENGTH;
	if (host->has_creds && hark_buf_text(out, "Accept-Encoding: identity\r\n"))
		return -1;
	if (put_framing(framing, head->length, out))
		return -1;
	return hark_buf_put(out, "\r\n", 2);
}

/* ---- response ---- */

static int put_scanned(const uint8_t *p, size_t n, const struct hark_form *forms, size_t nforms,
		       uint64_t *reflected, struct hark_buf *out)
{
	struct hark_scan scan;
	enum hark_scan_result r;

	if (!nforms)
		return hark_buf_put(out, p, n);
	hark_scan_init(&scan, forms, nforms);
	r = hark_scan_feed(&scan, p, n, true, out);
	*reflected += scan.hits;
	hark_scan_fini(&scan);
	if (r == HARK_SCAN_SAME)
		return hark_buf_put(out, p, n);
	return r == HARK_SCAN_OUT ? 0 : -1;
}

static int put_field(const struct hark_head *head, const struct hark_field *field,
		     struct hark_buf *out)
{
	if (put_span(head, field->name, out) || hark_buf_put(out, ": ", 2) ||
	    put_span(head, field->value, out))
		return -1;
	return hark_buf_put(out, "\r\n", 2);
}

/*
 * A field whose line, as it came, repeats a credential: in its name, in its value, or across both.
 * What is no field afterwards is left out.
 */
static int put_scanned_field(const struct hark_head *head, const struct hark_field *field,
			     const struct hark_form *forms, size_t nforms, uint64_t *reflected,
			     struct hark_buf *out)
{
	const uint8_t *line = hark_head_at(head, field->name);
	size_t n = field->value.len ? field->value.at + field->value.len - field->name.at
				    : field->name.len;
	uint64_t hits = 0;
	struct hark_buf clean;
	int r;

	hark_buf_init(&clean, out->max);
	r = put_scanned(line, n, forms, nforms, &hits, &clean);
	if (!r && !hits)
		r = put_field(head, field, out);
	else if (!r && memchr(hark_buf_data(&clean), ':', hark_buf_len(&clean)))
		r = hark_buf_put(out, hark_buf_data(&clean), hark_buf_len(&clean)) ||
				    hark_buf_put(out, "\r\n", 2)
			    ? -1
			    : 0;
	*reflected += hits;
	hark_buf_fini(&clean);
	return r;
}

/* Fields of a response that end here. Nobody but hark says that hark refused. */
static bool response_dropped(const struct hark_head *head, const struct hark_field *field)
{
	return dropped(head, field) || hark_head_is(head, field->name, "x-hark-error");
}

static int put_connection(const struct hark_response_plan *plan, struct hark_buf *out)
{
	if (plan->close)
		return hark_buf_text(out, "Connection: close\r\n");
	if (plan->keep_alive_10)
		return hark_buf_text(out, "Connection: keep-alive\r\n");
	return 0;
}

int hark_rebuild_response(const struct hark_head *head, const struct hark_response_plan *plan,
			  const struct hark_form *forms, size_t nforms, uint64_t *reflected,
			  struct hark_buf *out)
{
	bool length =
		plan->framing == HARK_FRAMING_LENGTH || (plan->keep_length && head->has_length);
	size_t i;

	if (hark_buf_printf(out, "HTTP/1.1 %u ", head->status) ||
	    put_scanned(hark_head_at(head, head->reason_phrase), head->reason_phrase.len, forms,
			nforms, reflected, out) ||
	    hark_buf_put(out, "\r\n", 2))
		return -1;
	for (i = 0; i < head->nfields; i++) {
		const struct hark_field *field = &head->fields[i];

		if (response_dropped(head, field))
			continue;
		if (nforms ? put_scanned_field(head, field, forms, nforms, reflected, out)
			   : put_field(head, field, out))
			return -1;
	}
	if (put_framing(length ? HARK_FRAMING_LENGTH : plan->framing, plan->length, out) ||
	    put_connection(plan, out))
		return -1;
	return hark_buf_put(out, "\r\n", 2);
}

int hark_rebuild_trailers(const struct hark_buf *lines, const struct hark_form *forms,
			  size_t nforms, uint64_t *reflected, struct hark_buf *out)
{
	const uint8_t *p = hark_buf_data(lines);
	const uint8_t *end = p + hark_buf_len(lines);

	while (p < end) {
		const uint8_t *eol = memmem(p, (size_t)(end - p), "\r\n", 2);
		const uint8_t *colon;

		if (!eol)
			return -1;
		eol += 2;
		colon = memchr(p, ':', (size_t)(eol - p));
		if (colon && !IN_LIST(p, (size_t)(colon - p), no_trailer) &&
		    put_scanned(p, (size_t)(eol - p), forms, nforms, reflected, out))
			return -1;
		p = eol;
	}
	return 0;
}
