// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// A packet in an XDP frame: read and written by helpers, at offsets, since the verifier follows no computed
// pointer far.
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

STEP struct scratch *packet_scratch(void)
{
    u32 index = 0;
    return bpf_map_lookup_elem(&scratches, &index);
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
    struct scratch *scratch = packet_scratch();
    u32 key_bytes = call->header.key_bytes;
    u32 old_bytes = call->header.value_bytes;
    if (old_bytes == value_bytes) {
        return true;
    }
    forget(key_bytes);
    if (scratch == NULL || key_bytes == 0 || key_bytes > KEY_BYTES_MAX) {
        return false;
    }
    if (bpf_xdp_load_bytes(FRAME(packet), packet_key_at(call), scratch->key, key_bytes) != 0 ||
        !packet_grow(packet, call, (int)(value_bytes - old_bytes))) {
        return false;
    }
    call->header.value_bytes = (u16)value_bytes;
    return bpf_xdp_store_bytes(FRAME(packet), packet_key_at(call), scratch->key, key_bytes) == 0;
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

// Between the value in the packet and one in a record, found again by its location so that its size is known.
#define COPY(helper, class_)                                                                                 \
    {                                                                                                        \
        struct record *at = bpf_map_lookup_elem(&records_##class_, &slot);                                   \
        if (at != NULL && length > 0 && length <= parameters.value_bytes[class_]) {                          \
            (void)helper(FRAME(packet), packet_value_at(call), at + 1, length);                              \
        }                                                                                                    \
        return;                                                                                              \
    }

#define COPY_BY_CLASS(helper)                                                                                \
    u32 length = call->header.value_bytes;                                                                   \
    u32 slot = slot_of(location);                                                                            \
    forget(length);                                                                                          \
    switch (class_of(location)) {                                                                            \
    case 0:                                                                                                  \
        COPY(helper, 0)                                                                                      \
    case 1:                                                                                                  \
        COPY(helper, 1)                                                                                      \
    case 2:                                                                                                  \
        COPY(helper, 2)                                                                                      \
    default:                                                                                                 \
        COPY(helper, 3)                                                                                      \
    }

STEP void packet_put_value(struct packet *packet, struct call *call, struct record *record, u32 location)
{
    (void)record;
    COPY_BY_CLASS(bpf_xdp_store_bytes)
}

STEP void packet_get_value(struct packet *packet, struct call *call, struct record *record, u32 location)
{
    (void)record;
    COPY_BY_CLASS(bpf_xdp_load_bytes)
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

STEP bool packet_has_key(struct packet *packet, struct call *call, const struct record *record)
{
    struct scratch *scratch = packet_scratch();
    u32 key_bytes = call->header.key_bytes;
    if (scratch == NULL || record->key_bytes != key_bytes || key_bytes > CACHED_KEY_BYTES_MAX) {
        return false;
    }
    packet_load_key(packet, call, scratch->key);
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
