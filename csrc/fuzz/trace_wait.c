/* SPDX-License-Identifier: Apache-2.0 */
/* Registers and memory as an agent could have them: judged without a fault, and within bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hark_wait.h"

struct input {
	uint16_t nr;
	uint8_t readable;
	uint8_t pad;
	uint64_t args[HARK_WAIT_ARGS];
	uint8_t memory[HARK_WAIT_BYTES];
	uint64_t now;
	uint64_t ahead;
};

static void check(int fact)
{
	if (!fact)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum hark_wait_verdict verdict;
	struct input in = {0};
	struct hark_wait out;
	uint64_t due;
	int i;

	memcpy(&in, data, size < sizeof(in) ? size : sizeof(in));
	verdict = hark_wait_judge(in.nr, in.args, in.readable & 1 ? in.memory : NULL, &out);
	if (verdict != HARK_WAIT_TIMED)
		return 0;
	check(out.timeout_ns > 0);
	check(out.patches_n > 0 && out.patches_n <= HARK_WAIT_PATCHES);
	for (i = 0; i < out.patches_n; i++)
		check(out.patches[i].arg < HARK_WAIT_ARGS);
	check(out.left_arg < HARK_WAIT_ARGS || out.left_arg == HARK_WAIT_NO_ARG);
	check(out.left_arg == HARK_WAIT_NO_ARG || in.args[out.left_arg] != 0);
	check(out.due <= 0 && out.due > -4096);
	due = hark_wait_deadline(&out, in.now, in.ahead);
	check(due >= in.now);
	return 0;
}
