// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// What nodes answer: to reads (which may promote a record), to writes (which the lane must wait
// for), and NetCache's updates.
#pragma once

#include "complete.h"
#include "record.h"

// What a node says about a record becomes the cached one: clean, latest. False, and nothing
// changes, if the agent can't be told first.
STEP bool answer_install(struct packet *packet, struct call *call, struct record *record,
                         bool is_tombstone, enum counter counter)
{
    if (!record_has_room(call)) {
        return record_evict_itself(call, record);
    }
    // Only the node knows how it was made.
    if (!record_store(packet, call, record,
                      STATE_DEPENDENT | (is_tombstone ? STATE_TOMBSTONE : 0))) {
        return false;
    }
    count(call, counter);
    return true;
}

// The answer to a fenced read. Everything up to its fence is applied at the node or will be bounced
// by it, so if nothing that the record let pass is above the fence, it is the newest version.
// (Rule 4.)
STEP bool answer_promotes(struct call *call, const struct record *record)
{
    bool is_outcome = call->header.status == STATUS_OK || call->header.status == STATUS_NOT_FOUND;
    bool is_waiting = (record->state & (STATE_LATEST | STATE_EVICTING)) == 0;
    bool is_new_enough = call->header.guard >= record->adm || !has_feature(call, FEATURE_FENCE);
    return is_outcome && is_waiting && is_new_enough;
}

STAGE u32 read_answer(struct packet *packet, struct call *call)
{
    // Only this switch says what came from its cache.
    call->header.flags &= (u16)~FLAG_CACHED;
    if (!has_flag(&call->header, FLAG_FENCED)) {
        return REPLY;
    }
    u32 verdict = CONTINUE;
    struct record *record = record_find_locked(packet, call, &verdict);
    if (record != NULL) {
        if (answer_promotes(call, record)) {
            bool is_tombstone = call->header.status == STATUS_NOT_FOUND;
            (void)answer_install(packet, call, record, is_tombstone, COUNTER_promotions);
        }
        record_unlock(record);
    }
    // Without a promotion (the record was locked, or its report found no room) the client has its
    // answer.
    return verdict == drop(EPOCH) ? verdict : REPLY;
}

// The node's word on a write that was forwarded to it.
STAGE u32 write_answer(struct call *call)
{
    u32 verdict = CONTINUE;
    struct lane *entry = lane_lock(call, &verdict);
    if (entry == NULL) {
        return verdict;
    }
    if (!lane_waits(call, entry)) {
        lane_unlock(entry);
        return drop(NOT_PENDING);
    }
    struct header *header = &call->header;
    header->flags &= (u16)~FLAG_CACHED;
    if (header->status == STATUS_CONDITION_FAILED) {
        // `seq` named the write, for the entry; the client wants the record's.
        header->seq = header->guard;
        count(call, COUNTER_condition_failures);
    }
    // Not outcomes: the client tries again, and goes on with the seq that it has.
    if (header->status != STATUS_FRAGMENTS_MISSING && header->status != STATUS_NO_SPACE) {
        lane_set(call, entry, LANE_DONE);
    }
    lane_unlock(entry);
    return REPLY;
}

// An acknowledgement goes to the node that sent the packet.
STEP u32 acknowledge(struct packet *packet, struct call *call, u8 op)
{
    call->header.op = op;
    call->stamps_origin = true;
    return packet_resize(packet, call, 0) ? REPLY : drop(ROOM);
}

// Whether a record takes the value that its node sends: NetCache's if a write has invalidated it;
// a copy that isn't newer itself. Neither takes what is older than the write that invalidated it.
STEP bool update_is_wanted(struct call *call, const struct record *record)
{
    u64 newest = record->adm;
    if ((record->state & STATE_EVICTING) != 0) {
        return false;
    }
    if (has_feature(call, FEATURE_COPIES)) {
        newest = maximum(newest, record->seq);
        if (!record_is_meant(call, record)) {
            return false;
        }
    } else if ((record->state & STATE_REFRESH) == 0) {
        return false;
    }
    return call->header.seq >= newest || !has_feature(call, FEATURE_SEQ_COMPARE);
}

// The value of a cached record: NetCache's node has applied a write that invalidated it, or
// DistCache's fills a copy. The node sends it until this is acknowledged.
STAGE u32 cache_update(struct packet *packet, struct call *call)
{
    u32 verdict = CONTINUE;
    struct record *record = record_find_locked(packet, call, &verdict);
    if (verdict != CONTINUE) {
        return verdict;
    }
    bool is_reported = true;
    if (record != NULL) {
        if (update_is_wanted(call, record)) {
            bool is_tombstone = (call->header.record_flags & RECORD_TOMBSTONE) != 0;
            is_reported =
                answer_install(packet, call, record, is_tombstone, COUNTER_cache_updates_applied);
        }
        record_unlock(record);
    }
    if (unlikely(!is_reported)) {
        return drop(UNREPORTED); // the node sends it again
    }
    return acknowledge(packet, call, OP_CACHE_UPDATE_ACK);
}

// DistCache: the node has a write of this number, and applies it once no copy answers an older
// version. (Rule 30.)
STAGE u32 cache_invalidate(struct packet *packet, struct call *call)
{
    u32 verdict = CONTINUE;
    struct record *record = record_find_locked(packet, call, &verdict);
    if (verdict != CONTINUE) {
        return verdict;
    }
    if (record != NULL) {
        if (record_is_meant(call, record)) {
            record->adm = maximum(record->adm, call->header.seq);
            if (record->seq < call->header.seq) {
                record->state &= (u8)~STATE_LATEST;
            }
        }
        record_unlock(record);
    }
    return acknowledge(packet, call, OP_INVALIDATE_ACK);
}
