// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Tables in plain memory.
#pragma once

struct lookup_table {
    struct bucket *buckets;
    u32 mask;
};

STEP struct bucket *lookup_bucket(const struct lookup_table *table, u64 hash_low, u32 probe)
{
    return &table->buckets[((u32)hash_low + probe) & table->mask];
}

#include "lookup.h"
#include "native.h"

// A lookup made ahead of its packet, so that memory has time; it holds while the bucket has this
// version.
struct ahead {
    const struct bucket *bucket;
    u32 version;
};

STEP void lookup_begin(const struct lookup_table *table, u64 hash_low, struct ahead *ahead)
{
    ahead->bucket = lookup_bucket(table, hash_low, 0);
    prefetch(ahead->bucket);
}

// The location, or NO_LOCATION.
STEP u32 lookup_ahead(u64 tag, struct ahead *ahead)
{
    bool goes_on = false;
    u32 version = load_acquire(&ahead->bucket->version);
    u32 location = bucket_find(ahead->bucket, tag, &goes_on);
    // An even version that is past never comes again: while the writer is in the bucket nothing
    // holds, nor does what this bucket alone can't say.
    ahead->version = (version & ~1u) - (location == NO_LOCATION && goes_on ? 2 : 0);
    return location;
}

STEP bool lookup_holds(const struct ahead *ahead)
{
    fence_acquire();
    return likely(load_relaxed(&ahead->bucket->version) == ahead->version);
}

#define CACHE_LINE 64u
// The last shard belongs to the agent, whose packets may come from any thread.
#define SHARDS        16u
#define CONTROL_SHARD SHARDS

// Records of one size, with the access counters in an array of their own: a sweep over them touches
// no record.
struct size_class {
    u8 *records;
    u32 *counters;
    u64 stride;
    u32 value_bytes;
    u32 slots;
};

// A bounded ring of whole packets for several producers: Vyukov's bounded MPMC queue
// (1024cores.net), with one consumer. `turn` says whose turn a cell is: the producer's at the
// cell's ticket, the consumer's one later.
struct report_cell {
    u64 turn;
    u32 length;
    u8 bytes[PACKET_BYTES_MAX];
};

struct report_ring {
    struct report_cell *cells;
    u64 mask;
    u64 head __attribute__((aligned(CACHE_LINE)));
    u64 tail __attribute__((aligned(CACHE_LINE)));
};

// Addresses of the nodes. Under a seqlock: their version is odd while they are written.
struct node_table {
    u32 version;
    u32 mask;
    u16 *index; // open addressing: node + 1, or 0
    struct address *addresses;
    u8 *known;
    u32 count;
};

// The map of partitions. Set while the epoch refuses every packet; one that was let in before may
// meet with both maps, and goes to a node that refuses its epoch.
struct route_table {
    struct route_bucket *buckets;
    struct range *ranges;
    u32 shift; // of a hash's upper half: twice, since there may be one bucket only
    u32 mask;  // buckets, and ranges, less one
};

struct switchback {
    u64 features;
    u32 sketch_mask;
    u32 lane_count;
    u32 class_count;
    u64 *sequences;
    u32 *sketch;
    struct lane *lanes;
    u64 *statistics;
    struct size_class classes[CLASS_MAX];
    struct lookup_table lookup;
    struct route_table routes;
    struct node_table nodes;
    struct registers registers __attribute__((aligned(CACHE_LINE)));
    struct report_ring reports;
};

#define STATISTIC_STRIDE (((u64)STATISTIC_COUNT + 7u) / 8u * 8u)

// What all packets of a caller have in common.
struct run {
    struct switchback *switchback;
    u64 now_ms;
    u64 *statistics; // the caller's shard
};

STEP bool has_feature(const struct call *call, u64 bit)
{
    return is_on(call->switchback->features, bit);
}

STEP bool is_layered(const struct call *call)
{
    return call->is_layered;
}

STEP struct registers *registers_of(struct call *call)
{
    return &call->switchback->registers;
}

// Where a record is, and what is beside it.
struct found {
    struct record *record; // NULL: there is none
    u32 *counter;
    u32 location;
    u32 value_bytes; // that it has room for
};

STEP struct found found_at(const struct switchback *switchback, u32 location)
{
    const struct size_class *of = &switchback->classes[class_of(location)];
    u64 slot = slot_of(location);
    // Classes that aren't there have no slots, and no class has the last one, which NO_LOCATION
    // names.
    if (unlikely(slot >= of->slots)) {
        return (struct found){.location = location};
    }
    return (struct found){.record = (struct record *)(void *)(of->records + slot * of->stride),
                          .counter = &of->counters[slot],
                          .location = location,
                          .value_bytes = of->value_bytes};
}

// All lines of a record at once, before the first is looked at: one wait for memory instead of one
// for the head, one for the value and one for the counter.
STEP void found_prefetch(const struct found *found)
{
    const u8 *record = (const u8 *)found->record;
    prefetch_for_write(record);
    for (u32 at = 0; at < found->value_bytes; at += CACHE_LINE) {
        prefetch(record + sizeof(struct record) + at);
    }
    prefetch_for_write(found->counter);
}

// What is known of a packet's key before its turn comes.
struct foreknown {
    struct ahead ahead;
    struct found found;
};

SELDOM enum lookup_result lookup_patiently(const struct lookup_table *table, u64 tag, u64 hash_low,
                                           u32 *location)
{
    return lookup_all(table, tag, hash_low, location);
}

STEP enum lookup_result table_location(struct call *call)
{
    struct foreknown *foreknown = call->foreknown;
    if (unlikely(!lookup_holds(&foreknown->ahead))) {
        u32 location = NO_LOCATION;
        if (lookup_patiently(&call->switchback->lookup, call->header.hash_high,
                             call->header.hash_low, &location) == LOOKUP_CONTENDED) {
            return LOOKUP_CONTENDED;
        }
        foreknown->found = found_at(call->switchback, location);
    }
    call->location = foreknown->found.location;
    return call->location != NO_LOCATION ? LOOKUP_HIT : LOOKUP_MISS;
}

STEP struct record *found_record(struct call *call)
{
    return call->foreknown->found.record;
}

STEP u32 *found_counter(struct call *call)
{
    return call->foreknown->found.counter;
}

STEP u32 found_capacity(struct call *call)
{
    return call->foreknown->found.value_bytes;
}

STEP struct record *table_record(struct call *call, u32 location)
{
    return found_at(call->switchback, location).record;
}

STEP u32 *table_counter(struct call *call, u32 location)
{
    return found_at(call->switchback, location).counter;
}

STEP u8 *table_value(struct record *record)
{
    return (u8 *)(record + 1);
}

STEP u64 *table_sequence(struct call *call, u32 bucket)
{
    return &call->switchback->sequences[bucket & (SEQUENCE_BUCKETS - 1)];
}

STEP struct lane *table_lane(struct call *call, u32 lane)
{
    return likely(lane < call->switchback->lane_count) ? &call->switchback->lanes[lane] : NULL;
}

STEP u32 *table_sketch(struct call *call, u32 row, u32 index)
{
    u64 width = (u64)call->switchback->sketch_mask + 1;
    return &call->switchback->sketch[row * width + (index & call->switchback->sketch_mask)];
}

STEP u32 table_sketch_width(struct call *call)
{
    return call->switchback->sketch_mask + 1;
}

STEP const struct address *sender(const struct call *call)
{
    return call->item->from;
}

STEP u64 table_now_ms(const struct call *call)
{
    return call->run->now_ms;
}

STEP u32 table_random(const struct call *call)
{
    return call->item->random;
}

STEP struct route_table table_routes(struct call *call)
{
    return call->switchback->routes;
}

STEP const struct route_bucket *route_bucket(const struct route_table *table, u64 hash_high)
{
    return &table->buckets[hash_high >> 32 >> table->shift];
}

STEP const struct range *route_range(const struct route_table *table, u32 at)
{
    return &table->ranges[at & table->mask];
}

// Nothing: the caller of the pipeline has prefetched a batch's memory already; see process.h.
STEP void table_prefetch(const struct call *call)
{
    (void)call;
}

STEP void table_prefetch_write(struct switchback *switchback, u64 hash_low, u32 lane)
{
    prefetch_for_write(&switchback->sequences[hash_low & (SEQUENCE_BUCKETS - 1)]);
    if (lane < switchback->lane_count) {
        prefetch_for_write(&switchback->lanes[lane]);
    }
}

STEP void count(struct call *call, u32 statistic)
{
    u64 *at = &call->run->statistics[statistic];
    if (unlikely(call->injected)) {
        (void)__atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
        return;
    }
    // One writer a shard, so no locked instruction.
    store_relaxed(at, load_relaxed(at) + 1);
}

STEP u64 load_word(const u8 *at)
{
    u64 word;
    memcpy(&word, at, sizeof(word));
    return word;
}

STEP bool address_equals(const struct address *a, const struct address *b)
{
    return ((load_word(a->ip) ^ load_word(b->ip)) |
            (load_word(a->ip + 8) ^ load_word(b->ip + 8))) == 0 &&
           a->port == b->port;
}

STEP u32 address_hash(const struct address *address)
{
    u64 high = load_word(address->ip), low = load_word(address->ip + 8);
    u64 mixed = (high ^ (low * 0x9e3779b97f4a7c15ull) ^ address->port) * 0xff51afd7ed558ccdull;
    return (u32)(mixed >> 32);
}

STEP bool table_is_node(struct call *call, const struct address *address)
{
    struct node_table *nodes = &call->switchback->nodes;
    for (u32 attempt = 0; attempt < RECORD_ATTEMPTS; attempt++) {
        u32 version = load_acquire(&nodes->version);
        bool found = false;
        u32 at = address_hash(address) & nodes->mask;
        for (u32 probe = 0; probe <= nodes->mask; probe++) {
            u32 entry = load_relaxed(&nodes->index[(at + probe) & nodes->mask]);
            if (entry == 0) {
                break;
            }
            if (address_equals(&nodes->addresses[entry - 1], address)) {
                found = true;
                break;
            }
        }
        fence_acquire();
        if (likely((version & 1) == 0 && load_relaxed(&nodes->version) == version)) {
            return found;
        }
        relax(attempt);
    }
    return false;
}

// It gets no `struct call`: as long as its address doesn't escape, compilers keep it in registers.
bool native_report(struct switchback *switchback, u32 epoch, struct record *record, u32 location,
                   u8 op);

STEP bool table_report(struct call *call, struct record *record, u32 location, u8 op)
{
    return native_report(call->switchback, call->epoch, record, location, op);
}
