// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// How often is this key asked for? A count-min sketch (Cormode and Muthukrishnan, J. Algorithms 55,
// 2005) for keys that aren't cached, an exact counter for those that are; both see a sample. A lost
// increment is harmless (these are estimates), a locked instruction a row is not.
//
// The agent says how large the sample is, how often a key must have been counted to be hot, and how
// many hot keys nodes may be told of until it says so again: each of them costs the node a durable
// mark. (crates/core/src/switch/learning.rs)
#pragma once

#include "packet.h"

// A hot key is told of at every count to TOLD_ALWAYS, then at every TOLD_SELDOM-th: again, since an
// offer may be lost or declined, but not each time, since other keys need offers, too.
#define TOLD_ALWAYS 16u
#define TOLD_SELDOM 8u

STEP bool is_sampled(struct call *call)
{
    return table_random(call) < load_relaxed(&registers_of(call)->sampling);
}

STEP u32 counter_increment(u32 *counter)
{
    u32 value = load_relaxed(counter);
    if (likely(value != ~0u)) {
        store_relaxed(counter, ++value);
    }
    return value;
}

STEP u32 sketch_row(struct call *call, u32 row, u32 index, u32 estimate)
{
    u32 *counter = table_sketch(call, row, index);
    u32 value = counter != NULL ? counter_increment(counter) : 0;
    return value < estimate ? value : estimate;
}

// Whether a node is to be told that a key was counted this often. Two packets at once may both take
// the last of the offers.
STEP bool is_told(struct call *call, u32 estimate)
{
    struct registers *registers = registers_of(call);
    bool is_turn = estimate < TOLD_ALWAYS || estimate % TOLD_SELDOM == 0;
    if (likely(estimate < load_relaxed(&registers->threshold) || !is_turn)) {
        return false;
    }
    u32 offers = load_relaxed(&registers->offers);
    if (offers == 0) {
        return false;
    }
    store_relaxed(&registers->offers, offers - 1);
    return true;
}

// A miss: counted in each row by another 32 bits of the hash; the least is the estimate. A hot
// key's packet says so, and how often it was counted.
STEP void track_miss(struct call *call)
{
    if (!has_feature(call, FEATURE_CACHE) || !is_sampled(call)) {
        return;
    }
    u32 estimate = sketch_row(call, 0, (u32)(call->header.hash_high >> 32), ~0u);
    estimate = sketch_row(call, 1, (u32)call->header.hash_high, estimate);
    estimate = sketch_row(call, 2, (u32)(call->header.hash_low >> 32), estimate);
    estimate = sketch_row(call, 3, (u32)call->header.hash_low, estimate);
    if (is_told(call, estimate)) {
        call->header.flags |= FLAG_HOT;
        call->header.generation = estimate;
        count(call, COUNTER_hot_misses);
    }
}

// A hit. No branch on the sampling: it is as good as random, and foretold wrongly it costs more
// than the store, whose line was fetched along with the record.
STEP void track_hit(struct call *call)
{
    u32 *counter = found_counter(call);
    if (likely(counter != NULL)) {
        u32 value = load_relaxed(counter);
        store_relaxed(counter, value + (u32)(is_sampled(call) & (value != ~0u)));
    }
}
