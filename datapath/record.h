// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Access to one record, under a seqlock (Boehm, "Can seqlocks get along with programming language
// memory models?", MSPC 2012): readers copy and look at the record's version again, writers exclude
// each other by it.
//
// All access to one record is thereby atomic on any number of cores, and no reader slows another.
// Waiting is bounded; a reader or writer that runs out of attempts drops the packet, which its
// sender repeats.
#pragma once

#include "sequence.h"

// The version to compare with afterwards; odd: a writer has it.
STEP u32 record_read_begin(struct record *record)
{
    return load_acquire(&record->version);
}

STEP bool record_read_ok(struct record *record, u32 version)
{
    fence_acquire();
    return likely((version & 1) == 0 && load_relaxed(&record->version) == version);
}

STEP bool record_try_lock(struct record *record)
{
    u32 version = load_relaxed(&record->version);
    bool is_ours = likely((version & 1) == 0) &&
                   likely(compare_exchange(&record->version, version, version + 1));
    // The odd version is seen before anything that is written under it.
    fence_release();
    return is_ours;
}

struct lock_attempt {
    struct record *record;
    bool is_ours;
};

STEP long record_lock_attempt(u32 index, void *with)
{
    struct lock_attempt *attempt = with;
    relax(index);
    attempt->is_ours = record_try_lock(attempt->record);
    return attempt->is_ours;
}

SELDOM bool record_lock_again(struct record *record)
{
    struct lock_attempt attempt = {.record = record};
    repeat(RECORD_ATTEMPTS, record_lock_attempt, &attempt);
    return attempt.is_ours;
}

// The first attempt is apart from the others, so that it prepares for no loop.
STEP bool record_lock(struct record *record)
{
    return likely(record_try_lock(record)) || record_lock_again(record);
}

STEP void record_unlock(struct record *record)
{
    u32 version = load_relaxed(&record->version);
    invariant((version & 1) == 1);
    store_release(&record->version, version + 1);
}

// Only in a chain of several switches records outlive their epoch: frozen, to be loaded.
STEP bool record_is_of_epoch(struct call *call, const struct record *record)
{
    return !is_layered(call) || load_relaxed(&record->adm) >> SEQ_COUNTER_BITS == call->epoch ||
           !has_feature(call, FEATURE_RECORD_EPOCH);
}

STEP bool record_is_valid(struct call *call, const struct record *record, u8 state)
{
    return ((state & STATE_VALID) != 0 && record_is_of_epoch(call, record)) ||
           !has_feature(call, FEATURE_VALIDITY);
}

STEP bool record_is_latest(struct call *call, u8 state)
{
    return (state & STATE_LATEST) != 0 || !has_feature(call, FEATURE_OUTDATED);
}

// Whether it is the record that the packet's hash and key name. The lookup has compared the hash's
// high half, and natively not the low one, which chose the packet's sequence counter.
STEP bool record_is_named(struct packet *packet, struct call *call, const struct record *record)
{
    return load_relaxed(&record->hash_low) == call->header.hash_low &&
           packet_has_key(packet, call, record);
}

// Whether a packet that names an incarnation means this one, not one that was here before.
STEP bool record_is_meant(struct call *call, const struct record *record)
{
    return record->incarnation == call->header.request ||
           !has_feature(call, FEATURE_INCARNATION_CHECK);
}

STEP u8 record_flags_of(u8 state)
{
    return (u8)((state & STATE_TOMBSTONE ? RECORD_TOMBSTONE : 0) |
                (state & STATE_DIRTY ? RECORD_DIRTY : 0));
}

// Whether the packet's value can be the record's.
STEP bool record_has_room(struct call *call)
{
    return !has_flag(&call->header, FLAG_LARGE) && call->header.value_bytes <= found_capacity(call);
}

// A report to the agent, of the record as it is now. The caller has locked it. False: there is no
// room for it.
STEP bool report(struct call *call, struct record *record, u32 location, u8 op)
{
    bool has_room = table_report(call, record, location, op);
    if (likely(has_room)) {
        count(call, COUNTER_reports);
    }
    return has_room;
}

// Before the first change in a new generation: while a snapshot is taken, the original goes to the
// agent (copy on write). False: there is no room for it, so the record must stay as it is.
STEP bool record_enter_generation(struct call *call, struct record *record, u32 location)
{
    u64 snapshot = load_acquire(&registers_of(call)->snapshot);
    u32 generation = snapshot_generation(snapshot);
    bool is_taken = (snapshot & SNAPSHOT_ACTIVE) != 0 && has_feature(call, FEATURE_SNAPSHOT_COW);
    if (is_taken && record->generation < generation &&
        !report(call, record, location, OP_ORIGINAL) && has_feature(call, FEATURE_REPORT_FIRST)) {
        return false;
    }
    record->generation = generation;
    return true;
}

// The packet's value, seq and expiry become the record's, which is latest then. False, and nothing
// changes, if the original can't be reported.
STEP bool record_store(struct packet *packet, struct call *call, struct record *record,
                       u8 new_state)
{
    if (unlikely(!record_enter_generation(call, record, call->location))) {
        return false;
    }
    record->seq = call->header.seq;
    record->expiry_ms = call->header.expiry_ms;
    record->value_bytes = call->header.value_bytes;
    record->state = STATE_VALID | STATE_LATEST | new_state;
    packet_get_value(packet, call, record);
    return true;
}

// The value outgrew its slot: the next writer of this key has to find it uncached. The agent is
// told once. False, and nothing changes, if there is no room to tell it.
STEP bool record_evict_itself(struct call *call, struct record *record)
{
    if ((record->state & STATE_EVICTING) != 0) {
        return true;
    }
    record->state |= STATE_EVICTING;
    if (unlikely(!report(call, record, call->location, OP_EVICT_ME))) {
        record->state &= (u8)~STATE_EVICTING;
        return false;
    }
    count(call, COUNTER_self_evictions);
    return true;
}

// The record at the location of the packet's key, which may be another one's. `*verdict` says why
// there is none: CONTINUE for a miss.
STEP struct record *record_find(struct call *call, u32 *verdict)
{
    *verdict = CONTINUE;
    enum lookup_result found =
        has_feature(call, FEATURE_CACHE) ? table_location(call) : LOOKUP_MISS;
    if (found == LOOKUP_MISS) {
        return NULL;
    }
    struct record *record = found == LOOKUP_HIT ? found_record(call) : NULL;
    if (unlikely(record == NULL)) {
        *verdict = drop(CONTENDED);
    }
    return record;
}

// Locks a record that was found, if it serves and is the packet's key's. False otherwise;
// `*verdict` says why: CONTINUE for a miss.
STEP bool record_claim(struct packet *packet, struct call *call, struct record *record,
                       u32 *verdict)
{
    if (unlikely(!record_lock(record))) {
        *verdict = drop(CONTENDED);
        return false;
    }
    if (is_outdated(call)) {
        *verdict = drop(EPOCH);
    } else if (record_is_valid(call, record, record->state) &&
               record_is_named(packet, call, record)) {
        return true;
    }
    record_unlock(record);
    return false;
}

// The locked record of the packet's key, if the key is cached and the record serves. `*verdict`
// says why there is none: CONTINUE for a miss.
STEP struct record *record_find_locked(struct packet *packet, struct call *call, u32 *verdict)
{
    struct record *record = record_find(call, verdict);
    return record != NULL && record_claim(packet, call, record, verdict) ? record : NULL;
}
