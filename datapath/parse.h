// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Stage 1: is this a whole packet of ours, of this epoch, from a sender that may send it? (Who may,
// says chain.h.)
// (Protocol, section 2.)
#pragma once

#include "chain.h"

// What the pipeline may do with an operation, and how it counts it.
struct operation {
    u8 known;
    u8 from_node;
    u8 counter;
};

STEP bool is_control(u8 op)
{
    return (op >= OP_CONTROL_FIRST && op <= OP_LOAD_LANE) || op == OP_CLEAN || op == OP_FREEZE ||
           op == OP_FORGET;
}

STEP struct operation operation_of(u8 op)
{
    switch (op) {
    case OP_READ:
        return (struct operation){1, 0, COUNTER_read};
    case OP_WRITE:
        return (struct operation){1, 0, COUNTER_write};
    case OP_DELETE:
        return (struct operation){1, 0, COUNTER_delete};
    case OP_FRAGMENT:
        return (struct operation){1, 0, COUNTER_fragment};
    case OP_READ_FRAGMENT:
        return (struct operation){1, 0, COUNTER_read_fragment};
    case OP_SCAN:
        return (struct operation){1, 0, COUNTER_scan};
    case OP_READ_REPLY:
        return (struct operation){1, 1, COUNTER_read_reply};
    case OP_WRITE_REPLY:
        return (struct operation){1, 1, COUNTER_write_reply};
    case OP_FRAGMENT_REPLY:
        return (struct operation){1, 1, COUNTER_fragment_reply};
    case OP_READ_FRAGMENT_REPLY:
        return (struct operation){1, 1, COUNTER_read_fragment_reply};
    case OP_SCAN_REPLY:
        return (struct operation){1, 1, COUNTER_scan_reply};
    case OP_BOUNCE:
        return (struct operation){1, 1, COUNTER_bounce};
    case OP_CACHE_UPDATE:
        return (struct operation){1, 1, COUNTER_cache_update};
    case OP_INVALIDATE:
        return (struct operation){1, 1, COUNTER_invalidate};
    case OP_PROBE:
        return (struct operation){1, 0, COUNTER_probe};
    default:
        return (struct operation){is_control(op), 0, COUNTER_control};
    }
}

// What any packet says.
STEP void decode_common(const struct wire *wire, struct header *header)
{
    header->op = wire->op;
    header->flags = from_be16(wire->flags);
    header->epoch = from_be32(wire->epoch);
    header->hash_high = from_be64(wire->hash_high);
    header->hash_low = from_be64(wire->hash_low);
    header->value_bytes = from_be16(wire->value_bytes);
    header->key_bytes = from_be16(wire->key_bytes);
}

// What all but reads say. A read asks for a key and nothing else, and most packets are reads.
STEP void decode_rest(const struct wire *wire, struct header *header)
{
    header->partition = from_be16(wire->partition);
    header->view = from_be32(wire->view);
    header->status = wire->status;
    header->seq = from_be64(wire->seq);
    header->guard = from_be64(wire->guard);
    header->request = from_be64(wire->request);
    header->lane = from_be32(wire->lane);
    header->generation = from_be32(wire->generation);
    header->expiry_ms = from_be64(wire->expiry_ms);
    header->record_flags = wire->record_flags;
}

STEP void decode_nothing(struct header *header)
{
    header->partition = 0;
    header->view = 0;
    header->status = STATUS_OK;
    header->seq = 0;
    header->guard = 0;
    header->request = 0;
    header->lane = 0;
    header->generation = 0;
    header->expiry_ms = 0;
    header->record_flags = 0;
}

// Whether it is well-formed, from any sender.
STEP u32 parse_form(struct packet *packet, struct call *call)
{
    const struct wire *wire = packet_view(packet, call);
    if (unlikely(wire == NULL)) {
        return drop(SHORT);
    }
    if (unlikely(from_be16(wire->magic) != MAGIC)) {
        return drop(MAGIC);
    }
    if (unlikely(wire->version != VERSION)) {
        return drop(VERSION);
    }
    if (unlikely(wire->ttl == 0)) {
        return drop(TTL);
    }
    decode_common(wire, &call->header);
    if (wire->op != OP_READ) {
        decode_rest(wire, &call->header);
    } else {
        decode_nothing(&call->header);
    }
    if (call->injected) {
        // control.h reads what else control packets say.
        call->location = from_be32(wire->location);
    }
    if (unlikely(!operation_of(call->header.op).known)) {
        return drop(OPERATION);
    }
    u32 length = HEADER_BYTES + (u32)call->header.value_bytes + call->header.key_bytes;
    if (unlikely(length != packet_length(packet, call) || length > PACKET_BYTES_MAX)) {
        return drop(LENGTH);
    }
    if (unlikely(call->header.key_bytes == 0 || call->header.key_bytes > KEY_BYTES_MAX)) {
        return drop(KEY);
    }
    return CONTINUE;
}

// Requests say what they want and nothing else: the rest of the header is the switch's and the
// nodes' to fill in. An EMBEDDED read from a client, for one, would overwrite a record.
STEP void parse_request(struct packet *packet, struct call *call)
{
    struct header *header = &call->header;
    if (header->op == OP_WRITE) {
        header->flags &= FLAG_CONDITIONAL | FLAG_LARGE;
    } else if (header->op == OP_DELETE) {
        header->flags &= FLAG_CONDITIONAL;
    } else {
        header->flags = 0;
    }
    header->seq = 0;
    header->status = STATUS_OK;
    header->record_flags = 0;
    call->stamps_origin = is_first(call) && !is_from_spine(packet, call);
}

STEP u32 parse(struct packet *packet, struct call *call)
{
    u32 verdict = parse_form(packet, call);
    if (unlikely(verdict != CONTINUE)) {
        return verdict;
    }
    table_prefetch(call);
    struct operation operation = operation_of(call->header.op);
    if (unlikely((call->header.op >= OP_CONTROL_FIRST) != (call->injected != 0))) {
        return drop(CONTROL);
    }
    count(call, operation.counter);
    call->epoch = load_acquire(&registers_of(call)->epoch);
    if (call->injected) {
        return CONTINUE;
    }
    bool is_probe = may_have_neighbours(call) && call->header.op == OP_PROBE;
    verdict = is_probe ? CONTINUE : chain_takes(packet, call, operation.from_node);
    if (unlikely(verdict != CONTINUE)) {
        return verdict;
    }
    bool same_epoch =
        is_of_epoch(call, call->header.epoch) || !has_feature(call, FEATURE_EPOCH_FENCE);
    if (unlikely(!same_epoch || call->epoch == 0)) {
        return drop(EPOCH);
    }
    if (is_spine(call)) {
        call->epoch = call->header.epoch;
    }
    if (unlikely(is_probe)) {
        return chain_hear(packet, call);
    }
    if (!operation.from_node) {
        parse_request(packet, call);
    }
    return CONTINUE;
}

// Whether the epoch changed since the packet was let in; asked under a lock, before anything is
// changed. The agent takes each lock once as it forgets the cache, and then raises the epoch, so
// nothing of the old epoch is written after that.
STEP bool is_outdated(struct call *call)
{
    return unlikely(!is_of_epoch(call, call->epoch));
}
