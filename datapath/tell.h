// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// What the owner of a chain tells of a record that no node has: the answer carries the version, so
// that every keeper has it before the client does. (Protocol, section 10.)
//
// Reads carry their record in any case. A write that is said to be applied carries itself, a
// refused one the record that refused it.
#pragma once

#include "record.h"

// The write itself, whose value is in the packet.
STEP void tell_write(struct call *call)
{
    call->header.record_flags =
        (u8)(RECORD_DIRTY | (call->header.op == OP_DELETE ? RECORD_TOMBSTONE : 0));
}

// The record, which is locked. False: the frame can't grow.
STEP bool tell_record(struct packet *packet, struct call *call, struct record *record)
{
    if (!packet_resize(packet, call, record->value_bytes)) {
        return false;
    }
    packet_put_value(packet, call, record);
    call->header.seq = record->seq;
    call->header.expiry_ms = record->expiry_ms;
    call->header.record_flags = record_flags_of(record->state);
    return true;
}

// What a lane's answer says anew. If the record isn't dirty any more a node has what was told, and
// keepers may have no place for it. A version without room in the record is of an entry before it,
// so a node has that as well. CONTINUE, or why there is no answer.
STAGE u32 tell_again(struct packet *packet, struct call *call, u8 state)
{
    if (!has_feature(call, FEATURE_REPEAT_KEPT)) {
        return CONTINUE;
    }
    if (call->header.op == OP_DELETE && !packet_resize(packet, call, 0)) {
        return drop(ROOM);
    }
    if (state == LANE_APPLIED && !has_feature(call, FEATURE_REPEAT_LOOKUP)) {
        tell_write(call);
        return CONTINUE;
    }
    u32 verdict = CONTINUE;
    struct record *record = record_find_locked(packet, call, &verdict);
    if (record == NULL) {
        return verdict;
    }
    bool is_dirty = (record->state & STATE_DIRTY) != 0;
    if (is_dirty && state == LANE_CONDITION_FAILED) {
        verdict = tell_record(packet, call, record) ? CONTINUE : drop(ROOM);
    } else if (is_dirty && record_has_room(call)) {
        tell_write(call);
    }
    record_unlock(record);
    return verdict;
}
