// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Packets through the pipeline in user space, alone or in batches. Part of native.c.
#pragma once

#include "native.h"
#include "pipeline.h"

// The head of a partition's replicas, or the tail.
STEP void set_replica(struct switchback_verdict *verdict, u64 route, bool is_for_tail)
{
    u16 node = route_node(route, 0);
    invariant(node != NO_NODE);
    for (u32 i = 1; is_for_tail && i < REPLICAS_MAX && route_node(route, i) != NO_NODE; i++) {
        node = route_node(route, i);
    }
    verdict->nodes[0] = node;
    verdict->count = 1;
}

STEP u64 *shard_of(struct switchback *switchback, u32 shard)
{
    return &switchback->statistics[shard * STATISTIC_STRIDE];
}

// Control packets have neither a sender nor a key to look up beforehand.
STEP void begin(struct call *call, const struct run *run, const struct switchback_item *item,
                struct foreknown *foreknown)
{
    call->switchback = run->switchback;
    call->run = run;
    call->item = item;
    call->foreknown = foreknown;
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
    } else if (call->is_layered && (result == UP || result == DOWN)) {
        verdict->kind = result == UP ? VERDICT_UP : VERDICT_DOWN;
    } else if (result == TAKEN) {
        verdict->kind = VERDICT_TAKEN;
    } else {
        verdict->kind = VERDICT_FORWARD;
        set_replica(verdict, call->route, result == FORWARD_TO_TAIL);
    }
}

// The byte is there whatever the packet's length: its buffer holds the longest one.
STEP u8 op_of(const struct switchback_item *item)
{
    return item->bytes[__builtin_offsetof(struct wire, op)];
}

STEP void process(const struct run *run, const struct switchback_item *item,
                  struct foreknown *foreknown, struct switchback_verdict *verdict, bool is_layered)
{
    struct packet packet = {.bytes = item->bytes, .length = item->length};
    struct call call;
    begin(&call, run, item, foreknown);
    call.injected = false;
    call.is_layered = is_layered;
    u32 result = pipeline(&packet, &call);
    finish(&packet, &call, result, verdict);
}

static __attribute__((noinline)) void process_other(const struct run *run,
                                                    const struct switchback_item *item,
                                                    struct foreknown *foreknown,
                                                    struct switchback_verdict *verdict)
{
    if (op_of(item) == OP_READ || op_of(item) == OP_WRITE) {
        __builtin_unreachable();
    }
    process(run, item, foreknown, verdict, false);
}

// Of any operation, where chains have layers.
static __attribute__((noinline)) void process_layered(const struct run *run,
                                                      const struct switchback_item *item,
                                                      struct foreknown *foreknown,
                                                      struct switchback_verdict *verdict)
{
    process(run, item, foreknown, verdict, true);
}

// The pipeline is compiled several times: where the operation is known beforehand, what others need
// falls away, and the rest fits the registers. A chain's places cost nothing where it has one
// switch.
STEP void process_one(const struct run *run, const struct switchback_item *item,
                      struct foreknown *foreknown, struct switchback_verdict *verdict)
{
    invariant(item->length <= PACKET_BYTES_MAX);
    switch (op_of(item)) {
    case OP_READ:
        process(run, item, foreknown, verdict, false);
        break;
    case OP_WRITE:
        process(run, item, foreknown, verdict, false);
        break;
    default:
        process_other(run, item, foreknown, verdict);
        break;
    }
}

// What the packet will need: its lookup bucket, and of a write the sequence counter and the lane.
STEP void foreknow_begin(struct switchback *switchback, const struct switchback_item *item,
                         struct foreknown *foreknown)
{
    const struct wire *wire = (const struct wire *)(const void *)item->bytes;
    u64 hash_low = from_be64(wire->hash_low);
    lookup_begin(&switchback->lookup, hash_low, &foreknown->ahead);
    if (wire->op != OP_READ) {
        table_prefetch_write(switchback, hash_low, from_be32(wire->lane));
    }
}

// The record that the bucket names.
STEP void foreknow(const struct switchback *switchback, const struct switchback_item *item,
                   struct foreknown *foreknown)
{
    const struct wire *wire = (const struct wire *)(const void *)item->bytes;
    foreknown->found =
        found_at(switchback, lookup_ahead(from_be64(wire->hash_high), &foreknown->ahead));
    if (foreknown->found.record != NULL) {
        found_prefetch(&foreknown->found);
    }
}

// Packets that are looked up before the first of them is processed. What is fetched for 32 fits the
// smallest cache; with 16, too little time passes for memory.
#define BATCH_MAX 32u

// First the tables, then the records that they name, then the packets: what one waits for comes
// while the others are looked at. Whatever the packets are (their buffers are long enough), this
// changes nothing.
STEP void process_all(const struct run *run, const struct switchback_item *items,
                      struct switchback_verdict *verdicts, u32 count, bool is_layered)
{
    struct foreknown foreknown[BATCH_MAX];
    for (u32 i = 0; i < count; i++) {
        foreknow_begin(run->switchback, &items[i], &foreknown[i]);
    }
    for (u32 i = 0; i < count; i++) {
        foreknow(run->switchback, &items[i], &foreknown[i]);
    }
    for (u32 i = 0; i < count; i++) {
        if (is_layered) {
            process_layered(run, &items[i], &foreknown[i], &verdicts[i]);
        } else {
            process_one(run, &items[i], &foreknown[i], &verdicts[i]);
        }
    }
}

static __attribute__((noinline)) void process_batch(const struct run *run,
                                                    const struct switchback_item *items,
                                                    struct switchback_verdict *verdicts, u32 count)
{
    process_all(run, items, verdicts, count, false);
}

// The same where chains have layers.
static __attribute__((noinline)) void process_layered_batch(const struct run *run,
                                                            const struct switchback_item *items,
                                                            struct switchback_verdict *verdicts,
                                                            u32 count)
{
    process_all(run, items, verdicts, count, true);
}

void switchback_process(struct switchback *switchback, const struct switchback_item *items,
                        struct switchback_verdict *verdicts, u32 count, u64 now_ms, u32 shard)
{
    invariant(shard < SHARDS);
    const struct run run = {
        .switchback = switchback, .now_ms = now_ms, .statistics = shard_of(switchback, shard)};
    for (u32 done = 0; done < count; done += BATCH_MAX) {
        u32 left = count - done;
        u32 now = left < BATCH_MAX ? left : BATCH_MAX;
        if (unlikely(is_on(switchback->features, FEATURE_LAYERS))) {
            process_layered_batch(&run, items + done, verdicts + done, now);
        } else {
            process_batch(&run, items + done, verdicts + done, now);
        }
    }
}

void switchback_inject(struct switchback *switchback, u8 *bytes, u32 length,
                       struct switchback_verdict *verdict)
{
    invariant(length <= PACKET_BYTES_MAX);
    const struct run run = {.switchback = switchback,
                            .statistics = shard_of(switchback, CONTROL_SHARD)};
    const struct switchback_item item = {.bytes = bytes, .length = length};
    struct packet packet = {.bytes = bytes, .length = length};
    struct foreknown nothing = {0};
    struct call call = {.injected = true,
                        .is_layered = is_on(switchback->features, FEATURE_LAYERS)};
    begin(&call, &run, &item, &nothing);
    u32 result = pipeline_control(&packet, &call);
    finish(&packet, &call, result, verdict);
}
