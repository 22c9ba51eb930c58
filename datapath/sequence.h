// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Sequence numbers: `epoch | counter`, one counter for each bucket of keys.
#pragma once

#include "packet.h"

STEP u64 sequence_of(u32 epoch, u64 counter)
{
    return (u64)epoch << SEQ_COUNTER_BITS | counter;
}

// From half on it is noted how far the fullest bucket is, in 256ths, so that the agent asks for
// another epoch long before the numbers of this one run out. (Two packets that note at once may
// note the lesser: the next one mends it.)
SELDOM void sequence_note(struct registers *registers, u64 taken)
{
    u32 used = (u32)(taken >> (SEQ_COUNTER_BITS - 8));
    if (load_relaxed(&registers->sequence_used) < used) {
        store_relaxed(&registers->sequence_used, used);
    }
}

// Takes the next one into the header. False if the epoch's are used up: a wrapped number would undo
// writes silently.
STEP bool sequence_take(struct call *call)
{
    u64 *counter = table_sequence(call, (u32)call->header.hash_low);
    if (unlikely(counter == NULL)) {
        return false;
    }
    u64 taken = fetch_add(counter, 1) + 1;
    if (unlikely(taken > SEQ_COUNTER_MAX / 2)) {
        sequence_note(registers_of(call), taken);
        if (taken > SEQ_COUNTER_MAX) {
            return false;
        }
    }
    call->header.seq = sequence_of(call->epoch, taken);
    return true;
}

// `last(key)` of a hash: the last number that was given out in its bucket.
STEP u64 sequence_last(struct call *call, u64 hash_low)
{
    u64 *counter = table_sequence(call, (u32)hash_low);
    u64 last = counter != NULL ? load_acquire(counter) : 0;
    return sequence_of(call->epoch, last < SEQ_COUNTER_MAX ? last : SEQ_COUNTER_MAX);
}
