// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The pipeline in the kernel.
//
// `switchback` takes frames of an interface: Ethernet, IPv4 or IPv6, UDP to the switch's endpoint.
// Everything else is passed to the kernel untouched, VLAN tags, IP options and fragments included.
// Four programs are never attached; the agent runs them by BPF_PROG_TEST_RUN: `switchback_control`
// on a control packet, `switchback_replay` on a packet that it has got another way,
// `switchback_lookup` on a change of the lookup table, `switchback_clear` to forget everything.
// `switchback_pass` belongs on a veth's other end, without which the driver loses what is sent.
#include "pipeline.h"
#include "frame.h"
#include "clear.h"

char license_of_program[] SEC("license") = "Dual BSD/GPL";

SEC("xdp")
int switchback(struct xdp_md *frame)
{
    struct call call = {.location = NO_LOCATION};
    if (!frame_parse(frame, &call) || !tables_begin(&call)) {
        return XDP_PASS;
    }
    u32 verdict = pipeline((struct packet *)(void *)frame, &call);
    if (verdict == drop(ROOM)) {
        // Nothing has changed. The agent's socket gets it, and there is room in its memory.
        return XDP_PASS;
    }
    bool ends = is_drop(verdict) || verdict == TAKEN;
    return ends ? XDP_DROP : frame_send(frame, &call, verdict);
}

SEC("xdp")
int switchback_control(struct xdp_md *frame)
{
    struct call call = {.location = NO_LOCATION, .injected = true};
    return tables_begin(&call) ? (int)pipeline_control((struct packet *)(void *)frame, &call)
                               : (int)drop(NONE);
}

// What goes in front of a packet that is replayed: what native.c gets as arguments. The route comes
// back.
struct replay {
    u64 now_ms;
    u64 route;
    u32 random;
    struct address from;
    u16 reserved[5];
};
_Static_assert(sizeof(struct replay) == 48, "as in crates/xdp");

SEC("xdp")
int switchback_replay(struct xdp_md *frame)
{
    struct replay *replay = (void *)(long)frame->data;
    if ((void *)(replay + 1) > (void *)(long)frame->data_end) {
        return (int)drop(SHORT);
    }
    struct call call = {.location = NO_LOCATION, .at = sizeof(*replay), .route = NO_ROUTE};
    call.now_ms = replay->now_ms;
    call.random = replay->random;
    call.from = replay->from;
    if (!tables_begin(&call)) {
        return (int)drop(NONE);
    }
    u32 verdict = pipeline((struct packet *)(void *)frame, &call);
    barrier();
    replay = (void *)(long)frame->data;
    if ((void *)(replay + 1) <= (void *)(long)frame->data_end) {
        replay->route = call.route;
    }
    return (int)verdict;
}

// Made here because nothing preempts this between a bucket's two versions, as it could a process.
struct lookup_change {
    u64 tag;
    u64 hash_low;
    u32 location;
    u32 inserts; // else it removes
};
_Static_assert(sizeof(struct lookup_change) == 24, "as in crates/xdp");

// An `enum lookup_insert`, or whether the entry was removed.
SEC("xdp")
int switchback_lookup(struct xdp_md *frame)
{
    const struct lookup_change *change = (void *)(long)frame->data;
    struct lookup_table table = table_lookup();
    if ((const void *)(change + 1) > (void *)(long)frame->data_end) {
        return -1;
    }
    return change->inserts != 0
               ? (int)lookup_insert(&table, change->tag, change->hash_low, change->location)
               : lookup_remove(&table, change->tag, change->hash_low, change->location);
}

SEC("xdp")
int switchback_clear(struct xdp_md *frame)
{
    (void)frame;
    return clear_all() ? XDP_PASS : XDP_ABORTED;
}

SEC("xdp")
int switchback_pass(struct xdp_md *frame)
{
    (void)frame;
    return XDP_PASS;
}
