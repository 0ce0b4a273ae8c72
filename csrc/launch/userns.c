/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user namespace that holds an id map: the agent enters one, and the same one is the idmap of
 * the mounts. A short-lived child makes it; the parent writes the maps.
 *
 * Its owner is an id of the run that no process has, so nobody else can enter it. Not root: what
 * the agent holds (inotify instances, queued signals, locked memory) counts against the owner too,
 * and the agent could leave root's own daemons without any.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

enum { MAP_TEXT = 2048 };

/* "inside outside count" lines from {u32 n, {u32, u32, u32}[n]}. */
static int map_text(struct hark_cur *cur, char *out, size_t size, struct hark_err *err)
{
	uint32_t n = hark_cur_u32(cur);
	size_t at = 0;

	out[0] = 0;
	while (n--) {
		uint32_t inside = hark_cur_u32(cur);
		uint32_t outside = hark_cur_u32(cur);
		uint32_t count = hark_cur_u32(cur);
		int w = snprintf(out + at, size - at, "%u %u %u\n", inside, outside, count);

		if (w < 0 || (size_t)w >= size - at)
			return hark_err_set(err, E2BIG, "id map: too long");
		at += (size_t)w;
	}
	return 0;
}

/* Capabilities stay: where people may not make user namespaces, they are asked for. */
static int become_owner(uint32_t owner)
{
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
		return -1;
	return setresuid(owner, owner, owner);
}

static _Noreturn void child_main(int sock, uint32_t owner)
{
	char ok = 0;

	if (become_owner(owner) < 0 || unshare(CLONE_NEWUSER) < 0)
		ok = (char)errno;
	(void)send(sock, &ok, 1, MSG_NOSIGNAL);
	(void)recv(sock, &ok, 1, 0); /* until the parent has opened the namespace, or is gone */
	_exit(0);
}

static int wait_child(int sock, uint64_t deadline_ns, struct hark_err *err)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	char code = 0;

	if (poll(&p, 1, hark_deadline_poll(deadline_ns)) != 1 || recv(sock, &code, 1, 0) != 1)
		return hark_err_set(err, ETIME, "user namespace: no answer");
	if (!code)
		return 0;
	(void)hark_err_set(err, code, "user namespace: %s", strerror(code));
	return hark_err_hint(err, "look at /proc/sys/user/max_user_namespaces");
}

static int write_maps(pid_t pid, struct hark_cur *body, struct hark_err *err)
{
	char text[MAP_TEXT];
	char path[64];

	if (map_text(body, text, sizeof(text), err))
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	if (hark_fd_put(AT_FDCWD, path, text, err))
		return -1;
	if (map_text(body, text, sizeof(text), err))
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	return hark_fd_put(AT_FDCWD, path, text, err);
}

static int adopt(struct launch *l, pid_t pid, int sock, struct hark_cur *body, struct hark_err *err)
{
	char path[64];
	int fd;

	if (wait_child(sock, hark_deadline_ms(l->setup_ms), err) || write_maps(pid, body, err))
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return hark_err_set(err, errno, "user namespace: %s", strerror(errno));
	l->userns[l->userns_n++] = fd;
	return 0;
}

int step_userns(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur body = op->body;
	const uint32_t owner = hark_cur_u32(&body);
	int sv[2];
	pid_t pid;
	int r;

	if (l->userns_n == LAUNCH_USERNS)
		return hark_err_set(err, E2BIG, "user namespace: too many");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return hark_err_set(err, errno, "user namespace: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		(void)close(sv[0]);
		child_main(sv[1], owner);
	}
	(void)close(sv[1]);
	r = pid < 0 ? hark_err_set(err, errno, "user namespace: fork: %s", strerror(errno))
		    : adopt(l, pid, sv[0], &body, err);
	(void)close(sv[0]); /* lets the child go */
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	return r;
}
