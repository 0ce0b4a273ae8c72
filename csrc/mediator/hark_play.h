/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Playback: in a replay no request goes anywhere. When one is complete and in the ring, the
 * recorder is told (PLAY_WANTED), and what it answers (PLAY) is what the agent gets, delivery by
 * delivery, as records and bytes of a live run.
 *
 * Rules. The process that plays lives in a network namespace of its own without an interface, and
 * asks for no dial. An exchange waits for the recorder alone: there is no deadline, since an answer
 * that never comes is what was recorded. What cannot be queued is the recorder's fault: the run
 * ends.
 */
#ifndef HARK_PLAY_H
#define HARK_PLAY_H

#include <stdbool.h>

#include "hark_buf.h"
#include "hark_chan.h"
#include "hark_err.h"

struct hark_conn;
struct hark_mediator;

enum hark_play_limit {
	HARK_PLAY_QUEUE = 1048576,  /* of one exchange; the recorder stays far below */
	HARK_PLAY_PART = 131072,    /* one head or one delivery, joined */
	HARK_PLAY_PER_PASS = 262144 /* bytes of all exchanges, so that records have room */
};

/* What one exchange was sent and has not handed on. */
struct hark_play {
	struct hark_buf
		queue; /* struct hark_msg_play without its unused data, one after the other */
	struct hark_buf part; /* pieces of one head or delivery so far */
	struct hark_buf trailers;
};

void hark_play_init(struct hark_play *play);
void hark_play_fini(struct hark_play *play);

/* Leave the host's network for an empty one. Needs root. */
HARK_MUST_USE int hark_play_isolate(struct hark_err *err);
/* Run queued answers as a task of this mediator's loop. */
void hark_play_setup(struct hark_mediator *med);
/* The request is complete and recorded. */
void hark_play_wanted(struct hark_conn *conn);
/* One message of the recorder. */
void hark_play_take(struct hark_mediator *med, const struct hark_msg_play *msg);
/* The agent took what was queued for it. */
void hark_play_resume(struct hark_conn *conn);

#endif
