/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer of the ring against a hostile producer: the input is written over the shared memory
 * between reads. Whatever is there, the reader stays inside it and returns whole records.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../bpf/hark_abi.h"
#include "hark_ring.h"

static uint8_t *shared;
static int memfd = -1;
static int bell = -1;
static uint8_t out[HARK_RING_RECORD];

enum { HEAD_AT = 64, TAIL_AT = 128 };

static void set_up(void)
{
	memfd = memfd_create("fuzz", MFD_ALLOW_SEALING);
	bell = eventfd(0, EFD_NONBLOCK);
	if (memfd < 0 || bell < 0 || hark_ring_format(memfd))
		abort();
	shared = mmap(NULL, HARK_RING_PAGE + HARK_RING_DATA, PROT_READ | PROT_WRITE, MAP_SHARED,
		      memfd, 0);
	if (shared == MAP_FAILED)
		abort();
}

static void check(const uint8_t *p, size_t n)
{
	while (n) {
		struct hark_rec_head head;

		if (n < sizeof(head))
			abort();
		memcpy(&head, p, sizeof(head));
		if (head.len < sizeof(head) || head.len % 8 || head.len > n)
			abort();
		p += head.len;
		n -= head.len;
	}
}

/* Input: rounds of {u16 where, u8 length, bytes}, u32 advance of the head index. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hark_ring *ring;
	uint64_t head = 0;

	if (!shared)
		set_up();
	memset(shared + HEAD_AT, 0, 8);
	memset(shared + TAIL_AT, 0, 8);
	ring = hark_ring_consumer_new(memfd, bell, bell);
	if (!ring)
		abort();
	while (size >= 7) {
		size_t n = data[2];
		size_t where;
		uint32_t step;
		int64_t got;

		memcpy(&step, data + 3, 4);
		where = (head + (data[0] | (size_t)data[1] << 8)) % HARK_RING_DATA;
		data += 7;
		size -= 7;
		n = n < size ? n : size;
		n = n < HARK_RING_DATA - where ? n : HARK_RING_DATA - where;
		memcpy(shared + HARK_RING_PAGE + where, data, n);
		data += n;
		size -= n;
		head += step % 3 ? step % 4096 : step;
		memcpy(shared + HEAD_AT, &head, 8);
		got = hark_ring_read(ring, out, sizeof(out));
		if (got > 0)
			check(out, (size_t)got);
		(void)hark_ring_sleep(ring);
	}
	hark_ring_free(ring);
	return 0;
}
