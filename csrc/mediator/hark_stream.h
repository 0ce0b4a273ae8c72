/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connected socket, with or without TLS: non-blocking reads, and writes through a bounded
 * queue. What is queued between two flushes leaves in as few TLS records as it fits.
 */
#ifndef HARK_STREAM_H
#define HARK_STREAM_H

#include <openssl/ssl.h>

#include "hark_buf.h"
#include "hark_loop.h"

enum hark_stream_limit {
	HARK_STREAM_HIGH = 262144, /* queued bytes that pause the other side */
	HARK_STREAM_LOW = 65536,
	HARK_STREAM_MAX = 2097152, /* more than any pass can add above HIGH */
	HARK_STREAM_RECORD = 16384
};

enum hark_io {
	HARK_IO_OK = 0,
	HARK_IO_AGAIN = 1,
	HARK_IO_EOF = 2,
	HARK_IO_CUT = 3,  /* TLS: the socket ended without close_notify */
	HARK_IO_HELD = 4, /* TLS: the hello callback waits for something */
	HARK_IO_ERROR = -1
};

struct hark_stream {
	struct hark_source source;
	struct hark_loop *loop; /* borrowed */
	SSL *ssl;               /* owned; NULL: plain */
	struct hark_buf out;
	bool want_write; /* OpenSSL needs the socket writable */
	bool reading;    /* input is wanted */
	uint64_t rx;     /* application bytes */
	uint64_t tx;
	unsigned long error; /* OpenSSL's reason after HARK_IO_ERROR, 0: a socket error */
};

void hark_stream_init(struct hark_stream *stream, struct hark_loop *loop, int fd,
		      void (*ready)(struct hark_source *, uint32_t));
/* Close at once; bytes still queued are lost. */
void hark_stream_fini(struct hark_stream *stream);

enum hark_io hark_stream_handshake(struct hark_stream *stream);
enum hark_io hark_stream_read(struct hark_stream *stream, uint8_t *buf, size_t n, size_t *got);

/* Queue bytes; nothing is sent before a flush. -1: over the bound, or no memory. */
HARK_MUST_USE int hark_stream_put(struct hark_stream *stream, const void *p, size_t n);
enum hark_io hark_stream_flush(struct hark_stream *stream);

/* Bytes are waiting inside OpenSSL that epoll does not know of. */
bool hark_stream_has_pending(const struct hark_stream *stream);

/*
 * Tell epoll what is wanted now. Input that is not wanted stays registered until it is reported
 * once (hark_stream_mute), since most requests never get that far: two system calls less for each.
 */
HARK_MUST_USE int hark_stream_watch(struct hark_stream *stream, bool reading);

/* Input was reported and is not wanted: stop reporting it. */
HARK_MUST_USE int hark_stream_mute(struct hark_stream *stream);

/* Send close_notify and FIN; reading goes on. */
void hark_stream_shut(struct hark_stream *stream);

/* A peer that should be silent spoke or left: MSG_PEEK before a pooled connection is used again. */
bool hark_stream_quiet(const struct hark_stream *stream);

/* Text for an OpenSSL reason code. */
const char *hark_stream_says(unsigned long error);

#endif
