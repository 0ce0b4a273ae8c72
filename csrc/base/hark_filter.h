/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seccomp filter that one of hark's own programs puts itself under: a list of calls, some with
 * arguments that must or must not be, and death for everything else.
 *
 * Rules. The program is made here rather than by libseccomp: its table stands in the program's
 * source next to the reasons for its entries, needs no build step and no library in the process it
 * guards, and its order is the order of frequency. Arguments are compared in 32 bits, as the kernel
 * takes them.
 */
#ifndef HARK_FILTER_H
#define HARK_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hark_err.h"

enum hark_filter_limit { HARK_FILTER_RULES = 4, HARK_FILTER_CODE = 192 };

/* What an argument must be, or which bits it must not have. */
struct hark_filter_rule {
	unsigned int arg;
	bool forbidden; /* bits, instead of the one value */
	uint32_t value;
};

/* A call that is allowed with some arguments only; the same number may have several rows. */
struct hark_filter_limited {
	unsigned int nr;
	size_t n;
	struct hark_filter_rule rules[HARK_FILTER_RULES];
};

struct hark_filter {
	const unsigned int *allowed;
	size_t allowed_n;
	const struct hark_filter_limited *limited;
	size_t limited_n;
};

/* no_new_privs, then the filter, for this process and for ever. */
HARK_MUST_USE int hark_filter_enter(const struct hark_filter *filter, struct hark_err *err);

#endif
