/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Payload formats: b h w q unsigned integers of 1 2 4 8 bytes; A and S raw addresses of 4 and 16
 * bytes; s a string; B a u32 length and bytes; f and F a descriptor index, F may be none; u a user
 * namespace index or none; (...) a u32 count and that many repetitions.
 */
struct op_def {
	uint16_t op;
	uint16_t flags; /* allowed ones */
	bool once;
	bool required;
	const char *format;
};

static const struct op_def op_defs[] = {
	{HARK_OP_DEADLINES, 0, true, true, "www"},
	{HARK_OP_HOLD, 0, false, false, "f"},
	{HARK_OP_WATCH, 0, false, false, "wf"},
	{HARK_OP_RUN_DIR, 0, true, false, "fs"},
	{HARK_OP_PUBLISH, 0, true, false, "fsww(w)"},
	{HARK_OP_METER, 0, true, false, "wqqqqq"},
	{HARK_OP_NETNS, 0, true, true, "AAbSSbb"},
	{HARK_OP_LISTEN, 0, true, true, "hhh"},
	{HARK_OP_NFLOG, 0, true, true, "hw"},
	{HARK_OP_CGROUP, 0, true, false, "s"},
	{HARK_OP_LIMIT_V2, HARK_OPF_OPTIONAL, false, false, "ss"},
	{HARK_OP_LIMIT_V1, HARK_OPF_OPTIONAL, false, false, "sss"},
	{HARK_OP_USERNS, 0, false, true, "w(www)(www)"},
	{HARK_OP_VIEW, 0, true, false, "w(www)(www)"},
	{HARK_OP_TRACE, 0, true, false, "fu"},
	{HARK_OP_HOSTNAME, 0, true, false, "s"},
	{HARK_OP_ROOT, 0, true, true, "swq"},
	{HARK_OP_LINK, HARK_OPF_STAGED, false, false, "ss"},
	{HARK_OP_STAGE_DIR, HARK_OPF_OPAQUE, false, false, "swww"},
	{HARK_OP_MASK, 0, false, false, "s(s)"},
	{HARK_OP_STAGE_FILE, 0, false, false, "swwwB"},
	{HARK_OP_TREE, HARK_OPF_OPTIONAL | HARK_OPF_IDMAP_OPTIONAL | HARK_OPF_STAGED, false, false,
	 "Fuss"},
	{HARK_OP_ONE_FILE, HARK_OPF_OPTIONAL | HARK_OPF_IDMAP_OPTIONAL, false, false, "Fuss"},
	{HARK_OP_TMPFS, 0, false, false, "swwwq"},
	{HARK_OP_DEV, 0, true, false, "q"},
	{HARK_OP_PROC, 0, true, false, ""},
	{HARK_OP_WORKSPACE, HARK_OPF_STAGED | HARK_OPF_NO_SOURCE | HARK_OPF_RUN_IDS, false, false,
	 "Fussss"},
	{HARK_OP_DIRECT, 0, false, false, "Fuss"},
	{HARK_OP_COVER, HARK_OPF_OPTIONAL, false, false, "ss"},
	{HARK_OP_PIVOT, 0, true, true, ""},
	{HARK_OP_TTY, 0, true, false, "hhww"},
	{HARK_OP_STDIO, 0, true, false, "fffww"},
	{HARK_OP_RLIMIT, 0, false, false, "wqq"},
	{HARK_OP_PERSONALITY, 0, true, false, "w"},
	{HARK_OP_CREDS, 0, true, true, "hww"},
	{HARK_OP_CWD, 0, true, true, "s"},
	{HARK_OP_LANDLOCK, 0, true, false, "qqqw(qs)"},
	{HARK_OP_SECCOMP, HARK_OPF_NOTIFY, true, true, "B"},
	{HARK_OP_ENV, 0, true, true, "(s)"},
	{HARK_OP_EXEC, 0, true, true, "s(s)"},
};

enum { OP_DEFS = sizeof(op_defs) / sizeof(op_defs[0]) };

struct check {
	size_t nfds;
	unsigned int userns;        /* USERNS ops so far */
	unsigned int seen[OP_DEFS]; /* ops of each kind */
	uint16_t phase;
};

static const struct op_def *find_def(uint16_t op)
{
	size_t i;

	for (i = 0; i < OP_DEFS; i++)
		if (op_defs[i].op == op)
			return &op_defs[i];
	return NULL;
}

static bool index_fits(struct hark_cur *cur, size_t limit, bool may_be_none)
{
	uint16_t v = hark_cur_u16(cur);

	return v < limit || (may_be_none && v == HARK_PLAN_NO_FD);
}

/* One format letter; false when the payload does not hold it. */
static bool check_one(const struct check *chk, struct hark_cur *cur, char code)
{
	switch (code) {
	case 'b':
		(void)hark_cur_bytes(cur, 1);
		break;
	case 'h':
		(void)hark_cur_bytes(cur, 2);
		break;
	case 'w':
	case 'A':
		(void)hark_cur_bytes(cur, 4);
		break;
	case 'q':
		(void)hark_cur_bytes(cur, 8);
		break;
	case 'S':
		(void)hark_cur_bytes(cur, 16);
		break;
	case 's':
		(void)hark_cur_str(cur);
		break;
	case 'B':
		(void)hark_cur_bytes(cur, hark_cur_u32(cur));
		break;
	case 'f':
		return index_fits(cur, chk->nfds, false) && !cur->bad;
	case 'F':
		return index_fits(cur, chk->nfds, true) && !cur->bad;
	case 'u':
		return index_fits(cur, chk->userns, true) && !cur->bad;
	default:
		return false;
	}
	return !cur->bad;
}

/* A group "(...)": its count, then the letters that often. Groups do not nest. */
static bool check_group(const struct check *chk, struct hark_cur *cur, const char *group)
{
	uint32_t n = hark_cur_u32(cur);
	const char *f;

	for (; n && !cur->bad; n--)
		for (f = group; *f != ')'; f++)
			if (!check_one(chk, cur, *f))
				return false;
	return !cur->bad;
}

static bool check_payload(const struct check *chk, const struct plan_op *op, const char *format)
{
	struct hark_cur cur = op->body;
	const char *f = format;

	while (*f) {
		if (*f == '(') {
			if (!check_group(chk, &cur, f + 1))
				return false;
			f = strchr(f, ')') + 1;
		} else if (!check_one(chk, &cur, *f++)) {
			return false;
		}
	}
	return hark_cur_done(&cur);
}

static int check_op(struct check *chk, const struct plan_op *op, struct hark_err *err)
{
	const struct op_def *def = find_def(op->op);

	if (!def)
		return hark_err_set(err, EPROTO, "plan: unknown op 0x%x", op->op);
	if (op->flags & ~(unsigned int)def->flags)
		return hark_err_set(err, EPROTO, "plan: unknown flag on op 0x%x", op->op);
	if ((op->op >> 8) < chk->phase)
		return hark_err_set(err, EPROTO, "plan: op 0x%x out of order", op->op);
	if (chk->seen[def - op_defs]++ && def->once)
		return hark_err_set(err, EPROTO, "plan: op 0x%x twice", op->op);
	if (!check_payload(chk, op, def->format))
		return hark_err_set(err, EPROTO, "plan: malformed op 0x%x", op->op);
	chk->phase = op->op >> 8;
	chk->userns += op->op == HARK_OP_USERNS;
	return 0;
}

static int check_complete(const struct check *chk, struct hark_err *err)
{
	size_t i;

	for (i = 0; i < OP_DEFS; i++)
		if (op_defs[i].required && !chk->seen[i])
			return hark_err_set(err, EPROTO, "plan: op 0x%x is missing", op_defs[i].op);
	return 0;
}

int plan_parse(struct plan_op *ops, uint32_t *n, const void *buf, size_t len, size_t nfds,
	       struct hark_err *err)
{
	struct check chk = {.nfds = nfds};
	struct hark_tlv_item item;
	struct hark_tlv tlv;
	enum hark_tlv_result r;

	*n = 0;
	if (hark_tlv_init(&tlv, buf, len, HARK_PLAN_MAGIC, HARK_PLAN_VERSION, err))
		return -1;
	if (tlv.count > HARK_PLAN_OPS)
		return hark_err_set(err, E2BIG, "plan: %u ops", tlv.count);
	while ((r = hark_tlv_next(&tlv, &item)) == HARK_TLV_ITEM) {
		ops[*n] = (struct plan_op){item.op, item.flags, *n, item.body};
		if (check_op(&chk, &ops[*n], err))
			return -1;
		(*n)++;
	}
	if (r == HARK_TLV_BAD)
		return hark_err_set(err, EPROTO, "plan: cut short or trailing bytes");
	return check_complete(&chk, err);
}

static int check_memfd(int fd, size_t *len, struct hark_err *err)
{
	const int want = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || ((unsigned int)seals & (unsigned int)want) != (unsigned int)want)
		return hark_err_set(err, EPERM, "plan: not a sealed memfd");
	if (fstat(fd, &st) < 0)
		return hark_err_set(err, errno, "plan: %s", strerror(errno));
	if (st.st_size <= 0 || st.st_size > HARK_PLAN_BYTES)
		return hark_err_set(err, E2BIG, "plan: %lld bytes", (long long)st.st_size);
	*len = (size_t)st.st_size;
	return 0;
}

int plan_load(struct plan *plan, int fd, size_t nfds, struct hark_err *err)
{
	void *map;

	memset(plan, 0, sizeof(*plan));
	if (check_memfd(fd, &plan->len, err))
		return -1;
	map = mmap(NULL, plan->len, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return hark_err_set(err, errno, "plan: %s", strerror(errno));
	plan->map = map;
	plan->ops = calloc(HARK_PLAN_OPS, sizeof(*plan->ops));
	if (!plan->ops)
		return hark_err_set(err, ENOMEM, "plan: no memory");
	return plan_parse(plan->ops, &plan->n, plan->map, plan->len, nfds, err);
}

void plan_fini(struct plan *plan)
{
	if (plan->map)
		(void)munmap((void *)(uintptr_t)plan->map, plan->len);
	free(plan->ops);
	memset(plan, 0, sizeof(*plan));
}
