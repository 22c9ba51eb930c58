// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// How often is this key asked for? A count-min sketch (Cormode and Muthukrishnan, J. Algorithms 55,
// 2005) for keys that aren't cached, an exact counter for those that are; both see a sample. A lost
// increment is harmless (these are estimates), a locked instruction a row is not.
#pragma once

#include "packet.h"

STEP bool is_sampled(struct call *call)
{
    return table_random(call) < table_sampling(call);
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

// A miss: counted in each row by another 32 bits of the hash; the least is the estimate. A hot
// key's packet says so.
STEP void track_miss(struct call *call)
{
    if (!has_feature(call, FEATURE_CACHE) || !is_sampled(call)) {
        return;
    }
    u32 estimate = sketch_row(call, 0, (u32)(call->header.hash_high >> 32), ~0u);
    estimate = sketch_row(call, 1, (u32)call->header.hash_high, estimate);
    estimate = sketch_row(call, 2, (u32)(call->header.hash_low >> 32), estimate);
    estimate = sketch_row(call, 3, (u32)call->header.hash_low, estimate);
    if (estimate >= table_threshold(call)) {
        call->header.flags |= FLAG_HOT;
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
