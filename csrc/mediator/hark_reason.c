/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_reason.h"

struct row {
	const char *name;
	unsigned status;
	const char *says;
	const char *next;
};

/* clang-format off */
static const struct row rows[HARK_REASON_COUNT] = {
	[HARK_REASON_COMPLETE] = {"complete", 200,
		"The exchange is complete.",
		""},
	[HARK_REASON_HOST_DENIED] = {"host_denied", 403,
		"This host is not on the run's allow-list.",
		"Do not retry. Use an allowed host, or ask the operator to add it to allow_hosts."},
	[HARK_REASON_PORT_DENIED] = {"port_denied", 403,
		"This host is allowed, but not on this port.",
		"Use an allowed port, or ask the operator to add the port to the host's entry."},
	[HARK_REASON_NO_SNI] = {"no_sni", 403,
		"TLS without a server name cannot be checked.",
		"Connect by host name, not by address."},
	[HARK_REASON_SNI_INVALID] = {"sni_invalid", 403,
		"The server name is not a valid host name.",
		"Connect by a plain host name."},
	[HARK_REASON_IP_LITERAL] = {"ip_literal", 403,
		"Addresses cannot be checked against the allow-list.",
		"Connect by host name, not by address."},
	[HARK_REASON_HOST_MISMATCH] = {"host_mismatch", 421,
		"The Host field differs from the name of the TLS connection.",
		"Open a new connection for the other host."},
	[HARK_REASON_PLAIN_HTTP_DENIED] = {"plain_http_denied", 403,
		"Clear-text HTTP is not allowed to this host.",
		"Use https, or ask the operator for a plain port."},
	[HARK_REASON_CONNECT_DENIED] = {"connect_denied", 405,
		"CONNECT is not offered.",
		"Connect to the host directly."},
	[HARK_REASON_CREDENTIAL_WRONG_HOST] = {"credential_wrong_host", 403,
		"The request carries a credential placeholder that is not bound to this host.",
		"Remove the placeholder, or ask the operator to bind the secret to this host."},
	[HARK_REASON_UPGRADE_REFUSED] = {"upgrade_refused", 501,
		"Upgrading the connection is not supported.",
		"Use plain HTTP/1.1 requests."},
	[HARK_REASON_NOT_HTTP] = {"not_http", 400,
		"These bytes are neither TLS nor HTTP.",
		"Use TLS or HTTP on this port."},
	[HARK_REASON_PLAIN_HTTP_ON_TLS_PORT] = {"plain_http_on_tls_port", 400,
		"Clear-text HTTP was sent to a TLS port.",
		"Use https."},
	[HARK_REASON_TLS_HANDSHAKE] = {"tls_handshake", 400,
		"The TLS handshake failed.",
		""},
	[HARK_REASON_CLIENT_REJECTED_CA] = {"client_rejected_ca", 400,
		"The client does not trust the run's CA.",
		"Point the client's own CA setting at the run's bundle."},
	[HARK_REASON_CLIENT_SILENT] = {"client_silent", 408,
		"The client sent nothing.",
		""},
	[HARK_REASON_HEAD_TIMEOUT] = {"head_timeout", 408,
		"The request head did not arrive in time.",
		"Retry."},
	[HARK_REASON_BODY_TIMEOUT] = {"body_timeout", 408,
		"The request body did not arrive in time.",
		"Retry."},
	[HARK_REASON_BAD_REQUEST] = {"bad_request", 400,
		"The request is not valid HTTP/1.1.",
		"Correct the request."},
	[HARK_REASON_BAD_FRAMING] = {"bad_framing", 400,
		"The request's length is ambiguous.",
		"Send exactly one of Content-Length and Transfer-Encoding: chunked."},
	[HARK_REASON_HOST_MISSING] = {"host_missing", 400,
		"The request has no Host field.",
		"Send a Host field."},
	[HARK_REASON_HOST_DUPLICATE] = {"host_duplicate", 400,
		"The request has more than one Host field.",
		"Send one Host field."},
	[HARK_REASON_BAD_VERSION] = {"bad_version", 505,
		"Only HTTP/1.0 and HTTP/1.1 are spoken here.",
		"Use HTTP/1.1."},
	[HARK_REASON_H2_PREFACE] = {"h2_preface", 400,
		"HTTP/2 was not negotiated.",
		"Use HTTP/1.1."},
	[HARK_REASON_HEAD_TOO_LARGE] = {"head_too_large", 431,
		"The request head is too large.",
		"Send fewer or shorter header fields."},
	[HARK_REASON_URI_TOO_LONG] = {"uri_too_long", 414,
		"The request target is too long.",
		"Send the data in the body."},
	[HARK_REASON_BAD_EXPECT] = {"bad_expect", 417,
		"Only Expect: 100-continue is known.",
		"Remove the Expect field."},
	[HARK_REASON_BAD_TRAILER] = {"bad_trailer", 400,
		"The trailer section is too large.",
		"Send fewer trailer fields."},
	[HARK_REASON_TRUNCATED_REQUEST] = {"truncated_request", 400,
		"The request ended early.",
		""},
	[HARK_REASON_CLIENT_GONE] = {"client_gone", 499,
		"The client left before its response was complete.",
		""},
	[HARK_REASON_CLIENT_CLOSED] = {"client_closed", 499,
		"The client closed the connection.",
		""},
	[HARK_REASON_PLACEHOLDER_ELSEWHERE] = {"placeholder_elsewhere", 200,
		"A placeholder was found outside its header fields and passed on as it is.",
		""},
	[HARK_REASON_PLACEHOLDER_DENIED_HOST] = {"placeholder_denied_host", 200,
		"A placeholder was on its way to a denied host.",
		""},
	[HARK_REASON_UPGRADE_STRIPPED] = {"upgrade_stripped", 200,
		"Upgrade: h2c was removed.",
		""},
	[HARK_REASON_CHUNK_EXTENSION] = {"chunk_extension", 200,
		"Chunk extensions were removed.",
		""},
	[HARK_REASON_EOF_FRAMED] = {"eof_framed", 200,
		"The response ended with its connection.",
		""},
	[HARK_REASON_RANGE_REMOVED] = {"range_removed", 200,
		"A request that may carry a credential was made one for the whole resource.",
		""},
	[HARK_REASON_REFLECTED] = {"reflected", 200,
		"The real credential came back and was replaced by its placeholder.",
		""},
	[HARK_REASON_DIAL_DENIED] = {"dial_denied", 502,
		"The broker refused to connect to this host.",
		"Ask the operator: mediator and broker disagree."},
	[HARK_REASON_DIAL_RESOLVE] = {"dial_resolve", 502,
		"The host name did not resolve.",
		"Check the name; retry later."},
	[HARK_REASON_DIAL_PRIVATE] = {"dial_private", 502,
		"The host resolves to private addresses only.",
		"Ask the operator to mark the host as private if that is meant."},
	[HARK_REASON_DIAL_CONNECT] = {"dial_connect", 502,
		"The host could not be reached.",
		"Retry later."},
	[HARK_REASON_DIAL_TIMEOUT] = {"dial_timeout", 504,
		"Connecting to the host took too long.",
		"Retry later."},
	[HARK_REASON_DIAL_UNRECORDED] = {"dial_unrecorded", 502,
		"The connection could not be recorded, so it was not made.",
		"Ask the operator: the recorder failed."},
	[HARK_REASON_UPSTREAM_TLS] = {"upstream_tls", 502,
		"The TLS handshake with the host failed.",
		"Retry later."},
	[HARK_REASON_UPSTREAM_CERTIFICATE] = {"upstream_certificate", 502,
		"The host's certificate does not verify.",
		"Do not retry. Ask the operator."},
	[HARK_REASON_UPSTREAM_TIMEOUT] = {"upstream_timeout", 504,
		"The host did not answer in time.",
		"Retry later."},
	[HARK_REASON_UPSTREAM_CLOSED] = {"upstream_closed", 502,
		"The host closed the connection without an answer.",
		"Retry if the request may be repeated."},
	[HARK_REASON_UPSTREAM_TRUNCATED] = {"upstream_truncated", 502,
		"The host closed the connection in the middle of its answer.",
		"Retry if the request may be repeated."},
	[HARK_REASON_BAD_RESPONSE] = {"bad_response", 502,
		"The host's answer is not valid HTTP/1.1.",
		"Retry later."},
	[HARK_REASON_RESPONSE_TOO_LARGE] = {"response_too_large", 502,
		"The head of the host's answer is too large.",
		""},
	[HARK_REASON_TOO_MANY_INTERIM] = {"too_many_interim", 502,
		"The host sent too many interim answers.",
		""},
	[HARK_REASON_RESPONSE_SMUGGLED] = {"response_smuggled", 502,
		"The host sent bytes that belong to no request.",
		""},
	[HARK_REASON_ENCODING_UNSCANNABLE] = {"encoding_unscannable", 502,
		"The host compressed an answer that may repeat the credential.",
		"Ask for another representation."},
	[HARK_REASON_SWITCHED_UNASKED] = {"switched_unasked", 502,
		"The host switched protocols without being asked.",
		""},
	[HARK_REASON_CONN_LIMIT] = {"conn_limit", 503,
		"Too many connections at once.",
		"Close some, then retry."},
	[HARK_REASON_NO_MEMORY] = {"no_memory", 503,
		"hark is out of memory.",
		"Retry later."},
	[HARK_REASON_STOPPED] = {"stopped", 503,
		"The run has ended.",
		""},
	[HARK_REASON_LINGERED] = {"lingered", 200,
		"Closed after hark's own answer.",
		""},
	[HARK_REASON_INTERNAL] = {"internal", 500,
		"hark failed.",
		""},
};
/* clang-format on */

static const struct row *row(enum hark_reason reason)
{
	return &rows[(unsigned)reason < HARK_REASON_COUNT ? reason : HARK_REASON_INTERNAL];
}

const char *hark_reason_name(enum hark_reason reason)
{
	return row(reason)->name;
}

bool hark_reason_denial(enum hark_reason reason)
{
	return reason >= HARK_REASON_HOST_DENIED && reason <= HARK_REASON_UPGRADE_REFUSED;
}

unsigned hark_reason_status(enum hark_reason reason)
{
	return row(reason)->status;
}

const char *hark_reason_says(enum hark_reason reason)
{
	return row(reason)->says;
}

const char *hark_reason_next(enum hark_reason reason)
{
	return row(reason)->next;
}
