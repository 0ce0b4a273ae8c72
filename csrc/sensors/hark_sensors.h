/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF sensors of one run: attach, read its rings and counters, detach. Read by cffi too.
 *
 * Rules. Attaching needs root; reading needs only the descriptors held here, so the recorder goes
 * on after it gave up every privilege. One thread uses an object. Tracing programs are attached
 * once per machine (hark_pins.h), the cgroup's programs once per run by descriptors that end with
 * the process. Nothing here refuses anything to the agent.
 */
#ifndef HARK_SENSORS_H
#define HARK_SENSORS_H

#include <stddef.h>
#include <stdint.h>

struct hark_err;
struct hark_sensors;

enum hark_sensors_limit {
	HARK_SENSORS_CONTROL = 1048576, /* bytes of the control ring */
	HARK_SENSORS_BULK = 8388608,    /* bytes of the bulk ring */
	HARK_SENSORS_SOCKET = 1048576,  /* bytes of the ring of connects and closes */
	HARK_SENSORS_BUFFER = 1048576   /* a read buffer that empties a ring in few steps */
};

struct hark_sensors_plan {
	const void *object; /* the linked BPF object file */
	size_t object_len;
	const char *digest; /* its digest, lower-case hex */
	const char *pins;   /* NULL: the machine's own place (hark_pins.h); else both of these */
	const char *state;
	int cgroup_fd;  /* the run's cgroup directory; borrowed */
	uint32_t level; /* its depth below the root of the hierarchy, not 0 */
	uint64_t cgroup_id;
	uint32_t control_bytes; /* ring sizes, powers of two and whole pages */
	uint32_t bulk_bytes;
	uint32_t socket_bytes;
};

/* Attach. NULL with *err filled. */
struct hark_sensors *hark_sensors_new(const struct hark_sensors_plan *plan, struct hark_err *err);

/*
 * Load and pin the set ahead of time, as root, so that a following hark_sensors_new finds it: most
 * of what the first run of a machine waits for. Of the plan only object, digest, pins and state are
 * used. A descriptor that keeps the set alive until it is closed, or -1.
 */
int hark_sensors_prepare(const struct hark_sensors_plan *plan, struct hark_err *err);

/* Close everything this process holds. Needs no privilege and removes nothing of others. */
void hark_sensors_free(struct hark_sensors *sensors);

/* As root: drop the run from the pinned set, remove the set when this was the last run. 0 or -1. */
int hark_sensors_leave(struct hark_sensors *sensors, struct hark_err *err);

/* For epoll or poll: readable when a ring has records. Owned by the object. */
int hark_sensors_fd(const struct hark_sensors *sensors);

/* The run's map of struct hark_spawn by thread id. Owned by the object. */
int hark_sensors_spawns(const struct hark_sensors *sensors);

/*
 * Copy whole records into buf, control ring first, without waiting. Bytes copied; 0 when there is
 * nothing. `size` must be at least twice HARK_KERNEL_REC_MAX.
 */
int64_t hark_sensors_read(struct hark_sensors *sensors, void *buf, size_t size);

/* Rows the counts map can hold. */
uint32_t hark_sensors_rows(const struct hark_sensors *sensors);

/* Copy the counts: keys (struct hark_count_key) and values of up to `rows` rows. Rows, or -errno.
 */
int64_t hark_sensors_counts(struct hark_sensors *sensors, void *keys, uint64_t *values,
			    uint32_t rows);

/* Remove rows of processes that ended. Rows removed. */
uint32_t hark_sensors_forget(struct hark_sensors *sensors, const void *keys, uint32_t rows);

/* Fill a struct hark_run_stats. 0 or -errno. */
int hark_sensors_stats(struct hark_sensors *sensors, void *stats);

/* Whether this libbpf and kernel load the object's programs at all; loads, keeps nothing. 0 or -1.
 */
int hark_sensors_try(const void *object, size_t object_len, struct hark_err *err);

#endif
