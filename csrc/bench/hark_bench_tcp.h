/* SPDX-License-Identifier: Apache-2.0 */
/* A listener on a free port of 127.0.0.1, announced on stdout: how the bench's servers start. */
#ifndef HARK_BENCH_TCP_H
#define HARK_BENCH_TCP_H

/* Listen, print the port as one line, return the descriptor; -1 with a line on stderr. */
int bench_listen_and_announce(void) __attribute__((warn_unused_result));

#endif
