/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who uses the pinned set of tracing programs: first run in makes it, last run out removes it.
 *
 * A set is the folder <pins>/<digest> in a BPF file system; the digest is that of the object file,
 * so two versions of hark have two sets. A member is the file <state>/<digest>-<run>-<level>, where
 * run is the id of the run's cgroup and level its depth; it counts as long as somebody holds an
 * flock on it, so a killed recorder stops counting by itself.
 *
 * Rules. Needs no libbpf, so a static program can clean up. Every change is made under the flock of
 * <state>/lock. A set is complete or absent: it is built as <pins>/new-<digest> and renamed. What
 * no living member uses is removed by whoever comes next.
 */
#ifndef HARK_PINS_H
#define HARK_PINS_H

#include <stdint.h>

#include "hark_err.h"

enum hark_pins_limit {
	HARK_PINS_NAME = 256,
	HARK_PINS_PATH = 4096,
	HARK_PINS_DEPTH = 256 /* deepest cgroup */
};

/* Where both halves lie. Paths are borrowed. */
struct hark_pins {
	const char *pins;   /* folder in a BPF file system */
	const char *state;  /* folder on a tmpfs */
	const char *digest; /* lower-case hex; may be NULL where a function says so */
};

/* "folder/prefix+name" in out; ENAMETOOLONG when it does not fit. 0 or -1. */
HARK_MUST_USE int hark_pins_path(char out[HARK_PINS_PATH], const char *folder, const char *prefix,
				 const char *name, struct hark_err *err);

/*
 * The machine's own place: /sys/fs/bpf/hark where a BPF file system is mounted there, else one that
 * hark mounts at /run/hark/bpf and unmounts when the last run leaves. With .digest NULL.
 */
HARK_MUST_USE int hark_pins_host(struct hark_pins *where, struct hark_err *err);

/*
 * Take the lock, with both folders (0700) and the mount they need made where they are missing. Made
 * under the lock: who leaves last removes them under it. A descriptor to close, or -1.
 */
HARK_MUST_USE int hark_pins_lock(const struct hark_pins *where, struct hark_err *err);

/*
 * Under the lock: add a member and hold it. A descriptor to keep open as long as the run lives, or
 * -1; EEXIST when the run is a member already.
 */
HARK_MUST_USE int hark_pins_join(const struct hark_pins *where, uint64_t run, uint32_t level,
				 struct hark_err *err);

/* Under the lock: whether this folder holds a complete set of .digest. */
int hark_pins_present(const struct hark_pins *where);

/*
 * Under the lock: forget members that nobody holds, and remove sets (of any digest, half-built ones
 * too) that have no member left. .digest may be NULL.
 */
HARK_MUST_USE int hark_pins_sweep(const struct hark_pins *where, struct hark_err *err);

/* Under the lock: set used[level], and bit (run & 63) of *filter, for each member of .digest. */
HARK_MUST_USE int hark_pins_levels(const struct hark_pins *where, uint8_t used[HARK_PINS_DEPTH],
				   uint64_t *filter, struct hark_err *err);

/*
 * A run is over, whoever still holds its file: take the lock, drop its member and its maps, sweep.
 * The run is dropped from every set. Harmless when the run is unknown. 0 or -1.
 */
HARK_MUST_USE int hark_pins_leave(const struct hark_pins *where, uint64_t run,
				  struct hark_err *err);

/* The same at the machine's own place, for the launcher's clean-up. 0 or -1. */
HARK_MUST_USE int hark_pins_leave_host(uint64_t run, struct hark_err *err);

#endif
