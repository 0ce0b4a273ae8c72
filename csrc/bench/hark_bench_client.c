/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-bench-client [CA-FILE]: measures, on command, inside a run or outside of it.
 *
 * Commands come one a line on stdin; each is answered by one line on stdout, or ends the program.
 *   open NAME HOST ADDRESS PORT   connect and do 50 untimed round trips; ADDRESS "-" resolves HOST
 *   time COUNT SEED NAME...       COUNT rounds; in each, every NAME once, in shuffled order.
 *                                 Answer: COUNT * NAMES numbers, nanoseconds, ordered round by
 *                                 round and in the order the names were given
 *   syscalls COUNT                COUNT getppid calls; answer: nanoseconds of all of them
 *   quit
 * One untimed round trip precedes the timed ones of a command, since the process has been asleep.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hark_bench_http.h"

static const char SPACE[] = " \n";

enum client_limit { TARGETS = 8, ROUNDS = 4096, WARM_UP = 50, LINE = 1024 };

struct target {
	char name[64];
	char host[BENCH_NAME];
	struct bench_conn conn;
};

struct client {
	SSL_CTX *ctx; /* owned */
	struct target targets[TARGETS];
	size_t count;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static int fail(const char *what)
{
	(void)fprintf(stderr, "bench: %s\n", what);
	return -1;
}

static uint64_t number(const char *text)
{
	return text ? strtoull(text, NULL, 10) : 0;
}

static int round_trips(struct target *target, int count)
{
	for (int i = 0; i < count; i++)
		if (bench_round_trip(&target->conn, target->host) != 0)
			return -1;
	return 0;
}

static int do_open(struct client *client, char **save)
{
	const char *name = strtok_r(NULL, SPACE, save), *host = strtok_r(NULL, SPACE, save);
	const char *address = strtok_r(NULL, SPACE, save), *port = strtok_r(NULL, SPACE, save);
	struct target *target = &client->targets[client->count];

	if (!port || client->count == TARGETS)
		return fail("open NAME HOST ADDRESS PORT");
	(void)snprintf(target->name, sizeof(target->name), "%s", name);
	(void)snprintf(target->host, sizeof(target->host), "%s", host);
	if (bench_dial(&target->conn, client->ctx, target->host, address, port) != 0)
		return fail("cannot connect");
	client->count++;
	if (round_trips(target, WARM_UP) != 0)
		return -1;
	return printf("open\n") < 0 ? -1 : 0;
}

static struct target *find(struct client *client, const char *name)
{
	for (size_t i = 0; i < client->count; i++)
		if (strcmp(client->targets[i].name, name) == 0)
			return &client->targets[i];
	return NULL;
}

/* Marsaglia's xorshift64: the order must differ, not be unpredictable. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13U;
	*state ^= *state >> 7U;
	*state ^= *state << 17U;
	return *state;
}

static void shuffle(size_t *order, size_t n, uint64_t *state)
{
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t i = n; i > 1; i--) {
		size_t j = (size_t)(next_random(state) % i), kept = order[i - 1];

		order[i - 1] = order[j];
		order[j] = kept;
	}
}

static int time_round(struct target **chosen, size_t n, uint64_t *state, uint64_t *into)
{
	size_t order[TARGETS];

	shuffle(order, n, state);
	for (size_t i = 0; i < n; i++) {
		struct target *target = chosen[order[i]];
		uint64_t start = now_ns();

		if (bench_round_trip(&target->conn, target->host) != 0)
			return -1;
		into[order[i]] = now_ns() - start;
	}
	return 0;
}

static int print_all(const uint64_t *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (printf("%s%llu", i ? " " : "", (unsigned long long)values[i]) < 0)
			return -1;
	return printf("\n") < 0 ? -1 : 0;
}

static int do_time(struct client *client, char **save)
{
	static uint64_t taken[ROUNDS * TARGETS];
	struct target *chosen[TARGETS];
	uint64_t rounds = number(strtok_r(NULL, SPACE, save));
	uint64_t state = number(strtok_r(NULL, SPACE, save)) | 1U;
	size_t n = 0;

	for (char *name = strtok_r(NULL, SPACE, save); name; name = strtok_r(NULL, SPACE, save)) {
		chosen[n] = find(client, name);
		if (!chosen[n] || round_trips(chosen[n], 1) != 0)
			return fail("no such target, or it is gone");
		n++;
		if (n == TARGETS)
			break;
	}
	if (n == 0 || rounds == 0 || rounds > ROUNDS)
		return fail("time COUNT SEED NAME...");
	for (uint64_t r = 0; r < rounds; r++)
		if (time_round(chosen, n, &state, taken + r * n) != 0)
			return -1;
	return print_all(taken, (size_t)rounds * n);
}

static int do_syscalls(char **save)
{
	uint64_t count = number(strtok_r(NULL, SPACE, save)), start = now_ns();

	for (uint64_t i = 0; i < count; i++)
		(void)syscall(SYS_getppid);
	return printf("%llu\n", (unsigned long long)(now_ns() - start)) < 0 ? -1 : 0;
}

static int obey(struct client *client, char *line)
{
	char *save = NULL;
	const char *word = strtok_r(line, SPACE, &save);

	if (!word)
		return fail("an empty command");
	if (strcmp(word, "open") == 0)
		return do_open(client, &save);
	if (strcmp(word, "time") == 0)
		return do_time(client, &save);
	if (strcmp(word, "syscalls") == 0)
		return do_syscalls(&save);
	return fail("unknown command");
}

int main(int argc, char **argv)
{
	struct client client = {.ctx = bench_ctx_new(argc > 1 ? argv[1] : NULL)};
	char line[LINE];
	int status = 0;

	if (!client.ctx)
		return 2;
	(void)signal(SIGPIPE, SIG_IGN);
	while (status == 0 && fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "quit\n") == 0)
			break;
		status = obey(&client, line);
		if (fflush(stdout) != 0)
			status = -1;
	}
	for (size_t i = 0; i < client.count; i++)
		bench_hang_up(&client.targets[i].conn);
	SSL_CTX_free(client.ctx);
	return status == 0 ? 0 : 1;
}
