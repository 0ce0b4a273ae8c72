/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1 responses, whole and split; see mediator_h1.h. */
#include "mediator_h1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz(data, size, true);
}
