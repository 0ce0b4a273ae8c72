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

struct file {
	struct inode *f_inode;
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

struct sock_common {
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

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_retrans;
};

#ifdef __TARGET_ARCH_x86
struct pt_regs {
	unsigned long orig_ax;
};
#endif

#pragma clang attribute pop

/* Values of the kernel's own enums and macros. Stable: user space or BPF sees them. */
enum hark_kernel_const {
	HARK_AF_INET = 2,
	HARK_AF_INET6 = 10,
	HARK_ERRNO_MAX = 4095,       /* MAX_ERRNO */
	HARK_SIGSYS = 31,            /* SIGSYS */
	HARK_SYS_SECCOMP = 1,        /* si_code of a seccomp SIGSYS */
	HARK_CLONE_THREAD = 0x10000, /* CLONE_THREAD */
	HARK_GROUP_EXIT = 4,         /* SIGNAL_GROUP_EXIT */
	HARK_SOCK_DONE = 1,          /* enum sock_flags: a FIN was received */
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
