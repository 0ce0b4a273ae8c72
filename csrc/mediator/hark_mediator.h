/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mediator's state: one of everything, the connections and the upstreams, and which file owns
 * which part.
 *
 *   hark_conn.c      an agent's connection: accept, first byte, handshake, end
 *   hark_hello.c     the ClientHello callback
 *   hark_exchange.c  one request with its response, on its way through
 *   hark_refuse.c    hark's own answers, held until their refusal is on disk
 *   hark_upstream.c  dial, verify, pool
 *   hark_opaque.c    a connection whose bytes pass as they are, instead of exchanges
 *   hark_play.c      a replay's answers, instead of an upstream
 *   hark_links.c     control socket and broker socket
 *
 * Ownership. A conn owns its stream, its parser and its exchange. While an exchange uses an
 * upstream the two point at each other; otherwise the upstream is in its site's pool or is dead.
 * Dead objects are freed at the end of the batch (hark_loop.h).
 */
#ifndef HARK_MEDIATOR_H
#define HARK_MEDIATOR_H

#include "hark_address.h"
#include "hark_chan.h"
#include "hark_check.h"
#include "hark_cred.h"
#include "hark_h1.h"
#include "hark_loop.h"
#include "hark_mint.h"
#include "hark_play.h"
#include "hark_policy.h"
#include "hark_rebuild.h"
#include "hark_record.h"
#include "hark_stream.h"

#define HARK_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

enum hark_mediator_limit {
	/* Ring bytes that one pass over one source can never exceed: 256 KiB read, as chunks of one
	 * byte (6 on the wire), each a record of 48. */
	HARK_ROOM_MIN = 4194304,
	HARK_READ_SIZE = 65536,
	HARK_READS_PER_PASS = 4,  /* fairness; what is left is queued as a task */
	HARK_POOL_PER_SITE = 128, /* as many as an agent may use at once */
	HARK_POOL_TOTAL = 1024,   /* with as many in use, and the agent's: below the descriptors */
	HARK_POOL_FRESH_MS =
		3000, /* a request that may not be repeated wants a connection used lately */
	HARK_INTERIM_MAX = 8, /* 1xx responses per request */
	HARK_LINGER_BYTES = 1048576,
	HARK_WHOLE_BYTES = 65536 /* a response this short waits for its new Content-Length */
};

struct hark_mediator;
struct hark_conn;

/* ---- upstream ---- */

enum hark_up_state {
	HARK_UP_DIALLING = 0,
	HARK_UP_HANDSHAKE = 1,
	HARK_UP_READY = 2,
	HARK_UP_IDLE = 3,
	HARK_UP_DEAD = 4
};

/* What the mediator keeps for one host of the table. */
struct hark_site {
	const struct hark_host *host; /* borrowed */
	struct hark_form *forms;      /* what may come back of the credentials bound to it; owned */
	size_t nforms;                /* those that are searched for: a few until Basic was used */
	size_t nforms_basic;          /* with those inside base64 */
	bool same_length;             /* every placeholder searched for is as long as its value */
	X509_STORE *store;            /* owned; NULL: the system's CAs */
	SSL_SESSION *session;         /* owned; newest ticket */
	struct hark_upstream *pool;   /* idle, newest first */
	size_t npool;
};

struct hark_upstream {
	struct hark_stream stream;
	struct hark_task task;
	struct hark_upstream *next; /* in .upstreams */
	struct hark_upstream *pool_next;
	struct hark_mediator *med;
	struct hark_site *site;
	struct hark_conn *conn; /* the exchange that uses it, NULL when idle or abandoned */
	struct hark_h1 h1;
	enum hark_up_state state;
	bool tls;
	bool pooled;     /* carried an exchange before this one */
	bool answered;   /* a response byte came for the current exchange */
	bool final;      /* the head of the final response came */
	bool complete;   /* the final response was parsed to its end */
	bool has_answer; /* the broker answered; .dial is its message, .dial_fd the socket */
	uint16_t port;   /* as the agent asked; .info has the one that was dialled */
	uint32_t dial_id;
	struct hark_msg_dialed dial;
	int dial_fd;         /* owned until the stream has it */
	uint64_t deadline;   /* CLOCK_MONOTONIC ns, HARK_TIME_NEVER */
	uint64_t idle_since; /* CLOCK_MONOTONIC ns */
	struct hark_rec_upstream info;
};

/* Basic authorization was used for this site: look for the credentials inside base64 too. */
void hark_site_basic(struct hark_site *site);
void hark_site_fini(struct hark_site *site);
/* A usable upstream for this exchange: pooled, or being dialled. NULL: no memory or broker gone. */
struct hark_upstream *hark_upstream_get(struct hark_conn *conn, struct hark_site *site,
					uint16_t port, bool tls, bool repeatable, bool fresh);
/* The exchange is over: keep the connection if it is clean, else close it. */
void hark_upstream_put(struct hark_upstream *up, bool reusable);
void hark_upstream_close(struct hark_upstream *up);
/* Send what is queued, and read as far as the agent's side has room. */
void hark_upstream_flush(struct hark_upstream *up);
void hark_upstream_update(struct hark_upstream *up);
/* The broker's answer; takes fd (-1: none). */
void hark_upstream_dialled(struct hark_mediator *med, const struct hark_msg_dialed *msg, int fd);
/* What a dial that failed means, and the broker's number for it as text. */
enum hark_reason hark_dial_reason(uint32_t status);
const char *hark_dial_detail(const struct hark_msg_dialed *dial, char *text, size_t size);
void hark_upstream_sweep(struct hark_mediator *med);
void hark_upstream_tick(struct hark_mediator *med, uint64_t now);
HARK_MUST_USE int hark_upstream_setup(struct hark_mediator *med, struct hark_err *err);

/* ---- exchange ---- */

struct hark_exchange {
	uint64_t id;
	const struct hark_host *host; /* NULL: not in the table */
	uint64_t request_bytes;
	uint64_t response_bytes;
	struct hark_response_plan plan; /* towards the agent */
	struct hark_watch watch;
	struct hark_scan scan;
	struct hark_buf pending;  /* body bytes not delivered yet */
	struct hark_buf replay;   /* a repeatable request, until its response starts */
	struct hark_play play;    /* in a replay */
	uint64_t hold_seq;        /* own answer: its refusal's record */
	enum hark_reason refused; /* COMPLETE: not refused; see hark_refuse.c */
	unsigned interim;
	struct hark_target target;
	bool open; /* REQ_HEAD is recorded, EXCHANGE_END is not */
	bool head_request;
	bool client_10;
	bool repeatable; /* idempotent and without a body */
	bool odd_body;   /* a body where none belongs: the connection is not used again */
	bool request_done;
	bool response_started; /* its head is queued for the agent */
	bool close_client;
	bool substituted;
	bool noted_placeholder;
	bool sse;
	bool whole; /* the response waits in .pending until it is complete */
	bool scanning;
	bool want_body; /* refused: record the body before answering */
	bool answered;  /* refused: the answer is queued */
	char detail[128];
};

extern const struct hark_h1_sink hark_exchange_request_sink;  /* ctx: struct hark_conn */
extern const struct hark_h1_sink hark_exchange_response_sink; /* ctx: struct hark_upstream */

void hark_exchange_init(struct hark_exchange *x);
void hark_exchange_fini(struct hark_exchange *x);
/* The request parser stopped on these bytes. */
void hark_exchange_bad_request(struct hark_conn *conn);
/* The agent half-closed. */
void hark_exchange_client_eof(struct hark_conn *conn);
/* The upstream is verified and READY. */
void hark_exchange_connected(struct hark_upstream *up);
/* The final response is complete; `clean`: nothing came after it and the connection may go on. */
void hark_exchange_response_done(struct hark_upstream *up, bool clean);
/* The upstream failed or ended; it is closed here. */
void hark_exchange_upstream_failed(struct hark_upstream *up, enum hark_reason reason,
				   const char *detail);
/* A read pass of the upstream is over: deliver what is pending. */
void hark_exchange_pass_end(struct hark_conn *conn);
/* One delivery: recorded and handed on as one piece. */
HARK_MUST_USE int hark_exchange_deliver(struct hark_conn *conn, const uint8_t *p, size_t n);
HARK_MUST_USE int hark_exchange_last_chunk(struct hark_stream *to, const struct hark_buf *trailers);
/* The response is complete and queued: record the end, look at the next request or close. */
void hark_exchange_finish(struct hark_conn *conn);
/* End early: record it and let the upstream go. */
void hark_exchange_abort(struct hark_conn *conn, enum hark_reason reason);

/* ---- refusals ---- */

/* Record a refusal of this exchange; the answer follows once it is durable. */
void hark_refuse(struct hark_conn *conn, enum hark_reason reason, const char *detail);
/* Record something worth knowing that refuses nothing. */
void hark_note(struct hark_conn *conn, enum hark_reason reason, const char *detail);
/* Answer if the refusal is durable and the body was seen. */
void hark_refuse_try(struct hark_conn *conn);

/* ---- connection ---- */

enum hark_conn_state {
	HARK_CONN_PEEK = 0, /* first byte unknown */
	HARK_CONN_HANDSHAKE = 1,
	HARK_CONN_OPEN = 2,
	HARK_CONN_LINGER = 3, /* all is sent: read and discard until the agent closes */
	HARK_CONN_DEAD = 4,
	HARK_CONN_OPAQUE = 5,
	HARK_CONN_CLOSING = 6 /* refused without an answer: closed when that is on disk */
};

enum hark_hello { HARK_HELLO_FIRST = 0, HARK_HELLO_HELD = 1, HARK_HELLO_REFUSE = 2 };

/* One direction of an opaque connection. */
struct hark_way {
	struct hark_stream *from; /* borrowed, both */
	struct hark_stream *to;
	bool eof;
	bool shut;
};

/* The service's end of an opaque connection. */
struct hark_opaque {
	struct hark_stream stream;
	struct hark_task task;
	struct hark_conn *conn;
	const struct hark_host *host;
	struct hark_way up;
	struct hark_way down;
	uint32_t dial_id;
	struct hark_msg_dialed dial;
	int dial_fd; /* owned until the stream has it */
	bool connected;
};

struct hark_conn {
	struct hark_stream stream;
	struct hark_task task;
	struct hark_conn *next;
	struct hark_mediator *med;
	uint64_t id;
	enum hark_conn_state state;
	enum hark_reason reason; /* how it ends */
	struct hark_addr src;
	struct hark_addr dst;
	bool tls;
	char sni[HARK_NAME_SIZE];
	struct hark_site *site; /* by SNI; NULL: not allowed, or plain */
	bool port_ok;
	bool judged; /* something about this connection was refused */
	enum hark_hello hello;
	uint64_t hold_seq; /* hello: refusal that must be durable before the alert */
	int alert;
	struct hark_h1 h1;
	struct hark_exchange x;
	struct hark_upstream *up; /* used by x */
	struct hark_opaque *opaque;
	struct hark_buf in; /* bytes after the current message */
	bool input_over;    /* parse nothing more */
	size_t lingered;
	uint64_t deadline; /* CLOCK_MONOTONIC ns */
	enum hark_reason deadline_reason;
};

void hark_conn_accept(struct hark_mediator *med, int fd, const struct sockaddr_storage *peer);
/* Close now. */
void hark_conn_kill(struct hark_conn *conn, enum hark_reason reason);
/* Close after what is queued is sent. */
void hark_conn_finish(struct hark_conn *conn, enum hark_reason reason);
/* Refuse a connection that has no exchange to answer: close it once that is on disk. */
void hark_conn_refuse(struct hark_conn *conn, enum hark_reason reason, const char *name,
		      const char *detail);
/* Set epoll interest and deadline from the state. */
void hark_conn_update(struct hark_conn *conn);
/* Send what is queued. */
void hark_conn_flush(struct hark_conn *conn);
/* The exchange ended in order: look at the next request. */
void hark_conn_next(struct hark_conn *conn);
void hark_conn_deadline(struct hark_conn *conn, enum hark_limit limit, enum hark_reason reason);
void hark_conn_sweep(struct hark_mediator *med);
void hark_conn_tick(struct hark_mediator *med, uint64_t now);
/* Some refusals became durable. */
void hark_conn_durable(struct hark_mediator *med);

/* hark_opaque.c */
void hark_opaque_begin(struct hark_conn *conn, const struct hark_host *host);
/* The broker's answer, which takes fd when it is for an opaque connection. */
bool hark_opaque_dialled(struct hark_mediator *med, const struct hark_msg_dialed *msg, int fd);
void hark_opaque_ready(struct hark_conn *conn, uint32_t events);
/* The connection is over: let the service go. */
void hark_opaque_end(struct hark_conn *conn);

/* hark_hello.c: context for agents' connections. */
SSL_CTX *hark_hello_ctx_new(struct hark_mediator *med);

/* ---- the whole ---- */

struct hark_listener {
	struct hark_source source;
	struct hark_mediator *med;
};

struct hark_mediator {
	struct hark_loop loop;
	struct hark_policy policy;
	struct hark_policy no_creds; /* the policy of clear-text requests: nothing is substituted */
	struct hark_mint mint;
	struct hark_recorder rec;
	struct hark_site *sites; /* parallel to policy.hosts */
	SSL_CTX *server;
	SSL_CTX *client;
	struct hark_chan control;
	struct hark_chan broker;
	struct hark_source control_source;
	struct hark_source broker_source;
	struct hark_source space_source;
	struct hark_listener listeners[2];
	size_t nlisteners;
	bool listening;
	struct hark_conn *conns;
	size_t nconns;
	struct hark_upstream *upstreams;
	size_t npool; /* idle ones, of all sites */
	struct hark_task play_task;
	bool any_dead; /* something waits to be freed at the end of the batch */
	uint64_t next_conn;
	uint64_t next_exchange;
	uint32_t next_dial;
	uint64_t durable; /* records below are on disk */
	bool stopping;    /* STOP came */
	bool failed;
	uint8_t read_buf[HARK_READ_SIZE];
};

/* hark_links.c */
HARK_MUST_USE int hark_links_init(struct hark_mediator *med, int control, int broker, int space,
				  struct hark_err *err);
HARK_MUST_USE int hark_links_send_ca(struct hark_mediator *med, struct hark_err *err);
HARK_MUST_USE int hark_links_dial(struct hark_mediator *med, uint32_t id, uint32_t host,
				  uint16_t port, uint64_t conn);
void hark_links_listen(struct hark_mediator *med, bool on);
HARK_MUST_USE int hark_links_drained(struct hark_mediator *med, struct hark_err *err);

/* End the process: recording or control failed. */
void hark_mediator_fail(struct hark_mediator *med, const char *why);

static inline uint64_t hark_limit_deadline(const struct hark_mediator *med, enum hark_limit limit)
{
	return hark_deadline_ms(med->policy.limits[limit]);
}

#endif
