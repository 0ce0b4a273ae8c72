/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hark_base64_put(const uint8_t *p, size_t n, struct hark_buf *out)
{
	size_t i;

	for (i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
			     (left > 2 ? p[i + 2] : 0);
		char four[4] = {alphabet[v >> 18], alphabet[v >> 12 & 63],
				left > 1 ? alphabet[v >> 6 & 63] : '=',
				left > 2 ? alphabet[v & 63] : '='};

		if (hark_buf_put(out, four, sizeof(four)))
			return -1;
	}
	return 0;
}

/* The value of one digit, or -1. */
static int digit(uint8_t c)
{
	const char *at = c ? memchr(alphabet, c, sizeof(alphabet) - 1) : NULL;

	return at ? (int)(at - alphabet) : -1;
}

/* One group of `digits` digits, 2 to 4. */
static int get_group(const uint8_t *p, size_t digits, struct hark_buf *out)
{
	uint8_t bytes[3];
	uint32_t v = 0;
	size_t i;

	for (i = 0; i < 4; i++) {
		int d = i < digits ? digit(p[i]) : 0;

		if (d < 0)
			return -1;
		v = v << 6 | (uint32_t)d;
	}
	bytes[0] = (uint8_t)(v >> 16);
	bytes[1] = (uint8_t)(v >> 8);
	bytes[2] = (uint8_t)v;
	for (i = digits - 1; i < sizeof(bytes); i++) {
		if (bytes[i])
			return -1; /* bits that no encoder writes */
	}
	return hark_buf_put(out, bytes, digits - 1);
}

int hark_base64_get(const uint8_t *p, size_t n, struct hark_buf *out)
{
	size_t i;

	if (n % 4)
		return -1;
	for (i = 0; i < n; i += 4) {
		size_t digits = 4;

		if (i + 4 == n)
			digits -= p[n - 1] != '=' ? 0U : p[n - 2] != '=' ? 1U : 2U;
		if (get_group(p + i, digits, out))
			return -1;
	}
	return 0;
}
