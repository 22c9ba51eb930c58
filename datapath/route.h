// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Stage 2: the partition that a packet's key belongs to, and whether it has a node.
//
// Partitions are ranges of the routing key, 128 bits, which is the key hash. An index by the key's
// top bits says of each bucket that all its keys belong to one partition, as is so if ranges are
// equal, or which ranges meet in it. Those are searched.
#pragma once

#include "packet.h"

STEP bool starts_by(const struct range *range, u64 high, u64 low)
{
    u64 start_high = load_relaxed(&range->start_high);
    return start_high < high || (start_high == high && load_relaxed(&range->start_low) <= low);
}

// Of the ranges from `first` to `last`, the last one that starts at or below the key. The first one
// does.
SELDOM u32 search_ranges(const struct route_table *table, u64 high, u64 low, u32 first, u32 last)
{
    // While the table is set, a reader may see one end of another map.
    u32 count = last >= first ? last - first + 1 : 1;
    for (u32 step = 0; step < RANGE_BITS && count > 1; step++) {
        u32 half = count / 2;
        const struct range *middle = route_range(table, first + half);
        if (middle != NULL && starts_by(middle, high, low)) {
            first += half;
        }
        count -= half;
    }
    return first;
}

STEP u32 route(struct call *call)
{
    struct route_table table = table_routes(call);
    const struct route_bucket *bucket = route_bucket(&table, call->header.hash_high);
    if (bucket == NULL) {
        return drop(ROUTE);
    }
    u32 first = load_relaxed(&bucket->first);
    u32 last = load_relaxed(&bucket->last);
    if (likely(first == last)) {
        call->header.partition = load_relaxed(&bucket->partition);
        call->header.view = load_relaxed(&bucket->view);
        call->route = load_relaxed(&bucket->route);
    } else {
        u32 at = search_ranges(&table, call->header.hash_high, call->header.hash_low, first, last);
        const struct range *range = route_range(&table, at);
        if (range == NULL) {
            return drop(ROUTE);
        }
        call->header.partition = load_relaxed(&range->partition);
        call->header.view = load_relaxed(&range->view);
        call->route = load_relaxed(&range->route);
    }
    return likely(call->route != NO_ROUTE) ? CONTINUE : drop(ROUTE);
}
