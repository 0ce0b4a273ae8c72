/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names as the policy table holds them: lower case, letters, digits and hyphens, labels of
 * 1..63 bytes, at most 253 in all, no trailing dot. Pure; no allocation.
 */
#ifndef HARK_NAME_H
#define HARK_NAME_H

#include <stddef.h>
#include <stdint.h>

enum hark_name_limit { HARK_NAME_MAX = 253, HARK_NAME_SIZE = 256, HARK_NAME_LABEL = 63 };

enum hark_name_kind {
	HARK_NAME_OK = 0,
	HARK_NAME_INVALID = 1, /* not a host name of that form */
	HARK_NAME_ADDRESS = 2, /* an IPv4 or IPv6 literal */
	HARK_NAME_ABSENT = 3
};

/* Lower-case and check a name. `out` is filled only on HARK_NAME_OK. */
enum hark_name_kind hark_name_parse(const uint8_t *in, size_t n, char out[HARK_NAME_SIZE]);

/* The single name of a server_name extension (RFC 6066, section 3). */
enum hark_name_kind hark_name_from_sni(const uint8_t *ext, size_t n, char out[HARK_NAME_SIZE]);

/* A Host field or an authority: name, optional ":port" (RFC 9110, section 7.2). *port is 0 without.
 */
enum hark_name_kind hark_name_from_host(const uint8_t *in, size_t n, char out[HARK_NAME_SIZE],
					uint16_t *port);

#endif
