/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this kernel lets hark do, found out by doing each thing once. Read by cffi too.
 *
 * Rules. All of it happens in a child in namespaces of its own and ends with it: nothing of the
 * host changes. A step that hangs or crashes the child counts as failed. No step reads a version
 * number or a configuration file.
 */
#ifndef HARK_PROBE_H
#define HARK_PROBE_H

#include <stdint.h>

enum hark_probe_limit {
	HARK_PROBE_NAME = 24,
	HARK_PROBE_MAX = 32,
	HARK_PROBE_SECONDS = 5 /* for all of it */
};

struct hark_probe_result {
	char name[HARK_PROBE_NAME];
	int32_t err;   /* 0 works, else errno; ETIME: the child ended before */
	int32_t value; /* landlock: ABI version; otherwise 0 */
};

/* Fill up to `max` results. How many, or -errno when no child could be made. */
int hark_probe_run(struct hark_probe_result *results, uint32_t max);

#endif
