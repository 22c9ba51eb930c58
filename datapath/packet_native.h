// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// A packet in a buffer that holds the longest one.
#pragma once

struct packet {
    u8 *bytes;
    u32 length;
};

// Moves a key: most have 16 to 64 bytes, for which a call costs more than the copy. The two may
// overlap.
STEP void copy_key(u8 *to, const u8 *from, u32 length)
{
    if (length > 32) {
        memmove(to, from, length);
    } else if (length >= 16) {
        struct {
            u64 words[2];
        } first, last;
        memcpy(&first, from, 16);
        memcpy(&last, from + length - 16, 16);
        memcpy(to, &first, 16);
        memcpy(to + length - 16, &last, 16);
    } else if (length >= 8) {
        u64 first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + length - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + length - 8, &last, 8);
    } else {
        memmove(to, from, length);
    }
}

typedef u64 piece __attribute__((vector_size(16), aligned(1), may_alias));

// Moves a value; the two don't overlap. Most are short enough that a call costs more than the copy.
STEP void copy_value(u8 *to, const u8 *from, u32 length)
{
    if (unlikely(length < 16 || length > 256)) {
        // A compiler that knows a bound would copy by string instructions, which are slow to start.
        forget(length);
        memcpy(to, from, length);
        return;
    }
    u32 last = length - 16;
    for (u32 at = 0; at < last; at += 16) {
        *(piece *)(to + at) = *(const piece *)(from + at);
    }
    *(piece *)(to + last) = *(const piece *)(from + last);
}

STEP u32 packet_length(struct packet *packet, struct call *call)
{
    (void)call;
    return packet->length;
}

STEP struct wire *packet_view(struct packet *packet, struct call *call)
{
    (void)call;
    return likely(packet->length >= HEADER_BYTES) ? (struct wire *)(void *)packet->bytes : NULL;
}

STEP u8 *packet_value(struct packet *packet)
{
    return packet->bytes + HEADER_BYTES;
}

STEP u8 *packet_key(struct packet *packet, struct call *call)
{
    return packet_value(packet) + call->header.value_bytes;
}

STEP void packet_set_lengths(struct packet *packet, struct call *call, u32 value_bytes,
                             u32 key_bytes)
{
    call->header.value_bytes = (u16)value_bytes;
    call->header.key_bytes = (u16)key_bytes;
    packet->length = HEADER_BYTES + value_bytes + key_bytes;
}

STEP bool packet_resize(struct packet *packet, struct call *call, u32 value_bytes)
{
    u32 key_bytes = call->header.key_bytes;
    if (call->header.value_bytes == value_bytes) {
        return true;
    }
    if (unlikely(HEADER_BYTES + value_bytes + key_bytes > PACKET_BYTES_MAX)) {
        return false;
    }
    copy_key(packet_value(packet) + value_bytes, packet_key(packet, call), key_bytes);
    packet_set_lengths(packet, call, value_bytes, key_bytes);
    return true;
}

STEP bool packet_resize_for(struct packet *packet, struct call *call, const struct record *record)
{
    // Another writer's lengths may be seen half way; what was copied by them is thrown away
    // afterwards.
    u32 value_bytes = record->value_bytes, key_bytes = record->key_bytes;
    if (value_bytes > CACHED_VALUE_BYTES_MAX || key_bytes > CACHED_KEY_BYTES_MAX) {
        return false;
    }
    packet_set_lengths(packet, call, value_bytes, key_bytes);
    memcpy(packet_key(packet, call), record->key, key_bytes);
    return true;
}

STEP void packet_put_value(struct packet *packet, struct call *call, struct record *record)
{
    copy_value(packet_value(packet), table_value(record), call->header.value_bytes);
}

STEP void packet_get_value(struct packet *packet, struct call *call, struct record *record)
{
    invariant(call->header.value_bytes <= found_capacity(call));
    copy_value(table_value(record), packet_value(packet), call->header.value_bytes);
}

STEP void packet_put_bytes(struct packet *packet, struct call *call, const void *bytes, u32 length)
{
    invariant(length <= call->header.value_bytes);
    memcpy(packet_value(packet), bytes, length);
}

STEP bool packet_take_bytes(struct packet *packet, struct call *call, void *bytes, u32 length)
{
    if (length > call->header.value_bytes) {
        return false;
    }
    memcpy(bytes, packet_value(packet), length);
    return true;
}

STEP void packet_get_key(struct packet *packet, struct call *call, struct record *record)
{
    invariant(call->header.key_bytes <= CACHED_KEY_BYTES_MAX);
    memcpy(record->key, packet_key(packet, call), call->header.key_bytes);
}

STEP bool packet_has_key(struct packet *packet, struct call *call, const struct record *record)
{
    u32 length = call->header.key_bytes;
    if (unlikely(record->key_bytes != length || length > CACHED_KEY_BYTES_MAX)) {
        return false;
    }
    const u8 *a = packet_key(packet, call), *b = record->key;
    if (unlikely(length < 8 || length > 16)) {
        return memcmp(a, b, length) == 0;
    }
    u64 first = load_word(a) ^ load_word(b),
        last = load_word(a + length - 8) ^ load_word(b + length - 8);
    return (first | last) == 0;
}
