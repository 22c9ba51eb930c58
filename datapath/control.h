// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Control packets: how the agent changes and reads what packets own. (Protocol, section 6.)
//
// They go through the same pipeline, so they are atomic with respect to all other packets on every
// target. The answer is the same packet. A control packet that names no slot or lane that exists is
// the agent's mistake: dropped.
#pragma once

#include "complete.h"
#include "record.h"

// How many counters one LOAD_COUNTERS may ask for.
#define COUNTERS_LOADED_MAX 32u
// How many counters one AGE_* may halve, and records one FORGET may free.
#define AGED_MAX (1u << 20)

STEP u32 control_done(struct packet *packet, struct call *call, u8 status)
{
    call->header.status = status;
    return packet_resize(packet, call, 0) ? REPLY : drop(ROOM);
}

// Makes the packet the record's image: the answer to EVICT_BEGIN and LOAD_RECORD, and the form of
// reports.
STEP void control_describe(struct header *header, const struct record *record)
{
    header->seq = record->seq;
    header->guard = record->state & STATE_OWNERSHIP;
    header->request = record->incarnation;
    header->generation = record->generation;
    header->hash_high = record->hash_high;
    header->hash_low = record->hash_low;
    header->expiry_ms = record->expiry_ms;
    header->record_flags = record_flags_of(record->state);
}

STEP u32 control_load(struct packet *packet, struct call *call, struct record *record)
{
    if (!packet_resize_for(packet, call, record)) {
        return drop(ROOM);
    }
    packet_put_value(packet, call, record);
    control_describe(&call->header, record);
    call->header.status = STATUS_OK;
    return REPLY;
}

// A hollow record: it knows its key and nothing else.
STEP u32 control_admit(struct packet *packet, struct call *call, struct record *record)
{
    bool is_same = record->incarnation == call->header.request;
    if ((record->state & STATE_VALID) != 0 && has_feature(call, FEATURE_INCARNATION_CHECK)) {
        return control_done(packet, call, is_same ? STATUS_OK : STATUS_CHANGED);
    }
    if (call->header.key_bytes > CACHED_KEY_BYTES_MAX) {
        return drop(CONTROL);
    }
    record->incarnation = call->header.request;
    record->seq = 0;
    record->adm = 0;
    record->expiry_ms = 0;
    record->value_bytes = 0;
    record->state = 0;
    // Admitted within a snapshot: not part of it.
    record->generation = snapshot_generation(load_acquire(&registers_of(call)->snapshot));
    record->key_bytes = call->header.key_bytes;
    record->hash_high = call->header.hash_high;
    record->hash_low = call->header.hash_low;
    packet_get_key(packet, call, record);
    u32 *counter = table_counter(call, call->location);
    if (counter != NULL) {
        // It is worth what was counted of it before.
        store_relaxed(counter, (u32)call->header.guard);
    }
    return control_done(packet, call, STATUS_OK);
}

STEP u32 control_set_valid(struct packet *packet, struct call *call, struct record *record)
{
    if ((record->state & STATE_VALID) == 0) {
        // The lookup entry is older than this load: a write that takes a later number finds the
        // record. A copy is its node's to invalidate, and may be filled with any version.
        bool is_copy = has_feature(call, FEATURE_COPIES);
        record->adm = is_copy ? 0 : sequence_last(call, record->hash_low);
        record->state |= STATE_VALID;
    }
    return control_done(packet, call, STATUS_OK);
}

// A node has stored this version.
STEP u32 control_clean(struct packet *packet, struct call *call, struct record *record)
{
    bool is_same = record->seq == call->header.seq;
    if (!is_same && has_feature(call, FEATURE_CLEAN_COMPARE)) {
        return control_done(packet, call, STATUS_CHANGED);
    }
    record->state &= (u8)~STATE_DIRTY;
    return control_done(packet, call, STATUS_OK);
}

STEP u32 control_locked_record(struct packet *packet, struct call *call, struct record *record)
{
    u8 op = call->header.op;
    if (op == OP_ADMIT) {
        return control_admit(packet, call, record);
    }
    if (!record_is_meant(call, record)) {
        return control_done(packet, call, STATUS_CHANGED);
    }
    if (op == OP_SET_VALID) {
        return control_set_valid(packet, call, record);
    }
    if (op == OP_CLEAN) {
        return control_clean(packet, call, record);
    }
    if (op == OP_REMOVE) {
        record->state = 0;
        return control_done(packet, call, STATUS_OK);
    }
    if (op == OP_EVICT_BEGIN) {
        record->state |= STATE_EVICTING;
    }
    return control_load(packet, call, record);
}

STAGE u32 control_record(struct packet *packet, struct call *call)
{
    struct record *record = table_record(call, call->location);
    if (record == NULL) {
        return drop(CONTROL);
    }
    if (!record_lock(record)) {
        return drop(CONTENDED);
    }
    u32 verdict = control_locked_record(packet, call, record);
    record_unlock(record);
    return verdict;
}

// The counter `index` slots after the one that is named; NULL where the class ends.
STEP u32 *control_counter(struct call *call, u32 index)
{
    u32 slot = slot_of(call->location) + index;
    return slot < SLOTS_MAX ? table_counter(call, location_of(class_of(call->location), slot))
                            : NULL;
}

// How many of them the packet asks for.
STEP u32 control_count(struct packet *packet, struct call *call)
{
    const struct wire *wire = packet_view(packet, call);
    return wire != NULL ? from_be32(wire->total_bytes) : 0;
}

struct counters_loaded {
    struct call *call;
    be32 values[COUNTERS_LOADED_MAX];
    u32 count;
};

static long control_load_counter(u32 index, void *with)
{
    struct counters_loaded *loaded = with;
    u32 *counter = control_counter(loaded->call, index);
    if (counter == NULL || index >= COUNTERS_LOADED_MAX) {
        return 1;
    }
    loaded->values[index] = to_be32(load_relaxed(counter));
    loaded->count = index + 1;
    return 0;
}

// Fewer than asked for if the class ends.
STAGE u32 control_load_counters(struct packet *packet, struct call *call)
{
    struct counters_loaded loaded = {.call = call};
    u32 asked = control_count(packet, call);
    repeat(asked < COUNTERS_LOADED_MAX ? asked : COUNTERS_LOADED_MAX, control_load_counter,
           &loaded);
    u32 bytes = loaded.count * (u32)sizeof(be32);
    if (bytes == 0) {
        return drop(CONTROL);
    }
    call->header.status = STATUS_OK;
    if (!packet_resize(packet, call, bytes)) {
        return drop(ROOM);
    }
    packet_put_bytes(packet, call, loaded.values, bytes);
    return REPLY;
}

// Half of it, `halvings` times. Counted meanwhile or not: an estimate either way.
STEP void control_age(u32 *counter, u64 halvings)
{
    store_relaxed(counter, halvings < 32 ? load_relaxed(counter) >> halvings : 0u);
}

static long control_age_counter(u32 index, void *with)
{
    struct call *call = with;
    u32 *counter = control_counter(call, index);
    if (counter == NULL) {
        return 1;
    }
    control_age(counter, call->header.guard);
    return 0;
}

static long control_age_column(u32 index, void *with)
{
    struct call *call = with;
    u32 column = slot_of(call->location) + index;
    if (column >= table_sketch_width(call)) {
        return 1;
    }
    for (u32 row = 0; row < SKETCH_ROWS; row++) {
        u32 *counter = table_sketch(call, row, column);
        if (counter != NULL) {
            control_age(counter, call->header.guard);
        }
    }
    return 0;
}

STAGE u32 control_ageing(struct packet *packet, struct call *call)
{
    u32 asked = control_count(packet, call);
    u32 bounded = asked < AGED_MAX ? asked : AGED_MAX;
    if (call->header.op == OP_AGE_SKETCH) {
        repeat(bounded, control_age_column, call);
    } else {
        repeat(bounded, control_age_counter, call);
    }
    return control_done(packet, call, STATUS_OK);
}

// Generations and epochs only rise; the same one again is a repeated command.
STEP u32 control_snapshot_begin(struct packet *packet, struct call *call)
{
    struct registers *registers = registers_of(call);
    u64 now = load_acquire(&registers->snapshot);
    u64 wanted = snapshot_of(call->header.generation, SNAPSHOT_ACTIVE);
    if (now != wanted && call->header.generation <= snapshot_generation(now)) {
        return control_done(packet, call, STATUS_CHANGED);
    }
    store_release(&registers->snapshot, wanted);
    return control_done(packet, call, STATUS_OK);
}

// The place that FREEZE brings. What was let in before looks at the epoch again before it changes
// anything, so records stay as they are from here on.
STAGE bool control_take_place(struct packet *packet, struct call *call)
{
    struct chain_place place = {0};
    struct registers *registers = registers_of(call);
    if (call->header.value_bytes != sizeof(place) ||
        !packet_take_bytes(packet, call, &place, sizeof(place)) || !place_is_sound(call, &place)) {
        return false;
    }
    store_release(&registers->epoch, 0u);
    fence_full();
    place_take(registers, &place);
    return true;
}

struct forgetting {
    struct call *call;
    bool is_contended;
};

static long control_forget_record(u32 index, void *with)
{
    struct forgetting *forgetting = with;
    u32 location = forgetting->call->location, slot = slot_of(location) + index;
    struct record *record =
        slot < SLOTS_MAX ? table_record(forgetting->call, location_of(class_of(location), slot))
                         : NULL;
    if (record == NULL) {
        return 1;
    }
    if (!record_lock(record)) {
        forgetting->is_contended = true;
        return 1;
    }
    if (!record_is_of_epoch(forgetting->call, record)) {
        record->state = 0;
    }
    record_unlock(record);
    return 0;
}

// Records of other epochs are gone, of a stretch of a class. Their lookup entries are the agent's
// to remove, as with REMOVE.
STAGE u32 control_forget(struct packet *packet, struct call *call)
{
    struct forgetting forgetting = {.call = call};
    u32 asked = control_count(packet, call);
    repeat(asked < AGED_MAX ? asked : AGED_MAX, control_forget_record, &forgetting);
    return forgetting.is_contended ? drop(CONTENDED) : control_done(packet, call, STATUS_OK);
}

STEP u32 control_set_epoch(struct packet *packet, struct call *call)
{
    struct registers *registers = registers_of(call);
    u32 epoch = call->header.epoch;
    u32 generation = snapshot_generation(load_acquire(&registers->snapshot));
    // 0 stops the switch, and says nothing about what comes next.
    bool is_stop = epoch == 0, is_freeze = call->header.op == OP_FREEZE;
    if (epoch > EPOCH_MAX || (is_stop && is_freeze)) {
        return drop(CONTROL);
    }
    if (!is_stop && (epoch < call->epoch || call->header.generation < generation)) {
        return control_done(packet, call, STATUS_CHANGED);
    }
    if (epoch != call->epoch) {
        if (is_freeze && !control_take_place(packet, call)) {
            return drop(CONTROL);
        }
        // No snapshot survives its epoch. After a stop generations may begin below: the
        // controller's last ones may not have been durable.
        bool is_free = is_stop || call->header.generation > generation;
        u32 next = is_free ? call->header.generation : generation;
        store_release(&registers->snapshot, snapshot_of(next, 0));
        store_release(&registers->epoch, epoch);
        call->epoch = epoch;
    }
    return control_done(packet, call, STATUS_OK);
}

// It only rises.
STEP u32 control_set_durable_generation(struct packet *packet, struct call *call)
{
    struct registers *registers = registers_of(call);
    const struct wire *wire = packet_view(packet, call);
    if (wire == NULL) {
        return drop(SHORT);
    }
    u32 generation = from_be32(wire->durable_generation);
    if (generation > load_relaxed(&registers->durable_generation)) {
        store_release(&registers->durable_generation, generation);
    }
    return control_done(packet, call, STATUS_OK);
}

STEP u32 control_registers(struct packet *packet, struct call *call)
{
    struct registers *registers = registers_of(call);
    u64 snapshot = load_acquire(&registers->snapshot);
    switch (call->header.op) {
    case OP_SNAPSHOT_BEGIN:
        return control_snapshot_begin(packet, call);
    case OP_SNAPSHOT_END:
        store_release(&registers->snapshot, snapshot_of(snapshot_generation(snapshot), 0));
        return control_done(packet, call, STATUS_OK);
    case OP_SET_DURABLE_GENERATION:
        return control_set_durable_generation(packet, call);
    default:
        return control_set_epoch(packet, call);
    }
}

STEP u32 control_load_lane(struct packet *packet, struct call *call)
{
    u32 verdict = CONTINUE;
    struct lane *entry = lane_lock(call, &verdict);
    if (entry == NULL) {
        return verdict;
    }
    call->header.request = entry->request;
    call->header.seq = entry->seq;
    call->header.guard = lane_state(call, entry);
    u8 status = entry->status;
    lane_unlock(entry);
    return control_done(packet, call, status);
}

STEP u32 control(struct packet *packet, struct call *call)
{
    switch (call->header.op) {
    case OP_ADMIT:
    case OP_SET_VALID:
    case OP_EVICT_BEGIN:
    case OP_REMOVE:
    case OP_LOAD_RECORD:
    case OP_CLEAN:
        return control_record(packet, call);
    case OP_LOAD_COUNTERS:
        return control_load_counters(packet, call);
    case OP_FORGET:
        return control_forget(packet, call);
    case OP_AGE_COUNTERS:
    case OP_AGE_SKETCH:
        return control_ageing(packet, call);
    case OP_LOAD_LANE:
        return control_load_lane(packet, call);
    default:
        return control_registers(packet, call);
    }
}
