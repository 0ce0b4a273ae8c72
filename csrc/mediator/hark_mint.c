/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_mint.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

static const long ten_years_s = 10L * 365 * 86400;
static const long thirty_years_s = 30L * 365 * 86400;

static int set_serial(X509 *x)
{
	uint8_t bytes[16];
	BIGNUM *bn;
	int ok;

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return 0;
	bytes[0] = (uint8_t)((bytes[0] & 0x7f) | 0x40); /* positive, full length */
	bn = BN_bin2bn(bytes, sizeof(bytes), NULL);
	ok = bn && BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(x)) != NULL;
	BN_free(bn);
	return ok;
}

static int set_name(X509 *x, const char *cn)
{
	/* A common name holds 64 bytes (RFC 5280, ub-common-name); the SAN holds the whole name. */
	int len = (int)(strlen(cn) > 64 ? 64 : strlen(cn));

	return X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
					  (const unsigned char *)cn, len, -1, 0);
}

static int add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;
	int ok;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = ext && X509_add_ext(x, ext, -1);
	X509_EXTENSION_free(ext);
	return ok;
}

/* Everything but extensions and signature. */
static X509 *blank(const char *cn, EVP_PKEY *key)
{
	X509 *x = X509_new();

	if (x && X509_set_version(x, 2) && set_serial(x) &&
	    X509_gmtime_adj(X509_getm_notBefore(x), -ten_years_s) &&
	    X509_gmtime_adj(X509_getm_notAfter(x), thirty_years_s) && set_name(x, cn) &&
	    X509_set_pubkey(x, key))
		return x;
	X509_free(x);
	return NULL;
}

static X509 *make_ca(EVP_PKEY *key)
{
	uint8_t tag[4];
	char cn[32];
	X509 *x;

	if (RAND_bytes(tag, sizeof(tag)) != 1)
		return NULL;
	(void)snprintf(cn, sizeof(cn), "hark run CA %02x%02x%02x%02x", tag[0], tag[1], tag[2],
		       tag[3]);
	x = blank(cn, key);
	if (x && X509_set_issuer_name(x, X509_get_subject_name(x)) &&
	    add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	    add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	    add_extension(x, x, NID_subject_key_identifier, "hash") &&
	    X509_sign(x, key, EVP_sha256()))
		return x;
	X509_free(x);
	return NULL;
}

int hark_mint_init(struct hark_mint *mint, struct hark_err *err)
{
	memset(mint, 0, sizeof(*mint));
	mint->ca_key = EVP_EC_gen("P-256");
	mint->leaf_key = EVP_EC_gen("P-256");
	if (mint->ca_key && mint->leaf_key)
		mint->ca = make_ca(mint->ca_key);
	if (mint->ca)
		return 0;
	hark_mint_fini(mint);
	return hark_err_set(err, EIO, "the run's certificate authority could not be made");
}

void hark_mint_fini(struct hark_mint *mint)
{
	size_t i;

	for (i = 0; i < HARK_MINT_CACHE; i++)
		X509_free(mint->cache[i].leaf);
	X509_free(mint->ca);
	EVP_PKEY_free(mint->ca_key);
	EVP_PKEY_free(mint->leaf_key);
	memset(mint, 0, sizeof(*mint));
}

int hark_mint_pem(const struct hark_mint *mint, char *out, size_t size, struct hark_err *err)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *p = NULL;
	long n = 0;

	if (bio && PEM_write_bio_X509(bio, mint->ca))
		n = BIO_get_mem_data(bio, &p);
	if (n > 0 && (size_t)n < size) {
		memcpy(out, p, (size_t)n);
		out[n] = 0;
	}
	BIO_free(bio);
	return n > 0 && (size_t)n < size ? 0 : hark_err_set(err, EIO, "CA certificate as PEM");
}

static X509 *make_leaf(struct hark_mint *mint, const char *name)
{
	char san[HARK_NAME_SIZE + 8];
	X509 *x = blank(name, mint->leaf_key);

	(void)snprintf(san, sizeof(san), "DNS:%s", name);
	if (x && X509_set_issuer_name(x, X509_get_subject_name(mint->ca)) &&
	    add_extension(x, mint->ca, NID_subject_alt_name, san) &&
	    add_extension(x, mint->ca, NID_ext_key_usage, "serverAuth") &&
	    add_extension(x, mint->ca, NID_key_usage, "critical,digitalSignature") &&
	    add_extension(x, mint->ca, NID_basic_constraints, "critical,CA:FALSE") &&
	    add_extension(x, mint->ca, NID_authority_key_identifier, "keyid:always") &&
	    X509_sign(x, mint->ca_key, EVP_sha256()))
		return x;
	X509_free(x);
	return NULL;
}

/* FNV-1a. A collision costs one more minting, no more. */
static size_t slot_of(const char *name)
{
	uint32_t h = 2166136261U;

	while (*name)
		h = (h ^ (uint8_t)*name++) * 16777619U;
	return h % HARK_MINT_CACHE;
}

X509 *hark_mint_leaf(struct hark_mint *mint, const char *name)
{
	struct hark_mint_slot *slot = &mint->cache[slot_of(name)];
	X509 *leaf;

	if (slot->leaf && strcmp(slot->name, name) == 0)
		return slot->leaf;
	leaf = make_leaf(mint, name);
	if (!leaf)
		return NULL;
	X509_free(slot->leaf);
	slot->leaf = leaf;
	(void)snprintf(slot->name, sizeof(slot->name), "%s", name);
	return leaf;
}
