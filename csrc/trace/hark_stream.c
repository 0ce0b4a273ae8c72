/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_stream.h"

#include <blake3.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 256, PATH_BYTES = 8 };

static const char LABEL[] = "hark/random/1";

int hark_streams_init(struct hark_streams *s, const uint8_t seed[HARK_SEED_BYTES],
		      struct hark_err *err)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->seed, seed, HARK_SEED_BYTES);
	s->rows = calloc(FIRST_CAP, sizeof(*s->rows));
	if (!s->rows)
		return hark_err_set(err, ENOMEM, "streams: no memory");
	s->cap = FIRST_CAP;
	return 0;
}

void hark_streams_fini(struct hark_streams *s)
{
	free(s->rows);
	explicit_bzero(s, sizeof(*s));
}

/* Paths are mixed already. A place is taken once its row has a path. */
static struct hark_draws *place_of(struct hark_draws *rows, size_t cap, uint64_t path)
{
	size_t at = (size_t)path & (cap - 1);

	while (rows[at].path && rows[at].path != path)
		at = (at + 1) & (cap - 1);
	return &rows[at];
}

static bool grow(struct hark_streams *s)
{
	const size_t cap = s->cap * 2;
	struct hark_draws *rows = cap > HARK_STREAMS_MAX ? NULL : calloc(cap, sizeof(*rows));
	size_t i;

	if (!rows)
		return false;
	for (i = 0; i < s->cap; i++)
		if (s->rows[i].path)
			*place_of(rows, cap, s->rows[i].path) = s->rows[i];
	free(s->rows);
	s->rows = rows;
	s->cap = cap;
	return true;
}

struct hark_draws *hark_streams_find(struct hark_streams *s, uint64_t path)
{
	struct hark_draws *row;

	if (!path)
		return &s->rest;
	row = place_of(s->rows, s->cap, path);
	if (row->path)
		return row;
	/* Three quarters full at most: a search always meets a free place. */
	if (s->n >= s->cap / 4 * 3) {
		if (!grow(s))
			return &s->rest;
		row = place_of(s->rows, s->cap, path);
	}
	row->path = path;
	s->n++;
	return row;
}

void hark_streams_read(const struct hark_streams *s, const struct hark_draws *row, uint64_t at,
		       void *out, size_t n)
{
	uint8_t path[PATH_BYTES];
	blake3_hasher hasher;
	int i;

	for (i = 0; i < PATH_BYTES; i++)
		path[i] = (uint8_t)(row->path >> (8 * (PATH_BYTES - 1 - i)));
	blake3_hasher_init_keyed(&hasher, s->seed);
	blake3_hasher_update(&hasher, LABEL, sizeof(LABEL) - 1);
	blake3_hasher_update(&hasher, path, sizeof(path));
	blake3_hasher_finalize_seek(&hasher, at, out, n);
}
