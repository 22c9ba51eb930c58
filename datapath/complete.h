// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// At most once: the entry of a lane, the only arbiter of what becomes of a write. (Protocol,
// section 3; Lee et al., "RIFL", SOSP 2015, calls it a completion record.)
//
// It stays locked while a packet of the lane is processed. A second packet that finds it locked can
// only be a duplicate, or arrive as if it came later; it is dropped.
#pragma once

#include "parse.h"
#include "tell.h"

// The locked entry of the packet's lane; NULL with a verdict if there is none.
STEP struct lane *lane_lock(struct call *call, u32 *verdict)
{
    u32 lane = call->header.lane;
    struct lane *entry =
        lane < load_relaxed(&registers_of(call)->lanes) ? table_lane(call, lane) : NULL;
    if (unlikely(entry == NULL)) {
        *verdict = drop(LANE);
        return NULL;
    }
    if (unlikely(exchange(&entry->locked, 1u) != 0)) {
        *verdict = drop(BUSY);
        return NULL;
    }
    if (is_outdated(call)) {
        store_release(&entry->locked, 0u);
        *verdict = drop(EPOCH);
        return NULL;
    }
    return entry;
}

STEP void lane_unlock(struct lane *entry)
{
    store_release(&entry->locked, 0u);
}

// Of an entry that is locked.
STEP void lane_clear(struct lane *entry)
{
    entry->state = LANE_NONE;
    entry->status = 0;
    entry->flags = 0;
    entry->request = 0;
    entry->seq = 0;
    entry->epoch = 0;
}

STEP void lane_set(struct call *call, struct lane *entry, u8 state)
{
    entry->request = call->header.request;
    entry->seq = call->header.seq;
    entry->status = call->header.status;
    entry->flags = state == LANE_FORWARDED ? call->header.flags & FLAG_CACHED : 0;
    entry->epoch = call->epoch;
    entry->state = state;
}

// One that was made in another epoch, in a chain of several switches, counts as empty.
STEP u8 lane_state(struct call *call, const struct lane *entry)
{
    bool is_current = !is_layered(call) || entry->epoch == call->epoch ||
                      !has_feature(call, FEATURE_RECORD_EPOCH);
    return is_current ? entry->state : LANE_NONE;
}

// Whether the entry still waits for what a node says about (request, seq).
STEP bool lane_waits(struct call *call, const struct lane *entry)
{
    if (!has_feature(call, FEATURE_COMPLETION)) {
        return true;
    }
    return lane_state(call, entry) == LANE_FORWARDED && entry->request == call->header.request &&
           entry->seq == call->header.seq;
}

// The answer to a write, from here. The value stays behind, unless keepers are told of it.
STEP u32 write_reply(struct packet *packet, struct call *call, u8 status, u16 cached)
{
    struct header *header = &call->header;
    header->flags = (u16)((header->flags & FLAG_CONDITIONAL) | cached |
                          (header->op == OP_DELETE ? FLAG_DELETE : 0));
    header->op = OP_WRITE_REPLY;
    header->status = status;
    header->generation = snapshot_generation(load_acquire(&registers_of(call)->snapshot));
    bool is_carried = has_keepers(call) && (header->record_flags & RECORD_DIRTY) != 0;
    return is_carried || packet_resize(packet, call, 0) ? REPLY : drop(ROOM);
}

// A request that the entry knows. CONTINUE if it is a new one.
STEP u32 lane_complete(struct packet *packet, struct call *call, const struct lane *entry)
{
    u64 request = call->header.request;
    u8 state = lane_state(call, entry);
    if (!has_feature(call, FEATURE_COMPLETION) || state == LANE_NONE || request > entry->request) {
        return CONTINUE;
    }
    if (request < entry->request) {
        return drop(OLD_REQUEST);
    }
    if (state == LANE_FORWARDED) {
        if (!has_feature(call, FEATURE_RETRY_OLD_SEQ)) {
            return CONTINUE;
        }
        // Not looked up: if a cached record has overtaken it, the node's order of checks copes.
        call->header.seq = entry->seq;
        call->header.flags |= entry->flags;
        count(call, COUNTER_forwarded_writes);
        return FORWARD_TO_HEAD;
    }
    count(call, COUNTER_repeated_answers);
    call->header.seq = entry->seq;
    if (state != LANE_DONE && has_keepers(call)) {
        u32 verdict = tell_again(packet, call, state);
        if (verdict != CONTINUE) {
            return verdict;
        }
    }
    return write_reply(packet, call, entry->status, state == LANE_DONE ? 0 : FLAG_CACHED);
}
