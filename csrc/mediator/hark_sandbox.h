/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mediator's own cage. Everything that opens files must have happened before. The sanitizer
 * build links hark_sandbox_null.c instead, since sanitizers need calls the filter kills.
 */
#ifndef HARK_SANDBOX_H
#define HARK_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "hark_err.h"

/* Not dumpable, no core file, a descriptor limit. Before any secret is in memory. */
HARK_MUST_USE int hark_sandbox_limits(uint64_t descriptors, struct hark_err *err);

/* Drop to these ids (when asked), then no_new_privs and the seccomp filter. */
HARK_MUST_USE int hark_sandbox_enter(bool drop_ids, uint32_t uid, uint32_t gid,
				     struct hark_err *err);

#endif
