// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// READ: from the cache, or to the node with what the node must know. (Protocol, section 4, "Read".)
#pragma once

#include "record.h"
#include "sketch.h"

// What a read found. Values and header fields are taken over only once the record is known not to
// have changed meanwhile.
enum read_result {
    READ_MISS,
    READ_CACHED,
    READ_NOT_FOUND,
    READ_EMBEDDED,
    READ_FENCED,
    READ_PLAIN,
    READ_NO_ROOM,
    READ_AGAIN
};

struct seen {
    u64 seq;
    u64 expiry_ms;
    u64 fence;
    u32 generation;
    u8 state;
};

// What a record that can't answer means for the read.
STEP enum read_result read_outdated(struct call *call, struct seen *seen)
{
    if ((seen->state & STATE_EVICTING) != 0) {
        bool embeds = (seen->state & STATE_DIRTY) != 0 && has_feature(call, FEATURE_EMBEDDING);
        return embeds ? READ_EMBEDDED : READ_PLAIN;
    }
    if ((seen->state & STATE_REFRESH) != 0 || has_feature(call, FEATURE_COPIES)) {
        return READ_PLAIN;
    }
    seen->fence = has_feature(call, FEATURE_FENCE) ? sequence_last(call, call->header.hash_low) : 0;
    return READ_FENCED;
}

// Looks at the record while it may be changing.
STEP enum read_result read_record(struct packet *packet, struct call *call, struct record *record,
                                  struct seen *seen)
{
    u32 version = record_read_begin(record);
    u32 value_bytes = load_relaxed(&record->value_bytes);
    seen->state = load_relaxed(&record->state);
    enum read_result result = READ_MISS;
    if (likely(record_is_valid(call, record, seen->state) &&
               record_is_named(packet, call, record))) {
        u64 expiry_ms = load_relaxed(&record->expiry_ms);
        bool is_expired = expiry_ms != 0 && expiry_ms <= table_now_ms(call);
        bool is_absent = (seen->state & STATE_TOMBSTONE) != 0 || is_expired;
        result = !record_is_latest(call, seen->state) ? read_outdated(call, seen)
                 : is_absent                          ? READ_NOT_FOUND
                                                      : READ_CACHED;
    }
    if (result == READ_CACHED || result == READ_EMBEDDED) {
        bool has_room =
            value_bytes <= found_capacity(call) && packet_resize(packet, call, value_bytes);
        if (likely(has_room)) {
            packet_put_value(packet, call, record);
        } else {
            result = READ_NO_ROOM;
        }
    }
    seen->seq = load_relaxed(&record->seq);
    seen->expiry_ms = load_relaxed(&record->expiry_ms);
    seen->generation = load_relaxed(&record->generation);
    return record_read_ok(record, version) ? result : READ_AGAIN;
}

STEP void read_set_record(struct call *call, const struct seen *seen, u16 flag)
{
    call->header.flags |= flag;
    call->header.seq = seen->seq;
    call->header.expiry_ms = seen->expiry_ms;
    call->header.generation = seen->generation;
    call->header.record_flags = record_flags_of(seen->state);
}

STEP u32 read_finish(struct packet *packet, struct call *call, enum read_result result,
                     const struct seen *seen)
{
    struct header *header = &call->header;
    if (result == READ_AGAIN) {
        return drop(CONTENDED);
    }
    if (result == READ_NO_ROOM) {
        return drop(ROOM);
    }
    count(call, result == READ_MISS ? COUNTER_read_misses : COUNTER_read_hits);
    if (result == READ_MISS) {
        track_miss(call);
    } else {
        track_hit(call);
    }
    switch (result) {
    case READ_CACHED:
    case READ_NOT_FOUND:
        header->op = OP_READ_REPLY;
        header->status = result == READ_CACHED ? STATUS_OK : STATUS_NOT_FOUND;
        read_set_record(call, seen, FLAG_CACHED);
        break;
    case READ_EMBEDDED:
        count(call, COUNTER_embedded_reads);
        read_set_record(call, seen, FLAG_EMBEDDED);
        break;
    case READ_FENCED:
        count(call, COUNTER_fenced_reads);
        header->flags |= FLAG_FENCED;
        header->guard = seen->fence;
        break;
    case READ_PLAIN:
        count(call, COUNTER_plain_reads);
        break;
    default:
        break;
    }
    bool carries_value = result == READ_CACHED || result == READ_EMBEDDED;
    if (!carries_value && !packet_resize(packet, call, 0)) {
        return drop(ROOM);
    }
    if (header->op == OP_READ_REPLY) {
        return REPLY;
    }
    // What changes something at the nodes is for the head.
    return result == READ_PLAIN || result == READ_MISS ? FORWARD_TO_TAIL : FORWARD_TO_HEAD;
}

struct read_attempt {
    struct packet *packet;
    struct call *call;
    struct record *record;
    struct seen *seen;
    enum read_result result;
};

STEP long read_again(u32 index, void *with)
{
    struct read_attempt *attempt = with;
    relax(index);
    attempt->result = read_record(attempt->packet, attempt->call, attempt->record, attempt->seen);
    return attempt->result != READ_AGAIN;
}

// As often as it takes, while another CPU changes the record. A function of its own, whose stack
// the readers of other records don't need.
STAGE enum read_result read_patiently(struct packet *packet, struct call *call,
                                      struct record *record, struct seen *seen)
{
    struct read_attempt attempt = {packet, call, record, seen, READ_AGAIN};
    repeat(RECORD_ATTEMPTS, read_again, &attempt);
    return attempt.result;
}

STEP u32 read_request(struct packet *packet, struct call *call)
{
    struct seen seen = {0};
    enum read_result result = READ_MISS;
    call->header.guard = 0;
    enum lookup_result found =
        has_feature(call, FEATURE_CACHE) ? table_location(call) : LOOKUP_MISS;
    if (found != LOOKUP_MISS) {
        struct record *record = found == LOOKUP_HIT ? found_record(call) : NULL;
        if (unlikely(record == NULL)) {
            return drop(CONTENDED);
        }
        result = read_record(packet, call, record, &seen);
        if (unlikely(result == READ_AGAIN)) {
            forget(record);
            result = read_patiently(packet, call, record, &seen);
        }
    }
    return read_finish(packet, call, result, &seen);
}
