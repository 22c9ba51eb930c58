// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// WRITE and DELETE, from a client or bounced by a node. (Protocol, section 4, "Write or delete".)
#pragma once

#include "complete.h"
#include "record.h"
#include "sketch.h"

enum write_result {
    WRITE_FORWARD,
    WRITE_ABSORB,
    WRITE_SUPERSEDED,
    WRITE_CONDITION_FAILED,
    WRITE_WAIT,
    WRITE_AGAIN,
    WRITE_UNREPORTED
};

STEP bool is_newer(struct call *call, u64 than)
{
    return call->header.seq > than || !has_feature(call, FEATURE_SEQ_COMPARE);
}

// The record is the newest version there is, so this write is decided here.
STEP enum write_result write_latest(struct call *call, const struct record *record)
{
    if (has_flag(&call->header, FLAG_CONDITIONAL)) {
        if (call->header.guard != record->seq) {
            return WRITE_CONDITION_FAILED;
        }
        // The client saw that seq before it sent this, so this one's is later, unless it guessed.
        return is_newer(call, record->seq) ? WRITE_ABSORB : WRITE_AGAIN;
    }
    if (is_newer(call, record->seq)) {
        return WRITE_ABSORB;
    }
    // It took its number, and another core was faster. Overwritten at once, unless the newer one
    // was made upon the version before: then nothing was in between, and this one has to come
    // later.
    return (record->state & STATE_DEPENDENT) != 0 ? WRITE_AGAIN : WRITE_SUPERSEDED;
}

// The node may have a newer version.
STEP enum write_result write_outdated(struct call *call, struct record *record)
{
    if (has_flag(&call->header, FLAG_CONDITIONAL)) {
        // It may reach the node while the record stays outdated: an answer read before it must not
        // promote.
        if (has_feature(call, FEATURE_CONDITION_ADM)) {
            record->adm = maximum(record->adm, call->header.seq);
        }
        return WRITE_FORWARD;
    }
    // On two cores a write may take its number, see the key uncached, and get here after the
    // admission, behind newer writes that the node has acknowledged: those are not above `adm`.
    return is_newer(call, record->adm) ? WRITE_ABSORB : WRITE_FORWARD;
}

STEP enum write_result write_evicting(struct call *call, struct record *record)
{
    if (has_flag(&call->header, FLAG_CONDITIONAL) && has_feature(call, FEATURE_CONDITION_WAIT)) {
        return WRITE_WAIT;
    }
    if (is_newer(call, record->seq)) {
        record->state &= (u8)~STATE_LATEST;
    }
    return WRITE_FORWARD;
}

// FarReach.
STEP enum write_result write_back(struct call *call, struct record *record)
{
    if (!record_has_room(call) && !record_evict_itself(call, record)) {
        return WRITE_UNREPORTED;
    }
    if ((record->state & STATE_EVICTING) != 0) {
        return write_evicting(call, record);
    }
    return record_is_latest(call, record->state) ? write_latest(call, record)
                                                 : write_outdated(call, record);
}

// Write-around: the record is invalidated on the way, and no answer that was read before the write
// may promote it. The next read fetches it, behind a fence.
STEP enum write_result write_around(struct call *call, struct record *record)
{
    if (!record_has_room(call) && !record_evict_itself(call, record)) {
        return WRITE_UNREPORTED;
    }
    record->state &= (u8) ~(STATE_LATEST | STATE_REFRESH);
    record->adm = maximum(record->adm, call->header.seq);
    return WRITE_FORWARD;
}

// NetCache: as write-around, but the node refreshes the record once it has applied the write. A
// conditional write may come to nothing, and then no update comes: the next read fetches the
// record.
STEP enum write_result write_through(struct call *call, struct record *record)
{
    enum write_result result = write_around(call, record);
    if (result == WRITE_FORWARD && !has_flag(&call->header, FLAG_CONDITIONAL)) {
        record->state |= STATE_REFRESH;
        call->header.flags |= FLAG_CACHED;
    }
    return result;
}

// What the cached record makes of the write, by the scheme. It is locked.
STEP enum write_result write_record(struct call *call, struct record *record)
{
    if (has_feature(call, FEATURE_WRITE_BACK)) {
        return write_back(call, record);
    }
    if (has_feature(call, FEATURE_COPIES)) {
        return WRITE_FORWARD; // the node invalidates its copies
    }
    return has_feature(call, FEATURE_WRITE_THROUGH) ? write_through(call, record)
                                                    : write_around(call, record);
}

// What the answer says, and keepers are told, of the record that decided the write. False: the
// frame can't grow.
STEP bool write_tell(struct packet *packet, struct call *call, struct record *record,
                     enum write_result result)
{
    bool is_told = has_keepers(call) && (record->state & STATE_DIRTY) != 0;
    if (result == WRITE_CONDITION_FAILED) {
        call->header.seq = record->seq;
        return !is_told || tell_record(packet, call, record);
    }
    bool is_own = result == WRITE_ABSORB ||
                  (result == WRITE_SUPERSEDED && has_feature(call, FEATURE_SUPERSEDED_KEPT));
    if (is_told && is_own) {
        tell_write(call);
    }
    return true;
}

// What the cached record, if there is one, makes of the write.
STEP enum write_result write_cached(struct packet *packet, struct call *call, u32 *verdict)
{
    struct record *record = record_find_locked(packet, call, verdict);
    if (record == NULL) {
        if (*verdict == CONTINUE) {
            count(call, COUNTER_write_misses);
            track_miss(call);
        }
        return WRITE_FORWARD;
    }
    count(call, COUNTER_write_hits);
    track_hit(call);
    enum write_result result = write_record(call, record);
    if (result == WRITE_ABSORB) {
        u8 tombstone = call->header.op == OP_DELETE ? STATE_TOMBSTONE : 0;
        u8 dependent = has_flag(&call->header, FLAG_CONDITIONAL) ? STATE_DEPENDENT : 0;
        if (!record_store(packet, call, record, STATE_DIRTY | tombstone | dependent)) {
            result = WRITE_UNREPORTED;
        }
    }
    if (unlikely(!write_tell(packet, call, record, result))) {
        *verdict = drop(ROOM);
    }
    record_unlock(record);
    return result;
}

// A write that runs for the first time, or again with a new seq because a node bounced it. The seq
// is taken before the lookup: a write that took its number after an admission is above `adm`.
STEP u32 write_new(struct packet *packet, struct call *call, struct lane *entry)
{
    if (call->header.op == OP_DELETE && !packet_resize(packet, call, 0)) {
        return drop(ROOM);
    }
    if (unlikely(!sequence_take(call))) {
        return drop(SEQ_EXHAUSTED);
    }
    u32 verdict = CONTINUE;
    enum write_result result = write_cached(packet, call, &verdict);
    if (unlikely(verdict != CONTINUE)) {
        return verdict;
    }
    switch (result) {
    case WRITE_ABSORB:
    case WRITE_SUPERSEDED:
        count(call, COUNTER_absorbed_writes);
        verdict = write_reply(packet, call, STATUS_OK, FLAG_CACHED);
        lane_set(call, entry, LANE_APPLIED);
        return verdict;
    case WRITE_CONDITION_FAILED:
        count(call, COUNTER_condition_failures);
        verdict = write_reply(packet, call, STATUS_CONDITION_FAILED, FLAG_CACHED);
        lane_set(call, entry, LANE_CONDITION_FAILED);
        return verdict;
    case WRITE_WAIT:
        return drop(EVICTING);
    case WRITE_AGAIN:
        return drop(CONTENDED);
    case WRITE_UNREPORTED:
        return drop(UNREPORTED);
    default:
        count(call, COUNTER_forwarded_writes);
        call->header.status = STATUS_OK;
        lane_set(call, entry, LANE_FORWARDED);
        return FORWARD_TO_HEAD;
    }
}

STEP u32 write_request(struct packet *packet, struct call *call)
{
    u32 verdict = CONTINUE;
    struct lane *entry = lane_lock(call, &verdict);
    if (entry == NULL) {
        return verdict;
    }
    verdict = lane_complete(packet, call, entry);
    if (verdict == CONTINUE) {
        verdict = write_new(packet, call, entry);
    }
    lane_unlock(entry);
    return verdict;
}

// A node refused to apply it under this seq, because a fence is above it.
STAGE u32 write_bounced(struct packet *packet, struct call *call)
{
    u32 verdict = CONTINUE;
    struct lane *entry = lane_lock(call, &verdict);
    if (entry == NULL) {
        return verdict;
    }
    if (lane_waits(call, entry)) {
        count(call, COUNTER_bounces_executed);
        call->header.op = has_flag(&call->header, FLAG_DELETE) ? OP_DELETE : OP_WRITE;
        call->header.flags &= FLAG_CONDITIONAL | FLAG_LARGE;
        call->header.record_flags = 0;
        verdict = write_new(packet, call, entry);
    } else {
        verdict = drop(NOT_PENDING);
    }
    lane_unlock(entry);
    return verdict;
}
