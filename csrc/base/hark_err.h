/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What could not be done, why, and what to try. Every function that can fail takes one as its last
 * argument, returns -1 and fills it. Rules: the first failure wins; a caller adds nothing to it.
 */
#ifndef HARK_ERR_H
#define HARK_ERR_H

#include <stddef.h>

#define HARK_MUST_USE     __attribute__((warn_unused_result))
#define HARK_PRINTF(f, a) __attribute__((format(printf, f, a)))

enum hark_err_limit {
	HARK_ERR_TEXT = 256 /* HARK_MSG_TEXT: an error must fit HARK_MSG_FAILED */
};

struct hark_err {
	int err; /* errno, 0 when nothing failed */
	char what[HARK_ERR_TEXT];
	char hint[HARK_ERR_TEXT];
};

void hark_err_init(struct hark_err *err);

/* Store errno-like `code` with a formatted text unless an error is already stored. Always -1. */
int hark_err_set(struct hark_err *err, int code, const char *fmt, ...) HARK_PRINTF(3, 4);

/* Add advice to a stored error that has none yet. Always -1. */
int hark_err_hint(struct hark_err *err, const char *fmt, ...) HARK_PRINTF(2, 3);

#endif
