/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_record.h"

#include <netinet/in.h>
#include <string.h>

#include "../../bpf/hark_abi_check.h"
#include "hark_time.h"

static uint64_t put(struct hark_recorder *rec, struct hark_rec_head *head, size_t nfixed,
		    uint16_t kind, uint64_t subject, const void *var, size_t nvar)
{
	uint64_t seq = 0;

	head->kind = kind;
	head->boot_ns = hark_time_ns(CLOCK_BOOTTIME);
	head->subject = subject;
	if (hark_ring_put(rec->ring, head, nfixed, var, nvar, &seq) != HARK_RING_OK)
		rec->broken = true;
	rec->fresh = true;
	return seq;
}

void hark_record_bell(struct hark_recorder *rec, bool force)
{
	uint64_t now;

	if (!rec->fresh && !force)
		return;
	now = hark_time_ns(CLOCK_MONOTONIC);
	if (!rec->bell_at)
		rec->bell_at = now + HARK_BELL_MS * HARK_NS_PER_MS;
	if (!force && !rec->urgent && now < rec->bell_at)
		return;
	hark_ring_ring(rec->ring);
	rec->fresh = false;
	rec->urgent = false;
	rec->bell_at = 0;
}

#define PUT(rec, r, kind, subject, var, nvar)                                                      \
	put(rec, &(r).head, sizeof(r), kind, subject, var, nvar)

static void text(char to[HARK_MED_TEXT], const char *from, size_t n)
{
	memcpy(to, from, n < HARK_MED_TEXT ? n : HARK_MED_TEXT);
}

struct hark_addr hark_addr_of(const struct sockaddr_storage *ss)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)ss;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ss;
	struct hark_addr a = {.family = ss->ss_family};

	if (ss->ss_family == AF_INET) {
		memcpy(a.addr, &v4->sin_addr, 4);
		a.port = ntohs(v4->sin_port);
	} else if (ss->ss_family == AF_INET6) {
		memcpy(a.addr, &v6->sin6_addr, 16);
		a.port = ntohs(v6->sin6_port);
	}
	if (ss->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		a.family = AF_INET;
		memset(a.addr, 0, sizeof(a.addr));
		memcpy(a.addr, v6->sin6_addr.s6_addr + 12, 4);
	}
	return a;
}

void hark_record_open(struct hark_recorder *rec, uint64_t conn, const struct hark_addr *src,
		      const struct hark_addr *dst)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_conn_open r;
	} m = {.r = {.conn = conn, .family = src->family, .sport = src->port, .dport = dst->port}};

	memcpy(m.r.src, src->addr, sizeof(m.r.src));
	memcpy(m.r.dst, dst->addr, sizeof(m.r.dst));
	(void)PUT(rec, m, HARK_REC_CONN_OPEN, 0, NULL, 0);
}

void hark_record_tls(struct hark_recorder *rec, uint64_t conn, const struct hark_tls_info *tls,
		     const char *sni)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_conn_tls r;
	} m = {.r = {.conn = conn, .resumed = tls->resumed, .size = (uint32_t)strlen(sni)}};

	text(m.r.version, tls->version, strlen(tls->version));
	text(m.r.cipher, tls->cipher, strlen(tls->cipher));
	text(m.r.alpn, tls->alpn ? tls->alpn : "", tls->alpn_len);
	(void)PUT(rec, m, HARK_REC_CONN_TLS, 0, sni, m.r.size);
}

void hark_record_close(struct hark_recorder *rec, uint64_t conn, enum hark_reason reason,
		       uint64_t rx, uint64_t tx)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_conn_close r;
	} m = {.r = {.conn = conn, .rx_bytes = rx, .tx_bytes = tx, .reason = (uint16_t)reason}};

	(void)PUT(rec, m, HARK_REC_CONN_CLOSE, 0, NULL, 0);
}

void hark_record_upstream(struct hark_recorder *rec, uint64_t exchange,
			  struct hark_rec_upstream *up)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_upstream r;
	} m = {.r = *up};

	(void)PUT(rec, m, HARK_REC_UPSTREAM, exchange, NULL, 0);
}

void hark_record_request(struct hark_recorder *rec, uint64_t exchange, uint64_t conn, int32_t host,
			 const uint8_t *raw, size_t n)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_req_head r;
	} m = {.r = {.conn = conn, .host = host, .size = (uint32_t)n}};

	(void)PUT(rec, m, HARK_REC_REQ_HEAD, exchange, raw, n);
}

void hark_record_response(struct hark_recorder *rec, uint64_t exchange, unsigned status, bool own,
			  const uint8_t *raw, size_t n)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_res_head r;
	} m = {.r = {.status = (uint16_t)status, .own = own, .size = (uint32_t)n}};

	(void)PUT(rec, m, HARK_REC_RES_HEAD, exchange, raw, n);
}

void hark_record_body(struct hark_recorder *rec, uint64_t exchange, bool response, const uint8_t *p,
		      size_t n, uint16_t flags)
{
	uint16_t kind = response ? HARK_REC_RES_BODY : HARK_REC_REQ_BODY;

	do {
		size_t part = n < HARK_MED_BODY ? n : HARK_MED_BODY;
		struct {
			struct hark_rec_head head;
			struct hark_rec_bytes r;
		} m = {.head = {.flags = part == n ? flags : 0}, .r = {.size = (uint32_t)part}};

		(void)PUT(rec, m, kind, exchange, p, part);
		p += part;
		n -= part;
	} while (n);
}

void hark_record_trailers(struct hark_recorder *rec, uint64_t exchange, bool response,
			  const uint8_t *raw, size_t n)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_trailers r;
	} m = {.r = {.response = response, .size = (uint32_t)n}};

	(void)PUT(rec, m, HARK_REC_TRAILERS, exchange, raw, n);
}

void hark_record_substituted(struct hark_recorder *rec, uint64_t exchange, uint32_t secret,
			     const uint8_t *header, size_t n)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_substituted r;
	} m = {.r = {.secret = secret, .size = (uint32_t)n}};

	(void)PUT(rec, m, HARK_REC_SUBSTITUTED, exchange, header, n);
}

void hark_record_end(struct hark_recorder *rec, uint64_t exchange, enum hark_reason reason,
		     uint64_t request_bytes, uint64_t response_bytes)
{
	struct {
		struct hark_rec_head head;
		struct hark_rec_exchange_end r;
	} m = {.r = {.request_bytes = request_bytes,
		     .response_bytes = response_bytes,
		     .reason = (uint16_t)reason}};

	(void)PUT(rec, m, HARK_REC_EXCHANGE_END, exchange, NULL, 0);
}

uint64_t hark_record_refused(struct hark_recorder *rec, uint64_t exchange, uint64_t conn,
			     enum hark_reason reason, const char *name, const void *detail,
			     size_t ndetail)
{
	uint8_t var[256 + HARK_MED_DETAIL];
	size_t nname = strnlen(name, 256);
	struct {
		struct hark_rec_head head;
		struct hark_rec_refused r;
	} m = {.r = {.conn = conn,
		     .reason = (uint16_t)reason,
		     .denial = hark_reason_denial(reason)}};

	if (ndetail > HARK_MED_DETAIL) {
		ndetail = HARK_MED_DETAIL;
		m.head.flags = HARK_RECF_TRUNCATED;
	}
	m.r.name_size = (uint16_t)nname;
	m.r.detail_size = (uint16_t)ndetail;
	memcpy(var, name, nname);
	if (ndetail)
		memcpy(var + nname, detail, ndetail);
	rec->urgent = true;
	return PUT(rec, m, HARK_REC_REFUSED, exchange, var, nname + ndetail);
}
