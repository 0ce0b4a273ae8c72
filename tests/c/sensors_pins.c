/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership of the pinned set, on a plain file system and under sanitizers: who counts, who is
 * swept, what a foreign file name does. That BPF follows is checked by tests/sensors.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "hark_pins.h"

#define DIGEST "00ff00ff"

static char top[] = "/tmp/hark-pins-XXXXXX";
static char pins[64];
static char state[64];

static struct hark_pins place(const char *digest)
{
	return (struct hark_pins){.pins = pins, .state = state, .digest = digest};
}

static void under(char out[256], const char *folder, const char *name)
{
	assert_true(snprintf(out, 256, "%s/%s", folder, name) < 256);
}

static void make_set(const char *name)
{
	char path[256];

	under(path, pins, name);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_true(strlen(path) + sizeof("/link_x") <= sizeof(path));
	strcat(path, "/link_x");
	assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
}

static int exists(const char *folder, const char *name)
{
	char path[256];

	under(path, folder, name);
	return access(path, F_OK) == 0;
}

static int join(uint64_t run, uint32_t level, int *code)
{
	struct hark_pins where = place(DIGEST);
	struct hark_err err;
	int fd;

	hark_err_init(&err);
	fd = hark_pins_join(&where, run, level, &err);
	*code = err.err;
	return fd;
}

static void leave(uint64_t run)
{
	struct hark_pins where = place(NULL);
	struct hark_err err;

	hark_err_init(&err);
	assert_int_equal(hark_pins_leave(&where, run, &err), 0);
}

static int setup(void **unused)
{
	struct hark_pins where = place(DIGEST);
	struct hark_err err;

	(void)unused;
	hark_err_init(&err);
	(void)snprintf(pins, sizeof(pins), "%s/pins", top);
	(void)snprintf(state, sizeof(state), "%s/state", top);
	return close(hark_pins_lock(&where, &err));
}

static int teardown(void **unused)
{
	(void)unused;
	leave(0);
	return exists(top, "pins");
}

static void test_the_last_out_removes_the_set(void **unused)
{
	int code;
	int one = join(1, 1, &code);
	int two = join(2, 3, &code);

	(void)unused;
	make_set(DIGEST);
	assert_true(one >= 0 && two >= 0);
	leave(1);
	assert_true(exists(pins, DIGEST));
	leave(2);
	assert_false(exists(top, "pins"));
	assert_false(exists(state, DIGEST "-1-1"));
	close(one);
	close(two);
}

static void test_a_run_joins_once(void **unused)
{
	int code;
	int one = join(7, 1, &code);

	(void)unused;
	assert_int_equal(join(7, 1, &code), -1);
	assert_int_equal(code, EEXIST);
	close(one);
	one = join(7, 1, &code); /* its holder is gone */
	assert_true(one >= 0);
	close(one);
}

static void test_the_dead_are_swept_with_their_sets(void **unused)
{
	struct hark_pins where = place(DIGEST);
	struct hark_err err;
	int code;
	int dead = join(1, 1, &code);

	(void)unused;
	hark_err_init(&err);
	make_set(DIGEST);
	make_set("new-" DIGEST);
	make_set("abcd");
	close(dead);
	assert_int_equal(hark_pins_present(&where), 1);
	assert_int_equal(hark_pins_sweep(&where, &err), 0);
	assert_int_equal(hark_pins_present(&where), 0);
	assert_false(exists(pins, "new-" DIGEST));
	assert_false(exists(pins, "abcd"));
}

static void test_levels_are_those_of_living_members(void **unused)
{
	struct hark_pins where = place(DIGEST);
	uint8_t used[HARK_PINS_DEPTH];
	uint64_t filter;
	struct hark_err err;
	int code;
	int one = join(1, 5, &code);
	int two = join(2, 255, &code);

	(void)unused;
	hark_err_init(&err);
	assert_int_equal(join(3, HARK_PINS_DEPTH, &code), -1);
	assert_int_equal(code, ERANGE);
	assert_int_equal(hark_pins_levels(&where, used, &filter, &err), 0);
	for (int i = 0; i < HARK_PINS_DEPTH; i++)
		assert_int_equal(used[i], i == 5 || i == 255);
	assert_int_equal(filter, 1U << 1 | 1U << 2);
	close(one);
	close(two);
}

/* Names that are not a member's stay and count for nothing. */
static void test_foreign_names_are_left_alone(void **unused)
{
	static const char *const names[] = {
		"-1-1",          "xyz-1-1",
		DIGEST,          DIGEST "-1",
		DIGEST "-1-",    DIGEST "--1",
		DIGEST "-1-1x",  DIGEST "-+1-1",
		DIGEST "-1-256", DIGEST "-99999999999999999999-1",
		DIGEST "-1-1-1",
	};
	struct hark_pins where = place(DIGEST);
	uint8_t used[HARK_PINS_DEPTH];
	uint64_t filter;
	char path[256];
	struct hark_err err;

	(void)unused;
	hark_err_init(&err);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		under(path, state, names[i]);
		assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
	}
	assert_int_equal(hark_pins_levels(&where, used, &filter, &err), 0);
	assert_int_equal(used[1], 0);
	assert_int_equal(filter, 0);
	leave(1);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_true(exists(state, names[i]));
		under(path, state, names[i]);
		assert_int_equal(unlink(path), 0);
	}
}

/* Whether the process is in flock(2): the first field of /proc/PID/syscall, proc(5). */
static int waits_for_lock(pid_t pid)
{
	char path[64];
	long nr = -1;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%ld", &nr) != 1)
		nr = -1;
	(void)fclose(file);
	return nr == SYS_flock;
}

/* Who waits for the lock while the last one leaves finds the place made again. */
static void test_the_place_is_there_for_who_holds_the_lock(void **unused)
{
	struct hark_pins where = place(DIGEST);
	struct timespec pause = {.tv_nsec = 1000000};
	struct hark_err err;
	int status = -1;
	int lock;
	pid_t pid;

	(void)unused;
	hark_err_init(&err);
	lock = hark_pins_lock(&where, &err);
	assert_true(lock >= 0);
	(void)alarm(60);
	pid = fork();
	if (pid == 0) {
		close(lock); /* else the child itself would hold what it waits for */
		_exit(hark_pins_lock(&where, &err) >= 0 && exists(top, "pins") ? 0 : 1);
	}
	while (!waits_for_lock(pid))
		assert_int_equal(nanosleep(&pause, NULL), 0);
	assert_int_equal(rmdir(pins), 0);
	assert_int_equal(close(lock), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)alarm(0);
	assert_int_equal(status, 0);
}

static void test_a_path_that_does_not_fit_is_an_error(void **unused)
{
	char out[HARK_PINS_PATH];
	char name[HARK_PINS_PATH];
	struct hark_err err;

	(void)unused;
	hark_err_init(&err);
	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(hark_pins_path(out, "/x", "", name, &err), -1);
	assert_int_equal(err.err, ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_last_out_removes_the_set, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_run_joins_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_dead_are_swept_with_their_sets, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_levels_are_those_of_living_members, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_foreign_names_are_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_place_is_there_for_who_holds_the_lock,
						setup, teardown),
		cmocka_unit_test(test_a_path_that_does_not_fit_is_an_error),
	};
	char path[256];
	int failed;

	if (!mkdtemp(top))
		return 1;
	failed = cmocka_run_group_tests_name("sensor pins", tests, NULL, NULL);
	under(path, state, "lock");
	(void)unlink(path);
	(void)rmdir(state);
	(void)rmdir(top);
	return failed;
}
