// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Tables in BPF maps. The loader sets `parameters` and the maps' sizes before it loads the program; the sizes
// of values are fixed, since the verifier checks them.
#pragma once

struct parameters {
    u64 features;
    u64 sampling; // of 2^32
    u32 threshold;
    u32 sketch_width;
    u32 partition_shift;
    u32 class_count;
    u32 slots[CLASS_MAX];
    u32 value_bytes[CLASS_MAX];  // of a class's longest value
    u32 counter_base[CLASS_MAX]; // of a class's first slot in `counters`
    struct address endpoint;     // where clients send packets
    u16 reserved[3];
};

const volatile struct parameters parameters SEC(".rodata.parameters") = {
    .features = (1 << 15) - 1 - FEATURE_WRITE_THROUGH,
    .sampling = 1ull << 31,
    .threshold = 20,
    .sketch_width = 1 << 16,
    .partition_shift = 32 - 12,
    .class_count = 4,
    .slots = {8192, 8192, 8192, 8192},
    .value_bytes = {128, 256, 512, 1024},
    .counter_base = {0, 8192, 2 * 8192, 3 * 8192},
    .endpoint = {.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}, .port = SWITCH_PORT},
};

// What user space writes while packets are processed, in a section of its own, which it maps.
struct shared {
    struct registers registers;
    u64 clock_offset_ms; // from the kernel's monotonic clock to the Unix epoch
};
struct shared shared SEC(".data.shared") = {{0}, 0};

#define MAP(name_, type_, key_, value_, entries_)                                                            \
    struct {                                                                                                 \
        __uint(type, type_);                                                                                 \
        __uint(max_entries, entries_);                                                                       \
        __type(key, key_);                                                                                   \
        __type(value, value_);                                                                               \
    } name_ SEC(".maps")

struct hash {
    u64 high;
    u64 low;
};

// What a report looks like; the record's value follows.
struct report {
    u32 op;
    u32 location;
    u32 epoch;
    u32 reserved;
    struct record record;
};

// A class's records, each with room for its value. The loader sets both sizes.
#define RECORDS(class_, value_bytes_)                                                                        \
    struct {                                                                                                 \
        __uint(type, BPF_MAP_TYPE_ARRAY);                                                                    \
        __uint(max_entries, 8192);                                                                           \
        __uint(key_size, sizeof(u32));                                                                       \
        __uint(value_size, sizeof(struct record) + (value_bytes_));                                          \
    } records_##class_ SEC(".maps")

RECORDS(0, 128);
RECORDS(1, 256);
RECORDS(2, 512);
RECORDS(3, 1024);

MAP(lookups, BPF_MAP_TYPE_HASH, struct hash, u32, 4 * 8192);
MAP(counters, BPF_MAP_TYPE_ARRAY, u32, u32, 4 * 8192);
MAP(sketches, BPF_MAP_TYPE_ARRAY, u32, u32, SKETCH_ROWS * (1 << 16));
MAP(sequences, BPF_MAP_TYPE_ARRAY, u32, u64, SEQUENCE_BUCKETS);
MAP(lanes, BPF_MAP_TYPE_ARRAY, u32, struct lane, 1 << 16);
MAP(routes, BPF_MAP_TYPE_ARRAY, u32, u64, 1 << 16);
MAP(nodes, BPF_MAP_TYPE_HASH, struct address, u32, 1 << 12);
MAP(node_addresses, BPF_MAP_TYPE_ARRAY, u32, struct address, 1 << 12);
MAP(statistics, BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, STATISTIC_COUNT);

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 22);
} reports SEC(".maps");

// Addresses whose next hop the kernel doesn't know yet; user space makes it ask.
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 12);
} unreached SEC(".maps");

// What is on its way to another place in the packet, or to a comparison. XDP programs don't interrupt each
// other on a CPU.
#define FRONT_BYTES_MAX 192u
struct scratch {
    u64 random;
    u8 key[KEY_BYTES_MAX];
    u8 front[FRONT_BYTES_MAX];
};
MAP(scratches, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct scratch, 1);

STEP bool has_feature(const struct call *call, u64 bit)
{
    (void)call;
    return (parameters.features & bit) != 0;
}

STEP struct registers *registers_of(struct call *call)
{
    (void)call;
    return &shared.registers;
}

STEP enum lookup_result table_location(struct call *call)
{
    struct hash hash = {call->header.hash_high, call->header.hash_low};
    u32 *location = bpf_map_lookup_elem(&lookups, &hash);
    if (location == NULL) {
        return LOOKUP_MISS;
    }
    call->location = *location;
    return LOOKUP_HIT;
}

STEP struct record *table_record(struct call *call, u32 location)
{
    (void)call;
    u32 slot = slot_of(location);
    if (class_of(location) >= parameters.class_count) {
        return NULL;
    }
    switch (class_of(location)) {
    case 0:
        return bpf_map_lookup_elem(&records_0, &slot);
    case 1:
        return bpf_map_lookup_elem(&records_1, &slot);
    case 2:
        return bpf_map_lookup_elem(&records_2, &slot);
    default:
        return bpf_map_lookup_elem(&records_3, &slot);
    }
}

STEP u32 table_value_capacity(struct call *call, u32 location)
{
    (void)call;
    return parameters.value_bytes[class_of(location) & (CLASS_MAX - 1)];
}

STEP u32 *table_counter(struct call *call, u32 location)
{
    (void)call;
    u32 index = parameters.counter_base[class_of(location) & (CLASS_MAX - 1)] + slot_of(location);
    if (slot_of(location) >= parameters.slots[class_of(location) & (CLASS_MAX - 1)]) {
        return NULL;
    }
    return bpf_map_lookup_elem(&counters, &index);
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

STEP u64 table_sampling(struct call *call)
{
    (void)call;
    return parameters.sampling;
}

STEP u32 table_threshold(struct call *call)
{
    (void)call;
    return parameters.threshold;
}

STEP u64 table_now_ms(const struct call *call)
{
    return call->now_ms != 0 ? call->now_ms
                             : bpf_ktime_get_ns() / 1000000 + load_relaxed(&shared.clock_offset_ms);
}

// For sampling: a linear congruential generator of each CPU's, since the kernel's costs as much as a lookup.
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

STEP u16 table_partition(struct call *call)
{
    return (u16)(call->header.hash_high >> 32 >> (parameters.partition_shift & 63));
}

STEP u64 table_route(struct call *call, u16 partition)
{
    (void)call;
    u32 index = partition;
    u64 *route = bpf_map_lookup_elem(&routes, &index);
    return route != NULL ? load_relaxed(route) : NO_ROUTE;
}

STEP void table_prefetch(struct call *call)
{
    (void)call;
}

STEP bool table_is_node(struct call *call, const struct address *address)
{
    (void)call;
    return bpf_map_lookup_elem(&nodes, address) != NULL;
}

STEP void count(struct call *call, u32 statistic)
{
    (void)call;
    u64 *at = bpf_map_lookup_elem(&statistics, &statistic);
    if (at != NULL) {
        *at += 1;
    }
}

#define REPORT(class_)                                                                                       \
    {                                                                                                        \
        u32 bytes_ = sizeof(struct record) + parameters.value_bytes[class_];                                 \
        struct report *report =                                                                              \
            bpf_ringbuf_reserve(&reports, sizeof(*report) + parameters.value_bytes[class_], 0);              \
        if (report == NULL) {                                                                                \
            return false;                                                                                    \
        }                                                                                                    \
        report->op = op;                                                                                     \
        report->location = location;                                                                         \
        report->epoch = call->epoch;                                                                         \
        report->reserved = 0;                                                                                \
        (void)bpf_probe_read_kernel(&report->record, bytes_, record);                                        \
        bpf_ringbuf_submit(report, 0);                                                                       \
        return true;                                                                                         \
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
