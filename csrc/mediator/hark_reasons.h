/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why the mediator refused something, or why a connection or exchange ended. Python reads this enum
 * through cffi: the name of a reason is its constant in lower case without HARK_REASON_. So this
 * header has no #include and no macro. Numbers never leave one build; names stand in bundles and
 * are never changed.
 */

enum hark_reason {
	HARK_REASON_COMPLETE = 0, /* nothing went wrong */

	/* policy denials: recorded, on disk before the agent gets its answer, never dialled */
	HARK_REASON_HOST_DENIED,           /* the name is not in the host table */
	HARK_REASON_PORT_DENIED,           /* the host is, this port is not */
	HARK_REASON_NO_SNI,                /* TLS without a server name */
	HARK_REASON_SNI_INVALID,           /* a server name that is no plain host name */
	HARK_REASON_IP_LITERAL,            /* an address where a name is needed */
	HARK_REASON_HOST_MISMATCH,         /* Host differs from the SNI of its connection */
	HARK_REASON_PLAIN_HTTP_DENIED,     /* clear text to a host that is only allowed over TLS */
	HARK_REASON_CONNECT_DENIED,        /* CONNECT: hark is no proxy of that kind */
	HARK_REASON_CREDENTIAL_WRONG_HOST, /* a placeholder on its way to a host it is not bound to
					    */
	HARK_REASON_TCP_DENIED,            /* no TLS or HTTP, to where the policy allows nothing */
	HARK_REASON_UPGRADE_REFUSED,       /* WebSocket and other protocols inside HTTP/1.1 */

	/* the agent's side broke a protocol rule */
	HARK_REASON_NOT_HTTP, /* clear bytes that are neither TLS nor HTTP */
	HARK_REASON_PLAIN_HTTP_ON_TLS_PORT,
	HARK_REASON_TLS_HANDSHAKE,              /* the handshake failed, detail says how */
	HARK_REASON_CLIENT_REJECTED_CA,         /* the client does not trust the run's CA */
	HARK_REASON_CLIENT_LEFT_AT_CERTIFICATE, /* most likely the same, but it did not say so */
	HARK_REASON_CLIENT_SILENT,              /* no hello or no head before the deadline */
	HARK_REASON_HEAD_TIMEOUT,
	HARK_REASON_BODY_TIMEOUT,
	HARK_REASON_BAD_REQUEST, /* detail: the parser's own words */
	HARK_REASON_BAD_FRAMING, /* Content-Length and Transfer-Encoding */
	HARK_REASON_HOST_MISSING,
	HARK_REASON_HOST_DUPLICATE,
	HARK_REASON_BAD_VERSION, /* neither HTTP/1.0 nor HTTP/1.1 */
	HARK_REASON_H2_PREFACE,
	HARK_REASON_HEAD_TOO_LARGE,
	HARK_REASON_URI_TOO_LONG,
	HARK_REASON_BAD_EXPECT,
	HARK_REASON_BAD_TRAILER,
	HARK_REASON_TRUNCATED_REQUEST, /* the agent left in the middle of a request */
	HARK_REASON_CLIENT_GONE,       /* the agent left before its response was complete */
	HARK_REASON_CLIENT_CLOSED,     /* an orderly end by the agent */

	/* noted, not refused */
	HARK_REASON_PLACEHOLDER_ELSEWHERE, /* a placeholder outside its headers: passed on as it is
					    */
	HARK_REASON_PLACEHOLDER_DENIED_HOST, /* a placeholder on its way to a denied host */
	HARK_REASON_UPGRADE_STRIPPED,        /* Upgrade: h2c was removed */
	HARK_REASON_CHUNK_EXTENSION,         /* chunk extensions were removed */
	HARK_REASON_EOF_FRAMED,              /* the response ended with its connection */
	HARK_REASON_RANGE_REMOVED,           /* Range of a request that may carry a credential */
	HARK_REASON_REFLECTED,               /* the real credential came back and was replaced */

	/* the upstream's side */
	HARK_REASON_DIAL_DENIED, /* the broker does not know the host */
	HARK_REASON_DIAL_RESOLVE,
	HARK_REASON_DIAL_PRIVATE,
	HARK_REASON_DIAL_CONNECT,
	HARK_REASON_DIAL_TIMEOUT,
	HARK_REASON_DIAL_UNRECORDED,
	HARK_REASON_PROXY_UNREACHABLE, /* the operator's proxy on the way out */
	HARK_REASON_PROXY_AUTH,
	HARK_REASON_PROXY_REFUSED,
	HARK_REASON_PROXY_FAILED,
	HARK_REASON_PROXY_BROKEN,
	HARK_REASON_UPSTREAM_TLS,         /* detail: OpenSSL's words */
	HARK_REASON_UPSTREAM_CERTIFICATE, /* detail: why it does not verify */
	HARK_REASON_UPSTREAM_TIMEOUT,
	HARK_REASON_UPSTREAM_CLOSED,    /* before a complete response */
	HARK_REASON_UPSTREAM_TRUNCATED, /* in the middle of a body */
	HARK_REASON_BAD_RESPONSE,
	HARK_REASON_RESPONSE_TOO_LARGE,   /* its head */
	HARK_REASON_TOO_MANY_INTERIM,     /* 1xx flood */
	HARK_REASON_RESPONSE_SMUGGLED,    /* bytes that belong to no request */
	HARK_REASON_ENCODING_UNSCANNABLE, /* compressed answer to a request that carried a
					     credential */
	HARK_REASON_SWITCHED_UNASKED,     /* 101 that nobody asked for */

	/* hark itself */
	HARK_REASON_CONN_LIMIT, /* too many connections at once */
	HARK_REASON_NO_MEMORY,
	HARK_REASON_STOPPED,      /* the run ended */
	HARK_REASON_LINGERED,     /* closed by hark after its own response */
	HARK_REASON_NOT_REPLAYED, /* an opaque connection, in a replay */
	HARK_REASON_INTERNAL,

	HARK_REASON_COUNT
};
