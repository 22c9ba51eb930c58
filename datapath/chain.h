// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// A chain's switches: which senders each takes packets from, and where they go next. (Protocol,
// section 10.)
//
// Position 1 is next to the clients. The last position, next to the nodes, owns the chain's records
// and decides everything; the others are keepers (keep.h). A packet passes all of them, in this
// order or the reverse, and nothing takes a short cut: a recovery rests on that.
#pragma once

#include "packet.h"

STEP u8 position_of(struct call *call)
{
    return load_relaxed(&registers_of(call)->place.position);
}

// Next to the clients: it stamps origins and answers them.
STEP bool is_first(struct call *call)
{
    return !is_layered(call) || position_of(call) == 1;
}

STEP bool is_keeper(struct call *call)
{
    return is_layered(call) && position_of(call) < load_relaxed(&registers_of(call)->place.length);
}

// Whether this is the owner of a chain of several switches: what it tells is kept by the others
// first.
STEP bool has_keepers(struct call *call)
{
    return is_layered(call) && position_of(call) > 1 && !is_keeper(call);
}

// DistCache: a spine has copies of keys of all leaves, answers their reads, and passes on to a
// key's leaf what it can't answer.
STEP bool is_spine(struct call *call)
{
    return has_feature(call, FEATURE_COPIES) &&
           position_of(call) < load_relaxed(&registers_of(call)->place.length);
}

// DistCache's switches by their layer: a leaf is one also while its chain has no spine, so that
// clients know whose answer they got.
#define SPINE_HOP 1u
#define LEAF_HOP  2u

// What a packet says of the last switch that it passed.
STEP u8 hop_of(struct call *call)
{
    if (has_feature(call, FEATURE_COPIES)) {
        return is_spine(call) ? SPINE_HOP : LEAF_HOP;
    }
    return position_of(call);
}

// Whether there are other switches between clients and nodes, which probe each other.
STEP bool may_have_neighbours(struct call *call)
{
    return is_layered(call) || has_feature(call, FEATURE_COPIES);
}

// A rack of spines and leaves changes the epochs of all its chains at once: those of one round
// differ in the chain's number alone. A spine serves the keys of all.
STEP bool is_of_epoch(struct call *call, u32 epoch)
{
    u32 differs = epoch ^ load_acquire(&registers_of(call)->epoch);
    return differs == 0 || (is_spine(call) && differs < EPOCHS_OF_ROUND);
}

// Whether a spine passed the request on, which has stamped its origin. To a leaf, spines are among
// its nodes.
STEP bool is_from_spine(struct packet *packet, struct call *call)
{
    if (!has_feature(call, FEATURE_COPIES)) {
        return false;
    }
    const struct wire *wire = packet_view(packet, call);
    return wire != NULL && wire->hop != 0 && table_is_node(call, sender(call));
}

// Whether the packet comes from a neighbour: words of its address, and its port.
STEP bool is_from(const struct call *call, const u64 *ip, const u16 *port)
{
    const u8 *from = sender(call)->ip;
    return ((load_word(from) ^ load_relaxed(&ip[0])) |
            (load_word(from + 8) ^ load_relaxed(&ip[1]))) == 0 &&
           sender(call)->port == from_be16(load_relaxed(port));
}

// A request comes from the position before, which for the first one is any client; an answer from
// the position after.
STEP bool is_from_neighbour(struct packet *packet, struct call *call, bool is_answer)
{
    const struct chain_place *place = &registers_of(call)->place;
    const struct wire *wire = packet_view(packet, call);
    u8 position = position_of(call), hop = wire != NULL ? wire->hop : 0;
    if (is_answer) {
        return hop == position + 1 && is_from(call, place->after, &place->after_port);
    }
    return hop == position - 1 &&
           (position == 1 || is_from(call, place->before, &place->before_port));
}

// Whether this switch takes the packet from its sender. What nodes say is the owner's to hear.
STEP u32 chain_takes(struct packet *packet, struct call *call, bool is_answer)
{
    if (is_answer && !is_keeper(call)) {
        return likely(table_is_node(call, sender(call))) ? CONTINUE : drop(SENDER);
    }
    bool is_taken = !is_layered(call) || is_from_neighbour(packet, call, is_answer) ||
                    !has_feature(call, FEATURE_NEIGHBOUR);
    return likely(is_taken) ? CONTINUE : drop(NEIGHBOUR);
}

// Counts a neighbour's probe, which ends here: short ones, and those of the longest packet, apart.
STEP u32 chain_hear(struct packet *packet, struct call *call)
{
    struct registers *registers = registers_of(call);
    const struct chain_place *place = &registers->place;
    bool is_before = is_from(call, place->before, &place->before_port);
    if (!is_before && !is_from(call, place->after, &place->after_port)) {
        return drop(NEIGHBOUR);
    }
    u32 is_full = packet_length(packet, call) == PACKET_BYTES_MAX;
    (void)fetch_add(&registers->heard[is_before ? 0 : 1][is_full], 1u);
    return TAKEN;
}

// How many layers a switch's scheme may have: spines and leaves are two.
STEP u8 layers_max(struct call *call)
{
    if (is_layered(call)) {
        return LAYERS_MAX;
    }
    return has_feature(call, FEATURE_COPIES) ? 2 : 1;
}

// Whether a switch of this scheme can have the place: with the neighbours that it has there.
STEP bool place_is_sound(struct call *call, const struct chain_place *place)
{
    return place->position >= 1 && place->position <= place->length &&
           place->length <= layers_max(call) &&
           (place->before_port != 0) == (place->position > 1) &&
           (place->after_port != 0) == (place->position < place->length);
}

// While the epoch is 0.
STEP void place_take(struct registers *registers, const struct chain_place *place)
{
    struct chain_place *ours = &registers->place;
    store_relaxed(&ours->position, place->position);
    store_relaxed(&ours->length, place->length);
    store_relaxed(&ours->protects, place->protects);
    store_relaxed(&ours->before_port, place->before_port);
    store_relaxed(&ours->after_port, place->after_port);
    for (u32 i = 0; i < array_length(ours->before); i++) {
        store_relaxed(&ours->before[i], place->before[i]);
        store_relaxed(&ours->after[i], place->after[i]);
    }
}

// Where an answer goes: to the client, or to the switch that is nearer to it.
STEP u32 chain_answer(struct call *call)
{
    bool is_direct = is_first(call) || !has_feature(call, FEATURE_KEPT_FIRST);
    return is_direct ? REPLY : UP;
}
