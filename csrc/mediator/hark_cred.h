/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials: placeholders become real values in the configured header fields of their hosts, and
 * real values that come back become placeholders again. Pure; streaming over any split.
 */
#ifndef HARK_CRED_H
#define HARK_CRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hark_buf.h"
#include "hark_form.h"
#include "hark_policy.h"

/* The first credential whose placeholder occurs in these bytes and that is (not) bound to `host`.
 */
const struct hark_cred *hark_cred_in(const struct hark_policy *policy, const void *p, size_t n,
				     const struct hark_host *host, bool bound);

/* What a field value's way out did. */
struct hark_cred_report {
	uint32_t substituted[8]; /* secrets replaced in this value */
	size_t nsubstituted;
	bool basic;            /* one of them inside base64 */
	bool elsewhere;        /* a placeholder of this host stayed: wrong field or method */
	uint32_t elsewhere_of; /* its secret */
};

/*
 * Append a field value to `out` with the placeholders that may be replaced here replaced, those
 * inside the base64 of Basic authorization too (RFC 7617). -1: no room.
 */
HARK_MUST_USE int hark_cred_value(const struct hark_policy *policy, const struct hark_host *host,
				  const char *method, const uint8_t *name, size_t nname,
				  const uint8_t *value, size_t nvalue, struct hark_buf *out,
				  struct hark_cred_report *report);

/* The same for a request target: in the value of a bound query parameter, percent-encoded. */
HARK_MUST_USE int hark_cred_target(const struct hark_policy *policy, const struct hark_host *host,
				   const char *method, const uint8_t *target, size_t n,
				   struct hark_buf *out, struct hark_cred_report *report);

/* hark_cred_in for what the base64 of a Basic field value says. */
const struct hark_cred *hark_cred_in_basic(const struct hark_policy *policy, const uint8_t *value,
					   size_t n, const struct hark_host *host, bool bound);

/* ---- real values on their way back ---- */

/* Find any of these forms' real values in a stream. */
struct hark_scan {
	const struct hark_form *forms; /* borrowed */
	size_t nforms;
	struct hark_buf carry; /* an unfinished possible match */
	uint64_t hits;
};

enum hark_scan_result {
	HARK_SCAN_SAME = 0,  /* the output is the input; `out` was not touched */
	HARK_SCAN_OUT = 1,   /* the output was appended to `out` */
	HARK_SCAN_FAIL = -1, /* no room */
};

void hark_scan_init(struct hark_scan *scan, const struct hark_form *forms, size_t nforms);
void hark_scan_fini(struct hark_scan *scan);

/* Pass bytes through. A tail that may begin a real value is held back until `final`. */
HARK_MUST_USE enum hark_scan_result hark_scan_feed(struct hark_scan *scan, const uint8_t *p,
						   size_t n, bool final, struct hark_buf *out);

/* ---- placeholders in a body: only noticed ---- */

struct hark_watch {
	const struct hark_policy *policy; /* borrowed */
	size_t longest;
	struct hark_buf tail;
};

void hark_watch_init(struct hark_watch *watch, const struct hark_policy *policy);
void hark_watch_fini(struct hark_watch *watch);

/* The first credential whose placeholder ends in these bytes, or NULL. */
const struct hark_cred *hark_watch_feed(struct hark_watch *watch, const uint8_t *p, size_t n);

#endif
