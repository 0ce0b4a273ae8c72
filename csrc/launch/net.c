/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pair of network namespaces. A holds the agent and one veth; M holds the other end, no
 * process and no route out. Whatever enters M from A is delivered locally (AnyIP: a local default
 * route that only packets from A look at), so every address the agent dials is a listener in M.
 * That route must not go into table local: IPv6 would deliver the answers to itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

enum {
	TABLE = 100, /* of the AnyIP route */
	V4 = 4,
	V6 = 16,
	NLOG_RCVBUF = 4 << 20
};

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* One netlink request under construction. */
struct nl_req {
	union {
		struct nlmsghdr h;
		uint8_t bytes[1024];
	} u;
};

static void *nl_begin(struct nl_req *r, uint16_t type, uint16_t flags, size_t body)
{
	memset(r, 0, sizeof(*r));
	r->u.h.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
	r->u.h.nlmsg_type = type;
	r->u.h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	return r->u.bytes + NLMSG_HDRLEN;
}

static struct rtattr *nl_put(struct nl_req *r, uint16_t type, const void *data, size_t len)
{
	struct rtattr *a = (struct rtattr *)(void *)(r->u.bytes + NLMSG_ALIGN(r->u.h.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(len);
	if (len)
		memcpy(RTA_DATA(a), data, len);
	r->u.h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->u.h.nlmsg_len) + RTA_ALIGN(a->rta_len));
	return a;
}

static void nl_put_u32(struct nl_req *r, uint16_t type, uint32_t value)
{
	(void)nl_put(r, type, &value, sizeof(value));
}

static void nl_end_nest(const struct nl_req *r, struct rtattr *nest)
{
	nest->rta_len = (uint16_t)(r->u.bytes + r->u.h.nlmsg_len - (const uint8_t *)nest);
}

/* Send, wait for the acknowledgement. The kernel answers before sendto() returns. */
static int nl_talk(int fd, const struct nl_req *r, const char *what, struct hark_err *err)
{
	union {
		struct nlmsghdr h;
		uint8_t bytes[4096];
	} ans;
	struct nlmsgerr e;
	ssize_t n;

	if (send(fd, &r->u, r->u.h.nlmsg_len, 0) < 0)
		return hark_err_set(err, errno, "network: %s: %s", what, strerror(errno));
	n = recv(fd, &ans, sizeof(ans), MSG_DONTWAIT);
	if (n < (ssize_t)NLMSG_LENGTH(sizeof(e)) || ans.h.nlmsg_type != NLMSG_ERROR)
		return hark_err_set(err, EPROTO, "network: %s: no acknowledgement", what);
	memcpy(&e, ans.bytes + NLMSG_HDRLEN, sizeof(e));
	if (e.error)
		return hark_err_set(err, -e.error, "network: %s: %s", what, strerror(-e.error));
	return 0;
}

static int rtnl_open(struct hark_err *err)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return hark_err_set(err, errno, "network: netlink: %s", strerror(errno));
	return fd;
}

static int add_veth(int fd, int peer_ns, struct hark_err *err)
{
	static const uint8_t mac_m[6] = {0x02, 'h', 'a', 'r', 'k', 1};
	static const uint8_t mac_a[6] = {0x02, 'h', 'a', 'r', 'k', 2};
	struct rtattr *info;
	struct rtattr *data;
	struct rtattr *peer;
	struct nl_req r;

	(void)nl_begin(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
	(void)nl_put(&r, IFLA_IFNAME, "m0", 3);
	(void)nl_put(&r, IFLA_ADDRESS, mac_m, sizeof(mac_m));
	info = nl_put(&r, IFLA_LINKINFO, NULL, 0);
	(void)nl_put(&r, IFLA_INFO_KIND, "veth", 4);
	data = nl_put(&r, IFLA_INFO_DATA, NULL, 0);
	peer = nl_put(&r, VETH_INFO_PEER, NULL, 0);
	r.u.h.nlmsg_len += (uint32_t)sizeof(struct ifinfomsg);
	(void)nl_put(&r, IFLA_IFNAME, "eth0", 5);
	(void)nl_put(&r, IFLA_ADDRESS, mac_a, sizeof(mac_a));
	nl_put_u32(&r, IFLA_NET_NS_FD, (uint32_t)peer_ns);
	nl_end_nest(&r, peer);
	nl_end_nest(&r, data);
	nl_end_nest(&r, info);
	return nl_talk(fd, &r, "veth pair", err);
}

static int link_up(int fd, const char *name, struct hark_err *err)
{
	struct ifinfomsg *m;
	struct nl_req r;

	m = nl_begin(&r, RTM_NEWLINK, 0, sizeof(*m));
	m->ifi_index = (int)if_nametoindex(name);
	m->ifi_flags = IFF_UP;
	m->ifi_change = IFF_UP;
	return nl_talk(fd, &r, name, err);
}

static int add_addr(int fd, const char *name, const uint8_t *addr, size_t len, uint8_t prefix,
		    struct hark_err *err)
{
	struct ifaddrmsg *m;
	struct nl_req r;

	m = nl_begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));
	m->ifa_family = len == V4 ? AF_INET : AF_INET6;
	m->ifa_prefixlen = prefix;
	m->ifa_flags = len == V6 ? IFA_F_NODAD : 0;
	m->ifa_index = if_nametoindex(name);
	(void)nl_put(&r, IFA_LOCAL, addr, len);
	(void)nl_put(&r, IFA_ADDRESS, addr, len);
	return nl_talk(fd, &r, "address", err);
}

/* Default route: by gateway (A), or local through `lo` in TABLE (M). */
static int add_default(int fd, const uint8_t *gateway, size_t len, struct hark_err *err)
{
	struct rtmsg *m;
	struct nl_req r;

	m = nl_begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));
	m->rtm_family = len == V4 ? AF_INET : AF_INET6;
	m->rtm_table = gateway ? RT_TABLE_MAIN : TABLE;
	m->rtm_protocol = RTPROT_STATIC;
	m->rtm_scope = gateway ? RT_SCOPE_UNIVERSE : RT_SCOPE_HOST;
	m->rtm_type = gateway ? RTN_UNICAST : RTN_LOCAL;
	if (gateway)
		(void)nl_put(&r, RTA_GATEWAY, gateway, len);
	else
		nl_put_u32(&r, RTA_OIF, if_nametoindex("lo"));
	return nl_talk(fd, &r, "default route", err);
}

static int add_rule(int fd, uint8_t family, struct hark_err *err)
{
	struct fib_rule_hdr *m;
	struct nl_req r;

	m = nl_begin(&r, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, sizeof(*m));
	m->family = family;
	m->action = FR_ACT_TO_TBL;
	m->table = TABLE;
	(void)nl_put(&r, FRA_IIFNAME, "m0", 3);
	return nl_talk(fd, &r, "routing rule", err);
}

static int enter(int ns, struct hark_err *err)
{
	if (setns(ns, CLONE_NEWNET) < 0)
		return hark_err_set(err, errno, "network: setns: %s", strerror(errno));
	return 0;
}

static int open_self_ns(struct hark_err *err)
{
	int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return hark_err_set(err, errno, "network: /proc/self/ns/net: %s", strerror(errno));
	return fd;
}

/* Make a namespace and step into it. With IPv6, duplicate address detection is off before any
 * interface exists: it would stall the first connect for 3 seconds. */
static int new_ns(bool ipv6, struct hark_err *err)
{
	if (unshare(CLONE_NEWNET) < 0) {
		(void)hark_err_set(err, errno, "network namespace: %s", strerror(errno));
		return hark_err_hint(err, "hark needs CAP_SYS_ADMIN and network namespaces");
	}
	if (ipv6 && hark_fd_put(AT_FDCWD, "/proc/sys/net/ipv6/conf/default/accept_dad", "0", err))
		return -1;
	return open_self_ns(err);
}

/* Addresses as they stand in the plan. */
struct net_addrs {
	const uint8_t *m4, *a4, *m6, *a6;
	uint8_t len4, len6;
};

static int configure_m(struct launch_net *net, int fd, const struct net_addrs *ad,
		       struct hark_err *err)
{
	if (add_veth(fd, net->a, err) || link_up(fd, "lo", err) ||
	    add_addr(fd, "m0", ad->m4, V4, ad->len4, err))
		return -1;
	if (net->ipv6 && add_addr(fd, "m0", ad->m6, V6, ad->len6, err))
		return -1;
	if (link_up(fd, "m0", err) || add_rule(fd, AF_INET, err) || add_default(fd, NULL, V4, err))
		return -1;
	if (!net->ipv6)
		return 0;
	return add_rule(fd, AF_INET6, err) || add_default(fd, NULL, V6, err) ? -1 : 0;
}

static int configure_a(struct launch_net *net, int fd, const struct net_addrs *ad,
		       struct hark_err *err)
{
	if (link_up(fd, "lo", err) || add_addr(fd, "eth0", ad->a4, V4, ad->len4, err))
		return -1;
	if (net->ipv6 && add_addr(fd, "eth0", ad->a6, V6, ad->len6, err))
		return -1;
	if (link_up(fd, "eth0", err) || add_default(fd, ad->m4, V4, err))
		return -1;
	return net->ipv6 ? add_default(fd, ad->m6, V6, err) : 0;
}

static int read_cookie(struct launch_net *net, int fd, struct hark_err *err)
{
	socklen_t len = sizeof(net->cookie);

	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &net->cookie, &len) < 0)
		return hark_err_set(err, errno, "network: netns cookie: %s", strerror(errno));
	return 0;
}

/* Each socket belongs to the namespace it was made in. */
static int build_pair(struct launch_net *net, const struct net_addrs *ad, struct hark_err *err)
{
	hark_autofd in_a = -1;
	hark_autofd in_m = -1;

	net->a = new_ns(net->ipv6, err);
	if (net->a < 0)
		return -1;
	in_a = rtnl_open(err);
	if (in_a < 0 || read_cookie(net, in_a, err))
		return -1;
	net->m = new_ns(net->ipv6, err);
	if (net->m < 0)
		return -1;
	in_m = rtnl_open(err);
	if (in_m < 0 || configure_m(net, in_m, ad, err))
		return -1;
	if (enter(net->a, err) || configure_a(net, in_a, ad, err))
		return -1;
	return 0;
}

int step_netns(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	struct net_addrs ad;
	int r;

	ad.m4 = hark_cur_bytes(&cur, V4);
	ad.a4 = hark_cur_bytes(&cur, V4);
	ad.len4 = hark_cur_u8(&cur);
	ad.m6 = hark_cur_bytes(&cur, V6);
	ad.a6 = hark_cur_bytes(&cur, V6);
	ad.len6 = hark_cur_u8(&cur);
	l->net.ipv6 = hark_cur_u8(&cur) != 0;
	l->net.host = open_self_ns(err);
	if (l->net.host < 0)
		return -1;
	r = build_pair(&l->net, &ad, err);
	return enter(l->net.host, err) || r ? -1 : 0;
}

static int set_int(int fd, int level, int name, int value, struct hark_err *err)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)) < 0)
		return hark_err_set(err, errno, "listener: option %d: %s", name, strerror(errno));
	return 0;
}

static int listener_options(int fd, bool v6, bool udp, struct hark_err *err)
{
	if (set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1, err))
		return -1;
	if (!v6 && set_int(fd, IPPROTO_IP, IP_TRANSPARENT, 1, err))
		return -1;
	if (!v6 && udp && set_int(fd, IPPROTO_IP, IP_PKTINFO, 1, err))
		return -1;
	if (v6 && set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1, err))
		return -1;
	if (v6 && set_int(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1, err))
		return -1;
	if (v6 && udp && set_int(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1, err))
		return -1;
	return 0;
}

/* A bound, transparent, non-blocking socket on all addresses; TCP ones listen. */
static int make_listener(bool v6, bool udp, uint16_t port, int backlog, struct hark_err *err)
{
	const int type = (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
	hark_autofd fd = socket(v6 ? AF_INET6 : AF_INET, type, 0);
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const struct sockaddr *sa = v6 ? (const void *)&a6 : (const void *)&a4;

	if (fd < 0)
		return hark_err_set(err, errno, "listener: socket: %s", strerror(errno));
	if (listener_options(fd, v6, udp, err))
		return -1;
	if (bind(fd, sa, v6 ? sizeof(a6) : sizeof(a4)) < 0 || (!udp && listen(fd, backlog) < 0))
		return hark_err_set(err, errno, "listener: port %u: %s", port, strerror(errno));
	return hark_fd_take(&fd);
}

/* Where the kernel has no IPv6 the agent has none either: an eventfd that never becomes ready
 * keeps the shape of NET_READY. */
static int make_listener6(const struct launch_net *net, bool udp, uint16_t port, int backlog,
			  struct hark_err *err)
{
	if (net->ipv6)
		return make_listener(true, udp, port, backlog, err);
	return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int make_listeners(struct launch_net *net, struct hark_cur cur, struct hark_err *err)
{
	uint16_t tcp = hark_cur_u16(&cur);
	uint16_t dns = hark_cur_u16(&cur);
	int backlog = hark_cur_u16(&cur);

	net->tcp4 = make_listener(false, false, tcp, backlog, err);
	if (net->tcp4 < 0)
		return -1;
	net->tcp6 = make_listener6(net, false, tcp, backlog, err);
	if (net->tcp6 < 0)
		return -1;
	net->udp4 = make_listener(false, true, dns, 0, err);
	if (net->udp4 < 0)
		return -1;
	net->udp6 = make_listener6(net, true, dns, 0, err);
	if (net->udp6 < 0)
		return -1;
	net->dns4 = make_listener(false, false, dns, backlog, err);
	if (net->dns4 < 0)
		return -1;
	net->dns6 = make_listener6(net, false, dns, backlog, err);
	return net->dns6 < 0 ? -1 : 0;
}

int step_listen(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	int r;

	if (enter(l->net.m, err))
		return -1;
	r = make_listeners(&l->net, op->body, err);
	return enter(l->net.host, err) || r ? -1 : 0;
}

static int nflog_config(int fd, uint16_t group, uint16_t attr, const void *data, size_t len,
			struct hark_err *err)
{
	struct nfgenmsg *m;
	struct nl_req r;

	m = nl_begin(&r, (NFNL_SUBSYS_ULOG << 8) | NFULNL_MSG_CONFIG, 0, sizeof(*m));
	m->nfgen_family = AF_UNSPEC;
	m->res_id = htons(group);
	(void)nl_put(&r, attr, data, len);
	return nl_talk(fd, &r, "nflog", err);
}

/* QTHRESH 1: the default of 100 records or a second would lose the tail of a short run. SEQ: a
 * gap in the numbers is a loss. */
static int nflog_bind(int fd, uint16_t group, uint32_t copy, struct hark_err *err)
{
	const struct nfulnl_msg_config_cmd cmd = {.command = NFULNL_CFG_CMD_BIND};
	const struct nfulnl_msg_config_mode mode = {.copy_range = htonl(copy),
						    .copy_mode = NFULNL_COPY_PACKET};
	const uint32_t one = htonl(1);
	const uint16_t flags = htons(NFULNL_CFG_F_SEQ);

	if (nflog_config(fd, group, NFULA_CFG_CMD, &cmd, sizeof(cmd), err) ||
	    nflog_config(fd, group, NFULA_CFG_MODE, &mode, sizeof(mode), err) ||
	    nflog_config(fd, group, NFULA_CFG_QTHRESH, &one, sizeof(one), err) ||
	    nflog_config(fd, group, NFULA_CFG_FLAGS, &flags, sizeof(flags), err))
		return -1;
	return set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, NLOG_RCVBUF, err);
}

int step_nflog(struct launch *l, const struct plan_op *op, struct hark_err *err)
{
	struct hark_cur cur = op->body;
	uint16_t group = hark_cur_u16(&cur);
	uint32_t copy = hark_cur_u32(&cur);
	int r = -1;

	if (enter(l->net.m, err))
		return -1;
	l->net.nflog = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	if (l->net.nflog < 0)
		(void)hark_err_set(err, errno, "nflog: %s", strerror(errno));
	else
		r = nflog_bind(l->net.nflog, group, copy, err);
	return enter(l->net.host, err) || r ? -1 : 0;
}

void net_init(struct launch_net *net)
{
	memset(net, 0, sizeof(*net));
	net->host = net->m = net->a = -1;
	net->tcp4 = net->tcp6 = net->udp4 = net->udp6 = net->nflog = -1;
	net->dns4 = net->dns6 = -1;
}

void net_fini(struct launch_net *net)
{
	hark_fd_close(&net->host);
	hark_fd_close(&net->m);
	hark_fd_close(&net->a);
	hark_fd_close(&net->tcp4);
	hark_fd_close(&net->tcp6);
	hark_fd_close(&net->udp4);
	hark_fd_close(&net->udp6);
	hark_fd_close(&net->dns4);
	hark_fd_close(&net->dns6);
	hark_fd_close(&net->nflog);
}
