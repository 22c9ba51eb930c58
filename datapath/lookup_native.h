// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Key hash to location, in plain memory: buckets of a cache line with four entries each, linear probing, one
// writer (the agent), readers without locks.
//
// A bucket counts the entries that found it full and live further on; a reader goes on only while that count
// isn't 0. Entries never move, so a reader can't miss one. Each bucket has a version, odd while the writer is
// in it. Tags are the high half of the key hash; a second key with a tag that is present is refused, and a
// hit is believed only after the record's whole key and the hash's low half were compared.
#pragma once

#include "call.h"

#define BUCKET_ENTRIES 4u

struct bucket {
    u32 version;
    u32 overflow;
    u64 tags[BUCKET_ENTRIES];
    u32 locations[BUCKET_ENTRIES]; // NO_LOCATION: free
    u64 padding;
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

struct lookup_table {
    struct bucket *buckets;
    u32 mask;
};

STEP struct bucket *lookup_bucket(const struct lookup_table *table, u64 hash_low, u32 probe)
{
    return &table->buckets[((u32)hash_low + probe) & table->mask];
}

// One bucket: the tag's location or NO_LOCATION, and whether to go on. False if the writer was in the bucket.
STEP bool bucket_read(const struct bucket *bucket, u64 tag, u32 *version_seen, u32 *location, bool *goes_on)
{
    u32 version = load_acquire(&bucket->version);
    // Which of the four it is can't be predicted, so there is no branch on it. Free entries have tag 0, which
    // no key in the table has, and no location.
    *location = NO_LOCATION;
#pragma GCC unroll 4
    for (u32 i = 0; i < BUCKET_ENTRIES; i++) {
        u32 here = load_relaxed(&bucket->locations[i]);
        *location = load_relaxed(&bucket->tags[i]) == tag ? here : *location;
    }
    *goes_on = load_relaxed(&bucket->overflow) != 0;
    *version_seen = version;
    fence_acquire();
    return likely((version & 1) == 0 && load_relaxed(&bucket->version) == version);
}

STEP enum lookup_result lookup_find(const struct lookup_table *table, u64 tag, u64 hash_low, u32 *location)
{
    for (u32 probe = 0; probe <= table->mask; probe++) {
        const struct bucket *bucket = lookup_bucket(table, hash_low, probe);
        bool goes_on = false;
        u32 version = 0, attempt = 0;
        while (unlikely(!bucket_read(bucket, tag, &version, location, &goes_on))) {
            forget(bucket);
            // Not a miss: a write that took a hit for a miss would pass the record by.
            if (++attempt >= RECORD_ATTEMPTS) {
                return LOOKUP_CONTENDED;
            }
            relax(attempt);
        }
        if (*location != NO_LOCATION) {
            return LOOKUP_HIT;
        }
        if (likely(!goes_on)) {
            return LOOKUP_MISS;
        }
    }
    return LOOKUP_MISS;
}

// A lookup made ahead of its packet, so that memory has time; it still holds while the bucket has its
// version.
struct ahead {
    const struct bucket *bucket;
    u32 version;
    u32 location;
};

STEP void lookup_begin(const struct lookup_table *table, u64 hash_low, struct ahead *ahead)
{
    ahead->bucket = lookup_bucket(table, hash_low, 0);
    prefetch(ahead->bucket);
}

STEP void lookup_ahead(u64 tag, struct ahead *ahead)
{
    bool goes_on = false;
    bool is_whole = bucket_read(ahead->bucket, tag, &ahead->version, &ahead->location, &goes_on);
    if (unlikely(!is_whole || (ahead->location == NO_LOCATION && goes_on))) {
        // Not for this bucket alone to say. No bucket has an odd version when it is compared.
        ahead->version = 1;
    }
}

STEP bool lookup_holds(const struct ahead *ahead)
{
    return likely(load_acquire(&ahead->bucket->version) == ahead->version && (ahead->version & 1) == 0);
}

// What follows is for the one writer.

STEP void bucket_write_begin(struct bucket *bucket)
{
    store_relaxed(&bucket->version, bucket->version + 1);
    fence_release();
}

STEP void bucket_write_end(struct bucket *bucket)
{
    store_release(&bucket->version, bucket->version + 1);
}

STEP void bucket_add_overflow(struct bucket *bucket, u32 difference)
{
    bucket_write_begin(bucket);
    store_relaxed(&bucket->overflow, bucket->overflow + difference);
    bucket_write_end(bucket);
}

STEP void bucket_set(struct bucket *bucket, u32 entry, u64 tag, u32 location)
{
    bucket_write_begin(bucket);
    store_relaxed(&bucket->tags[entry], tag);
    store_relaxed(&bucket->locations[entry], location);
    bucket_write_end(bucket);
}

// The probe and entry of a tag, or of the first free place if `tag` is looked for with NO_LOCATION allowed.
STEP bool lookup_locate(const struct lookup_table *table, u64 tag, u64 hash_low, u32 *probe, u32 *entry)
{
    for (*probe = 0; *probe <= table->mask; (*probe)++) {
        const struct bucket *bucket = lookup_bucket(table, hash_low, *probe);
        for (*entry = 0; *entry < BUCKET_ENTRIES; (*entry)++) {
            if (bucket->locations[*entry] != NO_LOCATION && bucket->tags[*entry] == tag) {
                return true;
            }
        }
        if (bucket->overflow == 0) {
            return false;
        }
    }
    return false;
}

STEP bool lookup_locate_free(const struct lookup_table *table, u64 hash_low, u32 *probe, u32 *entry)
{
    for (*probe = 0; *probe <= table->mask; (*probe)++) {
        const struct bucket *bucket = lookup_bucket(table, hash_low, *probe);
        for (*entry = 0; *entry < BUCKET_ENTRIES; (*entry)++) {
            if (bucket->locations[*entry] == NO_LOCATION) {
                return true;
            }
        }
    }
    return false;
}
