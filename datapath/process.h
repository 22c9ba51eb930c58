// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Packets through the pipeline in user space, alone or in batches. Part of native.c.
#pragma once

#include "native.h"
#include "pipeline.h"

// The replicas that are told of a write, from the head on; a read goes to the tail alone.
STEP void set_replicas(struct switchback_verdict *verdict, u64 route, bool is_read)
{
    u16 last = NO_NODE;
    for (u32 i = 0; i < REPLICAS_MAX && route_node(route, i) != NO_NODE; i++) {
        last = route_node(route, i);
        verdict->nodes[verdict->count++] = last;
    }
    invariant(verdict->count > 0);
    if (is_read) {
        verdict->count = 1;
        verdict->nodes[0] = last;
    }
}

STEP void begin(struct switchback *switchback, struct call *call, u32 shard)
{
    call->switchback = switchback;
    call->statistics = &switchback->statistics[shard * STATISTIC_STRIDE];
    call->location = NO_LOCATION;
    call->route = NO_ROUTE;
    call->epoch = 0;
    call->stamps_origin = false;
}

STEP void finish(const struct packet *packet, const struct call *call, u32 result,
                 struct switchback_verdict *verdict)
{
    invariant(packet->length <= PACKET_BYTES_MAX);
    *verdict = (struct switchback_verdict){.length = packet->length};
    if (is_drop(result)) {
        verdict->kind = VERDICT_DROP;
        verdict->reason = (u8)(result & ~DROPPED);
    } else if (result == REPLY) {
        verdict->kind = VERDICT_REPLY;
    } else {
        verdict->kind = VERDICT_FORWARD;
        set_replicas(verdict, call->route, result == FORWARD_TO_TAIL);
    }
}

// What all packets of a caller have in common.
struct run {
    struct switchback *switchback;
    u64 now_ms;
    u32 shard;
};

// The byte is there whatever the packet's length: its buffer holds the longest one.
STEP u8 op_of(const struct switchback_item *item)
{
    return item->bytes[__builtin_offsetof(struct wire, op)];
}

STEP void process(const struct run *run, struct switchback_item *item, const struct ahead *ahead)
{
    struct packet packet = {.bytes = item->bytes, .length = item->length};
    struct call call;
    begin(run->switchback, &call, run->shard);
    call.from = item->from;
    call.now_ms = run->now_ms;
    call.random = item->random;
    call.injected = false;
    call.ahead = ahead;
    u32 result = pipeline(&packet, &call);
    finish(&packet, &call, result, &item->verdict);
}

// The pipeline is compiled several times: where the operation is known beforehand, what others need falls
// away, and the rest fits the registers.
#define INSTANCE(name, is_ours)                                                                              \
    static __attribute__((noinline)) void process_##name(                                                    \
        const struct run *run, struct switchback_item *item, const struct ahead *ahead)                      \
    {                                                                                                        \
        u8 op = op_of(item);                                                                                 \
        if (!(is_ours)) {                                                                                    \
            __builtin_unreachable();                                                                         \
        }                                                                                                    \
        process(run, item, ahead);                                                                           \
    }

INSTANCE(read, op == OP_READ)
INSTANCE(write, op == OP_WRITE)
INSTANCE(other, op != OP_READ && op != OP_WRITE)

STEP void process_one(const struct run *run, struct switchback_item *item, const struct ahead *ahead)
{
    invariant(item->length <= PACKET_BYTES_MAX);
    switch (op_of(item)) {
    case OP_READ:
        process_read(run, item, ahead);
        break;
    case OP_WRITE:
        process_write(run, item, ahead);
        break;
    default:
        process_other(run, item, ahead);
        break;
    }
}

// Packets that are looked up before the first of them is processed. What is fetched for 32 fits the smallest
// cache; with 16, too little time passes for memory.
#define BATCH_MAX 32u

// First the tables, then the records that they name, then the packets: what one waits for comes while the
// others are looked at. Whatever the packets are (their buffers are long enough), this changes nothing.
static __attribute__((noinline)) void process_batch(const struct run *run, struct switchback_item *items,
                                                    u32 count)
{
    struct switchback *switchback = run->switchback;
    struct ahead aheads[BATCH_MAX];
    for (u32 i = 0; i < count; i++) {
        const struct wire *wire = (const struct wire *)(const void *)items[i].bytes;
        u64 hash_low = from_be64(wire->hash_low);
        lookup_begin(&switchback->lookup, hash_low, &aheads[i]);
        if (wire->op != OP_READ) {
            table_prefetch_write(switchback, hash_low, from_be32(wire->lane));
        }
    }
    for (u32 i = 0; i < count; i++) {
        const struct wire *wire = (const struct wire *)(const void *)items[i].bytes;
        lookup_ahead(from_be64(wire->hash_high), &aheads[i]);
        table_prefetch_record(switchback, aheads[i].location);
    }
    for (u32 i = 0; i < count; i++) {
        process_one(run, &items[i], &aheads[i]);
    }
}

void switchback_process(struct switchback *switchback, struct switchback_item *items, u32 count, u64 now_ms,
                        u32 shard)
{
    invariant(shard < SHARDS);
    const struct run run = {.switchback = switchback, .now_ms = now_ms, .shard = shard};
    if (count == 1) {
        process_one(&run, items, NULL);
        return;
    }
    for (u32 done = 0; done < count; done += BATCH_MAX) {
        u32 left = count - done;
        process_batch(&run, items + done, left < BATCH_MAX ? left : BATCH_MAX);
    }
}

void switchback_inject(struct switchback *switchback, u8 *bytes, u32 length,
                       struct switchback_verdict *verdict)
{
    invariant(length <= PACKET_BYTES_MAX);
    struct packet packet = {.bytes = bytes, .length = length};
    struct call call = {.injected = true};
    begin(switchback, &call, CONTROL_SHARD);
    u32 result = pipeline_control(&packet, &call);
    finish(&packet, &call, result, verdict);
}
