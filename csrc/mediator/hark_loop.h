/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll thread: sources (descriptors), tasks (the run queue) and a coarse tick.
 *
 * Rules. Nothing is freed inside a batch of events: owners put themselves on their dead list and
 * free in `after`. `ready_for_input` is asked before each source or task that may produce records;
 * when it says no, only `urgent` sources are served until it says yes, and level-triggered epoll
 * reports the others again. A source that left data inside OpenSSL queues its task: epoll would
 * never report it (SSL_has_pending).
 */
#ifndef HARK_LOOP_H
#define HARK_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "hark_err.h"

enum hark_loop_limit {
	HARK_LOOP_EVENTS = 64,
	HARK_LOOP_URGENT = 4,
	HARK_LOOP_TICK_MS = 50,
	HARK_LOOP_QUIET_MS = 10
};

struct hark_source {
	int fd;          /* -1: closed */
	uint32_t events; /* as registered, 0 when not */
	void (*ready)(struct hark_source *source, uint32_t events);
};

struct hark_task {
	struct hark_task *next;
	bool queued;
	void (*run)(struct hark_task *task);
};

struct hark_loop {
	int epoll;
	struct hark_source *urgent[HARK_LOOP_URGENT]; /* control, broker, space bell */
	size_t nurgent;
	struct hark_task *first;
	struct hark_task **last;
	bool stop;
	bool timers;        /* somebody has a deadline */
	bool draining;      /* serve what is there, then call .drained */
	uint64_t next_tick; /* CLOCK_MONOTONIC ns */
	uint64_t wake_at;   /* `after` wants to run by then; 0: no matter */
	bool (*ready_for_input)(void *ctx);
	void (*tick)(void *ctx, uint64_t now);
	void (*after)(void *ctx); /* end of a batch: free, ring the bell */
	void (*drained)(void *ctx);
	void *ctx;
};

HARK_MUST_USE int hark_loop_init(struct hark_loop *loop, struct hark_err *err);
void hark_loop_fini(struct hark_loop *loop);

/* Register a source or change what is wanted of it. */
HARK_MUST_USE int hark_loop_watch(struct hark_loop *loop, struct hark_source *source,
				  uint32_t events);

void hark_loop_forget(struct hark_loop *loop, struct hark_source *source);

/* A source that is served even while records have no room. */
HARK_MUST_USE int hark_loop_urgent(struct hark_loop *loop, struct hark_source *source);

void hark_loop_queue(struct hark_loop *loop, struct hark_task *task);
void hark_loop_unqueue(struct hark_loop *loop, struct hark_task *task);

/* Runs until loop->stop. */
void hark_loop_run(struct hark_loop *loop);

/* One round; wait at most `timeout_ms`. Number of events and tasks served. */
size_t hark_loop_round(struct hark_loop *loop, int timeout_ms);

#endif
