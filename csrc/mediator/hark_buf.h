/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte queue with a bound: bytes are put at the end and taken from the front. A put that
 * would pass the bound, or that finds no memory, fails and leaves the queue as it was.
 */
#ifndef HARK_BUF_H
#define HARK_BUF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hark_err.h"

struct hark_buf {
	uint8_t *mem; /* owned */
	size_t from;  /* first byte */
	size_t to;    /* after the last one */
	size_t cap;
	size_t max;
};

void hark_buf_init(struct hark_buf *buf, size_t max);
void hark_buf_fini(struct hark_buf *buf);

static inline size_t hark_buf_len(const struct hark_buf *buf)
{
	return buf->to - buf->from;
}

static inline const uint8_t *hark_buf_data(const struct hark_buf *buf)
{
	return buf->mem ? buf->mem + buf->from : (const uint8_t *)"";
}

HARK_MUST_USE int hark_buf_put(struct hark_buf *buf, const void *p, size_t n);
HARK_MUST_USE int hark_buf_text(struct hark_buf *buf, const char *text);
HARK_MUST_USE int hark_buf_printf(struct hark_buf *buf, const char *fmt, ...) HARK_PRINTF(2, 3);

/* Remove n bytes from the front. */
void hark_buf_drop(struct hark_buf *buf, size_t n);

/* Forget the bytes, keep the memory. */
void hark_buf_clear(struct hark_buf *buf);

/* Overwrite the memory before freeing it: it held a credential. */
void hark_buf_wipe(struct hark_buf *buf);

#endif
