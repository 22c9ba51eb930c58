// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Ethernet, IP and UDP around a packet: taken off before the pipeline, made anew after it. XDP
// only.
#pragma once

#include "packet.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#define ETHER_TYPE_IPV4 0x0800
#define ETHER_TYPE_IPV6 0x86dd
#define FAMILY_IPV4     2
#define FAMILY_IPV6     10
#define HOPS            64

// Clang warns of what the machines that run this don't mind.
#pragma clang diagnostic ignored "-Waddress-of-packed-member"

struct frame_v4 {
    struct ethhdr ethernet;
    struct iphdr ip;
    struct udphdr udp;
} __attribute__((packed));

struct frame_v6 {
    struct ethhdr ethernet;
    struct ipv6hdr ip;
    struct udphdr udp;
} __attribute__((packed));

_Static_assert(sizeof(struct frame_v4) == 42, "Ethernet, IPv4, UDP");
_Static_assert(sizeof(struct frame_v6) == 62 && sizeof(struct frame_v6) < HEADERS_BEFORE_MAX,
               "IPv6");

// An Ethernet address by halves: of arrays of bytes clang moves each.
struct mac {
    u16 halves[ETH_ALEN / 2];
};

// Fields that their struct's alignment would have taken apart.
STEP u16 half_at(const void *at)
{
    return *(const u16 *)at;
}

STEP u32 word_at(const void *at)
{
    return *(const u32 *)at;
}

STEP struct mac mac_at(const void *at)
{
    const u16 *halves = at;
    return (struct mac){{halves[0], halves[1], halves[2]}};
}

STEP void mac_to(void *at, struct mac mac)
{
    u16 *halves = at;
    halves[0] = mac.halves[0];
    halves[1] = mac.halves[1];
    halves[2] = mac.halves[2];
}

// Word by word, since it is volatile: a memcpy would take what it was when this was compiled. The
// words are constants by the time that the verifier sees them.
STEP u32 endpoint_word(u32 index)
{
    return ((const volatile u32 *)(const volatile void *)parameters.endpoint.ip)[index];
}

STEP void copy_endpoint(void *to, u32 from)
{
    for (u32 i = from / 4; i < 4; i++) {
        ((u32 *)to)[i - from / 4] = endpoint_word(i);
    }
}

STEP bool is_endpoint_v4(const struct iphdr *ip)
{
    return ip->daddr == endpoint_word(3);
}

STEP bool is_endpoint_v6(const struct ipv6hdr *ip)
{
    const u32 *to = (const u32 *)(const void *)&ip->daddr;
    for (u32 i = 0; i < 4; i++) {
        if (to[i] != endpoint_word(i)) {
            return false;
        }
    }
    return true;
}

// Whether the frame is for the switch; then where the packet begins, and who sent it.
STEP bool frame_parse(struct xdp_md *frame, struct call *call)
{
    void *data = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;
    struct ethhdr *ethernet = data;
    struct udphdr *udp = NULL;
    if ((void *)(ethernet + 1) > end) {
        return false;
    }
    u16 type = half_at(&ethernet->h_proto);
    if (type == to_be16(ETHER_TYPE_IPV4)) {
        struct frame_v4 *v4 = data;
        // Options and fragments are left to the kernel.
        if ((void *)(v4 + 1) > end || v4->ip.ihl != 5 || v4->ip.protocol != IPPROTO_UDP ||
            (half_at(&v4->ip.frag_off) & to_be16(0x3fff)) != 0 || !is_endpoint_v4(&v4->ip)) {
            return false;
        }
        call->from.ip[10] = 0xff;
        call->from.ip[11] = 0xff;
        *(u32 *)(void *)(call->from.ip + 12) = word_at(&v4->ip.saddr);
        udp = &v4->udp;
        call->at = sizeof(*v4);
    } else if (type == to_be16(ETHER_TYPE_IPV6)) {
        struct frame_v6 *v6 = data;
        if ((void *)(v6 + 1) > end || v6->ip.nexthdr != IPPROTO_UDP || !is_endpoint_v6(&v6->ip)) {
            return false;
        }
        const u64 *address = (const void *)&v6->ip.saddr;
        ((u64 *)(void *)call->from.ip)[0] = address[0];
        ((u64 *)(void *)call->from.ip)[1] = address[1];
        udp = &v6->udp;
        call->at = sizeof(*v6);
    }
    if (udp == NULL || udp->dest != to_be16(parameters.endpoint.port)) {
        return false;
    }
    call->from.port = from_be16(udp->source);
    return true;
}

STEP bool is_v6(const struct call *call)
{
    return call->at == sizeof(struct frame_v6);
}

STEP bool is_same_address(const struct address *a, const struct address *b)
{
    const u64 *x = (const void *)a->ip, *y = (const void *)b->ip;
    return x[0] == y[0] && x[1] == y[1];
}

STEP bool is_mapped_v4(const struct address *address)
{
    const u64 *words = (const void *)address->ip;
    const u32 *middle = (const void *)(address->ip + 8);
    return words[0] == 0 && *middle == to_be32(0xffffu);
}

// The receiver that the verdict names.
STEP bool frame_receiver(struct xdp_md *frame, struct call *call, u32 verdict, struct address *to)
{
    if (verdict == REPLY) {
        struct wire *wire = packet_view((struct packet *)(void *)frame, call);
        if (wire == NULL) {
            return false;
        }
        __builtin_memcpy(to->ip, &wire->origin_high, 16);
        to->port = from_be16(wire->origin_port);
        return true;
    }
    if (verdict == UP || verdict == DOWN) {
        const struct chain_place *place = &registers_of(call)->place;
        const u64 *ip = verdict == UP ? place->before : place->after;
        ((u64 *)(void *)to->ip)[0] = load_relaxed(&ip[0]);
        ((u64 *)(void *)to->ip)[1] = load_relaxed(&ip[1]);
        to->port =
            from_be16(load_relaxed(verdict == UP ? &place->before_port : &place->after_port));
        return to->port != 0;
    }
    u32 node = route_node(call->route, 0);
    for (u32 i = 1; i < REPLICAS_MAX && verdict == FORWARD_TO_TAIL; i++) {
        node = route_node(call->route, i) != NO_NODE ? route_node(call->route, i) : node;
    }
    struct address *address = bpf_map_lookup_elem(&node_addresses, &node);
    if (address == NULL || address->port == 0) {
        return false;
    }
    *to = *address;
    return true;
}

STEP void set_ports(struct udphdr *udp, const struct address *to, u32 bytes)
{
    udp->source = to_be16(parameters.endpoint.port);
    udp->dest = to_be16(to->port);
    udp->len = to_be16((u16)bytes);
    udp->check = 0;
}

STEP u16 fold(u32 sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (u16)sum;
}

// UDP over IPv4 may go without a checksum, and does: Ethernet's own protects it from hop to hop.
STEP bool frame_rewrite_v4(struct xdp_md *frame, const struct address *to, u32 bytes)
{
    struct frame_v4 *v4 = (void *)(long)frame->data;
    if ((void *)(v4 + 1) > (void *)(long)frame->data_end) {
        return false;
    }
    struct iphdr *ip = &v4->ip;
    *(u8 *)ip = 0x45;
    ip->tos = 0;
    ip->tot_len = to_be16((u16)(sizeof(*ip) + sizeof(struct udphdr) + bytes));
    ip->id = 0;
    ip->frag_off = to_be16(0x4000);
    ip->ttl = HOPS;
    ip->check = 0;
    copy_endpoint(&ip->saddr, 12);
    __builtin_memcpy(&ip->daddr, to->ip + 12, 4);
    // Of the fields as they were set: loads of halves of what was stored whole would wait for the
    // stores.
    u32 from = endpoint_word(3), length = ip->tot_len;
    u32 receiver = ip->daddr;
    u32 sum = to_be16(0x4500) + length + to_be16(0x4000) + to_be16(HOPS << 8 | IPPROTO_UDP);
    sum += (from & 0xffff) + (from >> 16) + (receiver & 0xffff) + (receiver >> 16);
    ip->check = (u16)~fold(sum);
    set_ports(&v4->udp, to, (u32)sizeof(struct udphdr) + bytes);
    return true;
}

#define CHECKSUM_CHUNK 512u

struct checksum {
    struct xdp_md *frame;
    u32 at;
    u32 left;
    u32 sum;
};

static long checksum_chunk(u32 index, void *with)
{
    struct checksum *checksum = with;
    struct scratch *scratch = packet_scratch();
    u32 bytes = checksum->left < CHECKSUM_CHUNK ? checksum->left : CHECKSUM_CHUNK;
    (void)index;
    forget(bytes);
    if (scratch == NULL || bytes == 0 || bytes > CHECKSUM_CHUNK) {
        return 1;
    }
    u32 whole = (bytes + 3) & ~3u;
    *(u32 *)(void *)(scratch->key + ((whole - 4) & (CHECKSUM_CHUNK - 1))) = 0;
    if (bpf_xdp_load_bytes(checksum->frame, checksum->at, scratch->key, bytes) != 0) {
        return 1;
    }
    forget(whole);
    if (whole == 0 || whole > CHECKSUM_CHUNK) {
        return 1;
    }
    checksum->sum = (u32)bpf_csum_diff(NULL, 0, (void *)scratch->key, whole, checksum->sum);
    checksum->at += bytes;
    checksum->left -= bytes;
    return 0;
}

// IPv6 knows no UDP without a checksum.
STEP bool frame_rewrite_v6(struct xdp_md *frame, const struct address *to, u32 bytes)
{
    struct frame_v6 *v6 = (void *)(long)frame->data;
    if ((void *)(v6 + 1) > (void *)(long)frame->data_end) {
        return false;
    }
    v6->ip.priority = 0;
    __builtin_memset(v6->ip.flow_lbl, 0, sizeof(v6->ip.flow_lbl));
    v6->ip.payload_len = to_be16((u16)(sizeof(struct udphdr) + bytes));
    v6->ip.hop_limit = HOPS;
    copy_endpoint(&v6->ip.saddr, 0);
    __builtin_memcpy(&v6->ip.daddr, to->ip, 16);
    set_ports(&v6->udp, to, (u32)sizeof(struct udphdr) + bytes);
    // The pseudo header's length and protocol; its addresses are summed where they lie, in front of
    // UDP.
    struct checksum checksum = {
        .frame = frame,
        .at = __builtin_offsetof(struct frame_v6, ip.saddr),
        .left = 32 + (u32)sizeof(struct udphdr) + bytes,
        .sum = (u32)to_be16((u16)(sizeof(struct udphdr) + bytes)) + to_be16(IPPROTO_UDP),
    };
    repeat(PACKET_BYTES_MAX / CHECKSUM_CHUNK + 1, checksum_chunk, &checksum);
    u16 check = (u16)~fold(checksum.sum);
    barrier();
    v6 = (void *)(long)frame->data;
    if ((void *)(v6 + 1) > (void *)(long)frame->data_end || checksum.left != 0) {
        return false;
    }
    v6->udp.check = check != 0 ? check : 0xffff;
    return true;
}

STEP bool set_hop(struct xdp_md *frame, struct mac from, struct mac to)
{
    struct ethhdr *ethernet = (void *)(long)frame->data;
    if ((void *)(ethernet + 1) > (void *)(long)frame->data_end) {
        return false;
    }
    mac_to(ethernet->h_source, from);
    mac_to(ethernet->h_dest, to);
    return true;
}

// Back to where the frame came from: whatever became of the packet, its Ethernet header is still in
// front.
STEP bool turn_back(struct xdp_md *frame)
{
    struct ethhdr *ethernet = (void *)(long)frame->data;
    if ((void *)(ethernet + 1) > (void *)(long)frame->data_end) {
        return false;
    }
    struct mac ours = mac_at(ethernet->h_dest);
    mac_to(ethernet->h_dest, mac_at(ethernet->h_source));
    mac_to(ethernet->h_source, ours);
    return true;
}

STEP void frame_unreached(const struct address *to)
{
    (void)bpf_ringbuf_output(&unreached, (void *)to, sizeof(*to), 0);
}

// The next hop by the kernel's own routing and neighbours. What is asked and answered is in the
// CPU's scratch memory: the stack has no room for it.
STEP int frame_route(struct xdp_md *frame, const struct call *call, const struct address *to,
                     u32 bytes)
{
    struct scratch *scratch = packet_scratch();
    if (scratch == NULL) {
        return XDP_DROP;
    }
    struct bpf_fib_lookup *hop = (void *)scratch->key;
    _Static_assert(sizeof(*hop) <= sizeof(scratch->key), "it fits");
    __builtin_memset(hop, 0, sizeof(*hop));
    hop->family = is_v6(call) ? FAMILY_IPV6 : FAMILY_IPV4;
    hop->l4_protocol = IPPROTO_UDP;
    hop->sport = to_be16(parameters.endpoint.port);
    hop->dport = to_be16(to->port);
    hop->tot_len = (u16)((is_v6(call) ? 40 : 20) + sizeof(struct udphdr) + bytes);
    hop->ifindex = frame->ingress_ifindex;
    if (is_v6(call)) {
        copy_endpoint(hop->ipv6_src, 0);
        __builtin_memcpy(hop->ipv6_dst, to->ip, 16);
    } else {
        copy_endpoint(&hop->ipv4_src, 12);
        __builtin_memcpy(&hop->ipv4_dst, to->ip + 12, 4);
    }
    long found = bpf_fib_lookup(frame, hop, sizeof(*hop), 0);
    if (found == BPF_FIB_LKUP_RET_NO_NEIGH) {
        frame_unreached(to);
    }
    if (found != BPF_FIB_LKUP_RET_SUCCESS ||
        !set_hop(frame, mac_at(hop->smac), mac_at(hop->dmac))) {
        return XDP_DROP;
    }
    return hop->ifindex == frame->ingress_ifindex ? XDP_TX : (int)bpf_redirect(hop->ifindex, 0);
}

STAGE int frame_send_on(struct xdp_md *frame, struct call *call, u32 verdict)
{
    struct address to = {0};
    u32 bytes = packet_length((struct packet *)(void *)frame, call);
    bool is_known = frame_receiver(frame, call, verdict, &to) && is_mapped_v4(&to) == !is_v6(call);
    bool is_whole = is_known && (is_v6(call) ? frame_rewrite_v6(frame, &to, bytes)
                                             : frame_rewrite_v4(frame, &to, bytes));
    int action = XDP_DROP;
    if (is_whole && is_same_address(&to, &call->from)) {
        action = turn_back(frame) ? XDP_TX : XDP_DROP;
    } else if (is_whole) {
        action = frame_route(frame, call, &to, bytes);
    }
    if (action == XDP_DROP) {
        count(call, (u32)COUNTER_COUNT + DROP_ROUTE);
    }
    return action;
}

// An answer to the sender of the request, over IPv4, needs nothing that isn't known: no receiver to
// be read from the packet, no route.
STEP int frame_send(struct xdp_md *frame, struct call *call, u32 verdict)
{
    bool goes_back = verdict == REPLY && call->stamps_origin && !is_v6(call);
    if (!goes_back) {
        return frame_send_on(frame, call, verdict);
    }
    u32 bytes = packet_length((struct packet *)(void *)frame, call);
    bool is_whole = frame_rewrite_v4(frame, &call->from, bytes) && turn_back(frame);
    return is_whole ? XDP_TX : XDP_DROP;
}
