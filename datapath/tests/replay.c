// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Replays random packets through the pipeline, for the sanitizers: requests, answers, control
// packets, and all of them damaged. Two threads share one instance, a third is its agent. What it
// checks itself is little (verdicts and lengths make sense, the record's invariants hold);
// crates/datapath's tests check the meaning.
//
//     replay [packets a thread] [seed]
#include "../native.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 2
#define KEYS    48
#define SLOTS   16
#define CLASSES 2
#define LANES   8
#define BATCH   40

#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct worker {
    struct switchback *switchback;
    u64 random;
    u64 packets;
    u64 verdicts[VERDICT_TAKEN + 1];
    u32 shard;
    u32 *busy; // threads with traffic
    struct chain_place place;
};

static const struct address client = {{1}, 1}, node = {{2}, 2}, before = {{3}, 3}, after = {{4}, 4};

static u64 next_random(u64 *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x9e3779b97f4a7c15ull;
}

static u32 below(u64 *state, u32 bound)
{
    return (u32)((next_random(state) >> 32) * bound >> 32);
}

static u64 hash_of(u32 key)
{
    return (key + 1) * 0x9e3779b97f4a7c15ull;
}

// Keys share slots, but each has its own.
static u32 location_of_key(u32 key)
{
    u32 place = key % (CLASSES * SLOTS);
    return (place / SLOTS) << SLOT_BITS | place % SLOTS;
}

// A well-formed packet of any operation about one of a few keys, lanes, slots.
static u32 build(u64 *random, u8 *bytes, u8 op, u64 turn)
{
    static const u16 value_sizes[] = {0, 1, 15, 16, 17, 64, 65, 300, CACHED_VALUE_BYTES_MAX, 1200};
    static const u16 key_sizes[] = {4, 4, 4, 4, 9, 17, 40, 128, 129, 200};
    struct wire *wire = (struct wire *)(void *)bytes;
    u32 key = below(random, KEYS);
    u32 value_bytes = value_sizes[below(random, array_length(value_sizes))];
    u32 key_bytes = key_sizes[key % array_length(key_sizes)];
    if (HEADER_BYTES + value_bytes + key_bytes > PACKET_BYTES_MAX) {
        value_bytes = 0;
    }
    memset(bytes, 0, HEADER_BYTES);
    wire->magic = to_be16(MAGIC);
    wire->version = VERSION;
    wire->op = op;
    wire->flags = to_be16((u16)(next_random(random) & next_random(random)));
    wire->ttl = (u8)below(random, 64);
    wire->epoch = to_be32(1);
    wire->status = (u8)below(random, 8) & 1;
    wire->record_flags = (u8)below(random, 4);
    wire->seq = to_be64(1ull << 40 | below(random, 64));
    wire->guard = to_be64(1ull << 40 | below(random, 256));
    // Lanes go on with time, and come back to a request now and then.
    wire->request =
        to_be64(op >= OP_CONTROL_FIRST ? below(random, 2) : turn / 4 + below(random, 4));
    wire->generation = to_be32(below(random, 16));
    wire->hash_high = to_be64(hash_of(key));
    wire->hash_low = to_be64(hash_of(key) * 31);
    wire->expiry_ms = to_be64(below(random, 4) * 500);
    wire->total_bytes = to_be32(below(random, 80));
    wire->value_bytes = to_be16((u16)value_bytes);
    wire->key_bytes = to_be16((u16)key_bytes);
    u32 location = location_of_key(key);
    if (below(random, 16) == 0) {
        location = below(random, CLASSES + 1) << SLOT_BITS | below(random, SLOTS + 1);
    }
    wire->location = to_be32(location);
    memset(bytes + HEADER_BYTES, (int)below(random, 256), value_bytes);
    memset(bytes + HEADER_BYTES + value_bytes, (int)key + 1, key_bytes);
    return HEADER_BYTES + value_bytes + key_bytes;
}

static u32 damage(u64 *random, u8 *bytes, u32 length)
{
    for (u32 i = below(random, 4); i > 0; i--) {
        bytes[below(random, HEADER_BYTES)] = (u8)next_random(random);
    }
    return below(random, 2) ? below(random, PACKET_BYTES_MAX + 1) : length;
}

static void check(const struct switchback_verdict *verdict)
{
    require(verdict->kind <= VERDICT_TAKEN);
    require((verdict->kind == VERDICT_DROP) == (verdict->reason != DROP_NONE));
    require((verdict->kind == VERDICT_FORWARD) == (verdict->count > 0));
    require(verdict->length <= PACKET_BYTES_MAX);
}

// Mostly one that may send it at this place.
static void set_sender(struct worker *worker, struct switchback_item *item)
{
    static const struct address *const senders[] = {&node, &client, &before, &after};
    const struct chain_place *place = &worker->place;
    struct wire *wire = (struct wire *)(void *)item->bytes;
    bool is_answer = wire->op >= OP_READ_REPLY;
    item->from = senders[below(&worker->random, 4)];
    wire->hop = (u8)below(&worker->random, 4);
    if (below(&worker->random, 4) == 0) {
        return;
    }
    if (is_answer) {
        item->from = place->position == place->length ? &node : &after;
        wire->hop = (u8)(place->position + 1);
    } else {
        item->from = place->position == 1 ? &client : &before;
        wire->hop = (u8)(place->position - 1);
    }
}

static void build_request(struct worker *worker, struct switchback_item *item, u64 turn)
{
    static const u8 operations[] = {OP_READ,        OP_READ,     OP_WRITE,        OP_WRITE,
                                    OP_DELETE,      OP_FRAGMENT, OP_READ_REPLY,   OP_READ_REPLY,
                                    OP_WRITE_REPLY, OP_BOUNCE,   OP_CACHE_UPDATE, OP_SCAN};
    u8 op = operations[below(&worker->random, array_length(operations))];
    item->length = build(&worker->random, item->bytes, op, turn);
    // Lanes of its own, mostly: with those of another thread it would mostly be too late.
    u32 lane = below(&worker->random, 16) == 0
                   ? below(&worker->random, LANES + 1)
                   : worker->shard * (LANES / THREADS) + below(&worker->random, LANES / THREADS);
    ((struct wire *)(void *)item->bytes)->lane = to_be32(lane);
    if (below(&worker->random, 16) == 0) {
        item->length = damage(&worker->random, item->bytes, item->length);
    }
    set_sender(worker, item);
    item->random = (u32)next_random(&worker->random);
}

// One packet or a batch of them, some longer than the pipeline looks ahead.
static void *traffic(void *with)
{
    struct worker *worker = with;
    struct switchback_item items[BATCH];
    struct switchback_verdict verdicts[BATCH];
    for (u32 i = 0; i < BATCH; i++) {
        items[i].bytes = calloc(1, PACKET_BYTES_MAX);
        require(items[i].bytes != NULL);
    }
    for (u64 i = 0; i < worker->packets;) {
        u32 count = below(&worker->random, 2) ? 1 : 1 + below(&worker->random, BATCH);
        for (u32 at = 0; at < count; at++) {
            build_request(worker, &items[at], i++);
        }
        switchback_process(worker->switchback, items, verdicts, count, below(&worker->random, 2000),
                           worker->shard);
        for (u32 at = 0; at < count; at++) {
            check(&verdicts[at]);
            worker->verdicts[verdicts[at].kind]++;
        }
    }
    (void)fetch_add(worker->busy, ~0u);
    for (u32 i = 0; i < BATCH; i++) {
        free(items[i].bytes);
    }
    return NULL;
}

static u32 inject(struct worker *worker, u8 *bytes, u32 length)
{
    struct switchback_verdict verdict;
    switchback_inject(worker->switchback, bytes, length, &verdict);
    check(&verdict);
    worker->verdicts[verdict.kind]++;
    return verdict.kind;
}

// One epoch at a time would refuse almost everything after a while: the agent forgets all and
// begins again.
static void begin_again(struct worker *worker, u8 *bytes)
{
    switchback_clear(worker->switchback);
    u32 length = build(&worker->random, bytes, OP_SET_EPOCH, 0);
    struct wire *wire = (struct wire *)(void *)bytes;
    wire->generation = to_be32(1);
    wire->ttl = 1;
    require(inject(worker, bytes, length) == VERDICT_REPLY);
}

static void *agent(void *with)
{
    struct worker *worker = with;
    u8 *bytes = malloc(PACKET_BYTES_MAX);
    require(bytes != NULL);
    for (u64 i = 0; load_relaxed(worker->busy) > 0; i++) {
        if (i % 4096 == 0) {
            begin_again(worker, bytes);
        }
        u32 key = below(&worker->random, KEYS);
        u32 location = location_of_key(key);
        u32 op = below(&worker->random, 26);
        static const u8 later[] = {OP_CLEAN, OP_FREEZE, OP_FORGET};
        u8 number = (u8)(op < 13 ? OP_ADMIT + op : op < 16 ? later[op - 13] : OP_ADMIT + op % 2);
        u32 length = build(&worker->random, bytes, number, 0);
        struct wire *wire = (struct wire *)(void *)bytes;
        if (wire->op == OP_SET_EPOCH || wire->op == OP_SNAPSHOT_BEGIN) {
            wire->generation = to_be32(from_be32(wire->generation) % 4);
        }
        if (below(&worker->random, 32) == 0 && wire->op != OP_SET_EPOCH) {
            u8 kept = wire->op;
            length = damage(&worker->random, bytes, length);
            wire->op = kept;
        }
        (void)inject(worker, bytes, length);
        if (below(&worker->random, 8)) {
            (void)switchback_lookup_insert(worker->switchback, hash_of(key), hash_of(key) * 31,
                                           location);
        } else {
            (void)switchback_lookup_remove(worker->switchback, hash_of(key), hash_of(key) * 31,
                                           location);
        }
        while (switchback_next_report(worker->switchback, bytes) != 0) {
        }
    }
    free(bytes);
    return NULL;
}

// No lock is left behind, and every record makes sense.
static void check_rest(struct switchback *switchback)
{
    for (u32 lane = 0; lane < LANES; lane++) {
        struct switchback_lane_image image;
        require(switchback_peek_lane(switchback, lane, &image));
        require(!image.locked);
    }
    for (u32 i = 0; i < CLASSES * SLOTS; i++) {
        static struct switchback_record_image image;
        require(switchback_peek_record(switchback, (i / SLOTS) << SLOT_BITS | i % SLOTS, &image));
        require(image.key_bytes <= CACHED_KEY_BYTES_MAX && image.value_bytes <= 64);
    }
}

static struct chain_place place_of(u8 position, u8 length)
{
    struct chain_place place = {.position = position, .length = length, .protects = length > 2};
    if (position > 1) {
        place.before_port = to_be16(before.port);
        memcpy(place.before, before.ip, sizeof(place.before));
    }
    if (position < length) {
        place.after_port = to_be16(after.port);
        memcpy(place.after, after.ip, sizeof(place.after));
    }
    return place;
}

static void run(u64 features, struct chain_place place, u64 packets, u64 seed)
{
    struct switchback_config config = {.features = features,
                                       .sampling = 1ull << 31,
                                       .class_count = CLASSES,
                                       .value_bytes = {16, 64},
                                       .slots = {SLOTS, SLOTS},
                                       .lanes = LANES,
                                       .partitions = 4,
                                       .nodes = 3,
                                       .sketch_width = 64,
                                       .threshold = 4,
                                       .reports = 8};
    struct switchback *switchback = switchback_new(&config);
    require(switchback != NULL);
    // Two buckets of one range each, one in which ranges meet, one without a node.
    u64 nodes = 0xffffffff00010000ull;
    struct range ranges[] = {
        {.route = nodes, .partition = 0},
        {.start_high = 1ull << 62, .route = nodes, .partition = 1},
        {.start_high = 5ull << 61, .start_low = 7, .route = nodes, .partition = 2},
        {.start_high = 3ull << 62, .route = NO_ROUTE, .partition = 3}};
    struct route_bucket buckets[] = {{.route = nodes, .partition = 0, .first = 0, .last = 0},
                                     {.route = nodes, .partition = 1, .first = 1, .last = 1},
                                     {.route = nodes, .partition = 1, .first = 1, .last = 2},
                                     {.route = NO_ROUTE, .partition = 3, .first = 3, .last = 3}};
    switchback_set_routes(switchback, buckets, ranges, array_length(ranges));
    switchback_set_node(switchback, 2, &node);
    switchback_set_place(switchback, &place);
    struct worker workers[THREADS + 1] = {{0}};
    pthread_t threads[THREADS + 1];
    u32 busy = THREADS;
    for (u32 i = 0; i <= THREADS; i++) {
        workers[i] = (struct worker){.switchback = switchback,
                                     .random = seed * 64 + i + 1,
                                     .packets = packets,
                                     .shard = i,
                                     .busy = &busy,
                                     .place = place};
        require(pthread_create(&threads[i], NULL, i < THREADS ? traffic : agent, &workers[i]) == 0);
    }
    for (u32 i = 0; i <= THREADS; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    check_rest(switchback);
    u64 counts[STATISTIC_COUNT];
    switchback_statistics(switchback, counts);
    (void)printf("features %04llx:", (unsigned long long)features);
    for (u32 i = COUNTER_read_hits; i < COUNTER_COUNT; i++) {
        (void)printf(" %s %llu", switchback_statistic_name(i), (unsigned long long)counts[i]);
    }
    (void)printf("\n");
    (void)fflush(stdout);
    // An idle run must not pass.
    bool is_owner = place.position == place.length;
    require(is_owner || counts[COUNTER_kept] > packets / 5000);
    require(is_owner || counts[COUNTER_passed] > packets / 50);
    bool is_cached = is_owner && (features & FEATURE_CACHE) != 0;
    require(!is_cached || counts[COUNTER_read_hits] > packets / 1000);
    require(!is_cached || counts[COUNTER_write_hits] > packets / 5000);
    require(!is_owner || counts[COUNTER_forwarded_writes] > packets / 1000);
    switchback_free(switchback);
}

int main(int count, char **arguments)
{
    u64 packets = count > 1 ? strtoull(arguments[1], NULL, 10) : 200000;
    u64 seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    const u64 all = (1ull << 29) - 1 - FEATURE_LAYERS;
    const u64 farreach = all & ~(u64)FEATURE_WRITE_THROUGH;
    const u64 netcache = all & ~(u64)FEATURE_WRITE_BACK;
    const u64 writearound = farreach & netcache;
    const u64 nocache = all & ~(u64)FEATURES_OF_SCHEMES;
    const u64 features[] = {farreach, netcache, writearound, nocache,
                            farreach & ~(u64)FEATURE_VALIDITY};
    for (u32 i = 0; i < array_length(features); i++) {
        run(features[i], place_of(1, 1), packets, seed + i);
    }
    // The owner of a chain of two, and keepers at both ends of the way.
    run(farreach | FEATURE_LAYERS, place_of(2, 2), packets, seed);
    run(farreach | FEATURE_LAYERS, place_of(1, 3), packets, seed);
    run(farreach | FEATURE_LAYERS, place_of(2, 3), packets, seed);
    return 0;
}
