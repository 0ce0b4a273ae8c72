/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../bpf/hark_abi.h"

/* Each index on its own cache line. */
struct ring_page {
	uint32_t magic;
	uint32_t data_size;
	uint8_t pad0[56];
	_Atomic uint64_t head; /* written by the producer */
	uint8_t pad1[56];
	_Atomic uint64_t tail; /* written by the consumer */
	uint8_t pad2[56];
	_Atomic uint32_t consumer_sleeps;
	uint8_t pad3[60];
	_Atomic uint32_t producer_waits;
};

struct hark_ring {
	struct ring_page *page;
	uint8_t *data;
	int doorbell;
	int space_bell;
	int broken;
	uint64_t head; /* producer: own; consumer: last seen */
	uint64_t tail; /* consumer: own; producer: last seen */
	uint64_t seq;
};

/* The first 8 bytes of a record, all that a pad has. */
struct stub {
	uint32_t len;
	uint16_t kind;
	uint16_t flags;
};

static const size_t map_size = HARK_RING_PAGE + HARK_RING_DATA;

int hark_ring_format(int memfd)
{
	struct ring_page page = {.magic = HARK_RING_MAGIC, .data_size = HARK_RING_DATA};

	if (ftruncate(memfd, (off_t)map_size))
		return -1;
	if (pwrite(memfd, &page, sizeof(page), 0) != (ssize_t)sizeof(page))
		return -1;
	return fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

/* Without the shrink seal the other side could cut the file and kill us by SIGBUS. */
static int check_memfd(int memfd)
{
	struct stat st;
	int seals = fcntl(memfd, F_GET_SEALS);

	if (seals < 0 || fstat(memfd, &st))
		return -1;
	if (!(seals & F_SEAL_SHRINK) || st.st_size != (off_t)map_size) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

static struct hark_ring *ring_new(int memfd, int doorbell, int space_bell)
{
	struct hark_ring *ring;
	void *map;

	if (check_memfd(memfd))
		return NULL;
	map = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (map == MAP_FAILED)
		return NULL;
	ring = calloc(1, sizeof(*ring));
	if (!ring || ((struct ring_page *)map)->magic != HARK_RING_MAGIC ||
	    ((struct ring_page *)map)->data_size != HARK_RING_DATA) {
		free(ring);
		(void)munmap(map, map_size);
		errno = EINVAL;
		return NULL;
	}
	ring->page = map;
	ring->data = (uint8_t *)map + HARK_RING_PAGE;
	ring->doorbell = doorbell;
	ring->space_bell = space_bell;
	return ring;
}

struct hark_ring *hark_ring_producer_new(int memfd, int doorbell, int space_bell)
{
	return ring_new(memfd, doorbell, space_bell);
}

struct hark_ring *hark_ring_consumer_new(int memfd, int doorbell, int space_bell)
{
	return ring_new(memfd, doorbell, space_bell);
}

void hark_ring_free(struct hark_ring *ring)
{
	if (!ring)
		return;
	(void)munmap(ring->page, map_size);
	free(ring);
}

static int broken(struct hark_ring *ring)
{
	ring->broken = 1;
	return HARK_RING_BROKEN;
}

static void bell(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		return; /* EAGAIN: it rings already */
}

static int see_tail(struct hark_ring *ring)
{
	uint64_t tail = atomic_load_explicit(&ring->page->tail, memory_order_acquire);

	if (ring->broken || tail < ring->tail || tail > ring->head)
		return broken(ring);
	ring->tail = tail;
	return HARK_RING_OK;
}

int64_t hark_ring_room(struct hark_ring *ring)
{
	int64_t left;

	if (see_tail(ring))
		return HARK_RING_BROKEN;
	/* A pad wastes less than the record that did not fit. */
	left = HARK_RING_DATA - (int64_t)(ring->head - ring->tail) - HARK_RING_RECORD;
	return left > 0 ? left : 0;
}

static void put_pad(struct hark_ring *ring, size_t len)
{
	struct stub pad = {.len = (uint32_t)len, .kind = HARK_REC_PAD};

	memcpy(ring->data + (ring->head & (HARK_RING_DATA - 1)), &pad, sizeof(pad));
	ring->head += len;
}

static void copy_record(struct hark_ring *ring, const void *fixed, size_t nfixed, const void *var,
			size_t nvar, size_t len)
{
	uint8_t *to = ring->data + (ring->head & (HARK_RING_DATA - 1));
	uint32_t len32 = (uint32_t)len;

	memcpy(to, fixed, nfixed);
	if (nvar)
		memcpy(to + nfixed, var, nvar);
	memset(to + nfixed + nvar, 0, len - nfixed - nvar);
	memcpy(to + offsetof(struct hark_rec_head, len), &len32, sizeof(len32));
	memcpy(to + offsetof(struct hark_rec_head, seq), &ring->seq, sizeof(ring->seq));
}

int hark_ring_put(struct hark_ring *ring, const void *fixed, size_t nfixed, const void *var,
		  size_t nvar, uint64_t *seq)
{
	size_t len = (nfixed + nvar + 7) & ~(size_t)7;
	size_t to_end = HARK_RING_DATA - (size_t)(ring->head & (HARK_RING_DATA - 1));
	size_t need = len <= to_end ? len : len + to_end;

	if (nfixed < sizeof(struct hark_rec_head) || len > HARK_RING_RECORD || see_tail(ring))
		return broken(ring);
	if (need > HARK_RING_DATA - (ring->head - ring->tail))
		return HARK_RING_FULL;
	if (len > to_end)
		put_pad(ring, to_end);
	copy_record(ring, fixed, nfixed, var, nvar, len);
	*seq = ring->seq++;
	ring->head += len;
	atomic_store_explicit(&ring->page->head, ring->head, memory_order_release);
	return HARK_RING_OK;
}

void hark_ring_ring(struct hark_ring *ring)
{
	/* Pairs with hark_ring_sleep: head is stored before the flag is read. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&ring->page->consumer_sleeps, memory_order_relaxed) &&
	    atomic_exchange(&ring->page->consumer_sleeps, 0))
		bell(ring->doorbell);
}

void hark_ring_want_space(struct hark_ring *ring)
{
	atomic_store(&ring->page->producer_waits, 1);
}

/* Bytes that can be read in one piece. */
static int64_t see_head(struct hark_ring *ring)
{
	uint64_t head = atomic_load_explicit(&ring->page->head, memory_order_acquire);
	uint64_t used = head - ring->tail;
	uint64_t to_end = HARK_RING_DATA - (ring->tail & (HARK_RING_DATA - 1));

	if (ring->broken || head < ring->head || used > HARK_RING_DATA || head % 8)
		return broken(ring);
	ring->head = head;
	return (int64_t)(used < to_end ? used : to_end);
}

/*
 * Bytes of whole records at the start of the private copy, without a pad at its end; *pad is that
 * pad's length. Negative: not a chain of records.
 */
static int64_t walk(struct hark_ring *ring, const uint8_t *buf, size_t n, int at_end, size_t *pad)
{
	size_t at = 0;

	while (n - at >= sizeof(struct stub)) {
		struct stub s;
		struct hark_rec_head head;

		memcpy(&s, buf + at, sizeof(s));
		if (s.kind == HARK_REC_PAD) {
			/* A pad reaches exactly to the end of the ring. */
			if (!at_end || s.len != n - at || s.len > HARK_RING_RECORD)
				return broken(ring);
			*pad = s.len;
			return (int64_t)at;
		}
		if (s.len < sizeof(head) || s.len % 8 || s.len > HARK_RING_RECORD)
			return broken(ring);
		if (s.len > n - at)
			break;
		memcpy(&head, buf + at, sizeof(head));
		if (head.seq != ring->seq)
			return broken(ring);
		ring->seq++;
		at += s.len;
	}
	return (int64_t)at;
}

static void release(struct hark_ring *ring, size_t n)
{
	ring->tail += n;
	atomic_store_explicit(&ring->page->tail, ring->tail, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&ring->page->producer_waits, memory_order_relaxed) &&
	    atomic_exchange(&ring->page->producer_waits, 0))
		bell(ring->space_bell);
}

int64_t hark_ring_read(struct hark_ring *ring, void *buf, size_t size)
{
	int64_t avail = see_head(ring);
	size_t offset = (size_t)(ring->tail & (HARK_RING_DATA - 1));
	size_t pad = 0;
	size_t n;
	int64_t whole;

	if (avail <= 0)
		return avail;
	n = (size_t)avail < size ? (size_t)avail : size;
	memcpy(buf, ring->data + offset, n);
	whole = walk(ring, buf, n, offset + n == HARK_RING_DATA, &pad);
	if (whole < 0)
		return whole;
	if (whole == 0 && pad == 0) /* a record longer than what was announced, or than buf */
		return broken(ring);
	release(ring, (size_t)whole + pad);
	if (whole == 0)
		return hark_ring_read(ring, buf, size); /* once: a pad is followed by offset 0 */
	return whole;
}

int hark_ring_sleep(struct hark_ring *ring)
{
	atomic_store(&ring->page->consumer_sleeps, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&ring->page->head, memory_order_acquire) == ring->tail)
		return 0;
	atomic_store(&ring->page->consumer_sleeps, 0);
	return 1;
}

uint64_t hark_ring_next_seq(const struct hark_ring *ring)
{
	return ring->seq;
}
