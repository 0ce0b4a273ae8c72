/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_cred.h"

#include <string.h>
#include <strings.h>

#include "hark_base64.h"

static bool bound_to(const struct hark_cred *cred, const struct hark_host *host)
{
	return host && hark_cred_for_host(cred, host->index);
}

/* The longest placeholder that stands at the start of [p, p+n): one secret's name may begin
 * another's.
 */
static const struct hark_cred *placeholder_at(const struct hark_policy *policy, const uint8_t *p,
					      size_t n)
{
	const struct hark_cred *best = NULL;
	size_t i;

	for (i = 0; i < policy->ncreds; i++) {
		const struct hark_cred *cred = &policy->creds[i];

		if (cred->placeholder_len <= n &&
		    (!best || cred->placeholder_len > best->placeholder_len) &&
		    memcmp(p, cred->placeholder, cred->placeholder_len) == 0)
			best = cred;
	}
	return best;
}

/*
 * The placeholder that starts first in [p, p+n). All of a run begin alike, so one search finds the
 * places where one may stand: an agent that fills a head with them costs little.
 */
static const struct hark_cred *first_placeholder(const struct hark_policy *policy, const uint8_t *p,
						 size_t n, const uint8_t **at)
{
	const uint8_t *end = p + n;
	const struct hark_cred *cred = NULL;

	if (!policy->ncreds)
		return NULL;
	while (p < end && !cred) {
		p = memmem(p, (size_t)(end - p), policy->creds[0].placeholder, policy->common_len);
		if (!p)
			return NULL;
		cred = placeholder_at(policy, p, (size_t)(end - p));
		*at = p++;
	}
	return cred;
}

const struct hark_cred *hark_cred_in(const struct hark_policy *policy, const void *p, size_t n,
				     const struct hark_host *host, bool bound)
{
	const uint8_t *from = p;
	const uint8_t *end = from + n;
	const uint8_t *at = NULL;
	const struct hark_cred *cred;

	while ((cred = first_placeholder(policy, from, (size_t)(end - from), &at))) {
		if (bound_to(cred, host) == bound)
			return cred;
		from = at + cred->placeholder_len;
	}
	return NULL;
}

/* ---- out ---- */

/* Where a placeholder stands, and how its value is written there. */
struct place {
	const struct hark_policy *policy;
	const struct hark_host *host;
	const char *method;
	const uint8_t *name; /* field or parameter */
	size_t nname;
	bool query;
};

static bool may_replace(const struct hark_cred *cred, const struct place *place,
			const struct hark_cred_report *report)
{
	size_t max = sizeof(report->substituted) / sizeof(report->substituted[0]);
	bool here = place->query ? hark_cred_for_query(cred, place->name, place->nname)
				 : hark_cred_for_header(cred, place->name, place->nname);

	return here && report->nsubstituted < max && bound_to(cred, place->host) &&
	       hark_cred_for_method(cred, place->method);
}

static int put_text(const struct place *place, const uint8_t *value, size_t n, struct hark_buf *out,
		    struct hark_cred_report *report)
{
	const uint8_t *end = value + n;

	while (value < end) {
		const uint8_t *at = NULL;
		const struct hark_cred *cred =
			first_placeholder(place->policy, value, (size_t)(end - value), &at);
		bool replace = cred && may_replace(cred, place, report);
		const char *put = replace ? cred->real : cred ? cred->placeholder : "";

		if (!cred)
			break;
		if (replace) {
			report->substituted[report->nsubstituted++] = cred->secret;
		} else {
			report->elsewhere = true;
			report->elsewhere_of = cred->secret;
		}
		if (hark_buf_put(out, value, (size_t)(at - value)) ||
		    (place->query ? hark_percent_put(put, out) : hark_buf_text(out, put)))
			return -1;
		value = at + cred->placeholder_len;
	}
	return hark_buf_put(out, value, (size_t)(end - value));
}

/* Length of "Basic " and the spaces after it, 0 for another scheme (RFC 9110, 11.4). */
static size_t basic_scheme(const uint8_t *value, size_t n)
{
	size_t i = 6;

	if (n < i || strncasecmp((const char *)value, "basic ", i) != 0)
		return 0;
	while (i < n && value[i] == ' ')
		i++;
	return i;
}

/* The text of a Basic value. False: it is none, or its base64 is not canonical. */
static bool basic_text(const uint8_t *value, size_t n, struct hark_buf *text)
{
	size_t from = basic_scheme(value, n);

	return from && hark_base64_get(value + from, n - from, text) == 0;
}

const struct hark_cred *hark_cred_in_basic(const struct hark_policy *policy, const uint8_t *value,
					   size_t n, const struct hark_host *host, bool bound)
{
	const struct hark_cred *cred = NULL;
	struct hark_buf text;

	hark_buf_init(&text, n);
	if (policy->ncreds && basic_text(value, n, &text))
		cred = hark_cred_in(policy, hark_buf_data(&text), hark_buf_len(&text), host, bound);
	hark_buf_fini(&text);
	return cred;
}

static int put_basic(const struct place *place, const uint8_t *value, size_t n,
		     struct hark_buf *out, struct hark_cred_report *report)
{
	struct hark_buf text;
	struct hark_buf real;
	int r = -1;

	hark_buf_init(&text, n);
	hark_buf_init(&real, out->max);
	if (basic_text(value, n, &text) &&
	    put_text(place, hark_buf_data(&text), hark_buf_len(&text), &real, report) == 0 &&
	    hark_buf_put(out, value, basic_scheme(value, n)) == 0)
		r = hark_base64_put(hark_buf_data(&real), hark_buf_len(&real), out);
	hark_buf_fini(&text);
	hark_buf_wipe(&real);
	report->basic = report->nsubstituted > 0;
	return r;
}

int hark_cred_value(const struct hark_policy *policy, const struct hark_host *host,
		    const char *method, const uint8_t *name, size_t nname, const uint8_t *value,
		    size_t nvalue, struct hark_buf *out, struct hark_cred_report *report)
{
	struct place place = {policy, host, method, name, nname, false};

	memset(report, 0, sizeof(*report));
	if (hark_cred_in_basic(policy, value, nvalue, host, true))
		return put_basic(&place, value, nvalue, out, report);
	return put_text(&place, value, nvalue, out, report);
}

/* One "name=value" of a query, or a piece without "=". */
static int put_parameter(struct place *place, const uint8_t *p, size_t n, struct hark_buf *out,
			 struct hark_cred_report *report)
{
	const uint8_t *equals = memchr(p, '=', n);
	size_t nname = equals ? (size_t)(equals - p) + 1 : 0;

	place->nname = 0; /* a placeholder in the name is only noticed */
	if (put_text(place, p, nname, out, report))
		return -1;
	place->name = p;
	place->nname = nname ? nname - 1 : 0;
	return put_text(place, p + nname, n - nname, out, report);
}

int hark_cred_target(const struct hark_policy *policy, const struct hark_host *host,
		     const char *method, const uint8_t *target, size_t n, struct hark_buf *out,
		     struct hark_cred_report *report)
{
	struct place place = {policy, host, method, NULL, 0, true};
	const uint8_t *end = target + n;
	const uint8_t *query = memchr(target, '?', n);
	const uint8_t *p = query ? query + 1 : end;

	memset(report, 0, sizeof(*report));
	if (put_text(&place, target, (size_t)(p - target), out, report))
		return -1;
	while (p < end) {
		const uint8_t *amp = memchr(p, '&', (size_t)(end - p));
		const uint8_t *stop = amp ? amp : end;

		if (put_parameter(&place, p, (size_t)(stop - p), out, report) ||
		    hark_buf_put(out, "&", amp ? 1 : 0))
			return -1;
		p = amp ? amp + 1 : end;
	}
	return 0;
}

/* ---- back ---- */

void hark_scan_init(struct hark_scan *scan, const struct hark_form *forms, size_t nforms)
{
	memset(scan, 0, sizeof(*scan));
	scan->forms = forms;
	scan->nforms = nforms;
	/* Percent-encoded, a credential is three times as long. */
	hark_buf_init(&scan->carry, 3 * (size_t)HARK_CONFIG_SECRET_MAX + (1U << 17));
}

void hark_scan_fini(struct hark_scan *scan)
{
	hark_buf_wipe(&scan->carry);
}

/* Length of the longest proper prefix of `find` that ends [p, p+n). */
static size_t partial(const uint8_t *p, size_t n, const char *find, size_t nfind)
{
	size_t i = n >= nfind ? n - nfind + 1 : 0;

	while (i < n) {
		const uint8_t *at = memchr(p + i, find[0], n - i);

		if (!at)
			return 0;
		i = (size_t)(at - p);
		if (memcmp(at, find, n - i) == 0)
			return n - i;
		i++;
	}
	return 0;
}

/* How many bytes at the end may begin a real value. */
static size_t held_back(const struct hark_scan *scan, const uint8_t *p, size_t n)
{
	size_t most = 0;
	size_t i;

	for (i = 0; i < scan->nforms; i++) {
		size_t k = partial(p, n, scan->forms[i].real, scan->forms[i].real_len);

		if (k > most)
			most = k;
	}
	return most;
}

/* Where each form stands next, so that none is looked for twice in the same bytes. */
struct hits {
	const uint8_t *at[HARK_FORMS_MAX]; /* NULL: nowhere */
};

static const uint8_t *find_form(const struct hark_form *form, const uint8_t *p, const uint8_t *end)
{
	return memmem(p, (size_t)(end - p), form->real, form->real_len);
}

/* Returns whether there is any. */
static bool find_all(const struct hark_scan *scan, const uint8_t *p, const uint8_t *end,
		     struct hits *hits)
{
	bool any_hit = false;
	size_t i;

	for (i = 0; i < scan->nforms; i++) {
		hits->at[i] = find_form(&scan->forms[i], p, end);
		any_hit |= hits->at[i] != NULL;
	}
	return any_hit;
}

/* The first real value from `from` on, the longest one where two start together. */
static const struct hark_form *first_real(const struct hark_scan *scan, struct hits *hits,
					  const uint8_t *from, const uint8_t *end,
					  const uint8_t **at)
{
	const struct hark_form *best = NULL;
	size_t i;

	for (i = 0; i < scan->nforms; i++) {
		const struct hark_form *form = &scan->forms[i];

		if (hits->at[i] && hits->at[i] < from)
			hits->at[i] = find_form(form, from, end);
		if (!hits->at[i])
			continue;
		if (!best || hits->at[i] < *at ||
		    (hits->at[i] == *at && form->real_len > best->real_len)) {
			best = form;
			*at = hits->at[i];
		}
	}
	return best;
}

/* Replace in [p, p+n) whatever starts before the held-back tail, which may complete a longer one.
 */
static int replace(struct hark_scan *scan, struct hits *hits, const uint8_t *p, size_t n,
		   size_t tail, struct hark_buf *out, size_t *used)
{
	const uint8_t *end = p + n;
	const uint8_t *from = p;

	for (;;) {
		const uint8_t *at = NULL;
		const struct hark_form *form = first_real(scan, hits, from, end, &at);

		if (!form || at >= end - tail)
			break;
		if (hark_buf_put(out, from, (size_t)(at - from)) ||
		    hark_buf_put(out, form->placeholder, form->placeholder_len))
			return -1;
		scan->hits++;
		from = at + form->real_len;
	}
	if (from < end - tail) {
		if (hark_buf_put(out, from, (size_t)(end - tail - from)))
			return -1;
		from = end - tail;
	}
	*used = (size_t)(from - p);
	return 0;
}

enum hark_scan_result hark_scan_feed(struct hark_scan *scan, const uint8_t *p, size_t n, bool final,
				     struct hark_buf *out)
{
	size_t carried = hark_buf_len(&scan->carry);
	struct hits hits;
	bool any_hit;
	size_t used = 0;
	size_t tail;

	if (carried) {
		if (hark_buf_put(&scan->carry, p, n))
			return HARK_SCAN_FAIL;
		p = hark_buf_data(&scan->carry);
		n = hark_buf_len(&scan->carry);
	}
	tail = final ? 0 : held_back(scan, p, n);
	any_hit = find_all(scan, p, p + n, &hits);
	if (!carried && !tail && !any_hit)
		return HARK_SCAN_SAME;
	if (replace(scan, &hits, p, n, tail, out, &used))
		return HARK_SCAN_FAIL;
	if (carried)
		hark_buf_drop(&scan->carry, used);
	else if (hark_buf_put(&scan->carry, p + used, n - used))
		return HARK_SCAN_FAIL;
	return HARK_SCAN_OUT;
}

/* ---- watch ---- */

void hark_watch_init(struct hark_watch *watch, const struct hark_policy *policy)
{
	size_t i;

	watch->policy = policy;
	watch->longest = 0;
	for (i = 0; i < policy->ncreds; i++) {
		if (policy->creds[i].placeholder_len > watch->longest)
			watch->longest = policy->creds[i].placeholder_len;
	}
	hark_buf_init(&watch->tail, (size_t)2 * HARK_CONFIG_SECRET_MAX);
}

void hark_watch_fini(struct hark_watch *watch)
{
	hark_buf_fini(&watch->tail);
}

static const struct hark_cred *any(const struct hark_policy *policy, const uint8_t *p, size_t n)
{
	const uint8_t *at = NULL;

	return first_placeholder(policy, p, n, &at);
}

const struct hark_cred *hark_watch_feed(struct hark_watch *watch, const uint8_t *p, size_t n)
{
	size_t keep = watch->longest ? watch->longest - 1 : 0;
	size_t head = n < keep ? n : keep;
	const struct hark_cred *hit = NULL;

	if (!keep || !n)
		return NULL;
	/* Across the edge: the kept tail and the first bytes of the input. */
	if (hark_buf_len(&watch->tail)) {
		if (hark_buf_put(&watch->tail, p, head))
			return NULL; /* cannot happen: the bound fits twice the longest */
		hit = any(watch->policy, hark_buf_data(&watch->tail), hark_buf_len(&watch->tail));
	}
	if (!hit)
		hit = any(watch->policy, p, n);
	if (n >= keep || !hark_buf_len(&watch->tail)) {
		hark_buf_clear(&watch->tail);
		if (hark_buf_put(&watch->tail, p + n - head, head))
			return hit;
	} else if (hark_buf_len(&watch->tail) > keep) {
		hark_buf_drop(&watch->tail, hark_buf_len(&watch->tail) - keep);
	}
	return hit;
}
