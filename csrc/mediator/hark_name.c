/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_name.h"

#include <stdbool.h>
#include <string.h>

static bool digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool letter_digit(uint8_t c)
{
	return digit(c) || (c >= 'a' && c <= 'z');
}

/* One label ending at n or at a dot; its length, 0 when it is none. */
static size_t label(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && s[i] != '.') {
		uint8_t c = (uint8_t)s[i];

		if (!letter_digit(c) && (c != '-' || i == 0))
			return 0;
		i++;
	}
	return i > HARK_NAME_LABEL || (i && s[i - 1] == '-') ? 0 : i;
}

/* A name whose last label is a number is an address to every resolver (WHATWG URL, "ends in a
 * number"), so 127.1 and 0x7f.1 count as well. */
static bool ends_in_number(const char *s, size_t n)
{
	size_t start = n;
	size_t i;

	while (start && s[start - 1] != '.')
		start--;
	if (n - start > 2 && s[start] == '0' && s[start + 1] == 'x')
		return true;
	for (i = start; i < n; i++) {
		if (!digit((uint8_t)s[i]))
			return false;
	}
	return n > start;
}

enum hark_name_kind hark_name_parse(const uint8_t *in, size_t n, char out[HARK_NAME_SIZE])
{
	char name[HARK_NAME_SIZE];
	size_t i;

	if (!n || n > HARK_NAME_MAX)
		return HARK_NAME_INVALID;
	if (memchr(in, ':', n))
		return HARK_NAME_ADDRESS;
	for (i = 0; i < n; i++)
		name[i] = (char)(in[i] >= 'A' && in[i] <= 'Z' ? in[i] + 32 : in[i]);
	for (i = 0; i < n;) {
		size_t len = label(name + i, n - i);

		if (!len)
			return HARK_NAME_INVALID;
		i += len + 1; /* and its dot */
		if (i == n)
			return HARK_NAME_INVALID; /* trailing dot */
	}
	if (ends_in_number(name, n))
		return HARK_NAME_ADDRESS;
	memcpy(out, name, n);
	out[n] = 0;
	return HARK_NAME_OK;
}

enum hark_name_kind hark_name_from_sni(const uint8_t *ext, size_t n, char out[HARK_NAME_SIZE])
{
	size_t list;
	size_t len;

	/* u16 list length, u8 type 0, u16 name length, name: exactly one entry. */
	if (n < 5)
		return HARK_NAME_INVALID;
	list = (size_t)ext[0] << 8 | ext[1];
	len = (size_t)ext[3] << 8 | ext[4];
	if (list != n - 2 || ext[2] != 0 || len != n - 5)
		return HARK_NAME_INVALID;
	return hark_name_parse(ext + 5, len, out);
}

static bool parse_port(const uint8_t *p, size_t n, uint16_t *port)
{
	uint32_t v = 0;
	size_t i;

	if (n < 1 || n > 5)
		return false;
	for (i = 0; i < n; i++) {
		if (!digit(p[i]))
			return false;
		v = v * 10 + (uint32_t)(p[i] - '0');
	}
	*port = (uint16_t)v;
	return v > 0 && v <= UINT16_MAX;
}

enum hark_name_kind hark_name_from_host(const uint8_t *in, size_t n, char out[HARK_NAME_SIZE],
					uint16_t *port)
{
	const uint8_t *colon;

	*port = 0;
	if (!n)
		return HARK_NAME_ABSENT;
	if (in[0] == '[')
		return HARK_NAME_ADDRESS;
	colon = memchr(in, ':', n);
	if (!colon)
		return hark_name_parse(in, n, out);
	if (!parse_port(colon + 1, n - (size_t)(colon - in) - 1, port))
		return HARK_NAME_INVALID;
	return hark_name_parse(in, (size_t)(colon - in), out);
}
