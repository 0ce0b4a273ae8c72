/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "hark_fd.h"
#include "hark_time.h"

int hark_loop_init(struct hark_loop *loop, struct hark_err *err)
{
	memset(loop, 0, sizeof(*loop));
	loop->last = &loop->first;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll < 0)
		return hark_err_set(err, errno, "epoll: %s", strerror(errno));
	return 0;
}

void hark_loop_fini(struct hark_loop *loop)
{
	hark_fd_close(&loop->epoll);
}

int hark_loop_watch(struct hark_loop *loop, struct hark_source *source, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};
	int op = source->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (source->fd < 0 || events == source->events)
		return 0;
	if (epoll_ctl(loop->epoll, op, source->fd, &e))
		return -1;
	source->events = events;
	return 0;
}

void hark_loop_forget(struct hark_loop *loop, struct hark_source *source)
{
	if (source->fd >= 0 && source->events)
		(void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	source->events = 0;
}

int hark_loop_urgent(struct hark_loop *loop, struct hark_source *source)
{
	if (loop->nurgent == HARK_LOOP_URGENT)
		return -1;
	loop->urgent[loop->nurgent++] = source;
	return hark_loop_watch(loop, source, EPOLLIN);
}

void hark_loop_queue(struct hark_loop *loop, struct hark_task *task)
{
	if (task->queued)
		return;
	task->queued = true;
	task->next = NULL;
	*loop->last = task;
	loop->last = &task->next;
}

void hark_loop_unqueue(struct hark_loop *loop, struct hark_task *task)
{
	struct hark_task **at = &loop->first;

	if (!task->queued)
		return;
	while (*at != task)
		at = &(*at)->next;
	*at = task->next;
	if (loop->last == &task->next)
		loop->last = at;
	task->queued = false;
}

static struct hark_task *take_task(struct hark_loop *loop)
{
	struct hark_task *task = loop->first;

	hark_loop_unqueue(loop, task);
	return task;
}

/* Tasks queued by tasks wait for the next round, so that sockets get their turn. */
static size_t run_tasks(struct hark_loop *loop)
{
	size_t n = 0;
	size_t left = 0;
	struct hark_task *task;

	for (task = loop->first; task; task = task->next)
		left++;
	while (left-- && loop->first && !loop->stop && loop->ready_for_input(loop->ctx)) {
		task = take_task(loop);
		task->run(task);
		n++;
	}
	return n;
}

static bool is_urgent(const struct hark_loop *loop, const struct hark_source *source)
{
	size_t i;

	for (i = 0; i < loop->nurgent; i++) {
		if (loop->urgent[i] == source)
			return true;
	}
	return false;
}

static size_t serve_sockets(struct hark_loop *loop, int timeout_ms)
{
	struct epoll_event events[HARK_LOOP_EVENTS];
	int n = epoll_wait(loop->epoll, events, HARK_LOOP_EVENTS, timeout_ms);
	int i;

	for (i = 0; i < n && !loop->stop; i++) {
		struct hark_source *source = events[i].data.ptr;

		if (source->fd < 0)
			continue; /* closed earlier in this batch */
		if (!is_urgent(loop, source) && !loop->ready_for_input(loop->ctx))
			continue; /* reported again */
		source->ready(source, events[i].events);
	}
	return n > 0 ? (size_t)n : 0;
}

/* No room for records: serve what can end that, or ends the run. */
static size_t serve_urgent(struct hark_loop *loop, int timeout_ms)
{
	struct pollfd p[HARK_LOOP_URGENT];
	size_t i;
	int n;

	for (i = 0; i < loop->nurgent; i++)
		p[i] = (struct pollfd){.fd = loop->urgent[i]->fd, .events = POLLIN};
	n = poll(p, loop->nurgent, timeout_ms);
	for (i = 0; n > 0 && i < loop->nurgent && !loop->stop; i++) {
		if (p[i].revents)
			loop->urgent[i]->ready(loop->urgent[i], EPOLLIN);
	}
	return n > 0 ? (size_t)n : 0;
}

size_t hark_loop_round(struct hark_loop *loop, int timeout_ms)
{
	size_t n;

	if (loop->ready_for_input(loop->ctx)) {
		n = serve_sockets(loop, loop->first ? 0 : timeout_ms);
		n += run_tasks(loop);
	} else {
		n = serve_urgent(loop, timeout_ms < 0 ? 100 : timeout_ms);
	}
	loop->after(loop->ctx);
	return n;
}

static int wait_ms(struct hark_loop *loop)
{
	uint64_t until = loop->timers ? loop->next_tick : HARK_TIME_NEVER;

	if (loop->draining)
		return HARK_LOOP_QUIET_MS;
	if (loop->wake_at && loop->wake_at < until)
		until = loop->wake_at;
	return hark_deadline_poll(until);
}

static void tick(struct hark_loop *loop)
{
	uint64_t now = hark_time_ns(CLOCK_MONOTONIC);

	if (now < loop->next_tick || !loop->ready_for_input(loop->ctx))
		return;
	loop->next_tick = now + HARK_LOOP_TICK_MS * HARK_NS_PER_MS;
	loop->tick(loop->ctx, now);
	loop->after(loop->ctx);
}

void hark_loop_run(struct hark_loop *loop)
{
	while (!loop->stop) {
		size_t served = hark_loop_round(loop, wait_ms(loop));

		if (loop->draining && !served && !loop->stop && loop->ready_for_input(loop->ctx)) {
			loop->draining = false;
			loop->drained(loop->ctx);
		} else if (loop->timers && !loop->stop) {
			tick(loop);
		}
	}
}
