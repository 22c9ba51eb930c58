// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Forgetting everything in BPF maps: what switchback_clear of native.c does, for the same reasons
// in the same order.
#pragma once

#include "complete.h"
#include "load.h"
#include "record.h"

// Steps of one bpf_loop; tables that are larger are cleared as far as that.
#define CLEAR_MAX (1u << 23)

struct clearing {
    u32 left;       // what couldn't be locked
    u32 size_class; // of the records
};

static long clear_lane(u32 index, void *with)
{
    struct lane *lane = bpf_map_lookup_elem(&lanes, &index);
    struct clearing *clearing = with;
    if (lane == NULL) {
        return 1;
    }
    u32 attempt = 0;
    while (attempt < RECORD_ATTEMPTS && !compare_exchange(&lane->locked, 0u, 1u)) {
        attempt++;
    }
    if (attempt == RECORD_ATTEMPTS) {
        clearing->left++;
        return 0;
    }
    lane_clear(lane);
    store_release(&lane->locked, 0u);
    return 0;
}

static long clear_bucket(u32 index, void *with)
{
    (void)with;
    struct bucket *bucket = bpf_map_lookup_elem(&lookups, &index);
    if (bucket == NULL) {
        return 1;
    }
    bucket_clear(bucket);
    return 0;
}

static long clear_record(u32 index, void *with)
{
    struct clearing *clearing = with;
    struct record *record =
        index < SLOTS_MAX
            ? table_record(NULL, location_of(clearing->size_class & (CLASS_MAX - 1), index))
            : NULL;
    if (record == NULL) {
        return 1;
    }
    if (!record_lock(record)) {
        clearing->left++;
        return 0;
    }
    u32 version = record->version;
    __builtin_memset(record, 0, sizeof(*record));
    record->version = version;
    record_unlock(record);
    return 0;
}

static long clear_counter(u32 index, void *with)
{
    (void)with;
    u32 *counter = bpf_map_lookup_elem(&counters, &index);
    if (counter == NULL) {
        return 1;
    }
    store_relaxed(counter, 0u);
    return 0;
}

static long clear_sketch(u32 index, void *with)
{
    (void)with;
    u32 *counter = bpf_map_lookup_elem(&sketches, &index);
    if (counter == NULL) {
        return 1;
    }
    store_relaxed(counter, 0u);
    return 0;
}

static long clear_sequence(u32 index, void *with)
{
    (void)with;
    u64 *counter = bpf_map_lookup_elem(&sequences, &index);
    if (counter == NULL) {
        return 1;
    }
    store_relaxed(counter, 0ull);
    return 0;
}

// False: something stayed locked; to be called again.
STEP bool clear_all(void)
{
    struct clearing clearing = {0};
    (void)exchange(&shared.registers.epoch, 0u);
    repeat(CLEAR_MAX, clear_lane, &clearing);
    repeat(CLEAR_MAX, clear_bucket, NULL);
    for (u32 size_class = 0; size_class < CLASS_MAX; size_class++) {
        clearing.size_class = size_class;
        repeat(CLEAR_MAX, clear_record, &clearing);
    }
    repeat(CLEAR_MAX, clear_counter, NULL);
    repeat(CLEAR_MAX, clear_sketch, NULL);
    repeat(CLEAR_MAX, clear_sequence, NULL);
    store_relaxed(&shared.registers.sequence_used, 0u);
    load_clear(&shared.registers.load);
    store_release(&shared.registers.snapshot, 0ull);
    store_release(&shared.registers.durable_generation, 0u);
    return clearing.left == 0;
}
