// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The pipeline: the stages in the order in which a packet meets them.
//
//     packet -> parse -> route -> serve -> emit -> verdict
//                 |                 |
//                 |  READ            lookup, record, track          read.h
//                 |  WRITE, DELETE   complete, seq, lookup, record  write.h   (and BOUNCE)
//                 |  answers         complete, lookup, record       answer.h
//                 |  the rest        goes through
//                 |
//                 +-> keep -> emit -> verdict                       keep.h    (not the owner)
//
//     control packet -> parse -> control -> emit -> verdict           control.h
#pragma once

#include "answer.h"
#include "control.h"
#include "emit.h"
#include "keep.h"
#include "read.h"
#include "route.h"
#include "write.h"

STEP u32 serve(struct packet *packet, struct call *call)
{
    switch (call->header.op) {
    case OP_READ:
        return read_request(packet, call);
    case OP_WRITE:
    case OP_DELETE:
        return write_request(packet, call);
    case OP_BOUNCE:
        return write_bounced(packet, call);
    case OP_READ_REPLY:
        return read_answer(packet, call);
    case OP_WRITE_REPLY:
        return write_answer(call);
    case OP_CACHE_UPDATE:
        return cache_update(packet, call);
    case OP_INVALIDATE:
        return has_feature(call, FEATURE_COPIES) ? cache_invalidate(packet, call) : drop(OPERATION);
    case OP_FRAGMENT:
        return FORWARD_TO_HEAD;
    case OP_READ_FRAGMENT:
    case OP_SCAN:
        return FORWARD_TO_TAIL;
    case OP_FRAGMENT_REPLY:
    case OP_READ_FRAGMENT_REPLY:
    case OP_SCAN_REPLY:
        return REPLY;
    default:
        return drop(OPERATION);
    }
}

// A spine answers reads; everything else is for leaves.
STEP bool is_for_spines(u8 op)
{
    return op == OP_READ || op == OP_CACHE_UPDATE || op == OP_INVALIDATE;
}

// What the owner of the key's record makes of the packet.
STEP u32 own(struct packet *packet, struct call *call)
{
    if (has_feature(call, FEATURE_COPIES)) {
        load_count(call);
    }
    u32 verdict = route(call);
    if (verdict == CONTINUE) {
        verdict = is_spine(call) && !is_for_spines(call->header.op) ? drop(OPERATION)
                                                                    : serve(packet, call);
    }
    // An acknowledgement goes to a node.
    bool goes_up = is_layered(call) && verdict == REPLY && call->header.op != OP_CACHE_UPDATE_ACK;
    return goes_up ? chain_answer(call) : verdict;
}

// A packet from the wire.
STEP u32 pipeline(struct packet *packet, struct call *call)
{
    u32 verdict = parse(packet, call);
    if (verdict == CONTINUE) {
        verdict = is_keeper(call) ? keep(packet, call) : own(packet, call);
    }
    return emit(packet, call, verdict);
}

// A packet that the agent injects. An entry of its own, so that nothing from the wire can get here.
STEP u32 pipeline_control(struct packet *packet, struct call *call)
{
    u32 verdict = parse(packet, call);
    if (verdict == CONTINUE) {
        verdict = control(packet, call);
    }
    return emit(packet, call, verdict);
}
