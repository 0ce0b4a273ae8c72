/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled table: anything is refused or read, and what was read is in normal form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hark_policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hark_policy policy;
	struct hark_err err;
	uint8_t *table = malloc(size + 12);
	uint32_t head[3] = {HARK_CONFIG_MAGIC, HARK_CONFIG_VERSION, 0};
	size_t i;

	if (!table)
		return 0;
	/* The fixed part of the head is a gift, the count is not. */
	memcpy(head + 2, data, size < 4 ? size : 4);
	memcpy(table, head, sizeof(head));
	if (size > 4)
		memcpy(table + 12, data + 4, size - 4);
	hark_err_init(&err);
	if (hark_policy_init(&policy, table, size > 4 ? size + 8 : 12, &err) == 0) {
		for (i = 0; i < policy.nhosts; i++) {
			if (hark_policy_find(&policy, policy.hosts[i].name) != &policy.hosts[i])
				abort();
		}
		hark_policy_fini(&policy);
	} else if (!err.err) {
		abort();
	}
	free(table);
	return 0;
}
