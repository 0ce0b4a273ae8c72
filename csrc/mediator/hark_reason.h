/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of enum hark_reason. */
#ifndef HARK_REASON_H
#define HARK_REASON_H

#include <stdbool.h>

#include "hark_reasons.h"

/* The constant in lower case without its prefix, as bundles store it. Static. */
const char *hark_reason_name(enum hark_reason reason);

/* A decision of the policy, as opposed to a protocol error. */
bool hark_reason_denial(enum hark_reason reason);

/* The upstream's doing, or that of the way to it. */
bool hark_reason_outside(enum hark_reason reason);

/* Status hark answers with, and one sentence each on what happened and what to do. Static. */
unsigned hark_reason_status(enum hark_reason reason);
const char *hark_reason_says(enum hark_reason reason);
const char *hark_reason_next(enum hark_reason reason);

#endif
