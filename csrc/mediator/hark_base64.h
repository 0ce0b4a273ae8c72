/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 with padding (RFC 4648, 4), as Basic authorization uses it. Pure. */
#ifndef HARK_BASE64_H
#define HARK_BASE64_H

#include "hark_buf.h"

/* Append the text of n bytes. -1: no room. */
HARK_MUST_USE int hark_base64_put(const uint8_t *p, size_t n, struct hark_buf *out);

/* Append the bytes that a text stands for. -1: not the one canonical text of any bytes, or no room;
 * `out` may then hold some. */
HARK_MUST_USE int hark_base64_get(const uint8_t *p, size_t n, struct hark_buf *out);

#endif
