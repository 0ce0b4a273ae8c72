/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed records into the ring. The loop makes sure there is room before anything is processed, so a
 * record that does not fit is a bug or a broken consumer: .broken is set and the mediator ends.
 */
#ifndef HARK_RECORD_H
#define HARK_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "../../bpf/hark_abi.h"
#include "hark_reason.h"
#include "hark_ring.h"

struct hark_recorder {
	struct hark_ring *ring; /* owned */
	bool broken;
	bool fresh;       /* records the consumer was not told of */
	bool urgent;      /* one of them is waited for */
	uint64_t bell_at; /* CLOCK_MONOTONIC ns, 0: no bell is due */
};

enum hark_record_limit { HARK_BELL_MS = 5 };

/* What is known of a TLS connection, for CONN_TLS and UPSTREAM. Static texts of OpenSSL. */
struct hark_tls_info {
	const char *version;
	const char *cipher;
	const char *alpn; /* not terminated */
	size_t alpn_len;
	bool resumed;
};

/* An address as records hold it. */
struct hark_addr {
	uint16_t family;
	uint16_t port;
	uint8_t addr[16];
};

/*
 * End of a batch: ring for what is urgent at once, for the rest within HARK_BELL_MS, so that a busy
 * agent does not wake the recorder twice per request. `force` rings now.
 */
void hark_record_bell(struct hark_recorder *rec, bool force);

struct hark_addr hark_addr_of(const struct sockaddr_storage *ss);

void hark_record_open(struct hark_recorder *rec, uint64_t conn, const struct hark_addr *src,
		      const struct hark_addr *dst);
void hark_record_tls(struct hark_recorder *rec, uint64_t conn, const struct hark_tls_info *tls,
		     const char *sni);
void hark_record_close(struct hark_recorder *rec, uint64_t conn, enum hark_reason reason,
		       uint64_t rx, uint64_t tx);
void hark_record_upstream(struct hark_recorder *rec, uint64_t exchange,
			  struct hark_rec_upstream *up);
void hark_record_request(struct hark_recorder *rec, uint64_t exchange, uint64_t conn, int32_t host,
			 const uint8_t *raw, size_t n);
void hark_record_response(struct hark_recorder *rec, uint64_t exchange, unsigned status, bool own,
			  const uint8_t *raw, size_t n);
void hark_record_body(struct hark_recorder *rec, uint64_t exchange, bool response, const uint8_t *p,
		      size_t n, uint16_t flags);
void hark_record_trailers(struct hark_recorder *rec, uint64_t exchange, bool response,
			  const uint8_t *raw, size_t n);
void hark_record_substituted(struct hark_recorder *rec, uint64_t exchange, uint32_t secret,
			     const uint8_t *header, size_t n);
void hark_record_end(struct hark_recorder *rec, uint64_t exchange, enum hark_reason reason,
		     uint64_t request_bytes, uint64_t response_bytes);

/* Returns the record's sequence number: an answer waits until it is durable. */
uint64_t hark_record_refused(struct hark_recorder *rec, uint64_t exchange, uint64_t conn,
			     enum hark_reason reason, const char *name, const void *detail,
			     size_t ndetail);

#endif
