/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets of a run: which thread connects from which port to where, and what a socket carried.
 *
 * Rules. These programs are attached to the run's cgroup and never refuse anything. The owner of a
 * socket is the thread that called connect or sendto, noted with the socket there, because the
 * other hooks run in interrupts too; without a note the owner stays zero. A program cannot ask for
 * the current thread in sockops on Linux 6.1.
 */
#include "hark_maps.h"

/* Which run a program is attached for; filled in by the loader right after the link exists. */
struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_STORAGE);
	__type(key, __u64);
	__type(value, __u64);
} hark_attached SEC(".maps");

struct hark_owner {
	struct hark_rec_task task;
	__u64 netns;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hark_owner);
} hark_owners SEC(".maps");

/* A run's UDP ports and peers, and who was told last as the sender. */
struct hark_flow_key {
	__u64 run;
	__u8 src[16];
	__u8 dst[16];
	__u16 sport;
	__u16 dport;
	__u32 pad0;
};

struct hark_flow_sender {
	__u64 cookie;
	__u64 start_ns;
	__u32 tgid;
	__u32 pad0;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, HARK_FLOWS_MAX);
	__type(key, struct hark_flow_key);
	__type(value, struct hark_flow_sender);
} hark_flows SEC(".maps");

static __always_inline __u64 hark_attached_run(void)
{
	__u64 *run = bpf_get_local_storage(&hark_attached, 0);

	return run ? *run : 0;
}

static __always_inline int hark_own(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct hark_owner *owner;

	if (!sk)
		return 1;
	owner = bpf_sk_storage_get(&hark_owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!owner)
		return 1;
	hark_fill_task(&owner->task, bpf_get_current_task_btf());
	owner->netns = bpf_get_netns_cookie(ctx);
	return 1;
}

SEC("cgroup/connect4")
int hark_connect4(struct bpf_sock_addr *ctx)
{
	return hark_own(ctx);
}

SEC("cgroup/connect6")
int hark_connect6(struct bpf_sock_addr *ctx)
{
	return hark_own(ctx);
}

SEC("cgroup/sendmsg4")
int hark_sendmsg4(struct bpf_sock_addr *ctx)
{
	return hark_own(ctx);
}

SEC("cgroup/sendmsg6")
int hark_sendmsg6(struct bpf_sock_addr *ctx)
{
	return hark_own(ctx);
}

static __always_inline void hark_fill_owner(struct hark_rec_task *task, __u64 *netns,
					    struct hark_owner *owner)
{
	if (!owner)
		return;
	*task = owner->task;
	if (netns)
		*netns = owner->netns;
}

/* Addresses of a socket; a mapped IPv4 address becomes the IPv4 address it is. */
static __always_inline void hark_fill_addresses(struct hark_rec_flow *rec, struct bpf_sock_ops *ctx)
{
	__u32 *src = (__u32 *)rec->src;
	__u32 *dst = (__u32 *)rec->dst;

	rec->family = HARK_AF_INET;
	if (ctx->family == HARK_AF_INET) {
		src[0] = ctx->local_ip4;
		dst[0] = ctx->remote_ip4;
		return;
	}
	dst[0] = ctx->remote_ip6[0];
	dst[1] = ctx->remote_ip6[1];
	dst[2] = ctx->remote_ip6[2];
	dst[3] = ctx->remote_ip6[3];
	src[3] = ctx->local_ip6[3];
	if (!dst[0] && !dst[1] && dst[2] == bpf_htonl(0xffff)) {
		dst[0] = dst[3];
		src[0] = src[3];
		dst[2] = dst[3] = src[3] = 0;
		return;
	}
	src[0] = ctx->local_ip6[0];
	src[1] = ctx->local_ip6[1];
	src[2] = ctx->local_ip6[2];
	rec->family = HARK_AF_INET6;
}

/* The local port is chosen and the SYN has not left: an accept elsewhere cannot be earlier. */
static __always_inline void hark_tell_connect(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
	struct hark_owner *owner = bpf_sk_storage_get(&hark_owners, sk, 0, 0);
	struct hark_rec_flow *rec =
		hark_reserve(hark_attached_run(), HARK_RING_SOCKET, sizeof(*rec), HARK_REC_CONNECT,
			     bpf_get_socket_cookie(ctx));

	if (!rec)
		return;
	hark_fill_owner(&rec->task, &rec->netns, owner);
	hark_fill_addresses(rec, ctx);
	rec->sport = (__u16)ctx->local_port;
	rec->dport = (__u16)bpf_ntohl(ctx->remote_port);
	bpf_ringbuf_submit(rec, 0);
}

static __always_inline void hark_tell_close(struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
	struct hark_owner *owner = bpf_sk_storage_get(&hark_owners, sk, 0, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct hark_rec_sock_close *rec =
		hark_reserve(hark_attached_run(), HARK_RING_SOCKET, sizeof(*rec),
			     HARK_REC_SOCK_CLOSE, bpf_get_socket_cookie(ctx));
	unsigned long flags;

	if (!rec)
		return;
	hark_fill_owner(&rec->task, 0, owner);
	if (tcp) {
		rec->tx_bytes = tcp->bytes_sent - tcp->bytes_retrans;
		rec->rx_bytes = tcp->bytes_received;
		flags = tcp->inet_conn.icsk_inet.sk.__sk_common.skc_flags;
		/* The kernel counts the peer's FIN as a byte. */
		if (rec->rx_bytes && (flags >> HARK_SOCK_DONE & 1))
			rec->rx_bytes--;
	}
	bpf_ringbuf_submit(rec, 0);
}

SEC("sockops")
int hark_sockops(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
		hark_tell_connect(ctx, sk);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		(void)bpf_get_socket_cookie(ctx); /* gives it one, for who accepts it */
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] == BPF_TCP_CLOSE)
			hark_tell_close(ctx, sk);
		break;
	}
	return 1;
}

/* Processes that a socket of a run was used by, beside the one that connected it. */
struct hark_users {
	__u32 tgid[HARK_USERS];
	__u32 n;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hark_users);
} hark_users SEC(".maps");

/* Whether this process is a new one; it is one from now on. Above HARK_USERS all are new. */
static __always_inline _Bool hark_is_new_user(struct hark_users *users, __u32 tgid)
{
	int i;

#pragma unroll
	for (i = 0; i < HARK_USERS; i++)
		if (users->tgid[i] == tgid)
			return 0;
	if (users->n < HARK_USERS)
		users->tgid[users->n & (HARK_USERS - 1)] = tgid;
	users->n++;
	return 1;
}

static __always_inline int hark_used(struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct hark_thread *thread = hark_thread_known(task);
	__u16 family = sk->__sk_common.skc_family;
	struct hark_rec_socket *rec;
	struct hark_owner *owner;
	struct hark_users *users;
	__u32 tgid;

	if (!thread || !thread->run || (family != HARK_AF_INET && family != HARK_AF_INET6))
		return 0;
	tgid = (__u32)(bpf_get_current_pid_tgid() >> 32);
	owner = bpf_sk_storage_get(&hark_owners, sk, 0, 0);
	if (owner && owner->task.tgid == tgid)
		return 0;
	users = bpf_sk_storage_get(&hark_users, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!users || !hark_is_new_user(users, tgid))
		return 0;
	rec = hark_reserve(thread->run, HARK_RING_BULK, sizeof(*rec), HARK_REC_SOCKET,
			   (__u64)sk->__sk_common.skc_cookie.counter);
	if (!rec)
		return 0;
	hark_fill_task(&rec->task, task);
	rec->op = HARK_SOCKET_USE;
	rec->family = family;
	bpf_ringbuf_submit(rec, 0);
	return 0;
}

/* In the process that sends or receives, from Linux 6.3 on. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(hark_sent, struct sock *sk, int ret, int flags)
{
	return hark_used(sk);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(hark_received, struct sock *sk, int ret, int flags)
{
	return hark_used(sk);
}

struct hark_ipv4 {
	__u8 version_len;
	__u8 tos;
	__u16 len;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 check;
	__u8 src[4];
	__u8 dst[4];
};

struct hark_ipv6 {
	__u8 version_class[8];
	__u8 src[16];
	__u8 dst[16];
};

enum hark_packet_const {
	HARK_IPV4_OFFSET_MASK = 0x1fff,
	HARK_IPV6_HEADER = 40,
	HARK_IPV6_NEXT = 6,       /* place of the next-header byte */
	HARK_IPV6_EXTENSIONS = 6, /* extension headers walked */
	HARK_IPV6_HOP = 0,
	HARK_IPV6_ROUTING = 43,
	HARK_IPV6_DEST = 60
};

/* Offset of the UDP header and the addresses, or 0 when the packet is not a first UDP fragment. */
static __always_inline __u32 hark_udp_in_ipv4(struct __sk_buff *skb, struct hark_flow_key *key)
{
	struct hark_ipv4 ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.protocol != HARK_IPPROTO_UDP ||
	    (ip.fragment & bpf_htons(HARK_IPV4_OFFSET_MASK)))
		return 0;
	__builtin_memcpy(key->src, ip.src, sizeof(ip.src));
	__builtin_memcpy(key->dst, ip.dst, sizeof(ip.dst));
	return (__u32)(ip.version_len & 15) * 4;
}

static __always_inline __u32 hark_udp_in_ipv6(struct __sk_buff *skb, struct hark_flow_key *key)
{
	__u32 offset = HARK_IPV6_HEADER;
	struct hark_ipv6 ip;
	__u8 ext[2];
	__u8 next;
	int i;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return 0;
	__builtin_memcpy(key->src, ip.src, sizeof(ip.src));
	__builtin_memcpy(key->dst, ip.dst, sizeof(ip.dst));
	next = ip.version_class[HARK_IPV6_NEXT];
#pragma unroll
	for (i = 0; i < HARK_IPV6_EXTENSIONS; i++) {
		if (next == HARK_IPPROTO_UDP)
			return offset;
		if (next != HARK_IPV6_HOP && next != HARK_IPV6_ROUTING && next != HARK_IPV6_DEST)
			return 0;
		if (bpf_skb_load_bytes(skb, offset, ext, sizeof(ext)))
			return 0;
		next = ext[0];
		offset += ((__u32)ext[1] + 1) * 8;
	}
	return 0;
}

static __always_inline void hark_tell_flow(struct hark_flow_key *key, __u64 cookie,
					   struct hark_owner *owner, __u16 family)
{
	struct hark_rec_flow *rec =
		hark_reserve(key->run, HARK_RING_BULK, sizeof(*rec), HARK_REC_UDP_FLOW, cookie);

	if (!rec)
		return;
	hark_fill_owner(&rec->task, &rec->netns, owner);
	__builtin_memcpy(rec->src, key->src, sizeof(rec->src));
	__builtin_memcpy(rec->dst, key->dst, sizeof(rec->dst));
	rec->sport = key->sport;
	rec->dport = key->dport;
	rec->family = family;
	bpf_ringbuf_submit(rec, 0);
}

/* Told when a socket sends to a peer for the first time, and when a port changes hands: another
 * socket sends from it, or another process by the same socket. */
SEC("cgroup_skb/egress")
int hark_egress(struct __sk_buff *skb)
{
	struct hark_flow_key key = {};
	_Bool ipv4 = skb->protocol == bpf_htons(HARK_ETH_IP);
	__u32 offset = ipv4 ? hark_udp_in_ipv4(skb, &key) : hark_udp_in_ipv6(skb, &key);
	struct hark_flow_sender sender = {};
	struct hark_flow_sender *told;
	struct hark_owner *owner = 0;
	struct bpf_sock *sk = skb->sk;
	__u16 ports[2];

	if (!offset || bpf_skb_load_bytes(skb, offset, ports, sizeof(ports)))
		return 1;
	key.run = hark_attached_run();
	key.sport = bpf_ntohs(ports[0]);
	key.dport = bpf_ntohs(ports[1]);
	sender.cookie = bpf_get_socket_cookie(skb);
	if (sk)
		owner = bpf_sk_storage_get(&hark_owners, sk, 0, 0);
	if (owner) {
		sender.start_ns = owner->task.start_ns;
		sender.tgid = owner->task.tgid;
	}
	told = bpf_map_lookup_elem(&hark_flows, &key);
	if (told && told->cookie == sender.cookie && told->start_ns == sender.start_ns &&
	    told->tgid == sender.tgid)
		return 1;
	if (!bpf_map_update_elem(&hark_flows, &key, &sender, BPF_ANY))
		hark_tell_flow(&key, sender.cookie, owner, ipv4 ? HARK_AF_INET : HARK_AF_INET6);
	return 1;
}

char LICENSE[] SEC("license") = "GPL";
