/* SPDX-License-Identifier: Apache-2.0 */
/* hark-launch without a kernel: the plan's reader, the table reader, control sockets, removal. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "hark_chan.h"
#include "hark_fd.h"
#include "launch.h"
#include "plan.h"

/* ---- a plan that is complete and says nothing ---- */

struct writer {
	uint8_t bytes[4096];
	size_t len;
	uint32_t ops;
};

static void put(struct writer *w, const void *data, size_t len)
{
	assert_true(w->len + len <= sizeof(w->bytes));
	memcpy(w->bytes + w->len, data, len);
	w->len += len;
}

static void put_u32(struct writer *w, uint32_t v)
{
	put(w, &v, sizeof(v));
}

static void put_str(struct writer *w, const char *s)
{
	put_u32(w, (uint32_t)strlen(s));
	put(w, s, strlen(s) + 1);
}

static size_t begin(struct writer *w, uint16_t op, uint16_t flags)
{
	put(w, &op, 2);
	put(w, &flags, 2);
	put_u32(w, 0);
	w->ops++;
	return w->len;
}

static void end(struct writer *w, size_t at)
{
	uint32_t len = (uint32_t)(w->len - at);

	memcpy(w->bytes + at - 4, &len, 4);
}

static void put_zeros(struct writer *w, uint16_t op, size_t n)
{
	static const uint8_t zero[64];
	size_t at = begin(w, op, 0);

	put(w, zero, n);
	end(w, at);
}

static void put_text(struct writer *w, uint16_t op, const char *s, size_t zeros)
{
	static const uint8_t zero[64];
	size_t at = begin(w, op, 0);

	put_str(w, s);
	put(w, zero, zeros);
	end(w, at);
}

static void put_head(struct writer *w)
{
	memset(w, 0, sizeof(*w));
	put_u32(w, HARK_PLAN_MAGIC);
	put_u32(w, HARK_PLAN_VERSION);
	put_u32(w, 0);
}

static void put_host_ops(struct writer *w)
{
	put_zeros(w, HARK_OP_DEADLINES, 12);
	put_zeros(w, HARK_OP_NETNS, 43);
	put_zeros(w, HARK_OP_LISTEN, 6);
	put_zeros(w, HARK_OP_NFLOG, 6);
	put_zeros(w, HARK_OP_USERNS, 12);
}

static void put_run_ops(struct writer *w)
{
	put_text(w, HARK_OP_ROOT, "/run", 12);
	put_zeros(w, HARK_OP_PIVOT, 0);
	put_zeros(w, HARK_OP_CREDS, 10);
	put_text(w, HARK_OP_CWD, "/", 0);
	put_zeros(w, HARK_OP_SECCOMP, 4);
	put_zeros(w, HARK_OP_ENV, 4);
	put_text(w, HARK_OP_EXEC, "/bin/true", 4);
}

static void finish(struct writer *w)
{
	memcpy(w->bytes + 8, &w->ops, 4);
}

static void smallest(struct writer *w)
{
	put_head(w);
	put_host_ops(w);
	put_run_ops(w);
	finish(w);
}

static int parse(const struct writer *w, size_t len, struct hark_err *err)
{
	struct plan_op *ops = calloc(HARK_PLAN_OPS, sizeof(*ops));
	uint8_t *copy = malloc(len ? len : 1);
	uint32_t n;
	int r;

	assert_non_null(ops);
	assert_non_null(copy);
	memcpy(copy, w->bytes, len);
	hark_err_init(err);
	r = plan_parse(ops, &n, copy, len, 2, err);
	if (r)
		assert_true(err->err && err->what[0]);
	free(copy);
	free(ops);
	return r;
}

static void plan_is_read_whole(void **state)
{
	struct hark_err err;
	struct writer w;
	size_t cut;

	(void)state;
	smallest(&w);
	assert_int_equal(parse(&w, w.len, &err), 0);
	for (cut = 0; cut < w.len; cut++)
		assert_int_equal(parse(&w, cut, &err), -1);
	w.len++;
	assert_int_equal(parse(&w, w.len, &err), -1);
}

static void plan_refuses(struct writer *w, const char *words)
{
	struct hark_err err;

	finish(w);
	assert_int_equal(parse(w, w->len, &err), -1);
	if (!strstr(err.what, words))
		fail_msg("\"%s\" does not say \"%s\"", err.what, words);
}

static void plan_refusals_name_the_fault(void **state)
{
	struct writer w;
	size_t at;

	(void)state;
	put_head(&w);
	put_zeros(&w, 0x7ff, 0);
	plan_refuses(&w, "unknown op 0x7ff");

	put_head(&w);
	at = begin(&w, HARK_OP_DEADLINES, 0x8000);
	end(&w, at);
	plan_refuses(&w, "unknown flag");

	put_head(&w);
	put_zeros(&w, HARK_OP_LISTEN, 6);
	put_zeros(&w, HARK_OP_DEADLINES, 12);
	plan_refuses(&w, "out of order");

	put_head(&w);
	put_zeros(&w, HARK_OP_DEADLINES, 12);
	put_zeros(&w, HARK_OP_DEADLINES, 12);
	plan_refuses(&w, "twice");

	put_head(&w);
	put_zeros(&w, HARK_OP_DEADLINES, 13);
	plan_refuses(&w, "malformed");

	put_head(&w);
	put_host_ops(&w);
	plan_refuses(&w, "is missing");
}

static void plan_indexes_are_bounded(void **state)
{
	const uint16_t none = HARK_PLAN_NO_FD;
	const uint16_t third = 2;
	struct writer w;
	size_t at;

	(void)state;
	put_head(&w);
	at = begin(&w, HARK_OP_HOLD, 0);
	put(&w, &third, 2);
	end(&w, at);
	plan_refuses(&w, "malformed");

	put_head(&w);
	at = begin(&w, HARK_OP_HOLD, 0);
	put(&w, &none, 2);
	end(&w, at);
	plan_refuses(&w, "malformed");

	put_head(&w);
	put_host_ops(&w);
	at = begin(&w, HARK_OP_TREE, 0);
	put(&w, &none, 2);
	put_u32(&w, 1); /* user namespace 1 of one, then half a string */
	end(&w, at);
	plan_refuses(&w, "malformed");
}

static void counts_cannot_run_away(void **state)
{
	struct writer w;
	size_t at;

	(void)state;
	put_head(&w);
	at = begin(&w, HARK_OP_USERNS, 0);
	put_u32(&w, UINT32_MAX);
	put_u32(&w, UINT32_MAX);
	end(&w, at);
	plan_refuses(&w, "malformed");
}

/* ---- control sockets ---- */

static void pair(struct hark_chan *a, struct hark_chan *b)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	hark_chan_init(a, sv[0]);
	hark_chan_init(b, sv[1]);
}

static void messages_carry_descriptors_and_end(void **state)
{
	union hark_msg msg = {.signal = {.signo = 15}};
	struct hark_msg_fds fds;
	struct hark_chan a;
	struct hark_chan b;
	struct hark_err err;
	int two[2];

	(void)state;
	hark_err_init(&err);
	pair(&a, &b);
	assert_int_equal(pipe(two), 0);
	assert_int_equal(hark_chan_recv(&b, &msg, &fds, 0), HARK_RX_TIMEOUT);
	assert_int_equal(hark_chan_send(&a, &msg, HARK_MSG_SIGNAL, 7, two, 2, 0, &err), 0);
	assert_int_equal(hark_chan_recv(&b, &msg, &fds, 0), HARK_RX_MSG);
	assert_int_equal(msg.head.id, 7);
	assert_int_equal(fds.n, 2);
	assert_true(fcntl(fds.fd[0], F_GETFD) & FD_CLOEXEC);
	hark_fd_close_all(fds.fd, fds.n);
	hark_fd_close_all(two, 2);
	hark_fd_close(&a.fd);
	assert_int_equal(hark_chan_recv(&b, &msg, &fds, 0), HARK_RX_EOF);
	hark_fd_close(&b.fd);
}

static void foreign_packets_are_bad_and_their_descriptors_closed(void **state)
{
	struct hark_msg_plain raw = {.head = {HARK_MSG_GO, sizeof(raw), 0, 5}};
	union hark_msg msg;
	struct hark_msg_fds fds;
	struct hark_chan a;
	struct hark_chan b;
	size_t n;

	(void)state;
	pair(&a, &b);
	for (n = 1; n <= sizeof(raw); n++) { /* every cut, then a wrong sequence number */
		assert_int_equal(send(a.fd, &raw, n, 0), (ssize_t)n);
		assert_int_equal(hark_chan_recv(&b, &msg, &fds, 0), HARK_RX_BAD);
		assert_int_equal(fds.n, 0);
	}
	raw.head.seq = 0;
	assert_int_equal(send(a.fd, &raw, sizeof(raw), 0), (ssize_t)sizeof(raw));
	assert_int_equal(hark_chan_recv(&b, &msg, &fds, 0), HARK_RX_MSG);
	hark_fd_close(&a.fd);
	hark_fd_close(&b.fd);
}

static void every_type_has_a_size(void **state)
{
	unsigned int type;
	unsigned int known = 0;

	(void)state;
	for (type = 0; type <= UINT16_MAX; type++)
		if (hark_msg_size((uint16_t)type)) {
			assert_true(hark_msg_size((uint16_t)type) <= sizeof(union hark_msg));
			known++;
		}
	assert_true(known > 20);
}

/* ---- removing hostile trees ---- */

static void make_deep(int at, unsigned int depth)
{
	hark_autofd dir = dup(at);

	while (depth--) {
		int next;

		assert_int_equal(mkdirat(dir, "d", 0700), 0);
		assert_int_equal(symlinkat("/etc", dir, "link"), 0);
		next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		hark_fd_close(&dir);
		dir = next;
	}
}

static void trees_of_any_depth_go_and_links_are_not_followed(void **state)
{
	char base[] = "/tmp/hark-remove-XXXXXX";
	hark_autofd at = -1;
	hark_autofd tree = -1;

	(void)state;
	assert_non_null(mkdtemp(base));
	at = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(at, "tree", 0700), 0);
	assert_int_equal(mkdirat(at, "keep", 0700), 0);
	tree = openat(at, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	make_deep(tree, 3000);
	assert_int_equal(symlinkat("../keep", tree, "k"), 0);
	assert_int_equal(mkdirat(tree, ".rm0", 0700), 0);
	assert_int_equal(remove_tree(at, "tree"), 0);
	assert_int_equal(faccessat(at, "tree", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(faccessat(at, "keep", F_OK, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(remove_tree(at, "absent"), 0);
	assert_int_equal(unlinkat(at, "keep", AT_REMOVEDIR), 0);
	assert_int_equal(rmdir(base), 0);
}

/* A file of one block, by `name`. */
static void make_file(int at, const char *name)
{
	hark_autofd fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char block[4096] = {1};

	assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
	assert_int_equal(fsync(fd), 0);
}

static void disk_is_measured_once_a_file_and_through_no_link(void **state)
{
	char base[] = "/tmp/hark-disk-XXXXXX";
	uint64_t before;
	hark_autofd at = -1;
	hark_autofd tree = -1;

	(void)state;
	assert_non_null(mkdtemp(base));
	at = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(disk_used(at, "tree", UINT64_MAX - 1), 0); /* absent */
	assert_int_equal(mkdirat(at, "tree", 0700), 0);
	assert_int_equal(mkdirat(at, "other", 0700), 0);
	tree = openat(at, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	make_file(tree, "a");
	before = disk_used(at, "tree", UINT64_MAX - 1);
	assert_true(before >= 4096);
	assert_int_equal(linkat(tree, "a", tree, "b", 0), 0);
	assert_true(disk_used(at, "tree", UINT64_MAX - 1) < before + 4096);
	assert_int_equal(symlinkat("../other", tree, "l"), 0);
	{
		hark_autofd other = openat(at, "other", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		before = disk_used(at, "tree", UINT64_MAX - 1);
		make_file(other, "c");
		assert_int_equal(disk_used(at, "tree", UINT64_MAX - 1), before);
	}
	assert_true(disk_used(at, "tree", 100) > 100); /* enough is enough */
	assert_int_equal(unlinkat(tree, "l", 0), 0);
	make_deep(tree, 200);
	assert_true(disk_used(at, "tree", UINT64_MAX - 1) < UINT64_MAX);
	assert_int_equal(renameat(tree, "d", tree, "e"), 0);
	assert_int_equal(unlinkat(tree, "link", 0), 0);
	make_deep(tree, 300);
	assert_int_equal(disk_used(at, "tree", UINT64_MAX - 1), UINT64_MAX);
	assert_int_equal(remove_tree(at, "tree"), 0);
	assert_int_equal(remove_tree(at, "other"), 0);
	assert_int_equal(rmdir(base), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plan_is_read_whole),
		cmocka_unit_test(plan_refusals_name_the_fault),
		cmocka_unit_test(plan_indexes_are_bounded),
		cmocka_unit_test(counts_cannot_run_away),
		cmocka_unit_test(messages_carry_descriptors_and_end),
		cmocka_unit_test(foreign_packets_are_bad_and_their_descriptors_closed),
		cmocka_unit_test(every_type_has_a_size),
		cmocka_unit_test(disk_is_measured_once_a_file_and_through_no_link),
		cmocka_unit_test(trees_of_any_depth_go_and_links_are_not_followed),
	};

	return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
