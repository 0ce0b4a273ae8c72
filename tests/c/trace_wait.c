/* SPDX-License-Identifier: Apache-2.0 */
/* Timed waits: each call by its rules, odd timeouts against the kernel's own answers, and time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hark_wait.h"

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

enum { NR_EPOLL_PWAIT2 = 441, NR_FUTEX_WAITV = 449, ADDRESS = 0x1000 };

static const uint64_t SECOND = 1000000000;

/* One call with a timeout of 2.5 s where it is in memory. */
static enum hark_wait_verdict judge(uint64_t nr, const uint64_t args[6], struct hark_wait *out)
{
	const int64_t memory[2] = {2, nr == SYS_select ? 500000 : 500000000};

	return hark_wait_judge(nr, args, memory, out);
}

static void test_each_call(void **state)
{
	const uint64_t a = ADDRESS;
	const struct {
		uint64_t nr;
		uint64_t args[6];
		uint64_t ns;
		bool absolute, wall;
		int due;
		uint8_t arg, value, left;
	} t[] = {
		{SYS_poll, {a, 1, 2500}, 2500, 0, 0, 0, 2, HARK_WAIT_TO_MINUS, 255},
		{SYS_epoll_wait, {3, a, 1, 2500}, 2500, 0, 0, 0, 3, HARK_WAIT_TO_MINUS, 255},
		{SYS_epoll_pwait, {3, a, 1, 2500}, 2500, 0, 0, 0, 3, HARK_WAIT_TO_MINUS, 255},
		{NR_EPOLL_PWAIT2, {3, a, 1, a}, 2500, 0, 0, 0, 3, HARK_WAIT_TO_NULL, 255},
		{SYS_select, {0, 0, 0, 0, a}, 2500, 0, 0, 0, 4, HARK_WAIT_TO_NULL, 4},
		{SYS_pselect6, {0, 0, 0, 0, a}, 2500, 0, 0, 0, 4, HARK_WAIT_TO_NULL, 4},
		{SYS_ppoll, {0, 0, a}, 2500, 0, 0, 0, 2, HARK_WAIT_TO_NULL, 2},
		{SYS_nanosleep, {a, a}, 2500, 0, 0, 0, 0, HARK_WAIT_TO_LONG, 1},
		{SYS_nanosleep, {a, 0}, 2500, 0, 0, 0, 0, HARK_WAIT_TO_LONG, 255},
		{SYS_clock_nanosleep, {1, 0, a, a}, 2500, 0, 0, 0, 2, HARK_WAIT_TO_LONG, 3},
		{SYS_clock_nanosleep, {1, 1, a, a}, 2500, 1, 0, 0, 2, HARK_WAIT_TO_LONG, 255},
		{SYS_clock_nanosleep, {0, 1, a, a}, 2500, 1, 1, 0, 2, HARK_WAIT_TO_LONG, 255},
		{SYS_clock_nanosleep, {7, 0, a, 0}, 2500, 0, 0, 0, 2, HARK_WAIT_TO_LONG, 255},
		{SYS_rt_sigtimedwait, {a, 0, a, 8}, 2500, 0, 0, -EAGAIN, 2, 0, 255},
		{SYS_semtimedop, {0, a, 1, a}, 2500, 0, 0, -EAGAIN, 3, 0, 255},
		{SYS_mq_timedsend, {0, a, 1, 0, a}, 2500, 1, 1, -ETIMEDOUT, 4, 0, 255},
		{SYS_mq_timedreceive, {0, a, 1, 0, a}, 2500, 1, 1, -ETIMEDOUT, 4, 0, 255},
		{SYS_futex, {a, FUTEX_WAIT, 0, a}, 2500, 0, 0, -ETIMEDOUT, 3, 0, 255},
		{SYS_futex, {a, FUTEX_WAIT_PRIVATE, 0, a}, 2500, 0, 0, -ETIMEDOUT, 3, 0, 255},
		{SYS_futex, {a, FUTEX_WAIT_BITSET, 0, a}, 2500, 1, 0, -ETIMEDOUT, 3, 0, 255},
		{SYS_futex, {a, 9 | 128 | 256, 0, a}, 2500, 1, 1, -ETIMEDOUT, 3, 0, 255},
		{SYS_futex, {a, FUTEX_LOCK_PI, 0, a}, 2500, 1, 1, -ETIMEDOUT, 3, 0, 255},
		{SYS_futex, {a, FUTEX_LOCK_PI2, 0, a}, 2500, 1, 0, -ETIMEDOUT, 3, 0, 255},
		{NR_FUTEX_WAITV, {a, 1, 0, a, 1}, 2500, 1, 0, -ETIMEDOUT, 3, 0, 255},
		{NR_FUTEX_WAITV, {a, 1, 0, a, 0}, 2500, 1, 1, -ETIMEDOUT, 3, 0, 255},
	};
	struct hark_wait w;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(judge(t[i].nr, t[i].args, &w), HARK_WAIT_TIMED);
		assert_int_equal(w.timeout_ns, t[i].ns * 1000000);
		assert_int_equal(w.is_absolute, t[i].absolute);
		assert_int_equal(w.is_wall && w.is_absolute, t[i].wall);
		assert_int_equal(w.due, t[i].due);
		assert_int_equal(w.patches[0].arg, t[i].arg);
		assert_int_equal(w.patches[0].value, t[i].value);
		assert_int_equal(w.left_arg, t[i].left);
		assert_int_equal(w.patches_n, t[i].nr == SYS_clock_nanosleep ? 3 : 1);
	}
}

static void test_calls_that_are_left_alone(void **state)
{
	const uint64_t a = ADDRESS;
	const struct {
		uint64_t nr;
		uint64_t args[6];
	} t[] = {
		{SYS_read, {0, a, a, a, a, a}},
		{SYS_poll, {a, 1, 0}},
		{SYS_poll, {a, 1, UINT64_MAX}},
		{SYS_poll, {a, 1, 0xffffffff}}, /* -1: the upper half is not looked at */
		{SYS_poll, {a, 1, UINT64_C(1) << 32}},
		{SYS_ppoll, {a, 1, 0}},
		{SYS_select, {0, 0, 0, 0, 0}},
		{SYS_futex, {a, FUTEX_WAKE, 1, a}},
		{SYS_futex, {a, FUTEX_REQUEUE, 1, a}},
		{SYS_futex, {a, FUTEX_CMP_REQUEUE_PI, 1, a}},
		{SYS_futex, {a, FUTEX_WAIT, 0, 0}},
		{SYS_clock_nanosleep, {2, 0, a, 0}},          /* of processor time */
		{SYS_clock_nanosleep, {0xfffffffe, 0, a, 0}}, /* of another process's */
		{UINT64_MAX, {a, a, a, a, a, a}},
	};
	struct hark_wait w;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		assert_int_equal(judge(t[i].nr, t[i].args, &w), HARK_WAIT_PASS);
}

/* EFAULT is the kernel's to say. */
static void test_memory_that_cannot_be_read(void **state)
{
	const uint64_t args[6] = {ADDRESS, 0, ADDRESS, ADDRESS, ADDRESS, 0};
	struct hark_wait w;
	uint64_t nr;

	(void)state;
	for (nr = 0; nr < 500; nr++)
		if (nr != SYS_poll && nr != SYS_epoll_wait && nr != SYS_epoll_pwait)
			assert_int_equal(hark_wait_judge(nr, args, NULL, &w), HARK_WAIT_PASS);
}

/* What the kernel says to a timeout: every one here is refused, over at once, or a millisecond. */
static int ask_kernel(uint64_t nr, const uint64_t args[6])
{
	return syscall((long)nr, args[0], args[1], args[2], args[3], args[4], args[5]) < 0 ? errno
											   : 0;
}

static void test_odd_timeouts_are_refused_when_the_kernel_refuses(void **state)
{
	static const int64_t odd[][2] = {
		{0, 0},          {0, -1},         {-1, 0},        {0, 1000000000},
		{0, INT64_MIN},  {0, INT64_MAX},  {INT64_MIN, 0}, {-1, 1000000},
		{-1, 999999},    {1, -1000000},   {0, -1000000},  {0, 1000},
		{-2, 1000000},   {2, -2000000},   {2, -2000001},  {INT64_MAX, 1000000000},
		{INT64_MIN, -1}, {INT64_MAX, -1}, {-1, INT64_MIN}};
	int64_t memory[2];
	uint32_t word = 1;
	sigset_t none;
	const uint64_t m = (uint64_t)(uintptr_t)memory;
	const uint64_t s = (uint64_t)(uintptr_t)&none;
	const uint64_t f = (uint64_t)(uintptr_t)&word;
	const uint64_t e = (uint64_t)epoll_create1(0);
	struct epoll_event event;
	const uint64_t v = (uint64_t)(uintptr_t)&event;
	const struct {
		uint64_t nr;
		uint64_t args[6];
	} t[] = {{SYS_select, {0, 0, 0, 0, m}},
		 {SYS_pselect6, {0, 0, 0, 0, m, 0}},
		 {SYS_ppoll, {0, 0, m, 0, 8}},
		 {SYS_nanosleep, {m, 0}},
		 {SYS_clock_nanosleep, {1, 0, m, 0}},
		 {SYS_clock_nanosleep, {0, 1, m, 0}},
		 {SYS_rt_sigtimedwait, {s, 0, m, 8}},
		 {NR_EPOLL_PWAIT2, {e, v, 1, m, 0, 8}},
		 {SYS_futex, {f, FUTEX_WAIT, 0, m}},
		 {SYS_futex, {f, FUTEX_WAIT_BITSET, 0, m, 0, 1}}};
	struct hark_wait w;
	size_t refused = 0;
	size_t i;
	size_t k;

	(void)state;
	(void)sigemptyset(&none);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		for (k = 0; k < sizeof(odd) / sizeof(odd[0]); k++) {
			enum hark_wait_verdict verdict;

			memcpy(memory, odd[k], sizeof(memory));
			verdict = hark_wait_judge(t[i].nr, t[i].args, memory, &w);
			if (verdict == HARK_WAIT_TIMED && w.timeout_ns > 1000000)
				continue; /* a real wait */
			assert_int_equal(ask_kernel(t[i].nr, t[i].args) == EINVAL,
					 verdict == HARK_WAIT_REFUSED);
			refused += verdict == HARK_WAIT_REFUSED;
		}
	assert_true(refused > 50);
	(void)close((int)e);
}

static void test_deadlines(void **state)
{
	struct hark_wait w = {.timeout_ns = 5 * SECOND};

	(void)state;
	assert_int_equal(hark_wait_deadline(&w, 10 * SECOND, 0), 15 * SECOND);
	assert_int_equal(hark_wait_deadline(&w, UINT64_MAX - 1, 0), UINT64_MAX);
	w.is_absolute = true;
	assert_int_equal(hark_wait_deadline(&w, SECOND, 0), 5 * SECOND);
	assert_int_equal(hark_wait_deadline(&w, 7 * SECOND, 0), 7 * SECOND); /* over: at once */
	w.is_wall = true;
	assert_int_equal(hark_wait_deadline(&w, SECOND, 3 * SECOND), 2 * SECOND);
	assert_int_equal(hark_wait_deadline(&w, SECOND, 30 * SECOND), SECOND);
	w.timeout_ns = UINT64_MAX;
	assert_int_equal(hark_wait_deadline(&w, SECOND, 3 * SECOND), UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_call),
		cmocka_unit_test(test_calls_that_are_left_alone),
		cmocka_unit_test(test_memory_that_cannot_be_read),
		cmocka_unit_test(test_odd_timeouts_are_refused_when_the_kernel_refuses),
		cmocka_unit_test(test_deadlines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
