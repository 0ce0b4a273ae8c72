/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a launch plan. Oracle: accepted or refused with words; what is accepted can be
 * walked by its format again, no proper prefix of it is accepted, and nothing lies outside it.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

enum { NFDS = 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse(const uint8_t *data, size_t size, struct plan_op *ops, uint32_t *n)
{
	struct hark_err err;
	int r;

	hark_err_init(&err);
	r = plan_parse(ops, n, data, size, NFDS, &err);
	if (r && (!err.err || !err.what[0]))
		abort();
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plan_op *ops = calloc(HARK_PLAN_OPS, sizeof(*ops));
	uint8_t *copy = malloc(size ? size : 1); /* exactly as long, so that an over-read is seen */
	uint32_t n;
	uint32_t none;

	if (!ops || !copy)
		abort();
	memcpy(copy, data, size);
	if (parse(copy, size, ops, &n) == 0) {
		for (uint32_t i = 0; i < n; i++)
			if (ops[i].body.p < copy || ops[i].body.p + ops[i].body.left > copy + size)
				abort();
		for (size_t cut = size > 64 ? size - 64 : 0; cut < size; cut++)
			if (parse(copy, cut, ops, &none) == 0)
				abort();
	}
	free(copy);
	free(ops);
	return 0;
}
