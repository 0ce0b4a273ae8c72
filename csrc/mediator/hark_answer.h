/* SPDX-License-Identifier: Apache-2.0 */
/* The responses hark makes itself: a status and a JSON body that a model can act on. Pure. */
#ifndef HARK_ANSWER_H
#define HARK_ANSWER_H

#include "hark_buf.h"
#include "hark_reason.h"

struct hark_answer {
	enum hark_reason reason;
	const char *host;   /* meant, "" when unknown */
	const char *detail; /* "" for none */
	uint64_t exchange;
	bool head_request; /* no body */
};

/* Append head and body to their buffers. */
HARK_MUST_USE int hark_answer_build(const struct hark_answer *answer, struct hark_buf *head,
				    struct hark_buf *body);

#endif
