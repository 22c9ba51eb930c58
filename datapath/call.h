// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// One call of the pipeline: what comes in beside the packet, what the stages learn about it, and
// what becomes of it.
#pragma once

#include "wire.h"

// Which scheme runs and which mechanisms: X(name, bit). With SWITCHBACK_ABLATIONS, which the
// laboratory builds, every mechanism can be left out, so that a simulation proves that its checks
// would notice.
#define FEATURES(X)                                                                                \
    X(CACHE, 0)             /* look keys up at all */                                              \
    X(WRITE_BACK, 1)        /* absorb writes (FarReach) */                                         \
    X(WRITE_THROUGH, 2)     /* invalidate on write, take the node's update (NetCache) */           \
    X(EMBEDDING, 3)         /* reads of an outdated dirty record under eviction carry it */        \
    X(SEQ_COMPARE, 4)       /* only what is newer is stored */                                     \
    X(VALIDITY, 5)          /* a record serves only after SET_VALID */                             \
    X(OUTDATED, 6)          /* a record that may be older than the node's doesn't answer */        \
    X(FENCE, 7)             /* promotion by fenced reads */                                        \
    X(INCARNATION_CHECK, 8) /* control packets name the incarnation they mean */                   \
    X(SNAPSHOT_COW, 9)      /* originals are reported before they are overwritten */               \
    X(COMPLETION, 10)       /* at most once */                                                     \
    X(EPOCH_FENCE, 11)      /* other epochs' packets are refused */                                \
    X(RETRY_OLD_SEQ, 12)    /* a retry of a forwarded write goes on with its seq */                \
    X(CONDITION_ADM, 13)    /* a forwarded conditional write keeps older answers from promoting */ \
    X(CONDITION_WAIT, 14)   /* a conditional write waits for the end of an eviction */             \
    X(REPORT_FIRST, 15)     /* what can't report its original doesn't change */                    \
    X(LAYERS, 16)           /* chains may have several switches */                                 \
    X(NEIGHBOUR, 17)        /* a chain's switches take packets of their neighbours only */         \
    X(KEEPING, 18)          /* keepers keep what the owner tells */                                \
    X(READER_KEEPING, 19)   /* of it, what readers are told */                                     \
    X(REFUSAL_KEEPING, 20)  /* and what conditions are refused by */                               \
    X(REPEAT_KEPT, 21)      /* an answer from a lane is kept again */                              \
    X(REPEAT_LOOKUP, 22)    /* but not once a node has the record */                               \
    X(SUPERSEDED_KEPT, 23)  /* a write that was overwritten before it was stored is kept */        \
    X(KEEP_NEWER, 24)       /* a keeper replaces what is older only */                             \
    X(KEEP_OR_DROP, 25)     /* what a keeper can't keep it doesn't pass */                         \
    X(KEPT_FIRST, 26)       /* the owner answers through its keepers */                            \
    X(KEEPER_SILENCE, 27)   /* a keeper answers nothing by itself */                               \
    X(RECORD_EPOCH, 28)     /* records and completions of another epoch don't count */             \
    X(CLEAN_COMPARE, 29)    /* clean is the version that a node has, no later one */               \
    X(COPIES, 30)           /* records are copies, which nodes fill and invalidate (DistCache) */

#define FEATURE_BIT(name, bit) FEATURE_##name = 1u << (bit),
enum feature { FEATURES(FEATURE_BIT) };

// The features that depend on the scheme.
#define FEATURES_OF_SCHEMES                                                                        \
    (FEATURE_CACHE | FEATURE_WRITE_BACK | FEATURE_WRITE_THROUGH | FEATURE_LAYERS | FEATURE_COPIES)

// Whether a feature is on, by the mask. Mechanisms are always on where they can't be left out, so
// their checks compile to nothing.
STEP bool is_on(u64 features, u64 bit)
{
#ifndef SWITCHBACK_ABLATIONS
    if ((bit & FEATURES_OF_SCHEMES) == 0) {
        return true;
    }
#endif
    return (features & bit) != 0;
}

// Why a packet was dropped: X(name).
#define DROP_REASONS(X)                                                                            \
    X(NONE)                                                                                        \
    X(SHORT)         /* not even a header */                                                       \
    X(MAGIC)         /* not a Switchback packet */                                                 \
    X(VERSION)       /* another version */                                                         \
    X(OPERATION)     /* unknown, or not one that a switch takes */                                 \
    X(LENGTH)        /* lengths don't add up */                                                    \
    X(KEY)           /* empty or too long */                                                       \
    X(CONTROL)       /* a control operation from the wire, or one that makes no sense */           \
    X(SENDER)        /* only a node may say this */                                                \
    X(EPOCH)         /* another epoch, or none yet */                                              \
    X(ROUTE)         /* the partition has no node */                                               \
    X(LANE)          /* not granted */                                                             \
    X(BUSY)          /* a packet of the lane is being processed */                                 \
    X(OLD_REQUEST)   /* the lane is at a later request */                                          \
    X(NOT_PENDING)   /* the lane doesn't wait for this answer */                                   \
    X(CONTENDED)     /* a record stayed locked */                                                  \
    X(SEQ_EXHAUSTED) /* the epoch's sequence numbers are used up */                                \
    X(EVICTING)      /* a conditional write has to wait for an eviction */                         \
    X(ROOM)          /* the frame can't grow */                                                    \
    X(UNREPORTED)    /* no room for the report that has to come before the change */               \
    X(TTL)           /* passed as many switches as it may */                                       \
    X(NEIGHBOUR)     /* in a chain, not from the switch that may send it */                        \
    X(UNKEPT)        /* a keeper has no place for what it must keep */

#define DROP_NUMBER(name) DROP_##name,
enum drop_reason { DROP_REASONS(DROP_NUMBER) DROP_REASON_COUNT };

// What is counted beside drops: X(name). Operations first.
#define COUNTERS(X)                                                                                \
    X(read)                                                                                        \
    X(write)                                                                                       \
    X(delete)                                                                                      \
    X(fragment)                                                                                    \
    X(read_fragment)                                                                               \
    X(scan)                                                                                        \
    X(read_reply)                                                                                  \
    X(write_reply)                                                                                 \
    X(fragment_reply)                                                                              \
    X(read_fragment_reply)                                                                         \
    X(scan_reply)                                                                                  \
    X(bounce)                                                                                      \
    X(cache_update)                                                                                \
    X(invalidate)                                                                                  \
    X(probe)                                                                                       \
    X(control)                                                                                     \
    X(read_hits)                                                                                   \
    X(read_misses)                                                                                 \
    X(write_hits)                                                                                  \
    X(write_misses)                                                                                \
    X(fenced_reads)                                                                                \
    X(embedded_reads)                                                                              \
    X(plain_reads)                                                                                 \
    X(absorbed_writes)                                                                             \
    X(forwarded_writes)                                                                            \
    X(repeated_answers)                                                                            \
    X(bounces_executed)                                                                            \
    X(promotions)                                                                                  \
    X(cache_updates_applied)                                                                       \
    X(condition_failures)                                                                          \
    X(self_evictions)                                                                              \
    X(hot_misses)                                                                                  \
    X(reports)                                                                                     \
    X(passed)                                                                                      \
    X(kept)

#define COUNTER_NUMBER(name) COUNTER_##name,
enum counter { COUNTERS(COUNTER_NUMBER) COUNTER_COUNT };
#define STATISTIC_COUNT ((u32)COUNTER_COUNT + (u32)DROP_REASON_COUNT)

// A verdict of the pipeline; a drop adds its reason. CONTINUE: the next stage decides.
#define CONTINUE        0u
#define REPLY           1u
#define FORWARD_TO_HEAD 2u
#define FORWARD_TO_TAIL 3u
#define UP              4u // to the switch before
#define DOWN            5u // to the switch after
#define TAKEN           6u // it was for this switch, and ends here
#define DROPPED         0x100u
#define drop(reason)    (DROPPED | (u32)DROP_##reason)
#define is_drop(v)      (((v) & DROPPED) != 0)

// An endpoint: IPv6, or IPv4 mapped into it. The port is in host order. crates/wire has the same
// layout.
struct address {
    u8 ip[16];
    u16 port;
};
_Static_assert(sizeof(struct address) == 18, "as the Address of crates/wire");

// Switches of a chain.
#define LAYERS_MAX 8u

// A switch's place in its chain, as FREEZE brings it and registers have it. Changed while the epoch
// is 0. See chain.h.
struct chain_place {
    u8 position; // 1: next to the clients; `length`: next to the nodes
    u8 length;
    u8 protects; // clients preserve nothing
    u8 reserved;
    u16 before_port; // of the switch at the position before, big-endian; 0: there is none
    u16 after_port;
    u64 before[2]; // its address: bytes, compared by words
    u64 after[2];
};
_Static_assert(sizeof(struct chain_place) == 40, "as in crates/wire");

// `class (2 bits) | slot (30 bits)`: where a record lives, in tables and packets.
#define SLOT_BITS   30u
#define CLASS_MAX   4u
#define NO_LOCATION 0xffffffffu
#define SLOTS_MAX   ((1u << SLOT_BITS) - 1)

STEP u32 location_of(u32 size_class, u32 slot)
{
    return size_class << SLOT_BITS | slot;
}

STEP u32 class_of(u32 location)
{
    return location >> SLOT_BITS;
}

STEP u32 slot_of(u32 location)
{
    return location & SLOTS_MAX;
}

// The replicas of a partition from the head to the tail, 16 bits each from the lowest up, in one
// word that is read whole.
#define REPLICAS_MAX 4u
#define NO_NODE      0xffffu
#define NO_ROUTE     (~0ull)

// A partition is a range of keys; the next one's start is its end.
struct range {
    u64 start_high;
    u64 start_low;
    u64 route;
    u32 view;
    u16 partition;
    u16 reserved;
};

// The keys that have their top bits in common, and the ranges that meet there, by their places in
// the table. If it is one range, its partition, view and route are here, too.
struct route_bucket {
    u64 route;
    u32 view;
    u16 partition;
    u16 first;
    u16 last;
    u16 reserved[3];
};

// Steps of the search among as many ranges as there can be.
#define RANGE_BITS 16u

STEP u16 route_node(u64 route, u32 index)
{
    return (u16)(route >> (16 * index));
}

#ifdef __bpf__
struct statistics;
struct record;
#else
struct switchback;
struct run;
struct switchback_item;
struct foreknown;
#endif

struct call {
    struct header header; // as decoded by parse(), changed by the stages, written back by emit()
#ifdef __bpf__
    struct address from; // the sender; compared by words, so it has to be aligned like them
    u16 at;              // of the header in the frame
#endif
    u8 injected;      // by the agent, not from the wire
    u8 stamps_origin; // the answer goes to the sender, whose address isn't in the packet yet
    u32 epoch;        // the switch's when the packet came in; not 0
    u32 location;     // of the key, after its lookup
#ifdef __bpf__
    u32 random; // uniform; 0: ask the kernel
#endif
    u64 route; // the replicas of the packet's partition
#ifdef __bpf__
    struct statistics *statistics; // of this CPU
    struct record *record;         // at the location that was found, or NULL
    u64 now_ms;                    // since the Unix epoch; 0: ask the kernel
#else
    struct switchback *switchback;
    const struct run *run;
    const struct switchback_item *item;
    struct foreknown *foreknown;
    bool is_layered; // known when this is compiled
#endif
};
