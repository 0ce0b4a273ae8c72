/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as one CBOR value. Oracle: a value is accepted whole or not at all (no proper prefix of
 * an accepted value is accepted), and every reference lies inside it.
 */
#include <stdlib.h>
#include <string.h>

#include "hark_bundle.h"

enum { SPANS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hark_span spans[SPANS];
	uint32_t len = 0;
	uint32_t none = 0;
	uint8_t *copy = malloc(size ? size : 1); /* exactly as long, so that an over-read is seen */

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (hark_cbor_check(copy, size, spans, SPANS, &len) == HARK_CBOR_OK) {
		for (uint32_t i = 0; i < len; i++)
			if (spans[i].start >= spans[i].end || spans[i].end > size)
				abort();
		for (size_t cut = size > 64 ? size - 64 : 0; cut < size; cut++)
			if (hark_cbor_check(copy, cut, NULL, 0, &none) == HARK_CBOR_OK)
				abort();
	}
	free(copy);
	return 0;
}
