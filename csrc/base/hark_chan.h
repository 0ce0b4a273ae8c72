/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a control socket (SOCK_SEQPACKET): the messages of hark_control.h with descriptors.
 *
 * Rules. A packet that is not exactly one known message, with the next sequence number, is BAD and
 * its descriptors are closed. Descriptors are received close-on-exec. Every wait has a deadline
 * (hark_time.h); deadline 0 never waits, so an event loop may call it after poll(2).
 */
#ifndef HARK_CHAN_H
#define HARK_CHAN_H

#include <stddef.h>
#include <stdint.h>

#include "hark_control.h"
#include "hark_err.h"
#include "hark_time.h"

enum hark_chan_limit {
	HARK_CHAN_FDS = 16 /* descriptors in one message */
};

enum hark_rx { HARK_RX_MSG = 0, HARK_RX_EOF = 1, HARK_RX_TIMEOUT = 2, HARK_RX_BAD = 3 };

struct hark_chan {
	int fd; /* borrowed */
	uint64_t tx_seq;
	uint64_t rx_seq;
};

/* Any message; receive into one of these. */
union hark_msg {
	struct hark_msg_head head;
	struct hark_msg_plain plain;
	struct hark_msg_net_ready net_ready;
	struct hark_msg_started started;
	struct hark_msg_exited exited;
	struct hark_msg_published published;
	struct hark_msg_failed failed;
	struct hark_msg_signal signal;
	struct hark_msg_job job;
	struct hark_msg_open_exe open_exe;
	struct hark_msg_exe exe;
	struct hark_msg_sealed sealed;
	struct hark_msg_ca ca;
	struct hark_msg_durable durable;
	struct hark_msg_play_wanted play_wanted;
	struct hark_msg_play play;
	struct hark_msg_dial dial;
	struct hark_msg_dialed dialed;
	struct hark_msg_dns dns;
	struct hark_msg_dial_intent dial_intent;
	struct hark_msg_sign sign;
	struct hark_msg_signed sign_reply;
	struct hark_msg_signer_ready signer_ready;
	struct hark_msg_wrap wrap;
	struct hark_msg_wrapped wrapped;
	struct hark_msg_unwrap unwrap;
	struct hark_msg_unwrapped unwrapped;
	struct hark_msg_seed seed;
	struct hark_msg_draws draws;
};

/* Received descriptors; the receiver owns what is in fd[0..n). */
struct hark_msg_fds {
	int fd[HARK_CHAN_FDS];
	size_t n;
};

void hark_chan_init(struct hark_chan *chan, int fd);

/* Size of a message of this type, 0 when the type is unknown. */
size_t hark_msg_size(uint16_t type);

/* Fill .head of `msg` (type, len, id, next seq) and send it. The descriptors stay the caller's. */
HARK_MUST_USE int hark_chan_send(struct hark_chan *chan, union hark_msg *msg, uint16_t type,
				 uint32_t id, const int *fds, size_t nfds, uint64_t deadline_ns,
				 struct hark_err *err);

/* Wait for one message. On HARK_RX_MSG `fds` holds its descriptors, else none. */
HARK_MUST_USE enum hark_rx hark_chan_recv(struct hark_chan *chan, union hark_msg *msg,
					  struct hark_msg_fds *fds, uint64_t deadline_ns);

#endif
