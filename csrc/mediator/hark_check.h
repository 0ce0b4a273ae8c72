/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What llhttp lets pass and hark does not: judgements on a parsed request head. Pure.
 */
#ifndef HARK_CHECK_H
#define HARK_CHECK_H

#include "hark_h1.h"
#include "hark_name.h"

struct hark_target {
	char host[HARK_NAME_SIZE]; /* normalised */
	uint16_t port;             /* as the request named it, 0 when it did not */
	struct hark_span path;     /* origin form, "*" or empty for "/" */
	bool expect_continue;
	bool strip_upgrade; /* Upgrade: h2c */
};

/*
 * Judge a request head. HARK_REASON_COMPLETE: it may be relayed to target->host. Any other: the
 * reason to refuse; *detail is a static text or NULL.
 */
enum hark_reason hark_check_request(const struct hark_head *head, struct hark_target *target,
				    const char **detail);

#endif
