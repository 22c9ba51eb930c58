// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The pipeline in user space: what crates/datapath and the C tests call. The layouts here are
// repeated in crates/datapath/src/ffi.rs; switchback_layout() lets a test compare them.
#pragma once

#include "call.h"

#define SWITCHBACK_CLASSES_MAX 4

struct switchback_config {
    u64 features;
    u64 sampling; // of 2^32
    u32 class_count;
    u32 value_bytes[SWITCHBACK_CLASSES_MAX];
    u32 slots[SWITCHBACK_CLASSES_MAX];
    u32 lanes;
    u32 partitions; // there is room for: a power of two, to 65536
    u32 nodes;
    u32 sketch_width; // a power of two
    u32 threshold;
    u32 reports; // rounded up to a power of two
    u32 reserved;
};

enum switchback_verdict_kind {
    VERDICT_REPLY,
    VERDICT_FORWARD,
    VERDICT_DROP,
    VERDICT_PASS,
    VERDICT_UP,
    VERDICT_DOWN,
    VERDICT_TAKEN
};

struct switchback_verdict {
    u8 kind;
    u8 reason;
    u8 count;
    u8 reserved;
    u16 nodes[4]; // of FORWARD: the first is where the packet goes
    u32 length;   // of the packet, which stays in its buffer
};

// A packet to process.
struct switchback_item {
    u8 *bytes; // a buffer of PACKET_BYTES_MAX
    const struct address *from;
    u32 length;
    u32 random; // uniform
};

// State as vectors describe it. For tests; packets are the only other way to change it.
struct switchback_record_image {
    u64 seq;
    u64 adm;
    u64 expiry_ms;
    u64 incarnation;
    u64 hash_high;
    u64 hash_low;
    u32 generation;
    u32 counter;
    u16 value_bytes;
    u16 key_bytes;
    u8 state;
    u8 reserved[3];
    u8 key[CACHED_KEY_BYTES_MAX];
    u8 value[CACHED_VALUE_BYTES_MAX];
};

struct switchback_lane_image {
    u64 request;
    u64 seq;
    u8 state;
    u8 status;
    u16 flags;
    u8 locked;
    u8 reserved[3];
    u32 epoch;
    u32 padding;
};

struct switchback_registers_image {
    u32 epoch;
    u32 generation;
    u32 durable_generation;
    u32 snapshot_active;
    struct chain_place place;
};

// NULL if memory runs out or the configuration makes no sense.
struct switchback *switchback_new(const struct switchback_config *config);
void switchback_free(struct switchback *switchback);

// Packets, in this order, and what becomes of each. Any number of threads, each with a shard of its
// own (0 to 15). What later packets of a batch need is fetched into the CPU's caches meanwhile.
void switchback_process(struct switchback *switchback, const struct switchback_item *items,
                        struct switchback_verdict *verdicts, u32 count, u64 now_ms, u32 shard);
// One of the agent's control packets; `bytes` is a buffer of PACKET_BYTES_MAX.
void switchback_inject(struct switchback *switchback, u8 *bytes, u32 length,
                       struct switchback_verdict *verdict);

// Tables. One caller at a time. What is inserted: an `enum lookup_insert` of lookup.h.
u32 switchback_lookup_insert(struct switchback *switchback, u64 hash_high, u64 hash_low,
                             u32 location);
bool switchback_lookup_remove(struct switchback *switchback, u64 hash_high, u64 hash_low,
                              u32 location);
// The map of partitions: as many buckets as partitions there is room for, and no more ranges.
void switchback_set_routes(struct switchback *switchback, const struct route_bucket *buckets,
                           const struct range *ranges, u32 range_count);
void switchback_set_node(struct switchback *switchback, u32 node, const struct address *address);
// The switch's place in its chain. The epoch is 0.
void switchback_set_place(struct switchback *switchback, const struct chain_place *place);
// Where packets of the verdicts UP and DOWN go. Any thread.
void switchback_neighbour(struct switchback *switchback, bool is_before, struct address *address);
void switchback_set_lanes(struct switchback *switchback, u32 granted);
// How keys are counted from now on: a share of the packets, of 2^32; a key is hot from an estimate
// of `threshold` on; nodes are told of `offers` hot keys. Returned: how many were left of those
// before. Any thread.
u32 switchback_set_counting(struct switchback *switchback, u64 sampling, u32 threshold, u32 offers);
void switchback_clear(struct switchback *switchback);

// How much of an epoch's sequence numbers the fullest bucket has used, in 256ths; 0 below half. Any
// thread.
u32 switchback_sequence_used(struct switchback *switchback);
// How many probes have come, ever: short and full ones of the switch before, then of the one after.
void switchback_heard(struct switchback *switchback, u32 heard[4]);

// The next report's length, or 0; `bytes` is a buffer of PACKET_BYTES_MAX. Any thread.
u32 switchback_next_report(struct switchback *switchback, u8 *bytes);
// Counters and drops, STATISTIC_COUNT of them, summed over the shards; or one of them. Any thread.
void switchback_statistics(struct switchback *switchback, u64 *sums);
u64 switchback_statistic(struct switchback *switchback, u32 index);
const char *switchback_statistic_name(u32 index);

// State injection, for tests. False: there is no such place.
bool switchback_peek_record(struct switchback *switchback, u32 location,
                            struct switchback_record_image *image);
bool switchback_poke_record(struct switchback *switchback, u32 location,
                            const struct switchback_record_image *image);
bool switchback_peek_lane(struct switchback *switchback, u32 lane,
                          struct switchback_lane_image *image);
bool switchback_poke_lane(struct switchback *switchback, u32 lane,
                          const struct switchback_lane_image *image);
void switchback_peek_registers(struct switchback *switchback,
                               struct switchback_registers_image *image);
void switchback_poke_registers(struct switchback *switchback,
                               const struct switchback_registers_image *image);
u64 switchback_peek_sequence(struct switchback *switchback, u64 hash_low);
void switchback_poke_sequence(struct switchback *switchback, u64 hash_low, u64 counter);
void switchback_poke_sketch(struct switchback *switchback, u64 hash_high, u64 hash_low,
                            u32 estimate);

// Names and numbers of wire.h, call.h and this file, for comparison with their Rust twins.
struct switchback_number {
    const char *name;
    u64 number;
};
const struct switchback_number *switchback_layout(u32 *length);
