/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_wait.h"

#include <errno.h>
#include <string.h>

enum nr { /* arch/x86/entry/syscalls/syscall_64.tbl */
	  NR_POLL = 7,
	  NR_SELECT = 23,
	  NR_NANOSLEEP = 35,
	  NR_SIGTIMEDWAIT = 128,
	  NR_FUTEX = 202,
	  NR_SEMTIMEDOP = 220,
	  NR_CLOCK_NANOSLEEP = 230,
	  NR_EPOLL_WAIT = 232,
	  NR_MQ_TIMEDSEND = 242,
	  NR_MQ_TIMEDRECEIVE = 243,
	  NR_PSELECT6 = 270,
	  NR_PPOLL = 271,
	  NR_EPOLL_PWAIT = 281,
	  NR_EPOLL_PWAIT2 = 441,
	  NR_FUTEX_WAITV = 449
};

enum futex { /* include/uapi/linux/futex.h */
	     FUTEX_COMMAND = 0x7f,
	     FUTEX_REALTIME = 0x100,
	     OP_WAIT = 0,
	     OP_LOCK_PI = 6,
	     OP_WAIT_BITSET = 9,
	     OP_WAIT_REQUEUE_PI = 11,
	     OP_LOCK_PI2 = 13
};

enum clock { CLOCK_WALL = 0, CLOCK_MONO = 1, CLOCK_BOOT = 7 };
enum { ABSTIME = 1 };

static const uint64_t NS_PER_S = 1000000000;
static const uint64_t NS_PER_US = 1000;
static const uint64_t NS_PER_MS = 1000000;
static const uint64_t US_PER_S = 1000000;

struct row {
	uint16_t nr;
	uint8_t form;
	uint8_t arg;
	uint8_t patch; /* enum hark_wait_value, of `arg` */
	uint8_t left;  /* argument that gets the time left */
	bool left_if_cut;
	int16_t due;
};

/* select, pselect6 and ppoll tell the time left in place, whatever ended them (select(2)). */
static const struct row rows[] = {
	{NR_POLL, HARK_WAIT_MILLIS, 2, HARK_WAIT_TO_MINUS, HARK_WAIT_NO_ARG, false, 0},
	{NR_SELECT, HARK_WAIT_VAL, 4, HARK_WAIT_TO_NULL, 4, false, 0},
	{NR_NANOSLEEP, HARK_WAIT_SPEC, 0, HARK_WAIT_TO_LONG, 1, true, 0},
	{NR_SIGTIMEDWAIT, HARK_WAIT_SPEC, 2, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false, -EAGAIN},
	{NR_FUTEX, HARK_WAIT_SPEC, 3, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false, -ETIMEDOUT},
	{NR_SEMTIMEDOP, HARK_WAIT_SPEC, 3, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false, -EAGAIN},
	{NR_CLOCK_NANOSLEEP, HARK_WAIT_SPEC, 2, HARK_WAIT_TO_LONG, 3, true, 0},
	{NR_EPOLL_WAIT, HARK_WAIT_MILLIS, 3, HARK_WAIT_TO_MINUS, HARK_WAIT_NO_ARG, false, 0},
	{NR_MQ_TIMEDSEND, HARK_WAIT_SPEC, 4, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false,
	 -ETIMEDOUT},
	{NR_MQ_TIMEDRECEIVE, HARK_WAIT_SPEC, 4, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false,
	 -ETIMEDOUT},
	{NR_PSELECT6, HARK_WAIT_SPEC, 4, HARK_WAIT_TO_NULL, 4, false, 0},
	{NR_PPOLL, HARK_WAIT_SPEC, 2, HARK_WAIT_TO_NULL, 2, false, 0},
	{NR_EPOLL_PWAIT, HARK_WAIT_MILLIS, 3, HARK_WAIT_TO_MINUS, HARK_WAIT_NO_ARG, false, 0},
	{NR_EPOLL_PWAIT2, HARK_WAIT_SPEC, 3, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false, 0},
	{NR_FUTEX_WAITV, HARK_WAIT_SPEC, 3, HARK_WAIT_TO_NULL, HARK_WAIT_NO_ARG, false, -ETIMEDOUT},
};

static const struct row *find_row(uint64_t nr)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].nr == nr)
			return &rows[i];
	return NULL;
}

/* futex(2): with other commands the fourth argument is a number, or nothing. */
static bool futex_waits(uint64_t op)
{
	switch (op & FUTEX_COMMAND) {
	case OP_WAIT:
	case OP_LOCK_PI:
	case OP_WAIT_BITSET:
	case OP_WAIT_REQUEUE_PI:
	case OP_LOCK_PI2:
		return true;
	default:
		return false;
	}
}

/* Clocks that stand still with the rest; those of processor time do not, and TAI is nobody's. */
static bool is_virtual(uint64_t clock)
{
	const uint32_t id = (uint32_t)clock;

	return id == CLOCK_WALL || id == CLOCK_MONO || id == CLOCK_BOOT;
}

enum hark_wait_form hark_wait_form(uint64_t nr, const uint64_t args[HARK_WAIT_ARGS], uint8_t *arg)
{
	const struct row *row = find_row(nr);

	if (!row || (nr == NR_FUTEX && !futex_waits(args[1])))
		return HARK_WAIT_NONE;
	if ((nr == NR_CLOCK_NANOSLEEP && !is_virtual(args[0])) ||
	    (nr == NR_FUTEX_WAITV && !is_virtual(args[4])))
		return HARK_WAIT_NONE;
	*arg = row->arg;
	if (row->form != HARK_WAIT_MILLIS && !args[row->arg])
		return HARK_WAIT_NONE;
	return (enum hark_wait_form)row->form;
}

static uint64_t times_or_most(uint64_t value, uint64_t by)
{
	return value > UINT64_MAX / by ? UINT64_MAX : value * by;
}

static uint64_t sum_or_most(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static void read_fields(const void *memory, int64_t *seconds, int64_t *fraction)
{
	memcpy(seconds, memory, sizeof(*seconds));
	memcpy(fraction, (const char *)memory + sizeof(*seconds), sizeof(*fraction));
}

/* timespec64_valid: no negative part, and less than a second of nanoseconds. */
static bool read_spec(const void *memory, uint64_t *ns)
{
	int64_t s;
	int64_t n;

	read_fields(memory, &s, &n);
	if (s < 0 || n < 0 || (uint64_t)n >= NS_PER_S)
		return false;
	*ns = sum_or_most(times_or_most((uint64_t)s, NS_PER_S), (uint64_t)n);
	return true;
}

/* select(2) carries whole seconds of microseconds over before it looks (kern_select). */
static bool read_val(const void *memory, uint64_t *ns)
{
	int64_t s;
	int64_t us;

	read_fields(memory, &s, &us);
	if (us < 0) {
		/* Division rounds to zero: a part of a second below zero stays negative. */
		if (us % (int64_t)US_PER_S)
			return false;
		if (s < INT64_MIN - us / (int64_t)US_PER_S)
			return false;
	} else if (s > INT64_MAX - us / (int64_t)US_PER_S) {
		return false; /* it wraps to a negative number in the kernel */
	}
	s += us / (int64_t)US_PER_S;
	if (s < 0)
		return false;
	us %= (int64_t)US_PER_S;
	*ns = sum_or_most(times_or_most((uint64_t)s, NS_PER_S), (uint64_t)us * NS_PER_US);
	return true;
}

/* Whether the timeout is a moment, and on which clock. */
static void read_clock(uint64_t nr, const uint64_t args[HARK_WAIT_ARGS], struct hark_wait *out)
{
	const uint64_t command = args[1] & FUTEX_COMMAND;

	switch (nr) {
	case NR_FUTEX:
		out->is_absolute = command != OP_WAIT;
		out->is_wall = command == OP_LOCK_PI || (args[1] & FUTEX_REALTIME) != 0;
		break;
	case NR_CLOCK_NANOSLEEP:
		out->is_absolute = (args[1] & ABSTIME) != 0;
		out->is_wall = (uint32_t)args[0] == CLOCK_WALL;
		break;
	case NR_FUTEX_WAITV:
		out->is_absolute = true;
		out->is_wall = (uint32_t)args[4] == CLOCK_WALL;
		break;
	case NR_MQ_TIMEDSEND:
	case NR_MQ_TIMEDRECEIVE:
		out->is_absolute = out->is_wall = true;
		break;
	default:
		break;
	}
}

static void patch(struct hark_wait *out, uint8_t arg, uint8_t value)
{
	out->patches[out->patches_n++] = (struct hark_wait_patch){arg, value};
}

static void fill(const struct row *row, const uint64_t args[HARK_WAIT_ARGS], struct hark_wait *out)
{
	read_clock(row->nr, args, out);
	out->due = row->due;
	out->left_arg = row->left;
	out->left_form = row->form;
	out->left_if_cut = row->left_if_cut;
	/* An absolute sleep tells no time left (clock_nanosleep(2)). */
	if (row->left_if_cut && (out->is_absolute || !args[row->left]))
		out->left_arg = HARK_WAIT_NO_ARG;
	patch(out, row->arg, row->patch);
	if (row->nr == NR_CLOCK_NANOSLEEP) {
		patch(out, 0, HARK_WAIT_TO_ONE);
		patch(out, 1, HARK_WAIT_TO_NULL);
	}
}

enum hark_wait_verdict hark_wait_judge(uint64_t nr, const uint64_t args[HARK_WAIT_ARGS],
				       const void *memory, struct hark_wait *out)
{
	uint8_t arg = 0;
	const enum hark_wait_form form = hark_wait_form(nr, args, &arg);
	bool valid = true;

	memset(out, 0, sizeof(*out));
	out->left_arg = HARK_WAIT_NO_ARG;
	if (form == HARK_WAIT_NONE)
		return HARK_WAIT_PASS;
	if (form == HARK_WAIT_MILLIS) {
		const int32_t ms = (int32_t)args[arg];

		if (ms <= 0)
			return HARK_WAIT_PASS; /* does not wait, or for ever */
		out->timeout_ns = (uint64_t)ms * NS_PER_MS;
	} else if (!memory) {
		return HARK_WAIT_PASS; /* EFAULT */
	} else {
		valid = form == HARK_WAIT_VAL ? read_val(memory, &out->timeout_ns)
					      : read_spec(memory, &out->timeout_ns);
	}
	if (!valid)
		return HARK_WAIT_REFUSED;
	fill(find_row(nr), args, out);
	/* Zero is a look; of an absolute wait it is a moment that was over long ago. */
	return out->timeout_ns ? HARK_WAIT_TIMED : HARK_WAIT_PASS;
}

uint64_t hark_wait_deadline(const struct hark_wait *wait, uint64_t now, uint64_t wall_ahead)
{
	uint64_t at = wait->timeout_ns;

	if (!wait->is_absolute)
		return sum_or_most(now, at);
	if (wait->is_wall && at != UINT64_MAX)
		at = at > wall_ahead ? at - wall_ahead : 0;
	return at > now ? at : now;
}
