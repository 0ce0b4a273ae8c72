/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan as read: a checked list of ops whose payloads borrow from the sealed memfd's mapping.
 * Checking is pure; nothing of a plan is carried out before all of it was checked.
 */
#ifndef HARK_LAUNCH_PLAN_H
#define HARK_LAUNCH_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "hark_err.h"
#include "hark_plan.h"
#include "hark_tlv.h"

enum plan_phase { PLAN_WARDEN = 0, PLAN_HOST = 1, PLAN_ROOT = 2, PLAN_AGENT = 3 };

struct plan_op {
	uint16_t op;
	uint16_t flags;
	uint32_t index;       /* place in the plan, for error reports */
	struct hark_cur body; /* take a copy to read from */
};

struct plan {
	const void *map; /* owned */
	size_t len;
	uint32_t n;
	struct plan_op *ops; /* owned */
};

static inline enum plan_phase plan_phase_of(const struct plan_op *op)
{
	return (enum plan_phase)(op->op >> 8);
}

/* Read and check a sealed memfd. `nfds` is how many descriptors came with it. */
HARK_MUST_USE int plan_load(struct plan *plan, int fd, size_t nfds, struct hark_err *err);

/* The same for bytes in memory: ops must hold HARK_PLAN_OPS entries. Pure. */
HARK_MUST_USE int plan_parse(struct plan_op *ops, uint32_t *n, const void *buf, size_t len,
			     size_t nfds, struct hark_err *err);

void plan_fini(struct plan *plan);

#endif
