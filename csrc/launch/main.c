/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

enum { CONTROL_FD = 3 };

static struct launch *launch_new(void)
{
	struct launch *l = calloc(1, sizeof(*l));
	size_t i;

	if (!l)
		return NULL;
	hark_chan_init(&l->rec, CONTROL_FD);
	for (i = 0; i < HARK_PLAN_FDS; i++)
		l->fds[i] = -1;
	l->at_op = UINT32_MAX;
	net_init(&l->net);
	cgroup_init(&l->cgroup);
	l->meter.fd = l->new_root.fd = l->new_root.stage = -1;
	l->view = -1;
	l->tracer = -1;
	l->root = l->mntns = l->init_pidfd = l->agent_pidfd = -1;
	l->reports = l->alive = l->execd = l->tty = -1;
	return l;
}

static int is_control(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET;
}

int main(void)
{
	struct launch *l;
	int r;

	if (!is_control(CONTROL_FD)) {
		(void)fputs("hark: error: hark-launch is started by hark run, not by hand\n",
			    stderr);
		return 125;
	}
	if (clearenv() != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return 125;
	l = launch_new();
	if (!l)
		return 125;
	r = warden_run(l);
	plan_fini(&l->plan);
	free(l);
	return r;
}
