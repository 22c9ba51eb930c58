// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The pipeline in user space: memory, entry points, and what only the agent calls.
#include "pipeline.h"
#include "native.h"
#include "layout.h"
#include "process.h"

#include <sys/mman.h>

// Under the address sanitizer all memory is the allocator's, which it watches.
#if defined(__SANITIZE_ADDRESS__)
#define HAS_HUGE_PAGES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_HUGE_PAGES 0
#endif
#endif
#ifndef HAS_HUGE_PAGES
#define HAS_HUGE_PAGES 1
#endif

// ---- memory ----

#define HUGE_PAGE (2ull << 20)

// Large tables lie on huge pages, as far as there are any: a miss in the TLB costs as much as the
// lookup.
static bool is_huge(u64 bytes)
{
    return HAS_HUGE_PAGES && bytes >= HUGE_PAGE;
}

static u64 allocation_bytes(u64 count, u64 size)
{
    u64 align = count * size >= HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
    return (count * size + align - 1) / align * align;
}

// Zeroed by the kernel.
static void *allocate_huge(u64 bytes)
{
    u8 *at =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    // The kernel gives huge pages only to what is aligned like them; what is around goes back.
    u64 before = (HUGE_PAGE - (u64)at % HUGE_PAGE) % HUGE_PAGE;
    if (before != 0) {
        (void)munmap(at, before);
    }
    (void)munmap(at + before + bytes, HUGE_PAGE - before);
    (void)madvise(at + before, bytes, MADV_HUGEPAGE);
    return at + before;
}

// Of any content.
static void *allocate_unset(u64 count, u64 size)
{
    u64 bytes = allocation_bytes(count, size);
    return is_huge(bytes) ? allocate_huge(bytes) : aligned_alloc(CACHE_LINE, bytes);
}

// Zeroed.
static void *allocate(u64 count, u64 size)
{
    u64 bytes = allocation_bytes(count, size);
    void *at = allocate_unset(count, size);
    return at == NULL || is_huge(bytes) ? at : memset(at, 0, bytes);
}

static void release(void *at, u64 count, u64 size)
{
    u64 bytes = allocation_bytes(count, size);
    if (at != NULL && is_huge(bytes)) {
        (void)munmap(at, bytes);
    } else {
        free(at);
    }
}

static bool is_power_of_two(u64 number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

static u64 power_of_two_from(u64 number)
{
    u64 power = 1;
    while (power < number) {
        power *= 2;
    }
    return power;
}

static bool is_sound(const struct switchback_config *config)
{
    bool is_sound = config->class_count <= CLASS_MAX && config->lanes > 0 && config->nodes > 0 &&
                    config->nodes < NO_NODE && config->partitions <= 1u << 16 &&
                    is_power_of_two(config->partitions) && is_power_of_two(config->sketch_width) &&
                    config->sampling <= 1ull << 32 && config->reports > 0 &&
                    config->reports <= 1u << 20;
    for (u32 i = 0; is_sound && i < config->class_count; i++) {
        is_sound = config->value_bytes[i] > 0 && config->value_bytes[i] <= CACHED_VALUE_BYTES_MAX &&
                   config->slots[i] > 0 && config->slots[i] < SLOTS_MAX;
    }
    return is_sound;
}

static bool new_classes(struct switchback *switchback, const struct switchback_config *config)
{
    u64 slots = 0;
    for (u32 i = 0; i < config->class_count; i++) {
        struct size_class *of = &switchback->classes[i];
        of->value_bytes = config->value_bytes[i];
        of->slots = config->slots[i];
        of->stride =
            (sizeof(struct record) + of->value_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
        of->records = allocate(of->slots, of->stride);
        of->counters = allocate(of->slots, sizeof(u32));
        slots += of->slots;
        if (of->records == NULL || of->counters == NULL) {
            return false;
        }
    }
    // Half full at most: a run of full buckets is rare then, and most lookups read one line.
    u64 buckets = power_of_two_from((slots + 1) / 2 + 1);
    switchback->class_count = config->class_count;
    switchback->lookup.mask = (u32)(buckets - 1);
    switchback->lookup.buckets = allocate(buckets, sizeof(struct bucket));
    for (u64 i = 0; switchback->lookup.buckets != NULL && i < buckets; i++) {
        bucket_clear(&switchback->lookup.buckets[i]);
    }
    return switchback->lookup.buckets != NULL;
}

static bool new_routes(struct route_table *routes, u32 partitions)
{
    routes->shift = 32u - (u32)__builtin_ctz(partitions);
    routes->mask = partitions - 1;
    routes->buckets = allocate(partitions, sizeof(struct route_bucket));
    routes->ranges = allocate(partitions, sizeof(struct range));
    for (u32 i = 0; routes->buckets != NULL && i < partitions; i++) {
        routes->buckets[i].route = NO_ROUTE;
    }
    return routes->buckets != NULL && routes->ranges != NULL;
}

static bool new_nodes(struct node_table *nodes, u32 count)
{
    u64 places = power_of_two_from(4ull * count);
    nodes->count = count;
    nodes->mask = (u32)(places - 1);
    nodes->index = allocate(places, sizeof(u16));
    nodes->addresses = allocate(count, sizeof(struct address));
    nodes->known = allocate(count, 1);
    return nodes->index != NULL && nodes->addresses != NULL && nodes->known != NULL;
}

static bool new_reports(struct report_ring *ring, u32 reports)
{
    u64 cells = power_of_two_from(reports < 2 ? 2 : reports);
    ring->mask = cells - 1;
    // A cell's bytes are written before they are read, and they are most of what a switch has.
    ring->cells = allocate_unset(cells, sizeof(struct report_cell));
    for (u64 i = 0; ring->cells != NULL && i < cells; i++) {
        ring->cells[i].turn = i;
    }
    return ring->cells != NULL;
}

struct switchback *switchback_new(const struct switchback_config *config)
{
    if (!is_sound(config)) {
        return NULL;
    }
    struct switchback *switchback = allocate(1, sizeof(struct switchback));
    if (switchback == NULL) {
        return NULL;
    }
    switchback->features = config->features;
    switchback->sketch_mask = config->sketch_width - 1;
    switchback->lane_count = config->lanes;
    switchback->registers.lanes = config->lanes;
    switchback->registers.sampling = config->sampling;
    switchback->registers.threshold = config->threshold;
    switchback->registers.offers = ~0u;
    switchback->registers.place = (struct chain_place){.position = 1, .length = 1};
    switchback->sequences = allocate(SEQUENCE_BUCKETS, sizeof(u64));
    switchback->sketch = allocate(SKETCH_ROWS * (u64)config->sketch_width, sizeof(u32));
    switchback->lanes = allocate(config->lanes, sizeof(struct lane));
    switchback->statistics = allocate((SHARDS + 1) * STATISTIC_STRIDE, sizeof(u64));
    bool has_all = switchback->sequences != NULL && switchback->sketch != NULL &&
                   switchback->lanes != NULL && switchback->statistics != NULL &&
                   new_classes(switchback, config) &&
                   new_routes(&switchback->routes, config->partitions) &&
                   new_nodes(&switchback->nodes, config->nodes) &&
                   new_reports(&switchback->reports, config->reports);
    if (!has_all) {
        switchback_free(switchback);
        return NULL;
    }
    return switchback;
}

void switchback_free(struct switchback *switchback)
{
    for (u32 i = 0; i < CLASS_MAX; i++) {
        struct size_class *of = &switchback->classes[i];
        release(of->records, of->slots, of->stride);
        release(of->counters, of->slots, sizeof(u32));
    }
    release(switchback->lookup.buckets, switchback->lookup.mask + 1ull, sizeof(struct bucket));
    release(switchback->nodes.index, switchback->nodes.mask + 1ull, sizeof(u16));
    release(switchback->nodes.addresses, switchback->nodes.count, sizeof(struct address));
    release(switchback->nodes.known, switchback->nodes.count, 1);
    release(switchback->reports.cells, switchback->reports.mask + 1, sizeof(struct report_cell));
    release(switchback->sequences, SEQUENCE_BUCKETS, sizeof(u64));
    release(switchback->sketch, SKETCH_ROWS * (switchback->sketch_mask + 1ull), sizeof(u32));
    release(switchback->lanes, switchback->lane_count, sizeof(struct lane));
    release(switchback->routes.buckets, switchback->routes.mask + 1ull,
            sizeof(struct route_bucket));
    release(switchback->routes.ranges, switchback->routes.mask + 1ull, sizeof(struct range));
    release(switchback->statistics, (SHARDS + 1) * STATISTIC_STRIDE, sizeof(u64));
    release(switchback, 1, sizeof(struct switchback));
}

// ---- reports ----

// A cell to write to at `*ticket`, or NULL if the ring is full.
static struct report_cell *report_begin(struct report_ring *ring, u64 *ticket)
{
    u64 tail = load_relaxed(&ring->tail);
    for (;;) {
        struct report_cell *cell = &ring->cells[tail & ring->mask];
        u64 turn = load_acquire(&cell->turn);
        if (turn == tail) {
            if (__atomic_compare_exchange_n(&ring->tail, &tail, tail + 1, true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
                *ticket = tail;
                return cell;
            }
        } else if (turn < tail) {
            return NULL;
        } else {
            tail = load_relaxed(&ring->tail);
        }
    }
}

bool native_report(struct switchback *switchback, u32 epoch, struct record *record, u32 location,
                   u8 op)
{
    struct report_ring *ring = &switchback->reports;
    u64 ticket = 0;
    struct report_cell *cell = report_begin(ring, &ticket);
    if (cell == NULL) {
        return false;
    }
    struct call described = {.switchback = switchback, .location = location, .epoch = epoch};
    described.header.op = op;
    described.header.epoch = epoch;
    control_describe(&described.header, record);
    memset(cell->bytes, 0, HEADER_BYTES);
    struct packet packet = {.bytes = cell->bytes, .length = 0};
    bool fits = packet_resize_for(&packet, &described, record);
    invariant(fits);
    packet_put_value(&packet, &described, record);
    struct wire *wire = (struct wire *)(void *)cell->bytes;
    wire->magic = to_be16(MAGIC);
    wire->version = VERSION;
    encode_common(&described.header, wire);
    encode_record(&described.header, wire);
    encode_name(&described, wire);
    cell->length = packet.length;
    store_release(&cell->turn, ticket + 1);
    return true;
}

u32 switchback_next_report(struct switchback *switchback, u8 *bytes)
{
    struct report_ring *ring = &switchback->reports;
    u64 head = load_relaxed(&ring->head);
    for (;;) {
        struct report_cell *cell = &ring->cells[head & ring->mask];
        u64 turn = load_acquire(&cell->turn);
        if (turn < head + 1) {
            return 0;
        }
        if (turn > head + 1) {
            head = load_relaxed(&ring->head);
            continue;
        }
        if (__atomic_compare_exchange_n(&ring->head, &head, head + 1, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            u32 length = cell->length;
            invariant(length >= HEADER_BYTES && length <= PACKET_BYTES_MAX);
            memcpy(bytes, cell->bytes, length);
            store_release(&cell->turn, head + ring->mask + 1);
            return length;
        }
    }
}

// ---- tables ----

static struct record *record_at(struct switchback *switchback, u32 location)
{
    struct call call = {.switchback = switchback};
    return table_record(&call, location);
}

u32 switchback_lookup_insert(struct switchback *switchback, u64 hash_high, u64 hash_low,
                             u32 location)
{
    return record_at(switchback, location) != NULL
               ? lookup_insert(&switchback->lookup, hash_high, hash_low, location)
               : INSERT_NO_SLOT;
}

bool switchback_lookup_remove(struct switchback *switchback, u64 hash_high, u64 hash_low,
                              u32 location)
{
    return lookup_remove(&switchback->lookup, hash_high, hash_low, location);
}

void switchback_set_routes(struct switchback *switchback, const struct route_bucket *buckets,
                           const struct range *ranges, u32 range_count)
{
    struct route_table *routes = &switchback->routes;
    invariant(range_count > 0 && range_count <= routes->mask + 1);
    for (u32 i = 0; i < range_count; i++) {
        store_relaxed(&routes->ranges[i].start_high, ranges[i].start_high);
        store_relaxed(&routes->ranges[i].start_low, ranges[i].start_low);
        store_relaxed(&routes->ranges[i].route, ranges[i].route);
        store_relaxed(&routes->ranges[i].view, ranges[i].view);
        store_relaxed(&routes->ranges[i].partition, ranges[i].partition);
    }
    for (u32 i = 0; i <= routes->mask; i++) {
        invariant(buckets[i].first <= buckets[i].last && buckets[i].last < range_count);
        store_relaxed(&routes->buckets[i].route, buckets[i].route);
        store_relaxed(&routes->buckets[i].view, buckets[i].view);
        store_relaxed(&routes->buckets[i].partition, buckets[i].partition);
        store_relaxed(&routes->buckets[i].first, buckets[i].first);
        store_relaxed(&routes->buckets[i].last, buckets[i].last);
    }
}

void switchback_set_node(struct switchback *switchback, u32 node, const struct address *address)
{
    struct node_table *nodes = &switchback->nodes;
    invariant(node < nodes->count);
    store_relaxed(&nodes->version, nodes->version + 1);
    fence_release();
    nodes->addresses[node] = *address;
    nodes->known[node] = 1;
    memset(nodes->index, 0, (nodes->mask + 1ull) * sizeof(u16));
    for (u32 i = 0; i < nodes->count; i++) {
        u32 at = address_hash(&nodes->addresses[i]) & nodes->mask;
        while (nodes->known[i] && nodes->index[at] != 0) {
            at = (at + 1) & nodes->mask;
        }
        if (nodes->known[i]) {
            nodes->index[at] = (u16)(i + 1);
        }
    }
    store_release(&nodes->version, nodes->version + 1);
}

void switchback_set_place(struct switchback *switchback, const struct chain_place *place)
{
    struct call call = {.switchback = switchback,
                        .is_layered = is_on(switchback->features, FEATURE_LAYERS)};
    invariant(place_is_sound(&call, place));
    place_take(&switchback->registers, place);
}

void switchback_neighbour(struct switchback *switchback, bool is_before, struct address *address)
{
    const struct chain_place *place = &switchback->registers.place;
    const u64 *ip = is_before ? place->before : place->after;
    const u64 words[] = {load_relaxed(&ip[0]), load_relaxed(&ip[1])};
    memcpy(address->ip, words, sizeof(words));
    address->port = from_be16(load_relaxed(is_before ? &place->before_port : &place->after_port));
}

void switchback_set_lanes(struct switchback *switchback, u32 granted)
{
    invariant(granted <= switchback->lane_count);
    store_release(&switchback->registers.lanes, granted);
}

u32 switchback_set_counting(struct switchback *switchback, u64 sampling, u32 threshold, u32 offers)
{
    store_relaxed(&switchback->registers.sampling, sampling);
    store_relaxed(&switchback->registers.threshold, threshold);
    return __atomic_exchange_n(&switchback->registers.offers, offers, __ATOMIC_RELAXED);
}

u32 switchback_sequence_used(struct switchback *switchback)
{
    return load_relaxed(&switchback->registers.sequence_used);
}

void switchback_heard(struct switchback *switchback, u32 heard[4])
{
    for (u32 i = 0; i < 4; i++) {
        heard[i] = load_relaxed(&switchback->registers.heard[i / 2][i % 2]);
    }
}

// Waits for a packet that holds the lock: a few microseconds, or until its thread runs again.
static void lock_for_clear(u32 *lock)
{
    for (u32 attempt = 0; !compare_exchange(lock, 0u, 1u); attempt++) {
        relax(attempt);
    }
}

static void clear_record(struct record *record)
{
    while (!record_lock(record)) {
    }
    u32 version = record->version;
    memset(record, 0, sizeof(*record));
    record->version = version;
    record_unlock(record);
}

void switchback_clear(struct switchback *switchback)
{
    // From here on every packet is refused. Those that were let in before look at the epoch again
    // under the lock of their lane or record, so taking each lock once waits for them and shuts out
    // the rest.
    store_release(&switchback->registers.epoch, 0u);
    fence_full();
    for (u32 i = 0; i < switchback->lane_count; i++) {
        struct lane *lane = &switchback->lanes[i];
        lock_for_clear(&lane->locked);
        lane_clear(lane);
        lane_unlock(lane);
    }
    for (u32 i = 0; i <= switchback->lookup.mask; i++) {
        bucket_clear(&switchback->lookup.buckets[i]);
    }
    for (u32 i = 0; i < switchback->class_count; i++) {
        struct size_class *of = &switchback->classes[i];
        for (u32 slot = 0; slot < of->slots; slot++) {
            clear_record(record_at(switchback, location_of(i, slot)));
            store_relaxed(&of->counters[slot], 0u);
        }
    }
    for (u64 i = 0; i < SKETCH_ROWS * (switchback->sketch_mask + 1ull); i++) {
        store_relaxed(&switchback->sketch[i], 0u);
    }
    for (u32 i = 0; i < SEQUENCE_BUCKETS; i++) {
        store_relaxed(&switchback->sequences[i], 0ull);
    }
    store_relaxed(&switchback->registers.sequence_used, 0u);
    load_clear(&switchback->registers.load);
    u8 bytes[PACKET_BYTES_MAX];
    while (switchback_next_report(switchback, bytes) != 0) {
    }
    store_release(&switchback->registers.snapshot, 0ull);
    store_release(&switchback->registers.durable_generation, 0u);
}

// ---- statistics ----

u64 switchback_statistic(struct switchback *switchback, u32 index)
{
    u64 sum = 0;
    for (u32 shard = 0; shard <= SHARDS; shard++) {
        sum += load_relaxed(&switchback->statistics[shard * STATISTIC_STRIDE + index]);
    }
    return sum;
}

void switchback_statistics(struct switchback *switchback, u64 *sums)
{
    for (u32 i = 0; i < STATISTIC_COUNT; i++) {
        sums[i] = switchback_statistic(switchback, i);
    }
}

const char *switchback_statistic_name(u32 index)
{
#define NAME(name) #name,
    static const char *const names[] = {COUNTERS(NAME) DROP_REASONS(NAME)};
#undef NAME
    return index < array_length(names) ? names[index] : NULL;
}

// ---- for tests ----

bool switchback_peek_record(struct switchback *switchback, u32 location,
                            struct switchback_record_image *image)
{
    struct call call = {.switchback = switchback};
    struct record *record = table_record(&call, location);
    if (record == NULL || !record_lock(record)) {
        return false;
    }
    *image = (struct switchback_record_image){
        .seq = record->seq,
        .adm = record->adm,
        .expiry_ms = record->expiry_ms,
        .incarnation = record->incarnation,
        .hash_high = record->hash_high,
        .hash_low = record->hash_low,
        .generation = record->generation,
        .counter = load_relaxed(table_counter(&call, location)),
        .value_bytes = record->value_bytes,
        .key_bytes = record->key_bytes,
        .state = record->state,
    };
    memcpy(image->key, record->key, record->key_bytes);
    memcpy(image->value, table_value(record), record->value_bytes);
    record_unlock(record);
    return true;
}

bool switchback_poke_record(struct switchback *switchback, u32 location,
                            const struct switchback_record_image *image)
{
    struct call call = {.switchback = switchback};
    struct record *record = table_record(&call, location);
    if (record == NULL || image->key_bytes > CACHED_KEY_BYTES_MAX ||
        image->value_bytes > found_at(switchback, location).value_bytes || !record_lock(record)) {
        return false;
    }
    record->seq = image->seq;
    record->adm = image->adm;
    record->expiry_ms = image->expiry_ms;
    record->incarnation = image->incarnation;
    record->hash_high = image->hash_high;
    record->hash_low = image->hash_low;
    record->generation = image->generation;
    record->value_bytes = image->value_bytes;
    record->key_bytes = image->key_bytes;
    record->state = image->state;
    memcpy(record->key, image->key, image->key_bytes);
    memcpy(table_value(record), image->value, image->value_bytes);
    store_relaxed(table_counter(&call, location), image->counter);
    record_unlock(record);
    return true;
}

bool switchback_peek_lane(struct switchback *switchback, u32 lane,
                          struct switchback_lane_image *image)
{
    if (lane >= switchback->lane_count) {
        return false;
    }
    const struct lane *entry = &switchback->lanes[lane];
    *image = (struct switchback_lane_image){.request = entry->request,
                                            .seq = entry->seq,
                                            .state = entry->state,
                                            .status = entry->status,
                                            .flags = entry->flags,
                                            .epoch = entry->epoch,
                                            .locked = load_acquire(&entry->locked) != 0};
    return true;
}

bool switchback_poke_lane(struct switchback *switchback, u32 lane,
                          const struct switchback_lane_image *image)
{
    if (lane >= switchback->lane_count) {
        return false;
    }
    struct lane *entry = &switchback->lanes[lane];
    entry->request = image->request;
    entry->seq = image->seq;
    entry->state = image->state;
    entry->status = image->status;
    entry->flags = image->flags;
    entry->epoch = image->epoch;
    store_release(&entry->locked, (u32)image->locked);
    return true;
}

void switchback_peek_registers(struct switchback *switchback,
                               struct switchback_registers_image *image)
{
    u64 snapshot = load_acquire(&switchback->registers.snapshot);
    *image = (struct switchback_registers_image){
        .epoch = load_acquire(&switchback->registers.epoch),
        .generation = snapshot_generation(snapshot),
        .durable_generation = load_acquire(&switchback->registers.durable_generation),
        .snapshot_active = (snapshot & SNAPSHOT_ACTIVE) != 0,
        .place = switchback->registers.place,
    };
}

void switchback_poke_registers(struct switchback *switchback,
                               const struct switchback_registers_image *image)
{
    store_release(&switchback->registers.epoch, image->epoch);
    store_release(&switchback->registers.durable_generation, image->durable_generation);
    store_release(&switchback->registers.snapshot,
                  snapshot_of(image->generation, image->snapshot_active));
    place_take(&switchback->registers, &image->place);
}

u64 switchback_peek_sequence(struct switchback *switchback, u64 hash_low)
{
    return load_acquire(&switchback->sequences[hash_low & (SEQUENCE_BUCKETS - 1)]);
}

void switchback_poke_sequence(struct switchback *switchback, u64 hash_low, u64 counter)
{
    store_release(&switchback->sequences[hash_low & (SEQUENCE_BUCKETS - 1)], counter);
}

void switchback_poke_sketch(struct switchback *switchback, u64 hash_high, u64 hash_low,
                            u32 estimate)
{
    struct call call = {.switchback = switchback};
    const u32 pieces[SKETCH_ROWS] = {(u32)(hash_high >> 32), (u32)hash_high, (u32)(hash_low >> 32),
                                     (u32)hash_low};
    for (u32 row = 0; row < SKETCH_ROWS; row++) {
        store_relaxed(table_sketch(&call, row, pieces[row]), estimate);
    }
}
