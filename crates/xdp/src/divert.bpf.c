// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Belongs on a client's interface: UDP over IPv4 to the client's own address and port goes to its AF_XDP
// socket, everything else to the kernel, untouched. On a veth's end it also is the program without which the
// driver loses what the switch sends.
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char license_of_program[] SEC("license") = "Dual BSD/GPL";

struct own {
    __be32 address;
    __be16 port;
    __u16 reserved;
};
_Static_assert(sizeof(struct own) == 8, "as in crates/xdp");

const volatile struct own own SEC(".rodata.own") = {.address = 0};

// Of each of the interface's queues; the client has the first.
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int divert(struct xdp_md *frame)
{
    const struct ethhdr *ethernet = (void *)(long)frame->data;
    const struct iphdr *ip = (void *)(ethernet + 1);
    const struct udphdr *udp = (void *)(ip + 1);
    if ((void *)(udp + 1) > (void *)(long)frame->data_end) {
        return XDP_PASS;
    }
    bool is_ip = ethernet->h_proto == bpf_htons(ETH_P_IP) && ip->version == 4 && ip->ihl == 5;
    bool is_fragment = (ip->frag_off & bpf_htons(0x3fff)) != 0;
    if (!is_ip || is_fragment || ip->protocol != IPPROTO_UDP || ip->daddr != own.address ||
        udp->dest != own.port) {
        return XDP_PASS;
    }
    // Of a queue without a socket: to the kernel as well.
    return (int)bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}
