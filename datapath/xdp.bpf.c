// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The pipeline in the kernel.
//
// `switchback` takes frames of an interface: Ethernet, IPv4 or IPv6, UDP to the switch's port.
// `switchback_control` is never attached: the agent runs it by BPF_PROG_TEST_RUN on a bare packet. Sending
// answers on (addresses, checksums, neighbours) comes with the loader; until then verdicts map to XDP's own,
// and nothing attaches this.
#include "pipeline.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

char license_of_program[] SEC("license") = "Dual BSD/GPL";

#define ETHER_TYPE_IPV4 0x0800
#define ETHER_TYPE_IPV6 0x86dd

// Where the application's packet begins, with the sender filled in; 0: not for us.
STEP u32 headers(struct xdp_md *frame, struct address *from)
{
    void *data = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;
    struct ethhdr *ethernet = data;
    struct udphdr *udp = NULL;
    if ((void *)(ethernet + 1) > end) {
        return 0;
    }
    if (ethernet->h_proto == to_be16(ETHER_TYPE_IPV4)) {
        struct iphdr *ip = (void *)(ethernet + 1);
        // Options and fragments are left to the kernel.
        if ((void *)(ip + 1) > end || ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
            (ip->frag_off & to_be16(0x3fff)) != 0) {
            return 0;
        }
        from->ip[10] = 0xff;
        from->ip[11] = 0xff;
        __builtin_memcpy(from->ip + 12, &ip->saddr, 4);
        udp = (void *)(ip + 1);
    } else if (ethernet->h_proto == to_be16(ETHER_TYPE_IPV6)) {
        struct ipv6hdr *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP) {
            return 0;
        }
        __builtin_memcpy(from->ip, &ip->saddr, 16);
        udp = (void *)(ip + 1);
    }
    if (udp == NULL || (void *)(udp + 1) > end || udp->dest != to_be16(SWITCH_PORT)) {
        return 0;
    }
    from->port = from_be16(udp->source);
    return (u32)((void *)(udp + 1) - data);
}

STEP int action_of(u32 verdict)
{
    return is_drop(verdict) ? XDP_DROP : XDP_TX;
}

SEC("xdp")
int switchback(struct xdp_md *frame)
{
    struct call call = {.location = NO_LOCATION};
    call.at = headers(frame, &call.from);
    return call.at == 0 ? XDP_PASS : action_of(pipeline((struct packet *)(void *)frame, &call));
}

SEC("xdp")
int switchback_control(struct xdp_md *frame)
{
    struct call call = {.location = NO_LOCATION, .injected = true};
    return action_of(pipeline_control((struct packet *)(void *)frame, &call));
}
