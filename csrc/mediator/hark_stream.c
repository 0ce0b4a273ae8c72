/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_stream.h"

#include <errno.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hark_fd.h"

void hark_stream_init(struct hark_stream *stream, struct hark_loop *loop, int fd,
		      void (*ready)(struct hark_source *, uint32_t))
{
	memset(stream, 0, sizeof(*stream));
	stream->source.fd = fd;
	stream->source.ready = ready;
	stream->loop = loop;
	hark_buf_init(&stream->out, HARK_STREAM_MAX);
}

void hark_stream_fini(struct hark_stream *stream)
{
	hark_loop_forget(stream->loop, &stream->source);
	/* Else OpenSSL takes an end without close_notify for a reason to drop the session. */
	if (stream->ssl)
		SSL_set_shutdown(stream->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(stream->ssl);
	stream->ssl = NULL;
	hark_fd_close(&stream->source.fd);
	hark_buf_wipe(&stream->out); /* an upstream's queue may hold a credential */
	ERR_clear_error();
}

/* What a failed OpenSSL call meant. The error queue was cleared before the call. */
static enum hark_io ssl_result(struct hark_stream *stream, int r)
{
	switch (SSL_get_error(stream->ssl, r)) {
	case SSL_ERROR_WANT_READ:
		return HARK_IO_AGAIN;
	case SSL_ERROR_WANT_WRITE:
		stream->want_write = true;
		return HARK_IO_AGAIN;
	case SSL_ERROR_WANT_CLIENT_HELLO_CB:
		return HARK_IO_HELD;
	case SSL_ERROR_ZERO_RETURN:
		return HARK_IO_EOF;
	case SSL_ERROR_SSL:
		stream->error = ERR_peek_last_error();
		if (ERR_GET_REASON(stream->error) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
			return HARK_IO_CUT;
		return HARK_IO_ERROR;
	default:
		stream->error = 0;
		return errno == 0 ? HARK_IO_CUT : HARK_IO_ERROR;
	}
}

enum hark_io hark_stream_handshake(struct hark_stream *stream)
{
	int r;

	stream->want_write = false;
	ERR_clear_error();
	errno = 0;
	r = SSL_do_handshake(stream->ssl);
	return r == 1 ? HARK_IO_OK : ssl_result(stream, r);
}

static enum hark_io plain_read(struct hark_stream *stream, uint8_t *buf, size_t n, size_t *got)
{
	ssize_t r;

	do {
		r = read(stream->source.fd, buf, n);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EAGAIN ? HARK_IO_AGAIN : HARK_IO_ERROR;
	*got = (size_t)r;
	return r ? HARK_IO_OK : HARK_IO_EOF;
}

enum hark_io hark_stream_read(struct hark_stream *stream, uint8_t *buf, size_t n, size_t *got)
{
	enum hark_io io = HARK_IO_OK;

	*got = 0;
	if (!stream->ssl) {
		io = plain_read(stream, buf, n, got);
	} else {
		int r;

		ERR_clear_error();
		errno = 0;
		r = SSL_read_ex(stream->ssl, buf, n, got);
		if (r != 1)
			io = ssl_result(stream, r);
	}
	stream->rx += *got;
	return io;
}

int hark_stream_put(struct hark_stream *stream, const void *p, size_t n)
{
	return hark_buf_put(&stream->out, p, n);
}

static enum hark_io write_some(struct hark_stream *stream, size_t *sent)
{
	const uint8_t *p = hark_buf_data(&stream->out);
	size_t n = hark_buf_len(&stream->out);
	ssize_t r;

	if (stream->ssl) {
		int ok;

		ERR_clear_error();
		errno = 0;
		ok = SSL_write_ex(stream->ssl, p, n < HARK_STREAM_RECORD ? n : HARK_STREAM_RECORD,
				  sent);
		return ok == 1 ? HARK_IO_OK : ssl_result(stream, ok);
	}
	do {
		r = write(stream->source.fd, p, n);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EAGAIN ? HARK_IO_AGAIN : HARK_IO_ERROR;
	*sent = (size_t)r;
	return HARK_IO_OK;
}

enum hark_io hark_stream_flush(struct hark_stream *stream)
{
	stream->want_write = false;
	while (hark_buf_len(&stream->out)) {
		size_t sent = 0;
		enum hark_io io = write_some(stream, &sent);

		if (io != HARK_IO_OK)
			return io == HARK_IO_AGAIN ? io : HARK_IO_ERROR;
		stream->tx += sent;
		hark_buf_drop(&stream->out, sent);
	}
	return HARK_IO_OK;
}

bool hark_stream_has_pending(const struct hark_stream *stream)
{
	return stream->ssl && SSL_has_pending(stream->ssl);
}

/* Queued bytes wait for the handshake; asking for EPOLLOUT meanwhile would spin. */
static bool open_for_data(const struct hark_stream *stream)
{
	return !stream->ssl || SSL_is_init_finished(stream->ssl);
}

static int watch(struct hark_stream *stream, uint32_t input)
{
	uint32_t events = input;

	if (stream->want_write || (hark_buf_len(&stream->out) && open_for_data(stream)))
		events |= EPOLLOUT;
	/* Hang-ups and errors are always reported, so something must stay registered. */
	return hark_loop_watch(stream->loop, &stream->source, events ? events : EPOLLET);
}

int hark_stream_watch(struct hark_stream *stream, bool reading)
{
	stream->reading = reading;
	return watch(stream, reading ? EPOLLIN : stream->source.events & EPOLLIN);
}

int hark_stream_mute(struct hark_stream *stream)
{
	return watch(stream, 0);
}

void hark_stream_shut(struct hark_stream *stream)
{
	ERR_clear_error();
	if (stream->ssl && SSL_is_init_finished(stream->ssl))
		(void)SSL_shutdown(stream->ssl);
	(void)shutdown(stream->source.fd, SHUT_WR);
	ERR_clear_error();
}

bool hark_stream_quiet(const struct hark_stream *stream)
{
	uint8_t byte;

	return !hark_stream_has_pending(stream) &&
	       recv(stream->source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

const char *hark_stream_says(unsigned long error)
{
	const char *text = error ? ERR_reason_error_string(error) : "the connection broke";

	return text ? text : "unknown TLS error";
}
