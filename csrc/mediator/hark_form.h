/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spellings in which a credential leaves, and may therefore come back: as it is,
 * percent-encoded (query parameters), and inside base64 (Basic authorization). Base64 of a text
 * around a credential holds one of three strings, by how many bytes stand before it modulo 3. Pure.
 */
#ifndef HARK_FORM_H
#define HARK_FORM_H

#include "hark_buf.h"

struct hark_cred;

enum { HARK_FORM_MIN = 8 }; /* a shorter text would be found by chance */

/* A text that must not get out, and what stands for it. Both owned. */
struct hark_form {
	char *real;
	size_t real_len;
	char *placeholder;
	size_t placeholder_len;
};

/* 1: *out was made; 0: this credential has no such form; -1: no memory. */
HARK_MUST_USE int hark_form_plain(const struct hark_cred *cred, struct hark_form *out);
HARK_MUST_USE int hark_form_percent(const struct hark_cred *cred, struct hark_form *out);
HARK_MUST_USE int hark_form_base64(const struct hark_cred *cred, size_t before,
				   struct hark_form *out);
void hark_form_fini(struct hark_form *form);

/* Append a query parameter's value, percent-encoded (RFC 3986, 2.1). -1: no room. */
HARK_MUST_USE int hark_percent_put(const char *text, struct hark_buf *out);

#endif
