/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-producer, one-consumer ring of records in a sealed memfd, between two processes that do not
 * trust each other.
 *
 * Rules. A page of indexes, then HARK_RING_DATA bytes. Indexes count bytes from the start and never
 * wrap. A record begins with struct hark_rec_head, is a multiple of 8 and lies in one piece; what
 * does not fit before the end is skipped by a HARK_REC_PAD of which only the first 8 bytes exist.
 * Each side keeps its own index in private memory, reads the other's once per step and checks it;
 * the consumer copies bytes out before it looks at them. A side that sees nonsense stops for good.
 * The producer never overwrites and never drops: a full ring is the caller's to wait for.
 *
 * This header is read by cffi too: no macros, no #include besides the guarded ones.
 */
#ifndef HARK_RING_H
#define HARK_RING_H

#include <stddef.h>
#include <stdint.h>

enum hark_ring_limit {
	HARK_RING_PAGE = 4096,
	HARK_RING_DATA = 16777216,   /* power of two */
	HARK_RING_RECORD = 1048576,  /* longest record */
	HARK_RING_MAGIC = 0x676e6972 /* "ring" */
};

enum hark_ring_result {
	HARK_RING_OK = 0,
	HARK_RING_FULL = -1,  /* no room now: wait for the space bell */
	HARK_RING_BROKEN = -2 /* the other side broke a rule, or the memory is not a ring */
};

struct hark_ring;

/*
 * Size, seal and fill in a fresh memfd made with MFD_ALLOW_SEALING. 0, or -1 with errno.
 */
int hark_ring_format(int memfd);

/* Map a ring. Descriptors stay the caller's. NULL with errno on failure. */
struct hark_ring *hark_ring_producer_new(int memfd, int doorbell, int space_bell);
struct hark_ring *hark_ring_consumer_new(int memfd, int doorbell, int space_bell);
void hark_ring_free(struct hark_ring *ring);

/* Producer: bytes that can be put for sure, whatever their split into records. Negative: broken. */
int64_t hark_ring_room(struct hark_ring *ring);

/*
 * Producer: put one record made of a fixed part and a variable part. .len and .seq of the head are
 * filled in here, padding bytes are zero. The sequence number goes to *seq.
 */
int hark_ring_put(struct hark_ring *ring, const void *fixed, size_t nfixed, const void *var,
		  size_t nvar, uint64_t *seq);

/* Producer: wake the consumer if it sleeps. Once per batch of records. */
void hark_ring_ring(struct hark_ring *ring);

/* Producer: ask for the space bell once the consumer has made room. */
void hark_ring_want_space(struct hark_ring *ring);

/*
 * Consumer: copy whole records, pads removed, into buf (at least HARK_RING_RECORD bytes). Bytes
 * copied, 0 when there is nothing, or HARK_RING_BROKEN.
 */
int64_t hark_ring_read(struct hark_ring *ring, void *buf, size_t size);

/* Consumer: announce that it will sleep on the doorbell. 1: there is data already, do not sleep. */
int hark_ring_sleep(struct hark_ring *ring);

/* Consumer: sequence number of the next record; all below it were read. */
uint64_t hark_ring_next_seq(const struct hark_ring *ring);

#endif
