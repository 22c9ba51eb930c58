// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Tables in BPF maps. The loader sets `parameters` and the maps' sizes before it loads the program;
// the sizes of values are fixed, since the verifier checks them.
#pragma once

#define CACHE_LINE     64u
#define PREFETCH_BYTES 256u
// What values are moved by: a power of two, so that a mask says to the verifier how far a move may
// go.
#define VALUE_BOUND 2048u
_Static_assert(CACHED_VALUE_BYTES_MAX <= VALUE_BOUND, "every value is moved whole");
// A slot may be looked at as if its value were that long, and a little more.
#define SLOT_BYTES_MAX  (sizeof(struct record) + VALUE_BOUND + CACHE_LINE)
#define CHUNK_BYTES_MIN SLOT_BYTES_MAX

struct parameters {
    u64 features;
    u32 sketch_width;
    u32 route_shift; // of a hash's upper half: twice, since there may be one bucket only
    u32 lookup_mask; // buckets, less one
    u32 class_count;
    u32 slots[CLASS_MAX];
    u32 value_bytes[CLASS_MAX];  // of a class's longest value
    u32 counter_base[CLASS_MAX]; // of a class's first slot in `counters`
    u32 chunk_shift[CLASS_MAX];  // a chunk has 2^this slots of a class,
    u32 chunk_base[CLASS_MAX];   // which begin there
    u32 slot_bytes[CLASS_MAX];   // and take this many bytes each
    u32 chunk_bytes;
    struct address endpoint; // where clients send packets
    u16 reserved[5];
};

const volatile struct parameters parameters SEC(".rodata.parameters") = {
    .features = (1 << 15) - 1 - FEATURE_WRITE_THROUGH,
    .sketch_width = 1 << 16,
    .route_shift = 32 - 12,
    .lookup_mask = (1 << 14) - 1,
    .class_count = 4,
    .slots = {8192, 8192, 8192, 8192},
    .value_bytes = {128, 256, 512, CACHED_VALUE_BYTES_MAX},
    .chunk_bytes = CHUNK_BYTES_MIN,
    .endpoint = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}, .port = SWITCH_PORT},
};

// What user space writes while packets are processed, in a section of its own, which it maps.
struct shared {
    struct registers registers;
    u64 clock_offset_ms; // from the kernel's monotonic clock to the Unix epoch
};
struct shared shared SEC(".data.shared") = {{0}, 0};

#define MAP(name_, type_, key_, value_, entries_)                                                  \
    struct {                                                                                       \
        __uint(type, type_);                                                                       \
        __uint(max_entries, entries_);                                                             \
        __type(key, key_);                                                                         \
        __type(value, value_);                                                                     \
    } name_ SEC(".maps")

// An array whose first element begins a page. (Others begin 8 bytes before a cache line's end.)
#define ALIGNED_ARRAY(name_, value_, entries_)                                                     \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_ARRAY);                                                          \
        __uint(map_flags, BPF_F_MMAPABLE);                                                         \
        __uint(max_entries, entries_);                                                             \
        __type(key, u32);                                                                          \
        __type(value, value_);                                                                     \
    } name_ SEC(".maps")

struct statistics {
    u64 numbers[STATISTIC_COUNT];
};

// What a report looks like; the record's value follows.
struct report {
    u32 op;
    u32 location;
    u32 epoch;
    u32 reserved;
    struct record record;
};

// Slots: a record, its value behind it. A chunk has some of each class, so that there is one way to
// a slot, which the verifier looks at once; there are several because the kernel limits the length
// of an array's element.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(u32));
    __uint(value_size, CHUNK_BYTES_MIN);
} chunks SEC(".maps");

ALIGNED_ARRAY(lookups, struct bucket, 1 << 14);
MAP(counters, BPF_MAP_TYPE_ARRAY, u32, u32, 4 * 8192);
MAP(sketches, BPF_MAP_TYPE_ARRAY, u32, u32, SKETCH_ROWS * (1 << 16));
MAP(sequences, BPF_MAP_TYPE_ARRAY, u32, u64, SEQUENCE_BUCKETS);
ALIGNED_ARRAY(lanes, struct lane, 1 << 16);
MAP(routes, BPF_MAP_TYPE_ARRAY, u32, struct route_bucket, 1 << 12);
MAP(ranges, BPF_MAP_TYPE_ARRAY, u32, struct range, 1 << 12);
MAP(nodes, BPF_MAP_TYPE_HASH, struct address, u32, 1 << 12);
MAP(node_addresses, BPF_MAP_TYPE_ARRAY, u32, struct address, 1 << 12);
MAP(statistics, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct statistics, 1);

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 22);
} reports SEC(".maps");

// Addresses whose next hop the kernel doesn't know yet; user space makes it ask.
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 12);
} unreached SEC(".maps");

// What is on its way to another place in the packet, or to a comparison. XDP programs don't
// interrupt each other on a CPU.
struct scratch {
    u64 random;
    u8 key[KEY_BYTES_MAX];
};
MAP(scratches, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct scratch, 1);

STEP bool has_feature(const struct call *call, u64 bit)
{
    (void)call;
    return is_on(parameters.features, bit);
}

STEP bool is_layered(const struct call *call)
{
    return has_feature(call, FEATURE_LAYERS);
}

STEP struct registers *registers_of(struct call *call)
{
    (void)call;
    return &shared.registers;
}

// What every packet needs; false where the kernel has no memory for it, which there is.
STEP bool tables_begin(struct call *call)
{
    u32 index = 0;
    struct statistics *statistics_of_cpu = bpf_map_lookup_elem(&statistics, &index);
    call->statistics = statistics_of_cpu;
    return statistics_of_cpu != NULL;
}

struct lookup_table {
    u32 mask;
};

STEP struct bucket *lookup_bucket(const struct lookup_table *table, u64 hash_low, u32 probe)
{
    u32 index = ((u32)hash_low + probe) & table->mask;
    return bpf_map_lookup_elem(&lookups, &index);
}

#include "lookup.h"

STEP struct lookup_table table_lookup(void)
{
    return (struct lookup_table){.mask = parameters.lookup_mask};
}

STEP struct record *table_record(struct call *call, u32 location)
{
    (void)call;
    u32 size_class = class_of(location) & (CLASS_MAX - 1), slot = slot_of(location);
    u32 shift = parameters.chunk_shift[size_class] & 31, chunk = slot >> shift;
    u64 index = slot - (chunk << shift);
    u64 at = parameters.chunk_base[size_class] + index * parameters.slot_bytes[size_class];
    u8 *slots = slot < parameters.slots[size_class] ? bpf_map_lookup_elem(&chunks, &chunk) : NULL;
    forget(at);
    if (slots == NULL || at > parameters.chunk_bytes - SLOT_BYTES_MAX) {
        return NULL;
    }
    // For the verifier, which asks for the alignment of what is changed atomically.
    return (struct record *)(void *)(slots + (at & ~(u64)(CACHE_LINE - 1)));
}

STEP u8 *table_value(struct record *record)
{
    return (u8 *)(record + 1);
}

STEP u32 found_capacity(struct call *call)
{
    return parameters.value_bytes[class_of(call->location) & (CLASS_MAX - 1)];
}

STEP u32 *table_counter(struct call *call, u32 location)
{
    (void)call;
    u32 size_class = class_of(location) & (CLASS_MAX - 1), slot = slot_of(location);
    u32 index = parameters.counter_base[size_class] + slot;
    return slot < parameters.slots[size_class] ? bpf_map_lookup_elem(&counters, &index) : NULL;
}

STEP struct record *found_record(struct call *call)
{
    return call->record;
}

STEP u32 *found_counter(struct call *call)
{
    return table_counter(call, call->location);
}

// All that a hit needs is on its way at once.
STEP void table_find(struct call *call)
{
    struct record *record = call->record = table_record(call, call->location);
    u32 *counter = table_counter(call, call->location);
    u32 value_bytes = found_capacity(call);
    if (record == NULL || counter == NULL) {
        return;
    }
    prefetch(record);
    for (u32 at = 0; at < PREFETCH_BYTES && at < value_bytes; at += CACHE_LINE) {
        prefetch(table_value(record) + at);
    }
    prefetch(counter);
}

// Global, so the verifier looks at it once. The result above the location.
__attribute__((noinline)) u64 lookup_patiently(u64 tag, u64 hash_low)
{
    struct lookup_table table = table_lookup();
    u32 location = NO_LOCATION;
    u64 found = lookup_all(&table, tag, hash_low, &location);
    return found << 32 | location;
}

// Whether the first bucket is enough, the common case: then `*location` is where the tag is.
STEP bool lookup_first(const struct bucket *bucket, u64 tag, u32 *location)
{
    bool goes_on = false;
    bool is_whole = bucket_read(bucket, tag, location, &goes_on);
    return likely(is_whole && (*location != NO_LOCATION || !goes_on));
}

STEP enum lookup_result table_location(struct call *call)
{
    struct lookup_table table = table_lookup();
    u64 tag = call->header.hash_high, hash_low = call->header.hash_low;
    const struct bucket *bucket = lookup_bucket(&table, hash_low, 0);
    if (bucket == NULL) {
        return LOOKUP_MISS;
    }
    if (likely(lookup_first(bucket, tag, &call->location))) {
        if (call->location == NO_LOCATION) {
            return LOOKUP_MISS;
        }
        table_find(call);
        return LOOKUP_HIT;
    }
    u64 found = lookup_patiently(tag, hash_low);
    call->location = (u32)found;
    table_find(call);
    return (enum lookup_result)(found >> 32);
}

STEP u64 *table_sequence(struct call *call, u32 bucket)
{
    (void)call;
    u32 index = bucket & (SEQUENCE_BUCKETS - 1);
    return bpf_map_lookup_elem(&sequences, &index);
}

STEP struct lane *table_lane(struct call *call, u32 lane)
{
    (void)call;
    return bpf_map_lookup_elem(&lanes, &lane);
}

STEP u32 *table_sketch(struct call *call, u32 row, u32 index)
{
    (void)call;
    u32 at = row * parameters.sketch_width + (index & (parameters.sketch_width - 1));
    return bpf_map_lookup_elem(&sketches, &at);
}

STEP u32 table_sketch_width(struct call *call)
{
    (void)call;
    return parameters.sketch_width;
}

STEP const struct address *sender(const struct call *call)
{
    return &call->from;
}

STEP u64 table_now_ms(const struct call *call)
{
    return call->now_ms != 0 ? call->now_ms
                             : bpf_ktime_get_ns() / 1000000 + load_relaxed(&shared.clock_offset_ms);
}

// For sampling: a linear congruential generator of each CPU's, since the kernel's costs as much as
// a lookup.
STEP u32 table_random(const struct call *call)
{
    u32 index = 0;
    struct scratch *scratch = call->random == 0 ? bpf_map_lookup_elem(&scratches, &index) : NULL;
    if (scratch == NULL) {
        return call->random;
    }
    scratch->random = scratch->random * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)(scratch->random >> 32);
}

// There is one, whose maps have names.
struct route_table {
};

STEP struct route_table table_routes(struct call *call)
{
    (void)call;
    return (struct route_table){};
}

STEP const struct route_bucket *route_bucket(const struct route_table *table, u64 hash_high)
{
    (void)table;
    u32 index = (u32)(hash_high >> 32 >> (parameters.route_shift & 63));
    return bpf_map_lookup_elem(&routes, &index);
}

STEP const struct range *route_range(const struct route_table *table, u32 at)
{
    (void)table;
    return bpf_map_lookup_elem(&ranges, &at);
}

STEP void table_prefetch(struct call *call)
{
    struct lookup_table table = table_lookup();
    const struct bucket *bucket =
        call->injected ? NULL : lookup_bucket(&table, call->header.hash_low, 0);
    if (bucket != NULL) {
        prefetch(bucket);
    }
    const u64 *sequence =
        call->header.op == OP_WRITE ? table_sequence(call, (u32)call->header.hash_low) : NULL;
    if (sequence != NULL) {
        prefetch(sequence);
    }
}

STEP u64 load_word(const u8 *at)
{
    return *(const u64 *)(const void *)at;
}

STEP bool table_is_node(struct call *call, const struct address *address)
{
    (void)call;
    return bpf_map_lookup_elem(&nodes, address) != NULL;
}

STEP void count(struct call *call, u32 statistic)
{
    if (statistic < STATISTIC_COUNT) {
        call->statistics->numbers[statistic] += 1;
    }
}

// The length of what is reserved must be known to the verifier.
#define REPORT(class_)                                                                             \
    {                                                                                              \
        u32 value_bytes = parameters.value_bytes[class_];                                          \
        struct report *report = bpf_ringbuf_reserve(&reports, sizeof(*report) + value_bytes, 0);   \
        if (report == NULL) {                                                                      \
            return false;                                                                          \
        }                                                                                          \
        report->op = op;                                                                           \
        report->location = location;                                                               \
        report->epoch = call->epoch;                                                               \
        report->reserved = 0;                                                                      \
        (void)bpf_probe_read_kernel(&report->record, sizeof(*record) + value_bytes, record);       \
        bpf_ringbuf_submit(report, 0);                                                             \
        return true;                                                                               \
    }

STEP bool table_report(struct call *call, struct record *record, u32 location, u8 op)
{
    switch (class_of(location)) {
    case 0:
        REPORT(0)
    case 1:
        REPORT(1)
    case 2:
        REPORT(2)
    default:
        REPORT(3)
    }
}
