/* SPDX-License-Identifier: Apache-2.0 */
/* Names from a ClientHello and from Host fields: a name that passes is in normal form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hark_name.h"

static void check(enum hark_name_kind kind, const char *name)
{
	char again[HARK_NAME_SIZE];
	size_t n;

	if (kind != HARK_NAME_OK)
		return;
	n = strlen(name);
	if (n == 0 || n > HARK_NAME_MAX || strpbrk(name, ":/@\\ _%"))
		abort();
	if (hark_name_parse((const uint8_t *)name, n, again) != HARK_NAME_OK ||
	    strcmp(name, again) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char name[HARK_NAME_SIZE];
	uint16_t port;

	check(hark_name_from_sni(data, size, name), name);
	check(hark_name_from_host(data, size, name, &port), name);
	check(hark_name_parse(data, size, name), name);
	return 0;
}
