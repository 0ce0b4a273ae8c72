/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_form.h"

#include <stdlib.h>

#include "hark_base64.h"
#include "hark_policy.h"

static bool unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

int hark_percent_put(const char *text, struct hark_buf *out)
{
	const char *p;

	for (p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (unreserved(c) ? hark_buf_put(out, p, 1) : hark_buf_printf(out, "%%%02X", c))
			return -1;
	}
	return 0;
}

/* Make a form of two texts; either NULL: no memory. */
static int make(char *real, char *placeholder, struct hark_form *out)
{
	*out = (struct hark_form){.real = real, .placeholder = placeholder};
	if (!real || !placeholder) {
		hark_form_fini(out);
		return -1;
	}
	out->real_len = strlen(real);
	out->placeholder_len = strlen(placeholder);
	return 1;
}

int hark_form_plain(const struct hark_cred *cred, struct hark_form *out)
{
	return make(strdup(cred->real), strdup(cred->placeholder), out);
}

/* A copy of [at, at+n) of a buffer as a text, the buffer wiped. */
static char *take(struct hark_buf *buf, size_t at, size_t n)
{
	char *text = strndup((const char *)hark_buf_data(buf) + at, n);

	hark_buf_wipe(buf);
	return text;
}

static char *percent(const char *text)
{
	struct hark_buf buf;

	hark_buf_init(&buf, 3 * (size_t)HARK_CONFIG_SECRET_MAX);
	if (hark_percent_put(text, &buf)) {
		hark_buf_wipe(&buf);
		return NULL;
	}
	return take(&buf, 0, hark_buf_len(&buf));
}

int hark_form_percent(const struct hark_cred *cred, struct hark_form *out)
{
	const char *p = cred->real;

	while (*p && unreserved((unsigned char)*p))
		p++;
	if (!*p)
		return 0; /* the same as it is */
	return make(percent(cred->real), percent(cred->placeholder), out);
}

/* The digits that follow from `text` alone when `before` bytes stand in front of it. */
static char *core(const char *text, size_t before)
{
	size_t bits = 8 * (before + strlen(text));
	size_t from = (8 * before + 5) / 6;
	struct hark_buf in;
	struct hark_buf out;
	char *digits = NULL;

	hark_buf_init(&in, HARK_CONFIG_SECRET_MAX + 2);
	hark_buf_init(&out, 2 * (size_t)HARK_CONFIG_SECRET_MAX);
	if (hark_buf_put(&in, "\0\0", before) == 0 && hark_buf_text(&in, text) == 0 &&
	    hark_base64_put(hark_buf_data(&in), hark_buf_len(&in), &out) == 0)
		digits = take(&out, from, bits / 6 - from);
	hark_buf_wipe(&in);
	hark_buf_wipe(&out);
	return digits;
}

int hark_form_base64(const struct hark_cred *cred, size_t before, struct hark_form *out)
{
	int r = make(core(cred->real, before), core(cred->placeholder, before), out);

	if (r != 1 || out->real_len >= HARK_FORM_MIN)
		return r;
	hark_form_fini(out);
	return 0;
}

void hark_form_fini(struct hark_form *form)
{
	if (form->real)
		explicit_bzero(form->real, strlen(form->real));
	free(form->real);
	free(form->placeholder);
	*form = (struct hark_form){0};
}
