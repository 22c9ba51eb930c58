// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The packet of docs/understand/protocol.md, section 1. crates/wire is its twin in Rust; a test
// compares every offset and number.
#pragma once

#include "platform.h"

#define MAGIC        0x5357
#define VERSION      2
#define HEADER_BYTES 144
// An Ethernet MTU less IPv6 and UDP headers, rounded down.
#define PACKET_BYTES_MAX     1440
#define KEY_BYTES_MAX        1024
#define CACHED_KEY_BYTES_MAX 128
// With the longest cached key it fills a packet.
#define CACHED_VALUE_BYTES_MAX 1168
#define EPOCH_MAX              ((1u << 24) - 1)
#define SEQ_COUNTER_BITS       40
#define SEQ_COUNTER_MAX        ((1ull << SEQ_COUNTER_BITS) - 1)
#define SWITCH_PORT            5357
// As many as a rack may have chains.
#define EPOCHS_OF_ROUND 64u

// The header as it travels: every field big-endian and at its natural offset, at whatever address
// the packet has.
struct wire {
    be16 magic;
    u8 version;
    u8 op;
    be16 flags;
    be16 tenant;
    be32 epoch;
    be16 partition;
    u8 hop;
    u8 ttl;
    be64 seq;
    be64 guard;
    be64 request;
    be32 lane;
    be32 session;
    be64 hash_high;
    be64 hash_low;
    be64 routing_high;
    be64 routing_low;
    be64 expiry_ms;
    be64 tag;
    be32 view;
    be32 generation;
    be32 durable_generation;
    be32 total_bytes;
    be16 value_bytes;
    be16 key_bytes;
    be16 fragment_index;
    be16 fragment_count;
    be64 origin_high;
    be64 origin_low;
    be16 origin_port;
    u8 status;
    u8 record_flags;
    be32 location;
};

// Every field, its offset and size: X(name of the field in C, offset, bytes).
#define WIRE_FIELDS(X)                                                                             \
    X(magic, 0, 2)                                                                                 \
    X(version, 2, 1)                                                                               \
    X(op, 3, 1)                                                                                    \
    X(flags, 4, 2)                                                                                 \
    X(tenant, 6, 2)                                                                                \
    X(epoch, 8, 4)                                                                                 \
    X(partition, 12, 2)                                                                            \
    X(hop, 14, 1)                                                                                  \
    X(ttl, 15, 1)                                                                                  \
    X(seq, 16, 8)                                                                                  \
    X(guard, 24, 8)                                                                                \
    X(request, 32, 8)                                                                              \
    X(lane, 40, 4)                                                                                 \
    X(session, 44, 4)                                                                              \
    X(hash_high, 48, 8)                                                                            \
    X(hash_low, 56, 8)                                                                             \
    X(routing_high, 64, 8)                                                                         \
    X(routing_low, 72, 8)                                                                          \
    X(expiry_ms, 80, 8)                                                                            \
    X(tag, 88, 8)                                                                                  \
    X(view, 96, 4)                                                                                 \
    X(generation, 100, 4)                                                                          \
    X(durable_generation, 104, 4)                                                                  \
    X(total_bytes, 108, 4)                                                                         \
    X(value_bytes, 112, 2)                                                                         \
    X(key_bytes, 114, 2)                                                                           \
    X(fragment_index, 116, 2)                                                                      \
    X(fragment_count, 118, 2)                                                                      \
    X(origin_high, 120, 8)                                                                         \
    X(origin_low, 128, 8)                                                                          \
    X(origin_port, 136, 2)                                                                         \
    X(status, 138, 1)                                                                              \
    X(record_flags, 139, 1)                                                                        \
    X(location, 140, 4)

#define ASSERT_FIELD(name, offset, bytes)                                                          \
    _Static_assert(__builtin_offsetof(struct wire, name) == (offset), "offset of " #name);         \
    _Static_assert(sizeof(((struct wire *)0)->name) == (bytes), "size of " #name);
WIRE_FIELDS(ASSERT_FIELD)
_Static_assert(sizeof(struct wire) == HEADER_BYTES, "the header's size");
_Static_assert(HEADER_BYTES + CACHED_VALUE_BYTES_MAX + CACHED_KEY_BYTES_MAX == PACKET_BYTES_MAX,
               "every cached record fits a packet");

// Operations: X(name, number).
#define OPERATIONS(X)                                                                              \
    X(READ, 1)                                                                                     \
    X(WRITE, 2)                                                                                    \
    X(DELETE, 3)                                                                                   \
    X(FRAGMENT, 4)                                                                                 \
    X(READ_FRAGMENT, 5)                                                                            \
    X(SCAN, 6)                                                                                     \
    X(READ_REPLY, 17)                                                                              \
    X(WRITE_REPLY, 18)                                                                             \
    X(FRAGMENT_REPLY, 20)                                                                          \
    X(READ_FRAGMENT_REPLY, 21)                                                                     \
    X(SCAN_REPLY, 22)                                                                              \
    X(BOUNCE, 24)                                                                                  \
    X(CACHE_UPDATE, 25)                                                                            \
    X(CACHE_UPDATE_ACK, 26)                                                                        \
    X(INVALIDATE, 27)                                                                              \
    X(INVALIDATE_ACK, 28)                                                                          \
    X(PROBE, 29)                                                                                   \
    X(ADMIT, 64)                                                                                   \
    X(SET_VALID, 65)                                                                               \
    X(EVICT_BEGIN, 66)                                                                             \
    X(REMOVE, 67)                                                                                  \
    X(LOAD_RECORD, 68)                                                                             \
    X(LOAD_COUNTERS, 69)                                                                           \
    X(AGE_COUNTERS, 70)                                                                            \
    X(AGE_SKETCH, 71)                                                                              \
    X(SNAPSHOT_BEGIN, 72)                                                                          \
    X(SNAPSHOT_END, 73)                                                                            \
    X(SET_DURABLE_GENERATION, 74)                                                                  \
    X(SET_EPOCH, 75)                                                                               \
    X(LOAD_LANE, 76)                                                                               \
    X(CLEAN, 79)                                                                                   \
    X(ORIGINAL, 80)                                                                                \
    X(EVICT_ME, 81)                                                                                \
    X(FREEZE, 88)                                                                                  \
    X(FORGET, 89)

#define STATUSES(X)                                                                                \
    X(OK, 0)                                                                                       \
    X(NOT_FOUND, 1)                                                                                \
    X(CONDITION_FAILED, 2)                                                                         \
    X(FRAGMENTS_MISSING, 3)                                                                        \
    X(CHANGED, 4)                                                                                  \
    X(NO_SPACE, 5)                                                                                 \
    X(TOO_LARGE, 6)

#define FLAGS(X)                                                                                   \
    X(HOT, 1)                                                                                      \
    X(CACHED, 2)                                                                                   \
    X(FENCED, 4)                                                                                   \
    X(EMBEDDED, 8)                                                                                 \
    X(CONDITIONAL, 16)                                                                             \
    X(LARGE, 32)                                                                                   \
    X(DELETE, 64)

#define RECORD_FLAGS(X)                                                                            \
    X(TOMBSTONE, 1)                                                                                \
    X(DIRTY, 2)

#define OP_NUMBER(name, number)          OP_##name = (number),
#define STATUS_NUMBER(name, number)      STATUS_##name = (number),
#define FLAG_NUMBER(name, number)        FLAG_##name = (number),
#define RECORD_FLAG_NUMBER(name, number) RECORD_##name = (number),

enum op { OPERATIONS(OP_NUMBER) };
enum status { STATUSES(STATUS_NUMBER) };
enum flag { FLAGS(FLAG_NUMBER) };
enum record_flag { RECORD_FLAGS(RECORD_FLAG_NUMBER) };

// Operations from here on are the agent's own and never come from the wire.
#define OP_CONTROL_FIRST OP_ADMIT

// The header in host order, as far as several stages look at it: in the kernel it takes stack for
// as long as a packet is processed.
struct header {
    u64 seq;
    u64 guard;
    u64 request;
    u64 hash_high;
    u64 hash_low;
    u64 expiry_ms;
    u32 epoch;
    u32 lane;
    u32 generation;
    u32 view;
    u16 partition;
    u16 value_bytes;
    u16 key_bytes;
    u16 flags;
    u8 op;
    u8 status;
    u8 record_flags;
};

static inline bool has_flag(const struct header *header, u16 flag)
{
    return (header->flags & flag) != 0;
}
