/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_cred.h"

#include <string.h>

static bool bound_to(const struct hark_cred *cred, const struct hark_host *host)
{
	return host && hark_cred_for_host(cred, host->index);
}

/* The placeholder that starts first in [p, p+n); the longest one where several start together, since
 * one secret's name may begin another's. */
static const struct hark_cred *first_placeholder(const struct hark_policy *policy, const uint8_t *p,
						 size_t n, const uint8_t **at)
{
	const struct hark_cred *best = NULL;
	size_t i;

	for (i = 0; i < policy->ncreds; i++) {
		const struct hark_cred *cred = &policy->creds[i];
		const uint8_t *hit = memmem(p, n, cred->placeholder, cred->placeholder_len);

		if (!hit)
			continue;
		if (!best || hit < *at ||
		    (hit == *at && cred->placeholder_len > best->placeholder_len)) {
			best = cred;
			*at = hit;
		}
	}
	return best;
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

static bool may_replace(const struct hark_cred *cred, const struct hark_host *host,
			const char *method, const uint8_t *name, size_t nname,
			const struct hark_cred_report *report)
{
	size_t max = sizeof(report->substituted) / sizeof(report->substituted[0]);

	return report->nsubstituted < max && bound_to(cred, host) &&
	       hark_cred_for_header(cred, name, nname) && hark_cred_for_method(cred, method);
}

int hark_cred_value(const struct hark_policy *policy, const struct hark_host *host,
		    const char *method, const uint8_t *name, size_t nname, const uint8_t *value,
		    size_t nvalue, struct hark_buf *out, struct hark_cred_report *report)
{
	const uint8_t *end = value + nvalue;

	memset(report, 0, sizeof(*report));
	while (value < end) {
		const uint8_t *at = NULL;
		const struct hark_cred *cred =
			first_placeholder(policy, value, (size_t)(end - value), &at);
		const char *put;

		if (!cred)
			break;
		put = cred->placeholder;
		if (may_replace(cred, host, method, name, nname, report)) {
			report->substituted[report->nsubstituted++] = cred->secret;
			put = cred->real;
		} else {
			report->elsewhere = true;
			report->elsewhere_of = cred->secret;
		}
		if (hark_buf_put(out, value, (size_t)(at - value)) || hark_buf_text(out, put))
			return -1;
		value = at + cred->placeholder_len;
	}
	return hark_buf_put(out, value, (size_t)(end - value));
}

/* ---- back ---- */

void hark_scan_init(struct hark_scan *scan, const struct hark_cred *const *creds, size_t ncreds)
{
	memset(scan, 0, sizeof(*scan));
	scan->creds = creds;
	scan->ncreds = ncreds;
	hark_buf_init(&scan->carry, HARK_CONFIG_SECRET_MAX + (1U << 17));
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

	for (i = 0; i < scan->ncreds; i++) {
		size_t k = partial(p, n, scan->creds[i]->real, scan->creds[i]->real_len);

		if (k > most)
			most = k;
	}
	return most;
}

/* The first real value in [p, p+n), the longest one where two start together. */
static const struct hark_cred *first_real(const struct hark_scan *scan, const uint8_t *p, size_t n,
					  const uint8_t **at)
{
	const struct hark_cred *best = NULL;
	size_t i;

	for (i = 0; i < scan->ncreds; i++) {
		const struct hark_cred *cred = scan->creds[i];
		const uint8_t *hit = memmem(p, n, cred->real, cred->real_len);

		if (!hit)
			continue;
		if (!best || hit < *at || (hit == *at && cred->real_len > best->real_len)) {
			best = cred;
			*at = hit;
		}
	}
	return best;
}

/* Replace in [p, p+n) whatever starts before the held-back tail, which may complete a longer one.
 */
static int replace(struct hark_scan *scan, const uint8_t *p, size_t n, size_t tail,
		   struct hark_buf *out, size_t *used)
{
	const uint8_t *end = p + n;
	const uint8_t *from = p;

	for (;;) {
		const uint8_t *at = NULL;
		const struct hark_cred *cred = first_real(scan, from, (size_t)(end - from), &at);

		if (!cred || at >= end - tail)
			break;
		if (hark_buf_put(out, from, (size_t)(at - from)) ||
		    hark_buf_put(out, cred->placeholder, cred->placeholder_len))
			return -1;
		scan->hits++;
		from = at + cred->real_len;
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
	const uint8_t *at = NULL;
	size_t carried = hark_buf_len(&scan->carry);
	size_t used = 0;
	size_t tail;

	if (!carried) {
		tail = final ? 0 : held_back(scan, p, n);
		if (!tail && !first_real(scan, p, n, &at))
			return HARK_SCAN_SAME;
		if (replace(scan, p, n, tail, out, &used) ||
		    hark_buf_put(&scan->carry, p + used, n - used))
			return HARK_SCAN_FAIL;
		return HARK_SCAN_OUT;
	}
	if (hark_buf_put(&scan->carry, p, n))
		return HARK_SCAN_FAIL;
	p = hark_buf_data(&scan->carry);
	n = hark_buf_len(&scan->carry);
	tail = final ? 0 : held_back(scan, p, n);
	if (replace(scan, p, n, tail, out, &used))
		return HARK_SCAN_FAIL;
	hark_buf_drop(&scan->carry, used);
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
