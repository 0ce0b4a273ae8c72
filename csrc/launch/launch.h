/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hark-launch: one process that builds the sandbox, starts the agent, watches over the run and
 * cleans up after it.
 *
 * Rules. Static, no argument, no environment: all it does stands in the sealed plan. It reads no
 * byte the agent or the network made, except executables it opens (not reads) for the recorder.
 * It ends the run when any party of the run dies. Paths of the person come as descriptors.
 */
#ifndef HARK_LAUNCH_H
#define HARK_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "hark_chan.h"
#include "hark_err.h"
#include "hark_fd.h"
#include "plan.h"

enum launch_limit { LAUNCH_WATCHES = 8, LAUNCH_USERNS = 4, LAUNCH_V1 = 8, LAUNCH_PATH = 4096 };

struct launch_net {
	int host, m, a; /* network namespaces */
	int tcp4, tcp6, udp4, udp6, nflog;
	int dns4, dns6; /* port 53 by TCP */
	uint64_t cookie;
	bool ipv6;
};

struct launch_cgroup {
	int fd;           /* cgroup v2 folder of the run, or -1 */
	const char *path; /* borrowed from the plan */
	uint64_t id;
	const char *v1_path[LAUNCH_V1];
	int v1_procs[LAUNCH_V1];
	size_t v1_n;
};

/* What the run may use up, see HARK_OP_METER; 0: not bounded. */
struct launch_meter {
	uint32_t tick_ms; /* 0: no meter */
	uint64_t disk, reserve, reserve_files, tasks, kills;
	pid_t pid;
	int fd; /* read end: which limit the run is over */
};

/* The root under construction; used in init only. */
struct launch_root {
	int fd;         /* the new root */
	int stage;      /* its scratch tmpfs: l/ layers, over/ staged files, empty/ */
	char path[256]; /* of the scratch tmpfs, as mounts name it */
	unsigned int layers;
	uint32_t owner; /* the run's uid 0, as the kernel sees it */
};

/* Where the bundle lies and where it goes. Indexes into launch.fds, UINT16_MAX: none. */
struct launch_publish {
	uint16_t runs;        /* the folder that holds the run's folder */
	const char *run_name; /* borrowed from the plan, as all below */
	uint16_t dest;
	const char *dest_name;
	uint32_t uid, gid;
	struct hark_cur groups; /* u32 each */
	uint32_t groups_n;
};

struct launch_watch {
	uint32_t cause; /* enum hark_exit_cause */
	uint16_t at;    /* in launch.fds */
};

struct launch {
	struct hark_chan rec;
	struct plan plan;
	int fds[HARK_PLAN_FDS];   /* what the plan names by index; owned */
	bool keep[HARK_PLAN_FDS]; /* the warden's own; the rest is closed once init has them */
	size_t nfds;
	uint32_t at_op; /* op being carried out, UINT32_MAX when none */
	uint32_t setup_ms, go_ms, seal_ms;
	struct launch_net net;
	struct launch_cgroup cgroup;
	struct launch_meter meter;
	uint32_t limit; /* enum hark_over: what ended the run */
	int userns[LAUNCH_USERNS];
	size_t userns_n;
	int view; /* user namespace of the recorder's view of the layers, or -1 */
	struct launch_watch watch[LAUNCH_WATCHES];
	size_t watch_n;
	struct launch_publish publish;
	struct launch_root new_root;
	int root;  /* the agent's root folder, O_PATH, for OPEN_EXE; -1 before it runs */
	int mntns; /* keeps that root's mounts after the agent's end */
	int init_pidfd, agent_pidfd;
	int reports; /* our end of the socket to init and agent */
	int alive;   /* write end of a pipe: init sees us die */
	int execd;   /* read end of a pipe that exec closes */
	pid_t init_pid, agent_pid;
	uint32_t wait_status, stragglers;
	bool init_reaped, agent_exited;
	int tty;    /* init: the terminal's slave side, or -1; warden: its master side until sent */
	int tracer; /* socket to hark-trace, in fds; -1: there is none */
	char **envp; /* agent */
};

/* What init and agent tell the warden: one packet each over a SOCK_SEQPACKET pair. */
enum report_kind {
	REPORT_AGENT = 1,   /* sent by the agent: its pid travels as credentials */
	REPORT_FAILED = 2,  /* a step failed before exec */
	REPORT_EXITED = 3,  /* value: wait status of the agent */
	REPORT_STOPPED = 4, /* the agent's job stopped */
	REPORT_CONTINUED = 5,
	REPORT_TTY = 6 /* one descriptor: the terminal's master side */
};

struct report {
	uint32_t kind;
	uint32_t value;
	uint32_t op;
	uint32_t pad0;
	struct hark_err err;
};

typedef int step_fn(struct launch *l, const struct plan_op *op, struct hark_err *err);

/* Carry out all ops of one phase in order; l->at_op names the one that failed. */
HARK_MUST_USE int launch_phase(struct launch *l, enum plan_phase phase, struct hark_err *err);

/* net.c */
step_fn step_netns, step_listen, step_nflog;
void net_init(struct launch_net *net);
void net_fini(struct launch_net *net);

/* cgroup.c */
step_fn step_cgroup, step_limit_v2, step_limit_v1;
void cgroup_init(struct launch_cgroup *cg);
void cgroup_kill(const struct launch_cgroup *cg);
/* Tasks of the run except `except`; 0 when there is no cgroup. */
uint32_t cgroup_tasks(const struct launch_cgroup *cg, pid_t except);
/* Wait until no task is left, then remove the folders. */
HARK_MUST_USE int cgroup_remove(struct launch_cgroup *cg, uint64_t deadline_ns,
				struct hark_err *err);
/* A file of the run's v2 cgroup, or else of the first v1 one that has it. A descriptor, or -1. */
int cgroup_open(const struct launch_cgroup *cg, const char *v2, const char *v1);
/* In init: put this process below the v1 limits. */
HARK_MUST_USE int cgroup_enter_v1(const struct launch_cgroup *cg, struct hark_err *err);

/* meter.c */
step_fn step_meter;
/* Have a child watch the run; nothing when the plan has no METER. */
HARK_MUST_USE int meter_start(struct launch *l, struct hark_err *err);
/* meter.fd is readable: which limit the run is over, or 0 when the meter is dead. */
uint32_t meter_read(struct launch *l);
void meter_stop(struct launch *l);
/* How often the run was refused a task, and how many the kernel ended for want of memory. */
void meter_counts(const struct launch_cgroup *cg, uint64_t *tasks, uint64_t *kills);

/* disk.c */
/* Bytes of what lies in the folder `name`, itself not counted. Stops above `enough`. */
uint64_t disk_used(int at, const char *name, uint64_t enough);

/* userns.c */
step_fn step_userns;

/* view.c */
step_fn step_view;
/* Open the layers' upper folders for the recorder, in the order of their numbers. Returns how many;
 * 0 also where the file system has no idmapped mounts. The caller closes them. */
size_t view_open(const struct launch *l, int *fds, size_t most);

/* root.c, layers.c */
step_fn step_hostname, step_root, step_link, step_stage_dir, step_stage_file, step_mask, step_tree,
	step_one_file, step_tmpfs, step_dev, step_proc, step_workspace, step_direct, step_cover,
	step_pivot;
/* In the warden, before init exists: turn source descriptors into detached mounts, since a
 * descriptor from this mount namespace cannot be cloned inside another one. */
HARK_MUST_USE int root_detach_sources(struct launch *l, struct hark_err *err);

/* agent.c */
/* TTY and STDIO are carried out in init, before the agent is forked. */
step_fn step_tty, step_stdio, step_rlimit, step_personality, step_creds, step_cwd, step_landlock,
	step_seccomp, step_env, step_exec;

/* init.c */
/* Make the run's init; the agent comes to life inside it. Returns in the warden only. */
HARK_MUST_USE int init_start(struct launch *l, struct hark_err *err);
/* Send one packet to the warden, with at most one descriptor. */
void report_send(const struct launch *l, const struct report *rep, int fd);

/* warden.c */
step_fn step_deadlines, step_hold, step_watch, step_run_dir, step_publish;
/* The whole run. Returns the process's exit status. */
int warden_run(struct launch *l);

/* tracer.c */
step_fn step_trace;
/* In the agent: hand the filter's listener over, and close it. */
HARK_MUST_USE int tracer_give(const struct launch *l, int listener, struct hark_err *err);

/* exe.c */
/* Open the executable a kernel record named. Returns a descriptor or -errno. */
int exe_open(const struct launch *l, const struct hark_msg_open_exe *ask);

/* publish.c */
/* Move the bundle to its place as the person. 0 or errno. */
int publish_bundle(const struct launch *l);

/* remove.c */
/* Remove `name` below `dirfd` with all below it, following no link. 0 or errno. */
int remove_tree(int dirfd, const char *name);
/* Remove what a finished run leaves in its folder, and the folder when nothing is left. */
void remove_run_dir(const struct launch *l, bool all);

#endif
