/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meter: a child of the warden that looks at what a run uses up, and says once which limit it
 * is over. It is a process of its own because a walk over the layers takes as long as the agent
 * likes. It may read folders, and has no other right. Its end, unasked for, ends the run.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

enum {
	WALK_SHARE = 20,     /* one part of so many of a processor goes into walks */
	WALK_MS_MOST = 10000 /* between two walks, however long they take */
};

static const char *const LAYERS[] = {"layers", "home"};

struct meter {
	const struct launch_meter *plan;
	int warden; /* write end; hangs up when the warden is gone */
	int run;    /* the run's folder, or -1 */
	int tasks, kills;
	uint64_t used;      /* by the last walk */
	uint64_t free_then; /* bytes free at the last walk */
	uint64_t next_walk_ns;
	uint64_t keep_bytes, keep_files;
};

int step_meter(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct launch_meter *m = &l->meter;

	m->tick_ms = hark_cur_u32(&cur);
	m->disk = hark_cur_u64(&cur);
	m->reserve = hark_cur_u64(&cur);
	m->reserve_files = hark_cur_u64(&cur);
	m->tasks = hark_cur_u64(&cur);
	m->kills = hark_cur_u64(&cur);
	if (!m->tick_ms)
		return hark_err_set(err, EINVAL, "plan: a meter without a tick");
	return 0;
}

/* The number behind `key` at the start of a line; 0 when there is none. */
static uint64_t counter(int fd, const char *key)
{
	const size_t len = strlen(key);
	char buf[1024];
	const char *at = buf;
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return 0;
	buf[n] = 0;
	for (; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (strncmp(at, key, len) == 0 && at[len] == ' ')
			return strtoull(at + len, NULL, 10);
	}
	return 0;
}

void meter_counts(const struct launch_cgroup *cg, uint64_t *tasks, uint64_t *kills)
{
	hark_autofd events = cgroup_open(cg, "pids.events", "pids.events");
	hark_autofd oom = cgroup_open(cg, "memory.events", "memory.oom_control");

	*tasks = counter(events, "max");
	*kills = counter(oom, "oom_kill");
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What must stay free: at most half of what was, so that a full disk refuses no run. */
static void look_at_start(struct meter *m)
{
	struct statvfs fs;

	if (m->run < 0 || fstatvfs(m->run, &fs) < 0)
		return;
	m->keep_bytes = least(m->plan->reserve, fs.f_bavail * fs.f_frsize / 2);
	m->keep_files = fs.f_files ? least(m->plan->reserve_files, fs.f_favail / 2) : 0;
}

static void walk(struct meter *m)
{
	const uint64_t began = hark_time_ns(CLOCK_MONOTONIC);
	uint64_t pause;
	size_t i;

	m->used = 0;
	for (i = 0; i < sizeof(LAYERS) / sizeof(LAYERS[0]) && m->used <= m->plan->disk; i++)
		m->used += disk_used(m->run, LAYERS[i], m->plan->disk - m->used);
	pause = (hark_time_ns(CLOCK_MONOTONIC) - began) * WALK_SHARE;
	m->next_walk_ns = hark_deadline_ms(0) + least(pause, WALK_MS_MOST * HARK_NS_PER_MS);
}

/* Walk when it is time, and at once when the disk lost what the run may still take. */
static uint32_t look_at_disk(struct meter *m)
{
	struct statvfs fs;
	uint64_t free_now;

	if (m->run < 0 || fstatvfs(m->run, &fs) < 0)
		return 0;
	free_now = fs.f_bavail * fs.f_frsize;
	if (free_now < m->keep_bytes || (fs.f_files && fs.f_favail < m->keep_files))
		return HARK_OVER_DISK_FULL;
	if (!m->plan->disk || (hark_time_ns(CLOCK_MONOTONIC) < m->next_walk_ns &&
			       free_now + (m->plan->disk - m->used) >= m->free_then))
		return 0;
	m->free_then = free_now;
	walk(m);
	return m->used > m->plan->disk ? HARK_OVER_DISK : 0;
}

static uint32_t look(struct meter *m)
{
	if (m->plan->tasks && counter(m->tasks, "max") > m->plan->tasks)
		return HARK_OVER_PIDS;
	if (m->plan->kills && counter(m->kills, "oom_kill") > m->plan->kills)
		return HARK_OVER_MEMORY;
	return look_at_disk(m);
}

static int give_up_rights(void)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	const uint32_t read_only = 1U << CAP_DAC_READ_SEARCH;
	struct __user_cap_data_struct d[2] = {{read_only, read_only, 0}, {0}};

	if (syscall(SYS_capset, &h, d) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Nothing is inherited but what the meter uses: descriptors 0 to 4. */
static int keep_descriptors(struct meter *m)
{
	int *mine[] = {&m->warden, &m->run, &m->tasks, &m->kills};
	size_t i;

	for (i = 0; i < 4; i++) { /* above what they are moved to */
		if (*mine[i] >= 0 && *mine[i] < 8)
			*mine[i] = fcntl(*mine[i], F_DUPFD_CLOEXEC, 8);
	}
	for (i = 0; i < 4; i++) {
		if (*mine[i] < 0) {
			(void)close((int)i);
			continue;
		}
		if (dup2(*mine[i], (int)i) < 0)
			return -1;
		*mine[i] = (int)i;
	}
	return (int)syscall(SYS_close_range, 4U, ~0U, 0U);
}

static _Noreturn void meter_main(struct meter *m)
{
	struct pollfd p;
	uint32_t over = 0;

	(void)prctl(PR_SET_NAME, "hark-meter");
	if (keep_descriptors(m) < 0 || give_up_rights() < 0)
		_exit(1);
	look_at_start(m);
	p = (struct pollfd){.fd = m->warden, .events = 0};
	while (!over) {
		if (poll(&p, 1, (int)m->plan->tick_ms) > 0)
			_exit(0);
		over = look(m);
	}
	(void)!write(m->warden, &over, sizeof(over));
	_exit(0);
}

int meter_start(struct launch *l, struct hark_err *err)
{
	struct meter m = {.plan = &l->meter, .run = -1, .tasks = -1, .kills = -1};
	int ends[2];

	if (!l->meter.tick_ms)
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return hark_err_set(err, errno, "pipe: %s", strerror(errno));
	l->meter.pid = fork();
	if (l->meter.pid == 0) {
		m.warden = ends[1];
		if (l->publish.run_name)
			m.run = openat(l->fds[l->publish.runs], l->publish.run_name,
				       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		m.tasks = cgroup_open(&l->cgroup, "pids.events", "pids.events");
		m.kills = cgroup_open(&l->cgroup, "memory.events", "memory.oom_control");
		meter_main(&m);
	}
	(void)close(ends[1]);
	l->meter.fd = ends[0];
	return l->meter.pid < 0 ? hark_err_set(err, errno, "fork: %s", strerror(errno)) : 0;
}

uint32_t meter_read(struct launch *l)
{
	uint32_t over = 0;

	if (read(l->meter.fd, &over, sizeof(over)) != (ssize_t)sizeof(over))
		over = 0;
	return over;
}

void meter_stop(struct launch *l)
{
	hark_fd_close(&l->meter.fd);
	if (l->meter.pid <= 0)
		return;
	(void)kill(l->meter.pid, SIGKILL);
	(void)waitpid(l->meter.pid, NULL, 0);
	l->meter.pid = 0;
}
