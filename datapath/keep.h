// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// A keeper: a switch between the clients and the owner of the chain's records. It passes requests
// down and answers up, and stores on their way what answers tell of records that no node has.
// (Protocol, section 10.)
//
// It numbers, arbitrates, absorbs and answers nothing, so what it has is what the owner has told.
#pragma once

#include "read.h"

// Whether the packet is an answer that every keeper must have before the client does.
STEP bool keep_is_told(struct call *call)
{
    const struct header *header = &call->header;
    bool is_read = header->op == OP_READ_REPLY;
    if ((!is_read && header->op != OP_WRITE_REPLY) || !has_flag(header, FLAG_CACHED) ||
        (header->record_flags & RECORD_DIRTY) == 0) {
        return false;
    }
    bool is_refusal = header->status == STATUS_CONDITION_FAILED;
    return has_feature(call, FEATURE_KEEPING) &&
           (!is_read || has_feature(call, FEATURE_READER_KEEPING)) &&
           (!is_refusal || has_feature(call, FEATURE_REFUSAL_KEEPING));
}

// Whether the record has this version or a newer one, which takes no lock to see.
STEP bool keep_has(struct packet *packet, struct call *call, struct record *record)
{
    u32 version = record_read_begin(record);
    bool has = record_is_valid(call, record, load_relaxed(&record->state)) &&
               record_is_named(packet, call, record) &&
               load_relaxed(&record->seq) >= call->header.seq;
    return record_read_ok(record, version) && has;
}

// The packet's version becomes the locked record's.
STEP void keep_store(struct packet *packet, struct call *call, struct record *record)
{
    const struct header *header = &call->header;
    bool is_tombstone =
        header->status == STATUS_NOT_FOUND || (header->record_flags & RECORD_TOMBSTONE) != 0;
    // Only the owner knows whether it is the latest.
    u8 latest = has_feature(call, FEATURE_KEEPER_SILENCE) ? 0 : STATE_LATEST;
    record->seq = header->seq;
    record->expiry_ms = header->expiry_ms;
    record->generation = header->generation;
    record->value_bytes = header->value_bytes;
    record->state = (u8)(STATE_VALID | STATE_DIRTY | latest | (is_tombstone ? STATE_TOMBSTONE : 0));
    packet_get_value(packet, call, record);
    count(call, COUNTER_kept);
}

// CONTINUE once the record has the version.
STEP u32 keep_record(struct packet *packet, struct call *call)
{
    u32 unkept = has_feature(call, FEATURE_KEEP_OR_DROP) ? drop(UNKEPT) : CONTINUE;
    u32 verdict = CONTINUE;
    struct record *record = record_find(call, &verdict);
    if (record == NULL) {
        return verdict == CONTINUE ? unkept : verdict;
    }
    bool replaces_newer = !has_feature(call, FEATURE_KEEP_NEWER);
    if (!replaces_newer && keep_has(packet, call, record)) {
        return CONTINUE;
    }
    if (!record_claim(packet, call, record, &verdict)) {
        return verdict == CONTINUE ? unkept : verdict;
    }
    if (!record_has_room(call)) {
        verdict = unkept;
    } else if (call->header.seq > record->seq || replaces_newer) {
        keep_store(packet, call, record);
    }
    record_unlock(record);
    return verdict;
}

// The last of the chain's switches on an answer's way: clients have the values that they wrote, and
// preserve nothing where switches protect it.
STEP u32 keep_hand_over(struct packet *packet, struct call *call)
{
    struct header *header = &call->header;
    if (load_relaxed(&registers_of(call)->place.protects) != 0) {
        header->record_flags &= (u8)~RECORD_DIRTY;
    }
    bool fits = header->op != OP_WRITE_REPLY || packet_resize(packet, call, 0);
    return fits ? REPLY : drop(ROOM);
}

STEP u32 keep_answer(struct packet *packet, struct call *call)
{
    u32 verdict = keep_is_told(call) ? keep_record(packet, call) : CONTINUE;
    if (verdict != CONTINUE) {
        return verdict;
    }
    count(call, COUNTER_passed);
    return is_first(call) ? keep_hand_over(packet, call) : UP;
}

// Without KEEPER_SILENCE: whether the keeper answers the read by what it has.
STEP bool keep_breaks_silence(struct packet *packet, struct call *call)
{
    if (has_feature(call, FEATURE_KEEPER_SILENCE) || call->header.op != OP_READ) {
        return false;
    }
    if (read_request(packet, call) == REPLY) {
        return true;
    }
    call->header.flags = 0;
    call->header.guard = 0;
    return false;
}

STAGE u32 keep(struct packet *packet, struct call *call)
{
    switch (call->header.op) {
    case OP_READ_REPLY:
    case OP_WRITE_REPLY:
    case OP_FRAGMENT_REPLY:
    case OP_READ_FRAGMENT_REPLY:
    case OP_SCAN_REPLY:
        return keep_answer(packet, call);
    case OP_BOUNCE:
    case OP_CACHE_UPDATE:
    case OP_INVALIDATE:
        return drop(OPERATION);
    default:
        break;
    }
    if (keep_breaks_silence(packet, call)) {
        return chain_answer(call);
    }
    count(call, COUNTER_passed);
    return DOWN;
}
