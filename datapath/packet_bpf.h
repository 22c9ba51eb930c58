// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// A packet in an XDP frame. Values and keys are moved by words, each checked, since the verifier
// follows no computed length: a helper that moves bytes costs more than a value's words. The
// functions that do it are global, so the verifier looks at each once and not on every path to it.
#pragma once

struct packet; // struct xdp_md

#define FRAME(packet) ((struct xdp_md *)(void *)(packet))
// Ethernet, IPv6 and UDP headers are shorter than this.
#define HEADERS_BEFORE_MAX 64u
// What adjust_head finds in front of a frame, everywhere; more than a driver's own 40 bytes must
// stay free.
#define HEAD_BYTES_MAX 208

STEP u32 packet_at(const struct call *call)
{
    return call->at & (HEADERS_BEFORE_MAX - 1);
}

STEP u32 packet_length(struct packet *packet, struct call *call)
{
    // In 64 bits: the verifier knows these as pointers.
    u64 end = (u64)FRAME(packet)->data_end, data = (u64)FRAME(packet)->data;
    forget(end);
    forget(data);
    return (u32)(end - data) - packet_at(call);
}

STEP struct wire *packet_view(struct packet *packet, struct call *call)
{
    void *data = (void *)(long)FRAME(packet)->data;
    void *end = (void *)(long)FRAME(packet)->data_end;
    struct wire *wire = data + packet_at(call);
    return (void *)(wire + 1) <= end ? wire : NULL;
}

STEP u32 packet_value_at(const struct call *call)
{
    return packet_at(call) + HEADER_BYTES;
}

STEP u32 packet_key_at(const struct call *call)
{
    return packet_value_at(call) + call->header.value_bytes;
}

// Where in a packet something may begin.
#define AT_MAX 2047u

#define MOVE_WORD(to_, from_, i) ((u64 *)(void *)(to_))[i] = ((const u64 *)(const void *)(from_))[i]

#define MOVE_BYTE(to, from) *(to) = *(from)
#define MOVE_8(to, from)    MOVE_WORD(to, from, 0)
#define MOVE_64(to, from)                                                                          \
    do {                                                                                           \
        MOVE_WORD(to, from, 0);                                                                    \
        MOVE_WORD(to, from, 1);                                                                    \
        MOVE_WORD(to, from, 2);                                                                    \
        MOVE_WORD(to, from, 3);                                                                    \
        MOVE_WORD(to, from, 4);                                                                    \
        MOVE_WORD(to, from, 5);                                                                    \
        MOVE_WORD(to, from, 6);                                                                    \
        MOVE_WORD(to, from, 7);                                                                    \
    } while (0)

// Moves `bytes`, at most `max` (a power of two), in pieces of `piece`, of which the last overlaps
// the one before. `in_frame` is the one of `to` and `from` that is there, `is_moved` whether all of
// it was.
#define MOVE_PIECES(move, piece, end, in_frame, to, from, bytes, max, is_moved)                    \
    do {                                                                                           \
        u32 last_ = ((bytes) - (piece)) & ((max) - 1);                                             \
        for (u32 i_ = 0; i_ + (piece) < (max) && i_ < last_ && (in_frame) + i_ + (piece) <= (end); \
             i_ += (piece)) {                                                                      \
            move((to) + i_, (from) + i_);                                                          \
        }                                                                                          \
        forget(last_);                                                                             \
        last_ &= (max) - 1;                                                                        \
        is_moved = (in_frame) + last_ + (piece) <= (end);                                          \
        if (is_moved) {                                                                            \
            move((to) + last_, (from) + last_);                                                    \
        }                                                                                          \
    } while (0)

#define MOVE_BYTES(end, in_frame, to, from, bytes, max)                                            \
    ({                                                                                             \
        bool is_moved_ = false;                                                                    \
        if ((bytes) >= 64) {                                                                       \
            MOVE_PIECES(MOVE_64, 64, end, in_frame, to, from, bytes, max, is_moved_);              \
        } else if ((bytes) >= 8) {                                                                 \
            MOVE_PIECES(MOVE_8, 8, end, in_frame, to, from, bytes, 64, is_moved_);                 \
        } else {                                                                                   \
            MOVE_PIECES(MOVE_BYTE, 1, end, in_frame, to, from, bytes, 8, is_moved_);               \
        }                                                                                          \
        is_moved_;                                                                                 \
    })

// From the frame into memory and back; `bytes` isn't 0. False: it isn't all there.
#define packet_load(packet, at, memory, bytes_, max)                                               \
    ({                                                                                             \
        u32 at_ = (at), length_ = (bytes_);                                                        \
        forget(at_);                                                                               \
        const u8 *from_ = (const u8 *)(long)FRAME(packet)->data + (at_ & AT_MAX);                  \
        const u8 *end_ = (const u8 *)(long)FRAME(packet)->data_end;                                \
        u8 *to_ = (u8 *)(memory);                                                                  \
        MOVE_BYTES(end_, from_, to_, from_, length_, max);                                         \
    })

#define packet_store(packet, at, memory, bytes_, max)                                              \
    ({                                                                                             \
        u32 at_ = (at), length_ = (bytes_);                                                        \
        forget(at_);                                                                               \
        u8 *to_ = (u8 *)(long)FRAME(packet)->data + (at_ & AT_MAX);                                \
        const u8 *end_ = (const u8 *)(long)FRAME(packet)->data_end;                                \
        const u8 *from_ = (const u8 *)(memory);                                                    \
        MOVE_BYTES(end_, to_, to_, from_, length_, max);                                           \
    })

STEP struct scratch *packet_scratch(void)
{
    u32 index = 0;
    return bpf_map_lookup_elem(&scratches, &index);
}

// Most keys are as short as this: two words, which overlap unless the key is 16 bytes long, and no
// call.
struct short_key {
    u64 first;
    u64 last;
};

STEP bool is_short_key(u32 key_bytes)
{
    return likely(key_bytes >= 8 && key_bytes <= 16);
}

// Where the last word begins.
STEP u32 short_key_last(u32 key_bytes)
{
    u32 last = key_bytes - 8;
    forget(last);
    return last & 15;
}

STEP bool packet_load_short_key(struct packet *packet, u32 at, u32 key_bytes, struct short_key *key)
{
    forget(at);
    const u8 *first = (const u8 *)(long)FRAME(packet)->data + (at & AT_MAX);
    const u8 *last = first + short_key_last(key_bytes),
             *end = (const u8 *)(long)FRAME(packet)->data_end;
    if (first + sizeof(u64) > end || last + sizeof(u64) > end) {
        return false;
    }
    *key = (struct short_key){*(const u64 *)(const void *)first, *(const u64 *)(const void *)last};
    return true;
}

STEP bool packet_store_short_key(struct packet *packet, u32 at, u32 key_bytes,
                                 const struct short_key *key)
{
    forget(at);
    u8 *first = (u8 *)(long)FRAME(packet)->data + (at & AT_MAX);
    u8 *last = first + short_key_last(key_bytes), *end = (u8 *)(long)FRAME(packet)->data_end;
    if (first + sizeof(u64) > end || last + sizeof(u64) > end) {
        return false;
    }
    *(u64 *)(void *)first = key->first;
    *(u64 *)(void *)last = key->last;
    return true;
}

// What is in front of a packet is Ethernet, IPv4 and UDP or more, or nothing at all.
#define FRONT_BYTES_MIN 40u

// Begins the frame earlier by as much of `bytes` as may be; by how much. What was in front is moved
// afterwards.
STEP u32 packet_begin_earlier(struct packet *packet, const struct call *call, int bytes)
{
    int head = bytes < HEAD_BYTES_MAX ? bytes : HEAD_BYTES_MAX;
    bool begins = bytes > 0 && packet_at(call) >= FRONT_BYTES_MIN;
    return begins && bpf_xdp_adjust_head(FRAME(packet), -head) == 0 ? (u32)head : 0;
}

// Moves all in front of the value to the frame's new beginning, `head` bytes earlier. First what is
// in front of the packet: five words and its last three, which overlap them unless it is 64 bytes
// long.
STEP bool packet_move_front(struct packet *packet, struct call *call, u32 head)
{
    forget(head);
    u8 *to = (u8 *)(long)FRAME(packet)->data, *end = (u8 *)(long)FRAME(packet)->data_end;
    const u8 *from = to + (head & 0xff);
    u32 at = packet_at(call), last = (at - 24) & (HEADERS_BEFORE_MAX - 1);
    forget(last);
    u8 *last_to = to + last;
    const u8 *last_from = from + last;
    if (last_from + 24 > end || last_to + 24 > end || from + FRONT_BYTES_MIN > end ||
        to + FRONT_BYTES_MIN > end) {
        return false;
    }
    struct {
        u64 words[3];
    } kept;
    MOVE_WORD(&kept, last_from, 0);
    MOVE_WORD(&kept, last_from, 1);
    MOVE_WORD(&kept, last_from, 2);
    for (u32 i = 0; i < FRONT_BYTES_MIN / 8; i++) {
        MOVE_WORD(to, from, i);
    }
    MOVE_WORD(last_to, &kept, 0);
    MOVE_WORD(last_to, &kept, 1);
    MOVE_WORD(last_to, &kept, 2);
    to += at, from += at;
    if (from + HEADER_BYTES > end || to + HEADER_BYTES > end) {
        return false;
    }
    for (u32 i = 0; i < HEADER_BYTES / 8; i++) {
        MOVE_WORD(to, from, i);
    }
    return true;
}

// As packet_move_end(), where the key isn't short.
__attribute__((noinline)) int packet_move_end_long(struct xdp_md *frame, u32 at, u32 key_bytes,
                                                   int bytes)
{
    struct scratch *scratch = packet_scratch();
    if (scratch == NULL || key_bytes == 0 || key_bytes > KEY_BYTES_MAX ||
        bpf_xdp_load_bytes(frame, at, scratch->key, key_bytes) != 0 ||
        bpf_xdp_adjust_tail(frame, bytes) != 0) {
        return -1;
    }
    return bpf_xdp_store_bytes(frame, at + (u32)bytes, scratch->key, key_bytes) == 0 ? 0 : -1;
}

// Moves the frame's end by `bytes`, up or down; the key, which begins at `at`, goes with the end.
STEP bool packet_move_end(struct packet *packet, u32 at, u32 key_bytes, int bytes)
{
    struct short_key key;
    if (!is_short_key(key_bytes)) {
        return packet_move_end_long(FRAME(packet), at, key_bytes, bytes) == 0;
    }
    return packet_load_short_key(packet, at, key_bytes, &key) &&
           bpf_xdp_adjust_tail(FRAME(packet), bytes) == 0 &&
           packet_store_short_key(packet, at + (u32)bytes, key_bytes, &key);
}

// Room for a longer value is made in front as far as it goes: there is more of it than behind (a
// veth leaves some 48 bytes), the kernel writes no zeros there, and the key stays.
STEP bool packet_resize(struct packet *packet, struct call *call, u32 value_bytes)
{
    int more = (int)value_bytes - (int)call->header.value_bytes;
    if (more == 0) {
        return true;
    }
    u32 head = packet_begin_earlier(packet, call, more);
    int behind = more - (int)head;
    if (behind != 0 &&
        !packet_move_end(packet, packet_key_at(call) + head, call->header.key_bytes, behind)) {
        if (head != 0) {
            (void)bpf_xdp_adjust_head(FRAME(packet), (int)head);
        }
        return false;
    }
    call->header.value_bytes = (u16)value_bytes;
    return head == 0 || packet_move_front(packet, call, head);
}

STEP bool packet_resize_for(struct packet *packet, struct call *call, struct record *record)
{
    u32 value_bytes = record->value_bytes, key_bytes = record->key_bytes;
    u32 old_bytes = (u32)call->header.value_bytes + call->header.key_bytes;
    if (value_bytes > CACHED_VALUE_BYTES_MAX || key_bytes > CACHED_KEY_BYTES_MAX ||
        bpf_xdp_adjust_tail(FRAME(packet), (int)(value_bytes + key_bytes - old_bytes)) != 0) {
        return false;
    }
    call->header.value_bytes = (u16)value_bytes;
    call->header.key_bytes = (u16)key_bytes;
    forget(key_bytes);
    if (key_bytes == 0 || key_bytes > CACHED_KEY_BYTES_MAX) {
        return key_bytes == 0;
    }
    return bpf_xdp_store_bytes(FRAME(packet), packet_key_at(call), record->key, key_bytes) == 0;
}

// Memory that a value may be in: as if it were as long as the bound, and a piece more.
struct value_room {
    u8 bytes[VALUE_BOUND + 64];
};

__attribute__((noinline)) int packet_load_value(struct xdp_md *frame, u32 at,
                                                struct value_room *value, u32 bytes)
{
    return value != NULL && bytes != 0 && packet_load(frame, at, value->bytes, bytes, VALUE_BOUND)
               ? 0
               : -1;
}

STEP void packet_put_value(struct packet *packet, struct call *call, struct record *record)
{
    u32 bytes = call->header.value_bytes;
    if (bytes != 0) {
        (void)packet_store(packet, packet_value_at(call), table_value(record), bytes, VALUE_BOUND);
    }
}

STEP void packet_get_value(struct packet *packet, struct call *call, struct record *record)
{
    (void)packet_load_value(FRAME(packet), packet_value_at(call), (void *)table_value(record),
                            call->header.value_bytes);
}

STEP void packet_put_bytes(struct packet *packet, struct call *call, void *bytes, u32 length)
{
    forget(length);
    if (length > 0 && length <= 256) {
        (void)bpf_xdp_store_bytes(FRAME(packet), packet_value_at(call), bytes, length);
    }
}

STEP bool packet_take_bytes(struct packet *packet, struct call *call, void *bytes, u32 length)
{
    return bpf_xdp_load_bytes(FRAME(packet), packet_value_at(call), bytes, length) == 0;
}

// The rest of the key's place is 0, so that keys compare by words.
STEP void packet_load_key(struct packet *packet, struct call *call, u8 *key)
{
    u32 key_bytes = call->header.key_bytes;
    __builtin_memset(key, 0, CACHED_KEY_BYTES_MAX);
    forget(key_bytes);
    if (key_bytes > 0 && key_bytes <= CACHED_KEY_BYTES_MAX) {
        (void)bpf_xdp_load_bytes(FRAME(packet), packet_key_at(call), key, key_bytes);
    }
}

STEP void packet_get_key(struct packet *packet, struct call *call, struct record *record)
{
    packet_load_key(packet, call, record->key);
}

// Where the key isn't short: by words as far as they go; the rest of the record's last one is 0.
__attribute__((noinline)) int packet_has_long_key(struct xdp_md *frame, u32 at, u32 key_bytes,
                                                  const struct record *record)
{
    struct scratch *scratch = packet_scratch();
    if (scratch == NULL || record == NULL || key_bytes == 0 || key_bytes > CACHED_KEY_BYTES_MAX) {
        return false;
    }
    u32 last = (key_bytes - 1) / 8 & (CACHED_KEY_BYTES_MAX / 8 - 1);
    *(u64 *)(void *)(scratch->key + 8 * last) = 0;
    if (!packet_load(frame, at, scratch->key, key_bytes, CACHED_KEY_BYTES_MAX)) {
        return false;
    }
    u64 difference = 0;
    for (u32 i = 0; i < CACHED_KEY_BYTES_MAX / 8; i++) {
        if (8 * i >= key_bytes) {
            break;
        }
        difference |= *(u64 *)(void *)(scratch->key + 8 * i) ^
                      *(const u64 *)(const void *)(record->key + 8 * i);
    }
    return difference == 0;
}

STEP bool packet_has_key(struct packet *packet, struct call *call, const struct record *record)
{
    u32 key_bytes = call->header.key_bytes;
    struct short_key key;
    if (record->key_bytes != key_bytes) {
        return false;
    }
    if (!is_short_key(key_bytes)) {
        return packet_has_long_key(FRAME(packet), packet_key_at(call), key_bytes, record);
    }
    const u8 *last = record->key + short_key_last(key_bytes);
    return packet_load_short_key(packet, packet_key_at(call), key_bytes, &key) &&
           ((*(const u64 *)(const void *)record->key ^ key.first) |
            (*(const u64 *)(const void *)last ^ key.last)) == 0;
}
