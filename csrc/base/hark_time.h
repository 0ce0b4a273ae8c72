/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines: absolute CLOCK_MONOTONIC nanoseconds. 0 means "now", HARK_TIME_NEVER no deadline. */
#ifndef HARK_TIME_H
#define HARK_TIME_H

#include <stdint.h>
#include <time.h>

#define HARK_TIME_NEVER UINT64_MAX
#define HARK_NS_PER_MS  UINT64_C(1000000)

static inline uint64_t hark_time_ns(clockid_t clock)
{
	struct timespec t = {0, 0};

	(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline uint64_t hark_deadline_ms(uint64_t ms)
{
	return hark_time_ns(CLOCK_MONOTONIC) + ms * HARK_NS_PER_MS;
}

/* What is left of a deadline for poll(2): -1 for never, rounded up, never negative otherwise. */
static inline int hark_deadline_poll(uint64_t deadline_ns)
{
	uint64_t now;

	if (deadline_ns == HARK_TIME_NEVER)
		return -1;
	now = hark_time_ns(CLOCK_MONOTONIC);
	if (deadline_ns <= now)
		return 0;
	if ((deadline_ns - now) / HARK_NS_PER_MS >= INT32_MAX)
		return INT32_MAX;
	return (int)((deadline_ns - now + HARK_NS_PER_MS - 1) / HARK_NS_PER_MS);
}

#endif
