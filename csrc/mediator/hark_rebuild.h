/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads written anew from parsed fields, so that nothing a peer may read differently survives.
 * Order, spelling and values of end-to-end fields are kept; hop-by-hop fields (RFC 9110, 7.6.1) and
 * what Connection nominates are dropped; framing fields say what hark itself will send. Pure.
 */
#ifndef HARK_REBUILD_H
#define HARK_REBUILD_H

#include "hark_check.h"
#include "hark_cred.h"
#include "hark_h1.h"

enum hark_framing {
	HARK_FRAMING_NONE = 0, /* no body follows */
	HARK_FRAMING_LENGTH = 1,
	HARK_FRAMING_CHUNKED = 2,
	HARK_FRAMING_EOF = 3 /* until the connection ends */
};

/* What happened to a request's placeholders, told while its head is written. `name` is a field's,
 * empty for the request target; `basic`: inside the base64 of Basic authorization. */
struct hark_rebuild_notes {
	void (*substituted)(void *ctx, uint32_t secret, const uint8_t *name, size_t nname,
			    bool basic);
	void (*elsewhere)(void *ctx, uint32_t secret, const uint8_t *name, size_t nname);
	void (*range_removed)(void *ctx);
	void *ctx;
};

/* hark_cred_in for a whole head, the base64 of Basic fields included. */
const struct hark_cred *hark_rebuild_cred_in(const struct hark_head *head,
					     const struct hark_policy *policy,
					     const struct hark_host *host, bool bound);

/*
 * The request for the upstream. `host` decides which placeholders are replaced. Framing follows the
 * head: chunked, length or none. One that may carry a credential asks for no range.
 */
HARK_MUST_USE int
hark_rebuild_request(const struct hark_head *head, const struct hark_target *target,
		     const struct hark_policy *policy, const struct hark_host *host,
		     const struct hark_rebuild_notes *notes, struct hark_buf *out);

/*
 * The response for the agent. `forms` are put back as placeholders wherever
 * they stand.
 * `close` announces the end of the connection; `keep_alive_10` tells an HTTP/1.0 client that it
 * stays. A head with a body that hark frames anew loses its Content-Length.
 */
struct hark_response_plan {
	enum hark_framing framing;
	bool close;
	bool keep_alive_10;
	bool keep_length; /* HEAD and 304: Content-Length describes a body that is not sent */
	uint64_t length;  /* Content-Length to send, where there is one */
};

HARK_MUST_USE int hark_rebuild_response(const struct hark_head *head,
					const struct hark_response_plan *plan,
					const struct hark_form *forms, size_t nforms,
					uint64_t *reflected, struct hark_buf *out);

/* Trailer lines without fields that may not stand there (RFC 9110, 6.5.1). */
HARK_MUST_USE int hark_rebuild_trailers(const struct hark_buf *lines, const struct hark_form *forms,
					size_t nforms, uint64_t *reflected, struct hark_buf *out);

#endif
