/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run's certificate authority and its leaves. Keys are P-256, made here, and never leave this
 * process. Dates run from ten years ago to thirty ahead, so that a replayed clock accepts them.
 */
#ifndef HARK_MINT_H
#define HARK_MINT_H

#include <openssl/ssl.h>

#include "hark_err.h"
#include "hark_name.h"

enum hark_mint_limit { HARK_MINT_CACHE = 512 };

struct hark_mint_slot {
	char name[HARK_NAME_SIZE];
	X509 *leaf; /* owned */
};

struct hark_mint {
	EVP_PKEY *ca_key;
	EVP_PKEY *leaf_key; /* one for all leaves */
	X509 *ca;
	struct hark_mint_slot cache[HARK_MINT_CACHE]; /* by hash of the name */
};

HARK_MUST_USE int hark_mint_init(struct hark_mint *mint, struct hark_err *err);
void hark_mint_fini(struct hark_mint *mint);

/* The CA certificate as PEM with a terminating 0. */
HARK_MUST_USE int hark_mint_pem(const struct hark_mint *mint, char *out, size_t size,
				struct hark_err *err);

/* A leaf for this normalised name, borrowed from the cache; NULL when OpenSSL fails. */
X509 *hark_mint_leaf(struct hark_mint *mint, const char *name);

#endif
