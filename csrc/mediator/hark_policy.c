/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_policy.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "hark_name.h"
#include "hark_tlv.h"

static const uint64_t default_limits[HARK_LIMIT_COUNT] = {
	[HARK_LIMIT_CONNECTIONS] = 1024,   [HARK_LIMIT_HELLO_MS] = 15000,
	[HARK_LIMIT_HEAD_MS] = 15000,      [HARK_LIMIT_IDLE_MS] = 600000,
	[HARK_LIMIT_BODY_MS] = 120000,     [HARK_LIMIT_DENIED_MS] = 3000,
	[HARK_LIMIT_DENIED_BODY] = 65536,  [HARK_LIMIT_DIAL_MS] = 45000,
	[HARK_LIMIT_RESPONSE_MS] = 600000, /* a model may think for minutes */
	[HARK_LIMIT_POOL_MS] = 30000,      [HARK_LIMIT_LINGER_MS] = 2000,
	[HARK_LIMIT_DESCRIPTORS] = 4096,
};

static int malformed(struct hark_err *err, const char *what)
{
	return hark_err_set(err, EPROTO, "mediator table: %s", what);
}

static int no_memory(struct hark_err *err)
{
	return hark_err_set(err, ENOMEM, "mediator table: no memory");
}

/* A list's length, bounded before anything is allocated for it. */
static int list_len(struct hark_cur *cur, size_t *n, struct hark_err *err)
{
	*n = hark_cur_u16(cur);
	return cur->bad || *n > HARK_CONFIG_LIST ? malformed(err, "bad list") : 0;
}

static int read_texts(struct hark_cur *cur, char ***list, size_t *count, struct hark_err *err)
{
	size_t n;
	size_t i;

	if (list_len(cur, &n, err))
		return -1;
	*list = calloc(n + 1, sizeof(**list));
	if (!*list)
		return no_memory(err);
	for (i = 0; i < n; i++) {
		(*list)[i] = strdup(hark_cur_str(cur));
		if (!(*list)[i])
			return no_memory(err);
		*count = i + 1;
	}
	return 0;
}

/* ---- items ---- */

static int read_ports(struct hark_host *host, struct hark_cur *cur, struct hark_err *err)
{
	size_t n;
	size_t i;

	if (list_len(cur, &n, err))
		return -1;
	host->ports = calloc(n + 1, sizeof(*host->ports));
	if (!host->ports)
		return no_memory(err);
	for (i = 0; i < n; i++) {
		struct hark_port *port = &host->ports[i];

		port->port = hark_cur_u16(cur);
		port->mode = hark_cur_u16(cur);
		if (!port->port || !port->mode || port->mode > HARK_PORT_OPAQUE)
			return malformed(err, "bad port");
	}
	host->nports = n;
	return 0;
}

static int read_host(struct hark_policy *policy, struct hark_cur *cur, struct hark_err *err)
{
	struct hark_host *host = policy->hosts + policy->nhosts;
	char normal[HARK_NAME_SIZE];
	const char *name;

	if (policy->nhosts >= policy->max_hosts)
		return malformed(err, "more hosts than were counted");
	policy->nhosts++;
	host->index = hark_cur_u32(cur);
	name = hark_cur_str(cur);
	if (hark_name_parse((const uint8_t *)name, strlen(name), normal) != HARK_NAME_OK ||
	    strcmp(name, normal) != 0)
		return malformed(err, "a host name that is not normal");
	host->name = strdup(name);
	if (!host->name)
		return no_memory(err);
	return read_ports(host, cur, err);
}

/* A header value may hold no control byte: a line break in a credential would add fields. */
static bool plain_value(const char *text)
{
	size_t n = strlen(text);
	size_t i;

	for (i = 0; i < n; i++) {
		if ((unsigned char)text[i] < ' ' || text[i] == 127)
			return false;
	}
	return n >= HARK_CONFIG_SECRET_MIN && n <= HARK_CONFIG_SECRET_MAX;
}

static int read_cred_hosts(struct hark_cred *cred, struct hark_cur *cur, struct hark_err *err)
{
	size_t n;
	size_t i;

	if (list_len(cur, &n, err))
		return -1;
	cred->hosts = calloc(n + 1, sizeof(*cred->hosts));
	if (!cred->hosts)
		return no_memory(err);
	for (i = 0; i < n; i++)
		cred->hosts[i] = hark_cur_u32(cur);
	cred->nhosts = n;
	return 0;
}

static int read_cred(struct hark_policy *policy, struct hark_cur *cur, struct hark_err *err)
{
	struct hark_cred *cred = policy->creds + policy->ncreds;

	if (policy->ncreds >= policy->max_creds)
		return malformed(err, "more credentials than were counted");
	policy->ncreds++;

	cred->secret = hark_cur_u32(cur);
	cred->placeholder = strdup(hark_cur_str(cur));
	cred->real = strdup(hark_cur_str(cur));
	if (!cred->placeholder || !cred->real)
		return no_memory(err);
	if (!plain_value(cred->placeholder) || !plain_value(cred->real) ||
	    strstr(cred->placeholder, cred->real) || strstr(cred->real, cred->placeholder))
		return malformed(err, "a credential or placeholder that cannot be used");
	cred->placeholder_len = strlen(cred->placeholder);
	cred->real_len = strlen(cred->real);
	if (read_texts(cur, &cred->headers, &cred->nheaders, err) ||
	    read_cred_hosts(cred, cur, err) ||
	    read_texts(cur, &cred->methods, &cred->nmethods, err))
		return -1;
	return read_texts(cur, &cred->queries, &cred->nqueries, err);
}

static struct hark_host *by_index(struct hark_policy *policy, uint32_t index)
{
	size_t i;

	for (i = 0; i < policy->nhosts; i++) {
		if (policy->hosts[i].index == index)
			return &policy->hosts[i];
	}
	return NULL;
}

static int read_host_ca(struct hark_policy *policy, struct hark_cur *cur, struct hark_err *err)
{
	struct hark_host *host = by_index(policy, hark_cur_u32(cur));

	if (!host || host->ca_pem)
		return malformed(err, "a CA for a host that is not there");
	host->ca_pem = strdup(hark_cur_str(cur));
	return host->ca_pem ? 0 : no_memory(err);
}

static int read_limit(struct hark_policy *policy, struct hark_cur *cur, struct hark_err *err)
{
	uint32_t which = hark_cur_u32(cur);
	uint64_t value = hark_cur_u64(cur);

	if (which >= HARK_LIMIT_COUNT || !value)
		return malformed(err, "bad limit");
	policy->limits[which] = value;
	return 0;
}

static int read_item(struct hark_policy *policy, struct hark_tlv_item *item, struct hark_err *err)
{
	switch (item->op) {
	case HARK_CONFIG_HOST:
		return read_host(policy, &item->body, err);
	case HARK_CONFIG_CRED:
		return read_cred(policy, &item->body, err);
	case HARK_CONFIG_HOST_CA:
		return read_host_ca(policy, &item->body, err);
	case HARK_CONFIG_SYSTEM_CA:
		free(policy->system_ca);
		policy->system_ca = strdup(hark_cur_str(&item->body));
		return policy->system_ca ? 0 : no_memory(err);
	case HARK_CONFIG_LIMIT:
		return read_limit(policy, &item->body, err);
	case HARK_CONFIG_IDS:
		policy->uid = hark_cur_u32(&item->body);
		policy->gid = hark_cur_u32(&item->body);
		policy->drop_ids = true;
		return 0;
	case HARK_CONFIG_EXTRA_CA:
		free(policy->extra_ca);
		policy->extra_ca = strdup(hark_cur_str(&item->body));
		return policy->extra_ca ? 0 : no_memory(err);
	case HARK_CONFIG_PLAY:
		policy->play = true;
		return 0;
	default:
		return malformed(err, "unknown item");
	}
}

/* ---- the whole ---- */

/* First pass: how many hosts and credentials, so that their arrays never move. */
static int count_items(const void *table, size_t len, size_t *hosts, size_t *creds,
		       struct hark_err *err)
{
	struct hark_tlv tlv;
	struct hark_tlv_item item;
	enum hark_tlv_result r;

	if (hark_tlv_init(&tlv, table, len, HARK_CONFIG_MAGIC, HARK_CONFIG_VERSION, err))
		return -1;
	while ((r = hark_tlv_next(&tlv, &item)) == HARK_TLV_ITEM) {
		*hosts += item.op == HARK_CONFIG_HOST;
		*creds += item.op == HARK_CONFIG_CRED;
	}
	if (r != HARK_TLV_END || *hosts > HARK_CONFIG_HOSTS || *creds > HARK_CONFIG_CREDS)
		return malformed(err, "cut short or too long");
	return 0;
}

static int read_items(struct hark_policy *policy, const void *table, size_t len,
		      struct hark_err *err)
{
	struct hark_tlv tlv;
	struct hark_tlv_item item;

	if (hark_tlv_init(&tlv, table, len, HARK_CONFIG_MAGIC, HARK_CONFIG_VERSION, err))
		return -1;
	while (hark_tlv_next(&tlv, &item) == HARK_TLV_ITEM) {
		if (read_item(policy, &item, err))
			return -1;
		if (!hark_cur_done(&item.body))
			return malformed(err, "an item of the wrong length");
	}
	return 0;
}

static int compare_hosts(const void *a, const void *b)
{
	return strcmp(((const struct hark_host *)a)->name, ((const struct hark_host *)b)->name);
}

static void find_common(struct hark_policy *policy)
{
	size_t i;

	if (!policy->ncreds)
		return;
	policy->common_len = policy->creds[0].placeholder_len;
	for (i = 1; i < policy->ncreds; i++) {
		const char *a = policy->creds[0].placeholder;
		const char *b = policy->creds[i].placeholder;
		size_t n = 0;

		while (n < policy->common_len && a[n] == b[n])
			n++;
		policy->common_len = n;
	}
}

static int finish(struct hark_policy *policy, struct hark_err *err)
{
	size_t i;
	size_t j;

	find_common(policy);
	qsort(policy->hosts, policy->nhosts, sizeof(*policy->hosts), compare_hosts);
	for (i = 1; i < policy->nhosts; i++) {
		if (!compare_hosts(&policy->hosts[i - 1], &policy->hosts[i]))
			return malformed(err, "a host that stands twice");
	}
	for (i = 0; i < policy->ncreds; i++) {
		for (j = 0; j < policy->creds[i].nhosts; j++) {
			struct hark_host *host = by_index(policy, policy->creds[i].hosts[j]);

			if (!host)
				return malformed(err, "a credential for an unknown host");
			host->has_creds = true;
		}
	}
	return 0;
}

int hark_policy_init(struct hark_policy *policy, const void *table, size_t len,
		     struct hark_err *err)
{
	size_t hosts = 0;
	size_t creds = 0;
	size_t i;

	memset(policy, 0, sizeof(*policy));
	if (count_items(table, len, &hosts, &creds, err))
		return -1;
	for (i = 0; i < HARK_LIMIT_COUNT; i++)
		policy->limits[i] = default_limits[i];
	policy->nhosts = 0;
	policy->ncreds = 0;
	policy->hosts = calloc(hosts + 1, sizeof(*policy->hosts));
	policy->creds = calloc(creds + 1, sizeof(*policy->creds));
	if (policy->hosts && policy->creds) {
		policy->max_hosts = hosts;
		policy->max_creds = creds;
		if (!read_items(policy, table, len, err) && !finish(policy, err))
			return 0;
	} else {
		(void)no_memory(err);
	}
	hark_policy_fini(policy);
	return -1;
}

static void free_texts(char **list, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

static void free_cred(struct hark_cred *cred)
{
	if (cred->real)
		explicit_bzero(cred->real, strlen(cred->real));
	free(cred->real);
	free(cred->placeholder);
	free(cred->hosts);
	free_texts(cred->headers, cred->nheaders);
	free_texts(cred->methods, cred->nmethods);
	free_texts(cred->queries, cred->nqueries);
}

void hark_policy_fini(struct hark_policy *policy)
{
	size_t i;

	for (i = 0; i < policy->nhosts; i++) {
		free(policy->hosts[i].name);
		free(policy->hosts[i].ports);
		free(policy->hosts[i].ca_pem);
	}
	for (i = 0; i < policy->ncreds; i++)
		free_cred(&policy->creds[i]);
	free(policy->hosts);
	free(policy->creds);
	free(policy->system_ca);
	free(policy->extra_ca);
	memset(policy, 0, sizeof(*policy));
}

static int compare_name(const void *key, const void *host)
{
	return strcmp(key, ((const struct hark_host *)host)->name);
}

const struct hark_host *hark_policy_find(const struct hark_policy *policy, const char *name)
{
	if (!policy->nhosts)
		return NULL;
	return bsearch(name, policy->hosts, policy->nhosts, sizeof(*policy->hosts), compare_name);
}

unsigned hark_host_port(const struct hark_host *host, uint16_t port)
{
	size_t i;

	for (i = 0; i < host->nports; i++) {
		if (host->ports[i].port == port)
			return host->ports[i].mode;
	}
	return 0;
}

bool hark_cred_for_host(const struct hark_cred *cred, uint32_t host)
{
	size_t i;

	for (i = 0; i < cred->nhosts; i++) {
		if (cred->hosts[i] == host)
			return true;
	}
	return false;
}

bool hark_cred_for_header(const struct hark_cred *cred, const uint8_t *name, size_t n)
{
	size_t i;

	for (i = 0; i < cred->nheaders; i++) {
		if (strlen(cred->headers[i]) == n &&
		    strncasecmp(cred->headers[i], (const char *)name, n) == 0)
			return true;
	}
	return false;
}

bool hark_cred_for_query(const struct hark_cred *cred, const uint8_t *name, size_t n)
{
	size_t i;

	for (i = 0; i < cred->nqueries; i++) {
		if (strlen(cred->queries[i]) == n && memcmp(cred->queries[i], name, n) == 0)
			return true;
	}
	return false;
}

bool hark_cred_for_method(const struct hark_cred *cred, const char *method)
{
	size_t i;

	for (i = 0; i < cred->nmethods; i++) {
		if (strcmp(cred->methods[i], method) == 0)
			return true;
	}
	return cred->nmethods == 0;
}
