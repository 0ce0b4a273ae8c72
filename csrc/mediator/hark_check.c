/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_check.h"

static enum hark_reason check_version(const struct hark_head *head, const char **detail)
{
	if (head->method == HTTP_PRI)
		return HARK_REASON_H2_PREFACE;
	if (head->major != 1 || head->minor > 1)
		return HARK_REASON_BAD_VERSION;
	if (head->method == HTTP_CONNECT)
		return HARK_REASON_CONNECT_DENIED;
	if (head->minor == 0 && head->chunked) {
		*detail = "Transfer-Encoding in HTTP/1.0";
		return HARK_REASON_BAD_FRAMING;
	}
	if (head->other_coding) {
		*detail = "a transfer coding other than chunked";
		return HARK_REASON_BAD_FRAMING;
	}
	return HARK_REASON_COMPLETE;
}

static enum hark_reason name_reason(enum hark_name_kind kind, const char **detail)
{
	switch (kind) {
	case HARK_NAME_OK:
		return HARK_REASON_COMPLETE;
	case HARK_NAME_ADDRESS:
		return HARK_REASON_IP_LITERAL;
	case HARK_NAME_ABSENT:
		return HARK_REASON_HOST_MISSING;
	default:
		*detail = "Host is not a host name";
		return HARK_REASON_BAD_REQUEST;
	}
}

static enum hark_reason check_host(const struct hark_head *head, struct hark_target *target,
				   const char **detail)
{
	struct hark_span host = {0, 0};
	size_t n = hark_head_find(head, "host", &host);

	if (n > 1)
		return HARK_REASON_HOST_DUPLICATE;
	if (n == 0)
		return HARK_REASON_HOST_MISSING;
	return name_reason(hark_name_from_host(hark_head_at(head, host), host.len, target->host,
					       &target->port),
			   detail);
}

static bool starts(const uint8_t *p, size_t n, const char *prefix)
{
	size_t len = strlen(prefix);

	return n >= len && memcmp(p, prefix, len) == 0;
}

/* Absolute form (RFC 9112, 3.2.2): its authority must say what Host says. */
static enum hark_reason check_absolute(const struct hark_head *head, size_t scheme,
				       struct hark_target *target)
{
	const uint8_t *p = hark_head_at(head, head->target);
	char name[HARK_NAME_SIZE];
	uint16_t port;
	size_t end = scheme;

	while (end < head->target.len && p[end] != '/' && p[end] != '?')
		end++;
	if (hark_name_from_host(p + scheme, end - scheme, name, &port) != HARK_NAME_OK ||
	    strcmp(name, target->host) != 0 || port != target->port)
		return HARK_REASON_HOST_MISMATCH;
	target->path.at = head->target.at + (uint32_t)end;
	target->path.len = head->target.len - (uint32_t)end;
	return HARK_REASON_COMPLETE;
}

static enum hark_reason check_target(const struct hark_head *head, struct hark_target *target,
				     const char **detail)
{
	const uint8_t *p = hark_head_at(head, head->target);
	size_t n = head->target.len;

	target->path = head->target;
	if (n && p[0] == '/')
		return HARK_REASON_COMPLETE;
	if (n == 1 && p[0] == '*' && head->method == HTTP_OPTIONS)
		return HARK_REASON_COMPLETE;
	if (starts(p, n, "https://"))
		return check_absolute(head, 8, target);
	if (starts(p, n, "http://"))
		return check_absolute(head, 7, target);
	*detail = "target is not in origin form";
	return HARK_REASON_BAD_REQUEST;
}

static enum hark_reason check_expect(const struct hark_head *head, struct hark_target *target)
{
	struct hark_span value = {0, 0};
	size_t n = hark_head_find(head, "expect", &value);

	if (n == 0)
		return HARK_REASON_COMPLETE;
	if (n > 1 || !hark_head_is(head, value, "100-continue"))
		return HARK_REASON_BAD_EXPECT;
	target->expect_continue = head->minor == 1;
	return HARK_REASON_COMPLETE;
}

/* h2c is an offer the server may ignore, so it is removed; everything else is a wish. */
static enum hark_reason check_upgrade(const struct hark_head *head, struct hark_target *target)
{
	struct hark_span value = {0, 0};

	if (!head->upgrade || !hark_head_find(head, "upgrade", &value))
		return HARK_REASON_COMPLETE;
	if (!hark_head_is(head, value, "h2c"))
		return HARK_REASON_UPGRADE_REFUSED;
	target->strip_upgrade = true;
	return HARK_REASON_COMPLETE;
}

enum hark_reason hark_check_request(const struct hark_head *head, struct hark_target *target,
				    const char **detail)
{
	enum hark_reason reason;

	memset(target, 0, sizeof(*target));
	*detail = NULL;
	reason = check_version(head, detail);
	if (reason == HARK_REASON_COMPLETE)
		reason = check_host(head, target, detail);
	if (reason == HARK_REASON_COMPLETE)
		reason = check_target(head, target, detail);
	if (reason == HARK_REASON_COMPLETE)
		reason = check_expect(head, target);
	if (reason == HARK_REASON_COMPLETE)
		reason = check_upgrade(head, target);
	return reason;
}
