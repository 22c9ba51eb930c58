// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The one seam between plain memory and BPF maps: everything that outlives a packet, and how it is
// reached.
//
// Each target defines these, and nothing else of it is visible to the stages:
//
// clang-format off
//     registers_of(call)                         epoch, generations, lanes, counting:
//                                                struct registers *
//     has_feature(call, bit)                     a bit of the scheme and its mechanisms
//     is_layered(call)                           FEATURE_LAYERS, whose code costs others nothing
//     table_location(call)                       of the key hash: hit, miss or contended
//     table_record(call, location)               struct record *; NULL where there is none
//     table_counter(call, location)              accesses to the record: u32 *
//     found_record(call), found_counter(call)    of the location that table_location found
//     found_capacity(call)                       bytes that a value may have there
//     table_value(record)                        its value; in BPF for packet_bpf.h alone, which
//                                                copies it
//     table_sequence(call, bucket)               the bucket's last sequence number: u64 *
//     table_lane(call, lane)                     struct lane *; NULL where there is none
//     table_sketch(call, row, index)             a counter of the count-min sketch: u32 *
//     table_sketch_width(call)                   counters in a row of it
//     table_routes(call)                         the map of partitions
//     route_bucket(table, hash)                  of that map: where to begin to look
//     route_range(table, at)                     of that map: one range
//     table_prefetch(call)                       what the packet will need by key hash and lane
//     table_is_node(call, address)               whether a node is at the address
//     table_report(call, record, location, op)   tells the agent; false: there was no room
//     sender(call)                               the packet's: struct address *
//     table_now_ms(call), table_random(call)     the call's; BPF asks the kernel when needed
//     count(call, counter)                       adds one to a statistic
// clang-format on
#pragma once

#include "call.h"

// Sequence counters are per bucket of keys, not one contended counter; the low bits of the key hash
// choose.
#define SEQUENCE_BUCKETS (1u << 15)
#define SKETCH_ROWS      4u

// State of a record.
enum record_state {
    STATE_VALID = 1,
    STATE_LATEST = 2,
    STATE_EVICTING = 4,
    STATE_REFRESH = 8, // NetCache: the node's update is on its way
    STATE_TOMBSTONE = 16,
    STATE_DIRTY = 32,
    STATE_DEPENDENT =
        64, // made upon the version before it: by a condition, or by a node, which alone knows
};
// The bits that control packets see in `guard`; the other two travel as record flags.
#define STATE_OWNERSHIP (STATE_VALID | STATE_LATEST | STATE_EVICTING | STATE_REFRESH)

// A cached record. `version` is odd while a writer has it; what is above the key fits its first
// cache line with the beginning of the key, so a short key costs no line of its own. What packets
// don't ask for is behind the key. The value follows. Its epoch is that of `adm`, which SET_VALID
// takes from the epoch's numbers and packets of that epoch raise.
struct record {
    u32 version;
    u32 generation;
    u64 seq;
    u64 adm;
    u64 expiry_ms;
    u64 hash_low;
    u16 value_bytes;
    u16 key_bytes;
    u8 state;
    u8 reserved;
    u16 tenant; // 0 until tenants exist
    u8 key[CACHED_KEY_BYTES_MAX];
    u64 hash_high;
    u64 incarnation;
};
_Static_assert(__builtin_offsetof(struct record, key) == 48,
               "the key begins in the first cache line");
_Static_assert(sizeof(struct record) == 192, "a record's value begins on a cache line");

enum lane_state { LANE_NONE, LANE_APPLIED, LANE_CONDITION_FAILED, LANE_FORWARDED, LANE_DONE };

// What became of a lane's newest write. Locked while a packet of the lane is processed.
struct lane {
    u32 locked;
    u8 state;
    u8 status;
    u16 flags; // CACHED if it was forwarded so
    u64 request;
    u64 seq;   // of a refusal, the record's: it may be of an older epoch
    u32 epoch; // in which it was made; in another one it counts as empty
    u32 padding;
};
_Static_assert(sizeof(struct lane) == 32, "no lane crosses a cache line");

// One word, so that one load says both: which generation, and whether a snapshot of it is being
// taken.
#define SNAPSHOT_ACTIVE                 1ull
#define snapshot_generation(word)       ((u32)((word) >> 32))
#define snapshot_of(generation, active) ((u64)(generation) << 32 | (active))

// How many packets have come lately; see load.h.
struct load {
    u32 window; // the number of the present one
    u32 now;
    u32 before;
};

struct registers {
    u32 epoch; // 0: not configured; every packet is refused
    u32 durable_generation;
    u64 snapshot;
    u32 lanes; // granted
    u32 sequence_used;
    // How keys are counted and told of; the agent sets it anew all the time. See sketch.h.
    u64 sampling;  // of 2^32: a request counts if table_random(call) is less
    u32 threshold; // estimate from which on a key is hot
    u32 offers;    // hot keys that nodes may still be told of
    struct chain_place place;
    // Probes that have come, ever: from the switch before and the one after, short and full.
    u32 heard[2][2];
    struct load load; // DistCache's
};
_Static_assert(__builtin_offsetof(struct registers, place.before) == 48,
               "what packets ask first is in one cache line");

// A cache line of the lookup table; see lookup.h.
#define BUCKET_ENTRIES 4u
struct bucket {
    u32 version;
    u32 overflow;
    u64 tags[BUCKET_ENTRIES];
    u32 locations[BUCKET_ENTRIES]; // NO_LOCATION: free
    u64 padding;
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

enum lookup_result { LOOKUP_MISS, LOOKUP_HIT, LOOKUP_CONTENDED };

#ifdef __bpf__
#include "tables_bpf.h"
#else
#include "tables_native.h"
#endif
