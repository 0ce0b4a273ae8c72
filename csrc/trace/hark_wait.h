/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that wait with a timeout, and how such a timeout is taken out of the kernel's hands:
 * which registers are changed so that the call waits for its event alone, when it is due in virtual
 * time, and what it says when that moment has come.
 *
 * Rules. Pure: registers and the bytes of the timeout go in, values come out. Everything is the
 * agent's word and may be nonsense: what the kernel would refuse, or not wait for, is not ours.
 * Durations saturate, and never wrap. x86-64 numbers. Sources: the manual page of each call, and
 * kernel/time/, fs/select.c, kernel/futex/ of Linux 6.1 for what those leave open.
 */
#ifndef HARK_WAIT_H
#define HARK_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hark_wait_limit {
	HARK_WAIT_ARGS = 6,
	HARK_WAIT_BYTES = 16,  /* a timespec or timeval of 64-bit fields */
	HARK_WAIT_PATCHES = 3, /* registers that are changed */
	HARK_WAIT_NO_ARG = 0xff
};

/* Where a call has its timeout, before the memory is read. */
enum hark_wait_form {
	HARK_WAIT_NONE = 0,   /* this call, with these arguments, has none */
	HARK_WAIT_MILLIS = 1, /* in the register, 32 bits */
	HARK_WAIT_SPEC = 2,   /* struct timespec at the address in the register */
	HARK_WAIT_VAL = 3     /* struct timeval there */
};

enum hark_wait_verdict {
	HARK_WAIT_PASS = 0,    /* it does not wait, or not with a timeout: leave it alone */
	HARK_WAIT_REFUSED = 1, /* the kernel will say EINVAL: leave it alone */
	HARK_WAIT_TIMED = 2
};

/* What a register is set to while the call waits. */
enum hark_wait_value {
	HARK_WAIT_TO_NULL = 0,  /* 0: no timeout, also the relative flag and CLOCK_REALTIME */
	HARK_WAIT_TO_MINUS = 1, /* -1: no timeout in milliseconds */
	HARK_WAIT_TO_ONE = 2,   /* 1: CLOCK_MONOTONIC */
	HARK_WAIT_TO_LONG = 3   /* the address of a timespec that is longer than any run */
};

struct hark_wait_patch {
	uint8_t arg;
	uint8_t value; /* enum hark_wait_value */
};

struct hark_wait {
	uint64_t timeout_ns;
	bool is_absolute; /* a moment on its clock, else counted from now */
	bool is_wall;     /* of an absolute one: CLOCK_REALTIME, else the monotonic clock */
	int32_t due;      /* result when the moment has come: 0 or -errno */
	uint8_t patches_n;
	struct hark_wait_patch patches[HARK_WAIT_PATCHES];
	uint8_t left_arg; /* address that gets the time that was left, or HARK_WAIT_NO_ARG */
	uint8_t left_form;
	bool left_if_cut; /* only when a signal cut the wait; else whenever it ends */
};

/* Where to look for the timeout of a call. `*arg` is set unless the answer is HARK_WAIT_NONE. */
enum hark_wait_form hark_wait_form(uint64_t nr, const uint64_t args[HARK_WAIT_ARGS], uint8_t *arg);

/*
 * Judge a call. `memory`: HARK_WAIT_BYTES read at the timeout's address; NULL where that failed or
 * the form has none. `out` is filled for HARK_WAIT_TIMED alone.
 */
enum hark_wait_verdict hark_wait_judge(uint64_t nr, const uint64_t args[HARK_WAIT_ARGS],
				       const void *memory, struct hark_wait *out);

/*
 * When it is due on the virtual monotonic clock. `now`: what the waiting thread last read from it;
 * `wall_ahead`: wall clock minus monotonic clock. A moment that is over is due at once, at `now`.
 */
uint64_t hark_wait_deadline(const struct hark_wait *wait, uint64_t now, uint64_t wall_ahead);

#endif
