// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Key hash to location: buckets of a cache line with four entries each, linear probing, one writer
// at a time (the agent's), readers without locks. Part of tables_*.h, which say where the buckets
// are.
//
// A bucket counts the entries that found it full and live further on; a reader goes on only while
// that count isn't 0. Entries never move, so a reader can't miss one. Each bucket is under a
// seqlock: its version is odd while the writer is in it. Tags are the high half of the key hash; a
// second key with a tag that is present is refused, and a hit is believed only after the record's
// whole key and the hash's low half were compared.
#pragma once

#include "call.h"

// How far from its own bucket an entry may be. In a table that is half full none gets there by
// chance.
#define PROBES_MAX 16u

// One bucket, read without care for writers: the tag's location or NO_LOCATION, and whether there
// are entries further on.
STEP u32 bucket_find(const struct bucket *bucket, u64 tag, bool *goes_on)
{
    // Which of the four it is can't be predicted, so there is no branch on it. Free entries have
    // tag 0, which no key in the table has, and no location.
    u32 location = NO_LOCATION;
#pragma GCC unroll 4
    for (u32 i = 0; i < BUCKET_ENTRIES; i++) {
        u32 here = load_relaxed(&bucket->locations[i]);
        location = if_equal(load_relaxed(&bucket->tags[i]), tag, here, location);
    }
    *goes_on = load_relaxed(&bucket->overflow) != 0;
    return location;
}

// The same; false if the writer was in the bucket.
STEP bool bucket_read(const struct bucket *bucket, u64 tag, u32 *location, bool *goes_on)
{
    u32 version = load_acquire(&bucket->version);
    *location = bucket_find(bucket, tag, goes_on);
    fence_acquire();
    return likely((version & 1) == 0 && load_relaxed(&bucket->version) == version);
}

// All buckets that may have it, each until it is whole.
STEP enum lookup_result lookup_all(const struct lookup_table *table, u64 tag, u64 hash_low,
                                   u32 *location)
{
    u32 attempt = 0;
    for (u32 probe = 0; probe < PROBES_MAX && probe <= table->mask;) {
        const struct bucket *bucket = lookup_bucket(table, hash_low, probe);
        bool goes_on = false;
        if (bucket == NULL) {
            break;
        }
        if (unlikely(!bucket_read(bucket, tag, location, &goes_on))) {
            // Not a miss: a write that took a hit for a miss would pass the record by.
            if (++attempt >= RECORD_ATTEMPTS) {
                return LOOKUP_CONTENDED;
            }
            relax(attempt);
            continue;
        }
        if (*location != NO_LOCATION) {
            return LOOKUP_HIT;
        }
        if (!goes_on) {
            break;
        }
        probe++;
    }
    return LOOKUP_MISS;
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

STEP void bucket_set(struct bucket *bucket, u32 entry, u64 tag, u32 location)
{
    bucket_write_begin(bucket);
    store_relaxed(&bucket->tags[entry], tag);
    store_relaxed(&bucket->locations[entry], location);
    bucket_write_end(bucket);
}

STEP void bucket_clear(struct bucket *bucket)
{
    bucket_write_begin(bucket);
    for (u32 entry = 0; entry < BUCKET_ENTRIES; entry++) {
        store_relaxed(&bucket->tags[entry], 0ull);
        store_relaxed(&bucket->locations[entry], NO_LOCATION);
    }
    store_relaxed(&bucket->overflow, 0u);
    bucket_write_end(bucket);
}

// An entry's place: a bucket by its distance from the hash's own, and which of the bucket's.
struct place {
    u32 probe;
    u32 entry;
};

// Where the tag is.
STEP bool lookup_locate(const struct lookup_table *table, u64 tag, u64 hash_low,
                        struct place *place)
{
    for (place->probe = 0; place->probe < PROBES_MAX && place->probe <= table->mask;
         place->probe++) {
        const struct bucket *bucket = lookup_bucket(table, hash_low, place->probe);
        for (place->entry = 0; bucket != NULL && place->entry < BUCKET_ENTRIES; place->entry++) {
            if (bucket->locations[place->entry] != NO_LOCATION &&
                bucket->tags[place->entry] == tag) {
                return true;
            }
        }
        if (bucket == NULL || bucket->overflow == 0) {
            return false;
        }
    }
    return false;
}

STEP bool lookup_locate_free(const struct lookup_table *table, u64 hash_low, struct place *place)
{
    for (place->probe = 0; place->probe < PROBES_MAX && place->probe <= table->mask;
         place->probe++) {
        const struct bucket *bucket = lookup_bucket(table, hash_low, place->probe);
        for (place->entry = 0; bucket != NULL && place->entry < BUCKET_ENTRIES; place->entry++) {
            if (bucket->locations[place->entry] == NO_LOCATION) {
                return true;
            }
        }
    }
    return false;
}

// Tells the buckets before an entry's that there is one more of theirs, or one less, further on.
STEP void lookup_pass(const struct lookup_table *table, u64 hash_low, u32 probes, u32 difference)
{
    for (u32 probe = 0; probe < PROBES_MAX && probe < probes; probe++) {
        struct bucket *bucket = lookup_bucket(table, hash_low, probe);
        if (bucket == NULL) {
            break;
        }
        bucket_write_begin(bucket);
        store_relaxed(&bucket->overflow, bucket->overflow + difference);
        bucket_write_end(bucket);
    }
}

enum lookup_insert { INSERT_OK, INSERT_DUPLICATE, INSERT_FULL, INSERT_NO_SLOT };

STEP enum lookup_insert lookup_insert(const struct lookup_table *table, u64 tag, u64 hash_low,
                                      u32 location)
{
    struct place place;
    if (tag == 0 || lookup_locate(table, tag, hash_low, &place)) {
        return INSERT_DUPLICATE;
    }
    struct bucket *bucket = lookup_locate_free(table, hash_low, &place)
                                ? lookup_bucket(table, hash_low, place.probe)
                                : NULL;
    if (bucket == NULL) {
        return INSERT_FULL;
    }
    // First the way to it, then the entry.
    lookup_pass(table, hash_low, place.probe, 1);
    bucket_set(bucket, place.entry & (BUCKET_ENTRIES - 1), tag, location);
    // Seen by every packet whose seq is later than the one that SET_VALID is about to read.
    fence_full();
    return INSERT_OK;
}

// False if the tag isn't there, or at another location.
STEP bool lookup_remove(const struct lookup_table *table, u64 tag, u64 hash_low, u32 location)
{
    struct place place;
    struct bucket *bucket = lookup_locate(table, tag, hash_low, &place)
                                ? lookup_bucket(table, hash_low, place.probe)
                                : NULL;
    u32 entry = place.entry & (BUCKET_ENTRIES - 1);
    if (bucket == NULL || bucket->locations[entry] != location) {
        return false;
    }
    bucket_set(bucket, entry, 0, NO_LOCATION);
    lookup_pass(table, hash_low, place.probe, ~0u);
    fence_full();
    return true;
}
