/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-mediator CONTROL BROKER RING DOORBELL SPACE CONFIG
 *
 * Six inherited descriptors: socket to the recorder, socket to the broker, ring memfd, its two
 * bells, and the memfd with the compiled table. Started by hark/mediator/process.py.
 *
 * Order. Limits; table; the run's CA, whose certificate is sent at once, since the recorder waits
 * for it; everything that opens files (CA bundle, time zone, first minting); then ids and filter;
 * then the loop. Nothing of the agent is read before the filter is in place.
 */
#include "hark_mediator.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "hark_fd.h"
#include "hark_sandbox.h"

enum fd_arg { ARG_CONTROL, ARG_BROKER, ARG_RING, ARG_DOORBELL, ARG_SPACE, ARG_CONFIG, ARGS };
enum { EXIT_HARK = 125, CONFIG_MAX = 64 << 20 };

void hark_mediator_fail(struct hark_mediator *med, const char *why)
{
	char line[320];
	int n = snprintf(line, sizeof(line), "hark-mediator: %s\n", why);

	if (!med->failed && n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		med->failed = true; /* nobody listens: the exit status has to do */
	med->failed = true;
	med->loop.stop = true;
}

/* ---- the loop's questions ---- */

static bool ready_for_input(void *ctx)
{
	struct hark_mediator *med = ctx;
	int64_t room = hark_ring_room(med->rec.ring);

	if (med->rec.broken || room < 0) {
		hark_mediator_fail(med, "the record ring is broken");
		return false;
	}
	if (room >= HARK_ROOM_MIN)
		return true;
	hark_record_bell(&med->rec, true);
	hark_ring_want_space(med->rec.ring);
	/* The consumer may have read between the question and the wish. */
	return hark_ring_room(med->rec.ring) >= HARK_ROOM_MIN;
}

static void on_tick(void *ctx, uint64_t now)
{
	struct hark_mediator *med = ctx;

	hark_conn_tick(med, now);
	hark_upstream_tick(med, now);
	if (!med->listening && med->nconns < med->policy.limits[HARK_LIMIT_CONNECTIONS])
		hark_links_listen(med, true);
	med->loop.timers = med->conns || med->upstreams || !med->listening;
}

static void after_batch(void *ctx)
{
	struct hark_mediator *med = ctx;

	if (med->any_dead) {
		hark_conn_sweep(med);
		hark_upstream_sweep(med);
		med->any_dead = false;
	}
	hark_record_bell(&med->rec, false);
	med->loop.wake_at = med->rec.bell_at;
}

static void on_drained(void *ctx)
{
	struct hark_mediator *med = ctx;
	struct hark_conn *conn;
	struct hark_upstream *up;
	struct hark_err err;

	hark_err_init(&err);
	hark_links_listen(med, false);
	for (conn = med->conns; conn; conn = conn->next)
		hark_conn_kill(conn, HARK_REASON_STOPPED);
	for (up = med->upstreams; up; up = up->next)
		hark_upstream_close(up);
	after_batch(med);
	hark_record_bell(&med->rec, true);
	if (med->rec.broken)
		hark_mediator_fail(med, "the record ring is broken");
	else if (hark_links_drained(med, &err))
		hark_mediator_fail(med, err.what);
}

/* ---- start ---- */

static int parse_args(int argc, char **argv, int fds[ARGS], struct hark_err *err)
{
	int i;

	if (argc != ARGS + 1)
		return hark_err_set(err, EINVAL, "started without its six descriptors");
	for (i = 0; i < ARGS; i++) {
		char *end = NULL;
		long fd = strtol(argv[i + 1], &end, 10);

		if (*end || fd < 3 || fd > 1023 || fcntl((int)fd, F_SETFD, FD_CLOEXEC))
			return hark_err_set(err, EBADF, "argument %d is no descriptor", i + 1);
		fds[i] = (int)fd;
	}
	return 0;
}

static int read_config(struct hark_policy *policy, int fd, struct hark_err *err)
{
	struct stat st;
	void *table;
	int seals;
	int r;

	if (fstat(fd, &st) || st.st_size <= 0 || st.st_size > CONFIG_MAX)
		return hark_err_set(err, EINVAL, "mediator table: bad size");
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_WRITE))
		return hark_err_set(err, EINVAL, "mediator table: not sealed");
	table = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (table == MAP_FAILED)
		return hark_err_set(err, errno, "mediator table: %s", strerror(errno));
	r = hark_policy_init(policy, table, (size_t)st.st_size, err);
	(void)munmap(table, (size_t)st.st_size);
	(void)close(fd); /* it holds the credentials */
	return r;
}

static int open_ring(struct hark_mediator *med, const int fds[ARGS], struct hark_err *err)
{
	med->rec.ring = hark_ring_producer_new(fds[ARG_RING], fds[ARG_DOORBELL], fds[ARG_SPACE]);
	if (!med->rec.ring)
		return hark_err_set(err, errno, "record ring: %s", strerror(errno));
	return 0;
}

/* Whatever opens a file at its first use is used once here; inside the filter it would kill us. */
static int warm_up(struct hark_mediator *med, struct hark_err *err)
{
	SSL *ssl;

	tzset();
	(void)ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, SSL_R_NO_SHARED_CIPHER));
	(void)X509_verify_cert_error_string(X509_V_ERR_CERT_HAS_EXPIRED);
	med->server = hark_hello_ctx_new(med);
	if (!med->server || hark_upstream_setup(med, err))
		return hark_err_set(err, EIO, "TLS server context");
	ssl = SSL_new(med->server);
	SSL_free(ssl);
	if (!ssl || !hark_mint_leaf(&med->mint, "warm.invalid"))
		return hark_err_set(err, EIO, "the first certificate could not be made");
	return 0;
}

static int start(struct hark_mediator *med, const int fds[ARGS], struct hark_err *err)
{
	if (hark_loop_init(&med->loop, err) || open_ring(med, fds, err) ||
	    read_config(&med->policy, fds[ARG_CONFIG], err) ||
	    (med->policy.play && hark_play_isolate(err)) ||
	    hark_sandbox_limits(med->policy.limits[HARK_LIMIT_DESCRIPTORS], err) ||
	    hark_mint_init(&med->mint, err) ||
	    hark_links_init(med, fds[ARG_CONTROL], fds[ARG_BROKER], fds[ARG_SPACE], err) ||
	    hark_links_send_ca(med, err) || warm_up(med, err))
		return -1;
	hark_play_setup(med);
	med->loop.ready_for_input = ready_for_input;
	med->loop.tick = on_tick;
	med->loop.after = after_batch;
	med->loop.drained = on_drained;
	med->loop.ctx = med;
	return hark_sandbox_enter(med->policy.drop_ids, med->policy.uid, med->policy.gid, err);
}

static void finish(struct hark_mediator *med)
{
	size_t i;

	/* Closed without records: the reader is gone, or has all of them. */
	for (i = 0; med->sites && i < med->policy.nhosts; i++)
		hark_site_fini(&med->sites[i]);
	free(med->sites);
	SSL_CTX_free(med->server);
	SSL_CTX_free(med->client);
	hark_mint_fini(&med->mint);
	hark_policy_fini(&med->policy);
	hark_ring_free(med->rec.ring);
	hark_loop_fini(&med->loop);
}

static void free_all(struct hark_mediator *med)
{
	struct hark_conn *conn;
	struct hark_upstream *up;

	for (conn = med->conns; conn; conn = conn->next)
		hark_conn_kill(conn, HARK_REASON_STOPPED);
	for (up = med->upstreams; up; up = up->next)
		hark_upstream_close(up);
	hark_conn_sweep(med);
	hark_upstream_sweep(med);
}

int main(int argc, char **argv)
{
	struct hark_mediator *med = calloc(1, sizeof(*med));
	struct hark_err err;
	int fds[ARGS] = {0};

	hark_err_init(&err);
	if (!med)
		return EXIT_HARK;
	(void)signal(SIGPIPE, SIG_IGN);
	if (parse_args(argc, argv, fds, &err) || start(med, fds, &err)) {
		(void)fprintf(stderr, "hark-mediator: %s\n", err.what);
		if (err.hint[0])
			(void)fprintf(stderr, "hark-mediator: hint: %s\n", err.hint);
		free(med);
		return EXIT_HARK;
	}
	hark_loop_run(&med->loop);
	free_all(med);
	finish(med);
	argc = med->failed ? EXIT_FAILURE : EXIT_SUCCESS;
	free(med);
	return argc;
}
