/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mediator's part of the compiled policy: hosts with their ports, credentials, limits. Read
 * once from a table (hark_tlv.h) that hark/mediator/config.py wrote; immutable afterwards. Pure.
 *
 * Items, with texts as hark_cur_str reads them:
 *   HOST      {u32 index, text name, u16 n, n * {u16 port, u16 mode}}
 *   CRED      {u32 secret, text placeholder, text real, u16 n, n * text header, u16 n,
 *              n * u32 host index, u16 n, n * text method, u16 n, n * text parameter};
 *              no method means every method
 *   HOST_CA   {u32 host index, text pem}: the only CAs trusted for this host
 *   SYSTEM_CA {text path}: the bundle for all others
 *   LIMIT     {u32 which, u64 value}
 *   IDS       {u32 uid, u32 gid}: drop to these
 *   EXTRA_CA  {text pem}: trusted beside SYSTEM_CA
 */
#ifndef HARK_POLICY_H
#define HARK_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hark_err.h"

enum hark_config_limit {
	HARK_CONFIG_MAGIC = 0x4d4b5248, /* "HRKM" */
	HARK_CONFIG_VERSION = 1,
	HARK_CONFIG_HOSTS = 65536,
	HARK_CONFIG_CREDS = 256,
	HARK_FORMS_PER_CRED = 5, /* hark_form.h */
	HARK_FORMS_MAX = 1280,   /* of one host */
	HARK_CONFIG_LIST = 1024, /* entries of one list */
	HARK_CONFIG_SECRET_MIN = 8,
	HARK_CONFIG_SECRET_MAX = 16384
};

enum hark_config_op {
	HARK_CONFIG_HOST = 1,
	HARK_CONFIG_CRED = 2,
	HARK_CONFIG_HOST_CA = 3,
	HARK_CONFIG_SYSTEM_CA = 4,
	HARK_CONFIG_LIMIT = 5,
	HARK_CONFIG_IDS = 6,
	HARK_CONFIG_PLAY = 7, /* empty: a replay */
	HARK_CONFIG_EXTRA_CA = 8
};

/* Bits of a port's mode. */
enum hark_port_mode {
	HARK_PORT_TLS = 1,
	HARK_PORT_PLAIN = 2,
	HARK_PORT_OPAQUE = 4 /* alone: bytes pass as they are */
};

enum hark_limit {
	HARK_LIMIT_CONNECTIONS = 0,  /* of the agent, at once */
	HARK_LIMIT_HELLO_MS = 1,     /* accept to the end of the handshake */
	HARK_LIMIT_HEAD_MS = 2,      /* first byte of a head to its last */
	HARK_LIMIT_IDLE_MS = 3,      /* keep-alive without a request */
	HARK_LIMIT_BODY_MS = 4,      /* silence inside a request body */
	HARK_LIMIT_DENIED_MS = 5,    /* how long the body of a denied request is waited for */
	HARK_LIMIT_DENIED_BODY = 6,  /* bytes of it that are recorded */
	HARK_LIMIT_DIAL_MS = 7,      /* broker's answer and the TLS handshake */
	HARK_LIMIT_RESPONSE_MS = 8,  /* silence of the upstream */
	HARK_LIMIT_POOL_MS = 9,      /* idle upstream connections are kept this long */
	HARK_LIMIT_LINGER_MS = 10,   /* after the last byte to the agent */
	HARK_LIMIT_DESCRIPTORS = 11, /* RLIMIT_NOFILE */
	HARK_LIMIT_COUNT = 12
};

struct hark_port {
	uint16_t port;
	uint16_t mode; /* bits of enum hark_port_mode */
};

struct hark_cred {
	uint32_t secret;
	char *placeholder;
	size_t placeholder_len;
	char *real;
	size_t real_len;
	char **headers; /* lower case */
	size_t nheaders;
	uint32_t *hosts;
	size_t nhosts;
	char **methods;
	size_t nmethods;
	char **queries; /* parameters of the request target, case-sensitive */
	size_t nqueries;
};

struct hark_host {
	uint32_t index; /* in the run's host table */
	char *name;
	struct hark_port *ports;
	size_t nports;
	char *ca_pem; /* NULL: the system's */
	bool has_creds;
};

struct hark_policy {
	struct hark_host *hosts; /* sorted by name */
	size_t nhosts;
	struct hark_cred *creds;
	size_t ncreds;
	size_t common_len; /* bytes with which all placeholders begin */
	size_t max_hosts;  /* room of the two arrays */
	size_t max_creds;
	char *system_ca;
	char *extra_ca; /* PEM, or NULL */
	uint64_t limits[HARK_LIMIT_COUNT];
	bool play; /* answers come from a recording; nothing is dialled */
	bool drop_ids;
	uint32_t uid;
	uint32_t gid;
};

/* Read a table. On failure the policy is empty and needs no fini. */
HARK_MUST_USE int hark_policy_init(struct hark_policy *policy, const void *table, size_t len,
				   struct hark_err *err);
void hark_policy_fini(struct hark_policy *policy);

/* The host of exactly this (normalised) name, or NULL. */
const struct hark_host *hark_policy_find(const struct hark_policy *policy, const char *name);

/* How this port of a host may be used: bits of enum hark_port_mode, 0 for not at all. */
unsigned hark_host_port(const struct hark_host *host, uint16_t port);

bool hark_cred_for_host(const struct hark_cred *cred, uint32_t host);
bool hark_cred_for_header(const struct hark_cred *cred, const uint8_t *name, size_t n);
bool hark_cred_for_query(const struct hark_cred *cred, const uint8_t *name, size_t n);
bool hark_cred_for_method(const struct hark_cred *cred, const char *method);

#endif
