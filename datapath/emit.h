// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Last stage: what the others decided goes into the packet's header.
#pragma once

#include "chain.h"
#include "load.h"

// What any packet may have got.
STEP void encode_common(const struct header *header, struct wire *wire)
{
    wire->op = header->op;
    wire->flags = to_be16(header->flags);
    wire->epoch = to_be32(header->epoch);
    wire->partition = to_be16(header->partition);
    wire->view = to_be32(header->view);
    wire->status = header->status;
    wire->seq = to_be64(header->seq);
    wire->guard = to_be64(header->guard);
    wire->value_bytes = to_be16(header->value_bytes);
    wire->record_flags = header->record_flags;
}

// What only answers and embedded records bring.
STEP void encode_record(const struct header *header, struct wire *wire)
{
    wire->generation = to_be32(header->generation);
    wire->expiry_ms = to_be64(header->expiry_ms);
}

// What only control packets and reports bring: which record it is.
STEP void encode_name(const struct call *call, struct wire *wire)
{
    const struct header *header = &call->header;
    wire->request = to_be64(header->request);
    wire->hash_high = to_be64(header->hash_high);
    wire->hash_low = to_be64(header->hash_low);
    wire->key_bytes = to_be16(header->key_bytes);
    wire->location = to_be32(call->location);
}

STEP void encode_origin(const struct address *origin, struct wire *wire)
{
    __builtin_memcpy(&wire->origin_high, origin->ip, 8);
    __builtin_memcpy(&wire->origin_low, origin->ip + 8, 8);
    wire->origin_port = to_be16(origin->port);
    wire->location = 0;
}

STEP u32 emit(struct packet *packet, struct call *call, u32 verdict)
{
    invariant(verdict != CONTINUE);
    if (unlikely(is_drop(verdict))) {
        count(call, (u32)COUNTER_COUNT + (verdict & ~DROPPED));
        return verdict;
    }
    if (may_have_neighbours(call) && unlikely(verdict == TAKEN)) {
        return verdict;
    }
    call->header.epoch = call->epoch;
    struct wire *wire = packet_view(packet, call);
    if (unlikely(wire == NULL)) {
        count(call, (u32)COUNTER_COUNT + DROP_SHORT);
        return drop(SHORT);
    }
    encode_common(&call->header, wire);
    wire->ttl -= 1;
    bool is_answer = verdict == REPLY || (is_layered(call) && verdict == UP);
    if (is_answer || has_flag(&call->header, FLAG_EMBEDDED)) {
        encode_record(&call->header, wire);
    } else if (unlikely(has_flag(&call->header, FLAG_HOT))) {
        wire->generation = to_be32(call->header.generation);
    }
    if (is_answer && (call->injected || !is_keeper(call))) {
        // One integer releases what clients keep of records that are durable by now.
        wire->durable_generation = to_be32(load_relaxed(&registers_of(call)->durable_generation));
    }
    if (call->stamps_origin) {
        encode_origin(sender(call), wire);
    }
    if (may_have_neighbours(call) && !call->injected) {
        wire->hop = hop_of(call);
    }
    if (has_feature(call, FEATURE_COPIES) && is_answer && !call->injected) {
        wire->location = to_be32(load_of(call));
    }
    if (call->injected) {
        encode_name(call, wire);
    }
    return verdict;
}
