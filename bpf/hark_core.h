/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hark's BPF programs use of the kernel, and nothing else: the few structs and fields they
 * read. Offsets are patched at load time (CO-RE), so only names matter here, never order or size.
 *
 * Rules. A field that moved between supported kernels (6.1 on) gets one struct per shape, its name
 * with ___ and a kernel version. No vmlinux.h: this file is what we depend on.
 */
#ifndef HARK_CORE_H
#define HARK_CORE_H

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s32 int32_t;
typedef __s64 int64_t;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct super_block {
	__u32 s_dev;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct inode___v6_1 {
	struct timespec64 i_ctime;
};

struct inode___v6_6 {
	struct timespec64 __i_ctime;
};

struct inode___v6_11 {
	__s64 i_ctime_sec;
	__u32 i_ctime_nsec;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	unsigned int f_mode;
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path pwd;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

/* One 64-bit number, or two 32-bit ones before Linux 6.3: the same bytes. */
typedef struct {
	__u64 val;
} kernel_cap_t;

struct cred {
	kuid_t uid;
	kgid_t gid;
	kuid_t euid;
	kgid_t egid;
	kernel_cap_t cap_effective;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	struct file *exe_file;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
};

struct thread_info {
	__u32 status;
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	int exit_code;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct files_struct *files;
	struct fs_struct *fs;
	const struct cred *cred;
	__u64 start_boottime;
	struct bpf_local_storage *bpf_storage;
};

struct linux_binprm {
	const char *filename;
};

struct kernel_siginfo {
	int si_code;
	union {
		struct {
			int _syscall;
			unsigned int _arch;
		} _sigsys;
	} _sifields;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__u32 skc_daddr;
	__u32 skc_rcv_saddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	unsigned long skc_flags;
};

struct sock {
	struct sock_common __sk_common;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct socket {
	short type;
	struct sock *sk;
};

struct sockaddr_un {
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_retrans;
};

#ifdef __TARGET_ARCH_x86
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r10;
	unsigned long orig_ax;
};
#endif

#pragma clang attribute pop

/* Values of the kernel's own enums and macros. Stable: user space or BPF sees them. */
enum hark_kernel_const {
	HARK_AF_UNIX = 1,
	HARK_AF_INET = 2,
	HARK_AF_INET6 = 10,
	HARK_ERRNO_MAX = 4095,       /* MAX_ERRNO */
	HARK_SIGSYS = 31,            /* SIGSYS */
	HARK_SYS_SECCOMP = 1,        /* si_code of a seccomp SIGSYS */
	HARK_CLONE_THREAD = 0x10000, /* CLONE_THREAD */
	HARK_GROUP_EXIT = 4,         /* SIGNAL_GROUP_EXIT */
	HARK_AT_FDCWD = -100,
	HARK_FMODE_WRITE = 2,
	HARK_S_IFMT = 0170000,
	HARK_S_IFREG = 0100000,
	HARK_CAP_SYS_ADMIN = 21,
	HARK_SOCK_DONE = 1, /* enum sock_flags: a FIN was received */
	HARK_ETH_IP = 0x0800,
	HARK_ETH_IPV6 = 0x86dd,
	HARK_IPPROTO_UDP = 17,
	HARK_NS_PER_S = 1000000000,
	HARK_NSEC_MASK = 0x7fffffff
};

#ifdef __TARGET_ARCH_x86
enum hark_x86_const {
	HARK_TS_COMPAT = 2,          /* thread_info.status: in a 32-bit system call */
	HARK_AUDIT_ARCH_64_BIT = 31, /* of AUDIT_ARCH_*: a 64-bit architecture */
	HARK_NR_OPEN = 2,
	HARK_NR_MMAP = 9,
	HARK_NR_MPROTECT = 10,
	HARK_NR_BRK = 12,
	HARK_NR_MREMAP = 25,
	HARK_NR_CONNECT = 42,
	HARK_NR_ACCEPT = 43,
	HARK_NR_BIND = 49,
	HARK_NR_CLONE = 56,
	HARK_NR_EXECVE = 59,
	HARK_NR_RENAME = 82,
	HARK_NR_RMDIR = 84,
	HARK_NR_CREAT = 85,
	HARK_NR_UNLINK = 87,
	HARK_NR_OPENAT = 257,
	HARK_NR_UNLINKAT = 263,
	HARK_NR_RENAMEAT = 264,
	HARK_NR_ACCEPT4 = 288,
	HARK_NR_RENAMEAT2 = 316,
	HARK_NR_SECCOMP = 317,
	HARK_NR_EXECVEAT = 322,
	HARK_NR_OPENAT2 = 437,
	HARK_NR_SIGRETURN = 15,
	HARK_NR_SIGRETURN_IA32 = 119,
	HARK_NR_RT_SIGRETURN_IA32 = 173
};

static __always_inline long hark_regs_nr(struct pt_regs *regs)
{
	return (long)regs->orig_ax;
}

static __always_inline _Bool hark_in_ia32(struct task_struct *task)
{
	return (task->thread_info.status & HARK_TS_COMPAT) != 0;
}

/* A sigreturn "returns" whatever the interrupted code had in the register. */
static __always_inline _Bool hark_is_sigreturn(__u32 nr, _Bool ia32)
{
	if (ia32)
		return nr == HARK_NR_SIGRETURN_IA32 || nr == HARK_NR_RT_SIGRETURN_IA32;
	return nr == HARK_NR_SIGRETURN;
}
#else
#error "hark's sensors know x86-64 only"
#endif

#endif
