/* SPDX-License-Identifier: Apache-2.0 */
#include "hark_probe.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hark_fd.h"

enum {
	PROBE_ID = 0x77400000, /* an id block as a run has it */
	PROBE_IDS = 65536,
	PROBE_NLOG_GROUP = 1
};

/* What later steps need of earlier ones. */
struct probe {
	int userns; /* a user namespace over an id block, or -1 */
	/* Why this process has no namespace of its own; 0: it has one. Without, a step that would
	 * change the host's fails with the same. */
	int no_net, no_mounts;
	int32_t value;
};

typedef int (*step_fn)(struct probe *probe);

/* errno of a call that failed just now; never 0, which would mean that it works. */
static int failed(void)
{
	int code = errno;

	return code > 0 ? code : EIO;
}

/* Namespaces -------------------------------------------------------------------------------- */

static int new_namespace(int flag)
{
	return unshare(flag) ? failed() : 0;
}

static int step_net_ns(struct probe *probe)
{
	probe->no_net = new_namespace(CLONE_NEWNET);
	return probe->no_net;
}

static int step_mount_ns(struct probe *probe)
{
	probe->no_mounts = new_namespace(CLONE_NEWNS);
	if (!probe->no_mounts && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		probe->no_mounts = failed(); /* what is mounted would show outside */
	return probe->no_mounts;
}

static int step_ipc_ns(struct probe *probe)
{
	(void)probe;
	return new_namespace(CLONE_NEWIPC);
}

static int step_uts_ns(struct probe *probe)
{
	(void)probe;
	return new_namespace(CLONE_NEWUTS);
}

static int step_cgroup_ns(struct probe *probe)
{
	(void)probe;
	return new_namespace(CLONE_NEWCGROUP);
}

static int exit_status(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return failed();
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static int step_pid_ns(struct probe *probe)
{
	pid_t pid;

	(void)probe;
	if (unshare(CLONE_NEWPID))
		return failed();
	pid = fork();
	if (!pid)
		_exit(getpid() == 1 ? 0 : EPROTO);
	return exit_status(pid);
}

static int write_map(pid_t pid, const char *file)
{
	char path[64];
	char map[64];
	struct hark_err err;

	hark_err_init(&err);
	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	(void)snprintf(map, sizeof(map), "0 %u %u", PROBE_ID, PROBE_IDS);
	return hark_fd_put(AT_FDCWD, path, map, &err) ? err.err : 0;
}

static int open_userns(pid_t pid)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* A child that owns a user namespace until it has been mapped and opened. */
static int step_user_ns(struct probe *probe)
{
	int hold[2];
	char byte = 0;
	pid_t pid;
	int r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hold))
		return failed();
	pid = fork();
	if (!pid) {
		close(hold[0]);
		byte = unshare(CLONE_NEWUSER) ? (char)errno : 0;
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!write(hold[1], &byte, 1);
		(void)!read(hold[1], &byte, 1);
		_exit(0);
	}
	close(hold[1]); /* so that its death is an end of file */
	r = pid < 0 || read(hold[0], &byte, 1) != 1 ? failed() : byte;
	if (!r)
		r = write_map(pid, "uid_map");
	if (!r)
		r = write_map(pid, "gid_map");
	if (!r)
		probe->userns = open_userns(pid);
	close(hold[0]);
	(void)exit_status(pid);
	return r || probe->userns >= 0 ? r : failed();
}

/* Network ----------------------------------------------------------------------------------- */

static int step_tproxy(struct probe *probe)
{
	hark_autofd four = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	(void)probe;
	return setsockopt(four, SOL_IP, IP_TRANSPARENT, &one, sizeof(one)) ? failed() : 0;
}

static int step_ipv6(struct probe *probe)
{
	hark_autofd six = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	(void)probe;
	return setsockopt(six, SOL_IPV6, IPV6_TRANSPARENT, &one, sizeof(one)) ? failed() : 0;
}

/* Send one request and return the errno of its answer; an answer that is data counts as 0. */
static int netlink_ask(int protocol, void *request, size_t len)
{
	hark_autofd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	struct {
		struct nlmsghdr head;
		struct nlmsgerr status;
		char more[4096];
	} answer;

	if (fd < 0 || send(fd, request, len, 0) != (ssize_t)len)
		return failed();
	if (recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.head))
		return failed();
	return answer.head.nlmsg_type == NLMSG_ERROR ? -answer.status.error : 0;
}

static int step_veth(struct probe *probe)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
		struct rtattr info;
		struct rtattr kind;
		char name[4];
	} request = {
		.head = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = RTM_NEWLINK,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL},
		.info = {.rta_len = sizeof(request.info) + sizeof(request.kind) + 4,
			 .rta_type = IFLA_LINKINFO},
		.kind = {.rta_len = sizeof(request.kind) + 4, .rta_type = IFLA_INFO_KIND},
		.name = {'v', 'e', 't', 'h'},
	};

	if (probe->no_net)
		return probe->no_net;
	return netlink_ask(NETLINK_ROUTE, &request, sizeof(request));
}

static int step_nftables(struct probe *probe)
{
	struct {
		struct nlmsghdr head;
		struct nfgenmsg body;
	} request = {
		.head = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = NFNL_SUBSYS_NFTABLES * 256 + NFT_MSG_GETGEN,
			 .nlmsg_flags = NLM_F_REQUEST},
	};

	(void)probe;
	return netlink_ask(NETLINK_NETFILTER, &request, sizeof(request));
}

static int step_nflog(struct probe *probe)
{
	struct {
		struct nlmsghdr head;
		struct nfgenmsg body;
		struct nlattr attr;
		struct nfulnl_msg_config_cmd cmd;
		uint8_t pad[3];
	} request = {
		.head = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = NFNL_SUBSYS_ULOG * 256 + NFULNL_MSG_CONFIG,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
		.body = {.res_id = htons(PROBE_NLOG_GROUP)},
		.attr = {.nla_len = sizeof(request.attr) + sizeof(request.cmd),
			 .nla_type = NFULA_CFG_CMD},
		.cmd = {.command = NFULNL_CFG_CMD_BIND},
	};

	if (probe->no_net)
		return probe->no_net;
	return netlink_ask(NETLINK_NETFILTER, &request, sizeof(request));
}

/* File system --------------------------------------------------------------------------------*/

static int step_overlay(struct probe *probe)
{
	static const char *const folders[] = {"/tmp/lower", "/tmp/upper", "/tmp/work", "/tmp/all"};

	if (probe->no_mounts)
		return probe->no_mounts;
	if (mount("tmpfs", "/tmp", "tmpfs", 0, "size=64k"))
		return failed();
	for (int i = 0; i < 4; i++) {
		if (mkdir(folders[i], 0700))
			return failed();
	}
	if (mount("overlay", "/tmp/all", "overlay", 0,
		  "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work"))
		return failed();
	return mkdir("/tmp/all/x", 0700) ? failed() : 0;
}

/* A detached clone of the file system that workspaces lie on: nobody sees it. */
static int step_idmap(struct probe *probe)
{
	hark_autofd tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | O_CLOEXEC);
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};

	if (tree < 0)
		return failed();
	if (probe->userns < 0)
		return ENOTSUP;
	attr.userns_fd = (unsigned int)probe->userns;
	return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) ? failed()
											: 0;
}

static int step_openat2(struct probe *probe)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	hark_autofd fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

	(void)probe;
	return fd < 0 ? failed() : 0;
}

/* Processes ----------------------------------------------------------------------------------*/

static int step_pidfd(struct probe *probe)
{
	hark_autofd fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	(void)probe;
	return fd < 0 ? failed() : 0;
}

static int action_available(uint32_t action)
{
	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) ? failed() : 0;
}

static int step_seccomp(struct probe *probe)
{
	struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {.len = 1, .filter = code};
	int r = action_available(SECCOMP_RET_KILL_PROCESS);

	(void)probe;
	if (r)
		return r;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return failed();
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) ? failed() : 0;
}

static int step_seccomp_notify(struct probe *probe)
{
	(void)probe;
	return action_available(SECCOMP_RET_USER_NOTIF);
}

/* Rules that allow nothing: an open must then fail. Last step, since it cannot be undone. */
static int step_landlock(struct probe *probe)
{
	struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
	hark_autofd rules = -1;
	hark_autofd file = -1;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	if (abi < 0)
		return failed();
	rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_landlock_restrict_self, rules, 0))
		return failed();
	file = open("/proc/version", O_RDONLY | O_CLOEXEC);
	if (file >= 0 || errno != EACCES)
		return EPROTO;
	probe->value = (int32_t)abi;
	return 0;
}

/* Records ------------------------------------------------------------------------------------*/

static int step_btf(struct probe *probe)
{
	hark_autofd fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);

	(void)probe;
	return fd < 0 ? failed() : 0;
}

/* A ring and a program of the kind the sensors use; the whole set is loaded by a run itself. */
static int step_bpf(struct probe *probe)
{
	const struct bpf_insn code[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	hark_autofd ring = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "hark_probe", 0, 0,
					  (uint32_t)sysconf(_SC_PAGESIZE), NULL);
	hark_autofd program = -1;

	(void)probe;
	if (ring < 0)
		return failed();
	program = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "hark_probe", "GPL", code, 2, NULL);
	return program < 0 ? failed() : 0;
}

static int step_audit(struct probe *probe)
{
	hark_autofd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_AUDIT);
	struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_groups = AUDIT_NLGRP_READLOG};

	(void)probe;
	return fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) ? failed() : 0;
}

/* ---------------------------------------------------------------------------------------------*/

/* Order matters: the namespaces first, what closes doors last. */
static const struct {
	const char *name;
	step_fn run;
} STEPS[] = {
	{"audit", step_audit},
	{"btf", step_btf},
	{"bpf", step_bpf},
	{"user-ns", step_user_ns},
	{"mount-ns", step_mount_ns},
	{"net-ns", step_net_ns},
	{"ipc-ns", step_ipc_ns},
	{"uts-ns", step_uts_ns},
	{"cgroup-ns", step_cgroup_ns},
	{"pid-ns", step_pid_ns},
	{"veth", step_veth},
	{"tproxy", step_tproxy},
	{"ipv6", step_ipv6},
	{"nftables", step_nftables},
	{"nflog", step_nflog},
	{"overlay", step_overlay},
	{"idmap", step_idmap},
	{"openat2", step_openat2},
	{"pidfd", step_pidfd},
	{"seccomp", step_seccomp},
	{"seccomp-notify", step_seccomp_notify},
	{"landlock", step_landlock},
};

enum { STEP_COUNT = sizeof(STEPS) / sizeof(STEPS[0]) };

static _Noreturn void run_steps(struct hark_probe_result *results, uint32_t n, pid_t parent)
{
	struct probe probe = {.userns = -1, .no_net = ETIME, .no_mounts = ETIME};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	/* A handler of the parent must not run here, and a hanging step must end. */
	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(HARK_PROBE_SECONDS);
	for (uint32_t i = 0; i < n; i++) {
		errno = 0;
		probe.value = 0;
		results[i].err = STEPS[i].run(&probe);
		results[i].value = probe.value;
	}
	_exit(0);
}

int hark_probe_run(struct hark_probe_result *results, uint32_t max)
{
	uint32_t n = max < STEP_COUNT ? max : STEP_COUNT;
	size_t size = n * sizeof(*results);
	struct hark_probe_result *shared =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t parent = getpid();
	pid_t pid;

	if (shared == MAP_FAILED)
		return -errno;
	for (uint32_t i = 0; i < n; i++) {
		(void)snprintf(shared[i].name, sizeof(shared[i].name), "%s", STEPS[i].name);
		shared[i].err = ETIME;
	}
	pid = fork();
	if (!pid)
		run_steps(shared, n, parent);
	if (pid > 0) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		memcpy(results, shared, size);
	}
	(void)munmap(shared, size);
	return pid < 0 ? -EAGAIN : (int)n;
}
