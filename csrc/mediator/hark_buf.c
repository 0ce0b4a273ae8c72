/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void hark_buf_init(struct hark_buf *buf, size_t max)
{
	memset(buf, 0, sizeof(*buf));
	buf->max = max;
}

void hark_buf_fini(struct hark_buf *buf)
{
	free(buf->mem);
	hark_buf_init(buf, buf->max);
}

static int reserve(struct hark_buf *buf, size_t n)
{
	size_t len = hark_buf_len(buf);
	size_t cap;
	uint8_t *mem;

	if (n > buf->max - len)
		return -1;
	if (buf->to + n <= buf->cap)
		return 0;
	if (buf->from) {
		memmove(buf->mem, buf->mem + buf->from, len);
		buf->from = 0;
		buf->to = len;
		if (len + n <= buf->cap)
			return 0;
	}
	cap = len + n < 512 ? 1024 : (len + n) * 2;
	if (cap > buf->max)
		cap = buf->max;
	mem = realloc(buf->mem, cap);
	if (!mem)
		return -1;
	buf->mem = mem;
	buf->cap = cap;
	return 0;
}

int hark_buf_put(struct hark_buf *buf, const void *p, size_t n)
{
	if (!n)
		return 0;
	if (reserve(buf, n))
		return -1;
	memcpy(buf->mem + buf->to, p, n);
	buf->to += n;
	return 0;
}

int hark_buf_text(struct hark_buf *buf, const char *text)
{
	return hark_buf_put(buf, text, strlen(text));
}

int hark_buf_printf(struct hark_buf *buf, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		return -1;
	return hark_buf_put(buf, text, (size_t)n);
}

void hark_buf_drop(struct hark_buf *buf, size_t n)
{
	buf->from += n;
	if (buf->from == buf->to)
		hark_buf_clear(buf);
}

void hark_buf_clear(struct hark_buf *buf)
{
	buf->from = 0;
	buf->to = 0;
}

void hark_buf_wipe(struct hark_buf *buf)
{
	if (buf->mem)
		explicit_bzero(buf->mem, buf->cap);
	hark_buf_fini(buf);
}
