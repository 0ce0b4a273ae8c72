/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifications of the agent's filter: getrandom, answered from the drawing thread's own stream.
 *
 * The place in a stream moves only when the kernel took the answer: a call that a signal or a death
 * cut off is made again, or never, and its bytes are the next ones then.
 */
#include <errno.h>
#include <limits.h>
#include <linux/bpf.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "trace.h"

#include "../../bpf/hark_abi.h"

#ifndef GRND_INSECURE
#define GRND_INSECURE 4
#endif

enum { SYNC_WAKE_UP = 1 }; /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6 */

int trace_answer_init(struct trace *t, struct hark_err *err)
{
	struct seccomp_notif_sizes sizes;

	if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes))
		return hark_err_set(err, errno, "trace: seccomp: %s", strerror(errno));
	t->call_size = sizes.seccomp_notif;
	t->reply_size = sizes.seccomp_notif_resp;
	if (t->call_size < sizeof(*t->call))
		t->call_size = sizeof(*t->call);
	if (t->reply_size < sizeof(*t->reply))
		t->reply_size = sizeof(*t->reply);
	t->call = calloc(1, t->call_size);
	t->reply = calloc(1, t->reply_size);
	t->piece = malloc(TRACE_PIECE);
	if (!t->call || !t->reply || !t->piece)
		return hark_err_set(err, ENOMEM, "trace: no memory");
	return 0;
}

void trace_answer_fini(struct trace *t)
{
	free(t->call);
	free(t->reply);
	if (t->piece)
		explicit_bzero(t->piece, TRACE_PIECE);
	free(t->piece);
	hark_streams_fini(&t->streams);
}

void trace_listen(struct trace *t, int listener)
{
	t->listener = listener;
	/* An older kernel says no, and answers cost a wake-up more. */
	(void)ioctl(listener, TRACE_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
}

int64_t trace_random_length(uint64_t length, uint64_t flags)
{
	/* The kernel takes the low 32 bits of the flags, and at most INT_MAX bytes. */
	const uint32_t f = (uint32_t)flags;

	if (f & ~(uint32_t)(GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE))
		return -EINVAL;
	if ((f & (GRND_INSECURE | GRND_RANDOM)) == (GRND_INSECURE | GRND_RANDOM))
		return -EINVAL;
	return length > TRACE_DRAW ? TRACE_DRAW : (int64_t)length;
}

/* false: the map has no row of this thread. */
static bool look_up(const struct trace *t, uint32_t tid, struct hark_spawn *row)
{
	union bpf_attr attr;

	if (t->spawns < 0)
		return false;
	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)t->spawns;
	attr.key = (uint64_t)(uintptr_t)&tid;
	attr.value = (uint64_t)(uintptr_t)row;
	return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof(attr)) == 0;
}

static struct hark_draws *row_of(struct trace *t, uint32_t tid)
{
	struct hark_spawn spawn = {0};
	struct hark_draws *row;

	if (!look_up(t, tid, &spawn))
		t->lost++;
	row = hark_streams_find(&t->streams, spawn.path);
	if (!row->calls) {
		row->start_ns = spawn.start_ns;
		row->tgid = spawn.tgid;
		row->tid = tid;
	}
	return row;
}

static bool still_there(const struct trace *t, uint64_t id)
{
	return ioctl(t->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* Bytes that arrived in the agent's memory, or -errno. A process of its own namespace alone can be
 * written, so that an id that was given away meanwhile is nobody of the host. */
static ssize_t write_piece(pid_t pid, uint64_t to, void *from, size_t n)
{
	struct iovec local = {from, n};
	struct iovec remote = {(void *)(uintptr_t)to, n};
	ssize_t r = process_vm_writev(pid, &local, 1, &remote, 1, 0);

	return r < 0 ? -errno : r;
}

/* As the kernel does it: what could be written counts, and only nothing at all is a fault. That we
 * may not write at all (EPERM, a security module) is no fault of the agent's: -EPERM. */
static int64_t fill(struct trace *t, const struct hark_draws *row, size_t length)
{
	const pid_t pid = (pid_t)t->call->pid;
	const uint64_t to = t->call->data.args[0];
	size_t done = 0;

	while (done < length) {
		const size_t want = length - done < TRACE_PIECE ? length - done : TRACE_PIECE;
		ssize_t got;

		if (done && !still_there(t, t->call->id))
			break;
		hark_streams_read(&t->streams, row, row->bytes + done, t->piece, want);
		got = write_piece(pid, to + done, t->piece, want);
		if (got == -EPERM && still_there(t, t->call->id))
			return -EPERM;
		done += got > 0 ? (size_t)got : 0;
		if (got < (ssize_t)want)
			break;
	}
	return done || !length ? (int64_t)done : -EFAULT;
}

static int64_t draw(struct trace *t, struct hark_draws *row)
{
	const int64_t length = trace_random_length(t->call->data.args[1], t->call->data.args[2]);

	return length > 0 ? fill(t, row, (size_t)length) : length;
}

static void send_reply(struct trace *t, struct hark_draws *row, int64_t result)
{
	memset(t->reply, 0, t->reply_size);
	t->reply->id = t->call->id;
	if (result < 0)
		t->reply->error = (int32_t)result;
	else
		t->reply->val = result;
	if (ioctl(t->listener, SECCOMP_IOCTL_NOTIF_SEND, t->reply) || result < 0)
		return; /* ENOENT: the call was cut off */
	row->calls++;
	row->bytes += (uint64_t)result;
}

int trace_answer(struct trace *t, struct hark_err *err)
{
	struct hark_draws *row;
	int64_t result;

	memset(t->call, 0, t->call_size); /* the kernel demands it */
	if (ioctl(t->listener, SECCOMP_IOCTL_NOTIF_RECV, t->call)) {
		if (errno == ENOENT || errno == EINTR)
			return 0; /* gone before we came */
		return hark_err_set(err, errno, "trace: notification: %s", strerror(errno));
	}
	if (t->call->data.nr != SYS_getrandom)
		return hark_err_set(err, EPROTO, "trace: nobody asked for call %d",
				    t->call->data.nr);
	row = row_of(t, t->call->pid);
	if (!still_there(t, t->call->id))
		return 0;
	result = draw(t, row);
	if (result == -EPERM)
		return hark_err_set(err, EPERM, "trace: the kernel forbids to answer the agent");
	send_reply(t, row, result);
	return 0;
}

static int tell(struct trace *t, const struct hark_draws *row, struct hark_err *err)
{
	union hark_msg msg = {.draws = {.path = row->path,
					.calls = row->calls,
					.bytes = row->bytes,
					.start_ns = row->start_ns,
					.tgid = row->tgid,
					.tid = row->tid}};

	return hark_chan_send(&t->rec, &msg, HARK_MSG_DRAWS, 0, NULL, 0,
			      hark_deadline_ms(TRACE_SEND_MS), err);
}

int trace_tell_draws(struct trace *t, struct hark_err *err)
{
	struct hark_draws rest = t->streams.rest;
	size_t told = 0;
	size_t i;

	for (i = 0; i < t->streams.cap; i++) {
		const struct hark_draws *row = &t->streams.rows[i];

		if (!row->calls)
			continue;
		if (told++ < TRACE_DRAWS_TOLD) {
			if (tell(t, row, err))
				return -1;
			continue;
		}
		rest.calls += row->calls;
		rest.bytes += row->bytes;
	}
	rest.tgid = rest.tid = 0;
	rest.start_ns = 0;
	return rest.calls ? tell(t, &rest, err) : 0;
}
