/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a run is idle (bpf/idle.bpf.c): load and attach as root, then read without any privilege.
 *
 * Rules. One object per run, gone with its descriptors. Who reads decides on a sequence number:
 * what was decided while the run was idle holds only if it is still the same idle time (`seq`) and
 * nothing is active. Read by cffi too.
 */
#ifndef HARK_IDLE_H
#define HARK_IDLE_H

#include <stddef.h>
#include <stdint.h>

struct hark_err;
struct hark_idle;
struct hark_idle_sensor;

/* Attach to the run of `run` (cgroup v2 id); `server`: a cgroup whose work counts as the run's, or
 * 0. Takes some 20 ms. NULL with *err filled. */
struct hark_idle_sensor *hark_idle_new(const void *object, size_t object_len, uint64_t run,
				       uint64_t server, struct hark_err *err);
void hark_idle_free(struct hark_idle_sensor *sensor);

/* Readable once the run has become idle after hark_idle_arm; answered by hark_idle_hush. */
int hark_idle_fd(const struct hark_idle_sensor *sensor);

/* Ask for the bell at the next time the run becomes idle. It may be idle already: look after it. */
void hark_idle_arm(struct hark_idle_sensor *sensor);
void hark_idle_hush(struct hark_idle_sensor *sensor);

/* A copy of what is known now; each number is true, together they may be of different moments. */
void hark_idle_read(const struct hark_idle_sensor *sensor, struct hark_idle *out);

/* Whether the run is idle, and has been since it became so for the `seq`-th time. */
int hark_idle_is(const struct hark_idle_sensor *sensor, uint64_t seq);

#endif
