// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// A packet in an XDP frame. Values and keys are moved by words, each checked, since the verifier follows no
// computed length: a helper that moves bytes costs more than a value's words. The functions that do it are
// global, so the verifier looks at each once and not on every path to it.
#pragma once

struct packet; // struct xdp_md

#define FRAME(packet) ((struct xdp_md *)(void *)(packet))
// Ethernet, IPv6 and UDP headers are shorter than this.
#define HEADERS_BEFORE_MAX 64u
// What adjust_head finds in front of a frame, everywhere; more than a driver's own 40 bytes must stay free.
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

#define MOVE_WORD(to_, from_, i) ((u64 *)(void *)(to_))[i] = ((const u64 *)(const void *)(from_))[i];

// Moves `bytes`, at most `max` (a constant), `packet_at_` being the one of `to` and `from` that is in the
// frame. What doesn't fit there stays behind.
#define MOVE_BYTES(end, packet_at_, to, from, bytes, max)                                                    \
    do {                                                                                                     \
        for (u32 i_ = 0; i_ < (max) / 64 && (bytes) >= 64 && (packet_at_) + 64 <= (end); i_++) {             \
            MOVE_WORD(to, from, 0)                                                                           \
            MOVE_WORD(to, from, 1)                                                                           \
            MOVE_WORD(to, from, 2)                                                                           \
            MOVE_WORD(to, from, 3)                                                                           \
            MOVE_WORD(to, from, 4)                                                                           \
            MOVE_WORD(to, from, 5)                                                                           \
            MOVE_WORD(to, from, 6)                                                                           \
            MOVE_WORD(to, from, 7)                                                                           \
            (to) += 64, (from) += 64, (bytes) -= 64;                                                         \
            forget(bytes);                                                                                   \
        }                                                                                                    \
        for (u32 i_ = 0; i_ < 8 && (bytes) >= 8 && (packet_at_) + 8 <= (end); i_++) {                        \
            MOVE_WORD(to, from, 0)                                                                           \
            (to) += 8, (from) += 8, (bytes) -= 8;                                                            \
            forget(bytes);                                                                                   \
        }                                                                                                    \
        for (u32 i_ = 0; i_ < 7 && (bytes) >= 1 && (packet_at_) + 1 <= (end); i_++) {                        \
            *(to)++ = *(from)++, (bytes) -= 1;                                                               \
            forget(bytes);                                                                                   \
        }                                                                                                    \
    } while (0)

// From the frame into memory and back; `bytes` isn't 0. False: it isn't all there, and nothing was moved.
#define packet_load(packet, at, memory, bytes_, max)                                                         \
    ({                                                                                                       \
        u32 at_ = (at), left_ = (bytes_);                                                                    \
        forget(at_);                                                                                         \
        const u8 *from_ = (const u8 *)(long)FRAME(packet)->data + (at_ & AT_MAX);                            \
        const u8 *end_ = (const u8 *)(long)FRAME(packet)->data_end;                                          \
        u8 *to_ = (u8 *)(memory);                                                                            \
        MOVE_BYTES(end_, from_, to_, from_, left_, max);                                                     \
        left_ == 0;                                                                                          \
    })

#define packet_store(packet, at, memory, bytes_, max)                                                        \
    ({                                                                                                       \
        u32 at_ = (at), left_ = (bytes_);                                                                    \
        forget(at_);                                                                                         \
        u8 *to_ = (u8 *)(long)FRAME(packet)->data + (at_ & AT_MAX);                                          \
        const u8 *end_ = (const u8 *)(long)FRAME(packet)->data_end;                                          \
        const u8 *from_ = (const u8 *)(memory);                                                              \
        MOVE_BYTES(end_, to_, to_, from_, left_, max);                                                       \
        left_ == 0;                                                                                          \
    })

STEP struct scratch *packet_scratch(void)
{
    u32 index = 0;
    return bpf_map_lookup_elem(&scratches, &index);
}

// Most keys are as short as this: two words, which overlap unless the key is 16 bytes long, and no call.
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
    const u8 *last = first + short_key_last(key_bytes), *end = (const u8 *)(long)FRAME(packet)->data_end;
    if (first + sizeof(u64) > end || last + sizeof(u64) > end) {
        return false;
    }
    *key = (struct short_key){*(const u64 *)(const void *)first, *(const u64 *)(const void *)last};
    return true;
}

STEP bool packet_store_short_key(struct packet *packet, u32 at, u32 key_bytes, const struct short_key *key)
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

// The packet's key from its place `at` to where it outlives a resize, and back; not of longer keys than are
// cached. 0: done.
__attribute__((noinline)) int packet_keep_key(struct xdp_md *frame, u32 at, u32 key_bytes)
{
    struct scratch *scratch = packet_scratch();
    return scratch != NULL && packet_load(frame, at, scratch->key, key_bytes, CACHED_KEY_BYTES_MAX) ? 0 : -1;
}

__attribute__((noinline)) int packet_restore_key(struct xdp_md *frame, u32 at, u32 key_bytes)
{
    struct scratch *scratch = packet_scratch();
    return scratch != NULL && packet_store(frame, at, scratch->key, key_bytes, CACHED_KEY_BYTES_MAX) ? 0 : -1;
}

// Makes room behind the packet, or takes some away. Where a driver leaves little behind a frame (veth: some
// 48 bytes), the frame begins earlier instead, and what is in front of the value moves there.
STEP bool packet_grow(struct packet *packet, struct call *call, int bytes)
{
    if (likely(bpf_xdp_adjust_tail(FRAME(packet), bytes) == 0)) {
        return true;
    }
    struct scratch *scratch = packet_scratch();
    u32 front_bytes = packet_value_at(call);
    int head = bytes < HEAD_BYTES_MAX ? bytes : HEAD_BYTES_MAX;
    forget(front_bytes);
    if (scratch == NULL || bytes <= 0 || front_bytes == 0 || front_bytes > FRONT_BYTES_MAX ||
        (bytes > head && bpf_xdp_adjust_tail(FRAME(packet), bytes - head) != 0)) {
        return false;
    }
    bool moves = bpf_xdp_load_bytes(FRAME(packet), 0, scratch->front, front_bytes) == 0 &&
                 bpf_xdp_adjust_head(FRAME(packet), -head) == 0;
    if (!moves) {
        if (bytes > head) {
            (void)bpf_xdp_adjust_tail(FRAME(packet), head - bytes);
        }
        return false;
    }
    return bpf_xdp_store_bytes(FRAME(packet), 0, scratch->front, front_bytes) == 0;
}

STEP bool packet_resize(struct packet *packet, struct call *call, u32 value_bytes)
{
    u32 key_bytes = call->header.key_bytes;
    u32 old_bytes = call->header.value_bytes;
    struct short_key key;
    if (old_bytes == value_bytes) {
        return true;
    }
    if (is_short_key(key_bytes)) {
        if (!packet_load_short_key(packet, packet_key_at(call), key_bytes, &key) ||
            !packet_grow(packet, call, (int)(value_bytes - old_bytes))) {
            return false;
        }
        call->header.value_bytes = (u16)value_bytes;
        return packet_store_short_key(packet, packet_key_at(call), key_bytes, &key);
    }
    struct scratch *scratch = packet_scratch();
    forget(key_bytes);
    if (scratch == NULL || key_bytes == 0 || key_bytes > KEY_BYTES_MAX) {
        return false;
    }
    bool is_short = key_bytes <= CACHED_KEY_BYTES_MAX;
    long kept = is_short ? packet_keep_key(FRAME(packet), packet_key_at(call), key_bytes)
                         : bpf_xdp_load_bytes(FRAME(packet), packet_key_at(call), scratch->key, key_bytes);
    if (kept != 0 || !packet_grow(packet, call, (int)(value_bytes - old_bytes))) {
        return false;
    }
    call->header.value_bytes = (u16)value_bytes;
    long restored = is_short
                        ? packet_restore_key(FRAME(packet), packet_key_at(call), key_bytes)
                        : bpf_xdp_store_bytes(FRAME(packet), packet_key_at(call), scratch->key, key_bytes);
    return restored == 0;
}

STEP bool packet_resize_for(struct packet *packet, struct call *call, struct record *record)
{
    u32 value_bytes = record->value_bytes, key_bytes = record->key_bytes;
    u32 old_bytes = (u32)call->header.value_bytes + call->header.key_bytes;
    if (value_bytes > CACHED_VALUE_BYTES_MAX || key_bytes > CACHED_KEY_BYTES_MAX ||
        !packet_grow(packet, call, (int)(value_bytes + key_bytes - old_bytes))) {
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

// Between the packet's value and a slot's.
#define MOVE(move, class_)                                                                                   \
    {                                                                                                        \
        void *value = bpf_map_lookup_elem(&values_##class_, &slot);                                          \
        if (value != NULL && bytes > 0 && bytes <= parameters.value_bytes[class_]) {                         \
            (void)move(frame, at, value, bytes, CACHED_VALUE_BYTES_MAX);                                     \
        }                                                                                                    \
        return 0;                                                                                            \
    }

#define MOVE_BY_CLASS(move)                                                                                  \
    u32 slot = slot_of(location);                                                                            \
    switch (class_of(location)) {                                                                            \
    case 0:                                                                                                  \
        MOVE(move, 0)                                                                                        \
    case 1:                                                                                                  \
        MOVE(move, 1)                                                                                        \
    case 2:                                                                                                  \
        MOVE(move, 2)                                                                                        \
    default:                                                                                                 \
        MOVE(move, 3)                                                                                        \
    }

__attribute__((noinline)) int packet_move_from_record(struct xdp_md *frame, u32 at, u32 location, u32 bytes)
{
    MOVE_BY_CLASS(packet_store)
}

__attribute__((noinline)) int packet_move_to_record(struct xdp_md *frame, u32 at, u32 location,
                                                    u32 bytes){MOVE_BY_CLASS(packet_load)}

STEP void packet_put_value(struct packet *packet, struct call *call, struct record *record, u32 location)
{
    (void)record;
    (void)packet_move_from_record(FRAME(packet), packet_value_at(call), location, call->header.value_bytes);
}

STEP void packet_get_value(struct packet *packet, struct call *call, struct record *record, u32 location)
{
    (void)record;
    (void)packet_move_to_record(FRAME(packet), packet_value_at(call), location, call->header.value_bytes);
}

STEP void packet_put_bytes(struct packet *packet, struct call *call, void *bytes, u32 length)
{
    forget(length);
    if (length > 0 && length <= 256) {
        (void)bpf_xdp_store_bytes(FRAME(packet), packet_value_at(call), bytes, length);
    }
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

// By words as far as they go; the rest of the record's last one is 0.
STEP bool packet_has_key(struct packet *packet, struct call *call, const struct record *record)
{
    u32 key_bytes = call->header.key_bytes;
    struct short_key key;
    if (is_short_key(key_bytes)) {
        const u8 *last = record->key + short_key_last(key_bytes);
        return record->key_bytes == key_bytes &&
               packet_load_short_key(packet, packet_key_at(call), key_bytes, &key) &&
               ((*(const u64 *)(const void *)record->key ^ key.first) |
                (*(const u64 *)(const void *)last ^ key.last)) == 0;
    }
    struct scratch *scratch = packet_scratch();
    if (scratch == NULL || record->key_bytes != key_bytes || key_bytes > CACHED_KEY_BYTES_MAX) {
        return false;
    }
    u32 last = (key_bytes - 1) / 8 & (CACHED_KEY_BYTES_MAX / 8 - 1);
    *(u64 *)(void *)(scratch->key + 8 * last) = 0;
    if (packet_keep_key(FRAME(packet), packet_key_at(call), key_bytes) != 0) {
        return false;
    }
    u64 difference = 0;
    for (u32 i = 0; i < CACHED_KEY_BYTES_MAX / 8; i++) {
        if (8 * i >= key_bytes) {
            break;
        }
        difference |=
            *(u64 *)(void *)(scratch->key + 8 * i) ^ *(const u64 *)(const void *)(record->key + 8 * i);
    }
    return difference == 0;
}
