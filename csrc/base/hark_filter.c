/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

#if defined(__x86_64__)
#define HARK_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HARK_ARCH AUDIT_ARCH_AARCH64
#else
#error "unknown architecture"
#endif

struct program {
	struct sock_filter code[HARK_FILTER_CODE];
	size_t len;
};

static void emit(struct program *p, uint16_t op, size_t jt, size_t jf, uint32_t k)
{
	if (p->len < HARK_FILTER_CODE)
		p->code[p->len] = (struct sock_filter){op, (uint8_t)jt, (uint8_t)jf, k};
	p->len++;
}

static void emit_load(struct program *p, size_t offset)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void emit_return(struct program *p, uint32_t action)
{
	emit(p, BPF_RET | BPF_K, 0, 0, action);
}

/* A row whose arguments do not fit goes on to the next one, for which the number is loaded again.
 */
static void emit_limited(struct program *p, const struct hark_filter_limited *row)
{
	size_t i;

	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 2 * row->n + 2, row->nr);
	for (i = 0; i < row->n; i++) {
		const struct hark_filter_rule *rule = &row->rules[i];
		const uint16_t test = BPF_JMP | BPF_K | (rule->forbidden ? BPF_JSET : BPF_JEQ);
		const size_t out = 2 * (row->n - i) - 1;

		emit_load(p, offsetof(struct seccomp_data, args) + rule->arg * sizeof(uint64_t));
		emit(p, test, rule->forbidden ? out : 0, rule->forbidden ? 0 : out, rule->value);
	}
	emit_return(p, SECCOMP_RET_ALLOW);
	emit_load(p, offsetof(struct seccomp_data, nr));
}

static void build(struct program *p, const struct hark_filter *filter)
{
	size_t i;

	p->len = 0;
	emit_load(p, offsetof(struct seccomp_data, arch));
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, HARK_ARCH);
	emit_return(p, SECCOMP_RET_KILL_PROCESS);
	/* x32 numbers carry a high bit, so none of them equals an entry. */
	emit_load(p, offsetof(struct seccomp_data, nr));
	for (i = 0; i < filter->allowed_n; i++) {
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, filter->allowed[i]);
		emit_return(p, SECCOMP_RET_ALLOW);
	}
	for (i = 0; i < filter->limited_n; i++)
		emit_limited(p, &filter->limited[i]);
	emit_return(p, SECCOMP_RET_KILL_PROCESS);
}

int hark_filter_enter(const struct hark_filter *filter, struct hark_err *err)
{
	struct program p;
	struct sock_fprog prog = {.filter = p.code};

	build(&p, filter);
	if (p.len > HARK_FILTER_CODE)
		return hark_err_set(err, E2BIG, "filter: too many rules");
	prog.len = (unsigned short)p.len;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		return hark_err_set(err, errno, "filter: %s", strerror(errno));
	return 0;
}
