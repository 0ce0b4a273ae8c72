/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a thread of a run did by a call that succeeded: sockets it bound, accepted or connected to
 * by a unix name, files it opened for writing, names it removed.
 *
 * Rules. Functions that the verifier looks at once each, not once for every way that leads to them:
 * they take numbers only. Called at the end of chosen calls only. What the kernel holds is read
 * there, so a path is the one it resolved and a port the one it chose. Text of the caller is copied
 * where the kernel holds nothing any more (a removed name), and says so by its place.
 */
#ifndef HARK_ACTS_H
#define HARK_ACTS_H

#include "hark_maps.h"

/* A file record is longer than the BPF stack: one per CPU, used by one program only. */
struct hark_file_space {
	struct hark_rec_file rec;
	__u8 var[HARK_FILE_PATH + HARK_FILE_NAME + 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hark_file_space);
} hark_file_spaces SEC(".maps");

static __always_inline struct file *hark_file_of(struct task_struct *task, int fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = 0;

	if (fd < 0 || (unsigned int)fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	(void)bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

/* Sockets ---------------------------------------------------------------------------------- */

static __always_inline void hark_fill_inet(struct hark_rec_socket *rec, struct sock *sk)
{
	rec->sport = BPF_CORE_READ(sk, __sk_common.skc_num);
	rec->dport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (rec->family == HARK_AF_INET) {
		bpf_core_read(rec->src, 4, &sk->__sk_common.skc_rcv_saddr);
		bpf_core_read(rec->dst, 4, &sk->__sk_common.skc_daddr);
		return;
	}
	bpf_core_read(rec->src, 16, &sk->__sk_common.skc_v6_rcv_saddr);
	bpf_core_read(rec->dst, 16, &sk->__sk_common.skc_v6_daddr);
}

/* Of a connected socket the name is its peer's. */
static __always_inline void hark_fill_unix(struct hark_rec_socket *rec, struct sock *sk)
{
	struct unix_sock *unix_sk = (struct unix_sock *)sk;
	struct unix_address *addr;
	int len;

	if (rec->op == HARK_SOCKET_CONNECT)
		unix_sk = (struct unix_sock *)BPF_CORE_READ(unix_sk, peer);
	addr = BPF_CORE_READ(unix_sk, addr);
	len = BPF_CORE_READ(addr, len) - 2; /* the family stands before the name */
	if (!addr || len <= 0)
		return;
	if (len > HARK_UNIX_NAME)
		len = HARK_UNIX_NAME;
	rec->name_len = (__u16)len;
	bpf_core_read(rec->name, sizeof(((struct sockaddr_un *)0)->sun_path),
		      &addr->name[0].sun_path);
}

__noinline int hark_tell_socket(__u64 run, int fd, __u16 op)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct socket *socket = BPF_CORE_READ(hark_file_of(task, fd), private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct hark_rec_socket *rec;

	if (family != HARK_AF_UNIX &&
	    (op == HARK_SOCKET_CONNECT || (family != HARK_AF_INET && family != HARK_AF_INET6)))
		return 0;
	rec = hark_reserve(run, HARK_RING_BULK, sizeof(*rec), HARK_REC_SOCKET,
			   (__u64)BPF_CORE_READ(sk, __sk_common.skc_cookie.counter));
	if (!rec)
		return 0;
	hark_fill_task(&rec->task, task);
	rec->op = op;
	rec->family = family;
	rec->type = (__u16)BPF_CORE_READ(socket, type);
	if (family == HARK_AF_UNIX)
		hark_fill_unix(rec, sk);
	else
		hark_fill_inet(rec, sk);
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

/* Files ------------------------------------------------------------------------------------- */

struct hark_walk {
	struct hark_file_space *space;
	struct mount *mount;
	struct dentry *dentry;
	__u32 len;
	__u32 cut;
};

/* One name of the path, or one mount point, on the way up. */
static long hark_walk_step(__u32 i, struct hark_walk *walk)
{
	struct dentry *dentry = walk->dentry;
	struct mount *mount = walk->mount;
	__u32 at = walk->len;
	long got;

	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
		walk->mount = BPF_CORE_READ(mount, mnt_parent);
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		return walk->mount == mount; /* the root of the mount namespace */
	}
	walk->dentry = BPF_CORE_READ(dentry, d_parent);
	if (walk->dentry == dentry)
		return 1;
	if (at > HARK_FILE_PATH - 256) {
		walk->cut = 1;
		return 1;
	}
	got = bpf_probe_read_kernel_str(walk->space->var + at, 256,
					BPF_CORE_READ(dentry, d_name.name));
	if (got > 0)
		walk->len = at + (__u32)got;
	return 0;
}

static __always_inline void hark_fill_path(struct hark_file_space *space, struct vfsmount *mnt,
					   struct dentry *dentry)
{
	struct hark_walk walk = {.space = space, .dentry = dentry};

	walk.mount = (void *)mnt - bpf_core_field_offset(struct mount, mnt);
	if (bpf_loop(HARK_FILE_DEPTH, hark_walk_step, &walk, 0) == HARK_FILE_DEPTH || walk.cut)
		space->rec.head.flags |= HARK_RECF_TRUNCATED;
	space->rec.path_len = (__u16)walk.len;
}

static __always_inline struct hark_file_space *hark_new_file(struct task_struct *task, __u32 op)
{
	__u32 zero = 0;
	struct hark_file_space *space = bpf_map_lookup_elem(&hark_file_spaces, &zero);

	if (!space)
		return 0;
	__builtin_memset(&space->rec, 0, sizeof(space->rec));
	hark_fill_head(&space->rec.head, 0, HARK_REC_FILE, 0, 0);
	hark_fill_task(&space->rec.task, task);
	space->rec.op = op;
	return space;
}

/* A descriptor that an open returned: told when it may write to a regular file. */
__noinline int hark_tell_open(__u64 run, int fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = hark_file_of(task, fd);
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct hark_file_space *space;

	if (!(BPF_CORE_READ(file, f_mode) & HARK_FMODE_WRITE) ||
	    (BPF_CORE_READ(inode, i_mode) & HARK_S_IFMT) != HARK_S_IFREG)
		return 0;
	space = hark_new_file(task, HARK_FILE_WRITE);
	if (!space)
		return 0;
	space->rec.ino = BPF_CORE_READ(inode, i_ino);
	space->rec.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	hark_fill_path(space, BPF_CORE_READ(file, f_path.mnt), BPF_CORE_READ(file, f_path.dentry));
	hark_put(run, HARK_RING_BULK, &space->rec.head,
		 (__u32)(sizeof(space->rec) + space->rec.path_len + 7) & ~7U, sizeof(*space));
	return 0;
}

/* A name that a call was given, and the folder that it began in. */
__noinline int hark_tell_name(__u64 run, int dirfd, __u64 name, __u32 op)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct hark_file_space *space = hark_new_file(task, op);
	struct file *dir = dirfd == HARK_AT_FDCWD ? 0 : hark_file_of(task, dirfd);
	struct vfsmount *mnt;
	struct dentry *dentry;
	__u32 at;
	long got;

	if (!space)
		return 0;
	if (dir) {
		mnt = BPF_CORE_READ(dir, f_path.mnt);
		dentry = BPF_CORE_READ(dir, f_path.dentry);
	} else {
		mnt = BPF_CORE_READ(task, fs, pwd.mnt);
		dentry = BPF_CORE_READ(task, fs, pwd.dentry);
	}
	hark_fill_path(space, mnt, dentry);
	at = space->rec.path_len;
	if (at > HARK_FILE_PATH)
		at = HARK_FILE_PATH;
	got = bpf_probe_read_user_str(space->var + at, HARK_FILE_NAME, (void *)name);
	if (got > 0)
		space->rec.name_len = (__u16)(got - 1);
	else
		space->rec.head.flags |= HARK_RECF_TRUNCATED;
	hark_put(run, HARK_RING_BULK, &space->rec.head,
		 (__u32)(sizeof(space->rec) + at + space->rec.name_len + 7) & ~7U, sizeof(*space));
	return 0;
}

/* A call that returned `ret` without an error. */
__noinline int hark_acted(__u64 run, __u32 nr, long ret)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());

	switch (nr) {
	case HARK_NR_OPEN:
	case HARK_NR_CREAT:
	case HARK_NR_OPENAT:
	case HARK_NR_OPENAT2:
		(void)hark_tell_open(run, (int)ret);
		break;
	case HARK_NR_BIND:
		(void)hark_tell_socket(run, (int)regs->di, HARK_SOCKET_BIND);
		break;
	case HARK_NR_ACCEPT:
	case HARK_NR_ACCEPT4:
		(void)hark_tell_socket(run, (int)ret, HARK_SOCKET_ACCEPT);
		break;
	case HARK_NR_CONNECT:
		(void)hark_tell_socket(run, (int)regs->di, HARK_SOCKET_CONNECT);
		break;
	case HARK_NR_UNLINK:
	case HARK_NR_RMDIR:
		(void)hark_tell_name(run, HARK_AT_FDCWD, regs->di, HARK_FILE_REMOVE);
		break;
	case HARK_NR_UNLINKAT:
		(void)hark_tell_name(run, (int)regs->di, regs->si, HARK_FILE_REMOVE);
		break;
	case HARK_NR_RENAME:
		(void)hark_tell_name(run, HARK_AT_FDCWD, regs->di, HARK_FILE_RENAME_FROM);
		(void)hark_tell_name(run, HARK_AT_FDCWD, regs->si, HARK_FILE_RENAME_TO);
		break;
	case HARK_NR_RENAMEAT:
	case HARK_NR_RENAMEAT2:
		(void)hark_tell_name(run, (int)regs->di, regs->si, HARK_FILE_RENAME_FROM);
		(void)hark_tell_name(run, (int)regs->dx, regs->r10, HARK_FILE_RENAME_TO);
		break;
	}
	return 0;
}

#endif
