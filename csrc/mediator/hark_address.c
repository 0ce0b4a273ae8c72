/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_address.h"

#include <string.h>
#include <sys/socket.h>

/* _ALLOWED4, _DENIED4, _ALLOWED6 and _DENIED6 of hark/mediator/dns.py; a place counts from 1. */
static const uint8_t allowed4[2] = {198, 18};
static const uint8_t denied4[2] = {198, 19};
static const uint8_t allowed6[8] = {0xfd, 0x68, 0x61, 0x72, 0x6b, 0, 0, 1};
static const uint8_t denied6[8] = {0xfd, 0x68, 0x61, 0x72, 0x6b, 0, 0, 2};

static enum hark_address_kind place(const uint8_t *p, size_t n, uint32_t *index)
{
	uint64_t at = 0;
	size_t i;

	for (i = 0; i < n; i++)
		at = at << 8 | p[i];
	if (!at || at > HARK_CONFIG_HOSTS)
		return HARK_ADDRESS_RAW;
	*index = (uint32_t)(at - 1);
	return HARK_ADDRESS_ALLOWED;
}

enum hark_address_kind hark_address_kind(const struct hark_addr *addr, uint32_t *index)
{
	const uint8_t *a = addr->addr;

	if (addr->family == AF_INET && !memcmp(a, allowed4, sizeof(allowed4)))
		return place(a + 2, 2, index);
	if (addr->family == AF_INET6 && !memcmp(a, allowed6, sizeof(allowed6)))
		return place(a + 8, 8, index);
	if ((addr->family == AF_INET && !memcmp(a, denied4, sizeof(denied4))) ||
	    (addr->family == AF_INET6 && !memcmp(a, denied6, sizeof(denied6))))
		return HARK_ADDRESS_DENIED;
	return HARK_ADDRESS_RAW;
}

const struct hark_host *hark_address_host(const struct hark_policy *policy,
					  const struct hark_addr *addr)
{
	uint32_t index = 0;
	size_t i;

	if (hark_address_kind(addr, &index) != HARK_ADDRESS_ALLOWED)
		return NULL;
	for (i = 0; i < policy->nhosts; i++) {
		if (policy->hosts[i].index == index)
			return &policy->hosts[i];
	}
	return NULL;
}

static bool anybodys_port(const struct hark_policy *policy, uint16_t port)
{
	size_t i;

	for (i = 0; i < policy->nhosts; i++) {
		if (hark_host_port(&policy->hosts[i], port))
			return true;
	}
	return false;
}

enum hark_reason hark_address_judge(const struct hark_policy *policy, const struct hark_addr *addr)
{
	const struct hark_host *host = hark_address_host(policy, addr);
	uint32_t index = 0;

	if (host)
		return hark_host_port(host, addr->port) ? HARK_REASON_COMPLETE
							: HARK_REASON_PORT_DENIED;
	if (hark_address_kind(addr, &index) == HARK_ADDRESS_RAW &&
	    anybodys_port(policy, addr->port))
		return HARK_REASON_COMPLETE;
	return HARK_REASON_TCP_DENIED;
}
