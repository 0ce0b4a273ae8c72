/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an address that the agent dialled says: the run's resolver gives every name an address of
 * its own (hark/mediator/dns.py). Pure.
 */
#ifndef HARK_ADDRESS_H
#define HARK_ADDRESS_H

#include "hark_policy.h"
#include "hark_record.h"

enum hark_address_kind {
	HARK_ADDRESS_ALLOWED = 0, /* of a name in the host table: its index comes along */
	HARK_ADDRESS_DENIED = 1,  /* of another name */
	HARK_ADDRESS_RAW = 2      /* the resolver gave it to nobody */
};

enum hark_address_kind hark_address_kind(const struct hark_addr *addr, uint32_t *index);

/* The row that an address stands for, or NULL. */
const struct hark_host *hark_address_host(const struct hark_policy *policy,
					  const struct hark_addr *addr);

/*
 * Whether a connection to this address and port can be one the policy allows: COMPLETE, or why not.
 * A raw address is dialled with a name that comes later, in the hello or in Host.
 */
enum hark_reason hark_address_judge(const struct hark_policy *policy, const struct hark_addr *addr);

#endif
