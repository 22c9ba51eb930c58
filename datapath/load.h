// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// DistCache: how busy a switch is, which its answers tell. Clients send a read to the less busy one
// of the two switches that may have a copy. (Rule 30.)
//
// Packets are counted in windows, the present one and the one before. Two packets at once may be
// counted as one: it is an estimate.
#pragma once

#include "tables.h"

#define LOAD_WINDOW_MS 10u

// No packet has come yet.
STEP void load_clear(struct load *load)
{
    store_relaxed(&load->window, 0u);
    store_relaxed(&load->now, 0u);
    store_relaxed(&load->before, 0u);
}

// A packet has come.
STEP void load_count(struct call *call)
{
    struct load *load = &registers_of(call)->load;
    u32 window = (u32)(table_now_ms(call) / LOAD_WINDOW_MS);
    u32 passed = window - load_relaxed(&load->window);
    // A clock that lags behind those of other processors, or was set back by less than half of what
    // a window's number can say, doesn't begin a window.
    if (unlikely(passed - 1 < ~0u / 2)) {
        store_relaxed(&load->before, passed == 1 ? load_relaxed(&load->now) : 0u);
        store_relaxed(&load->now, 0u);
        store_relaxed(&load->window, window);
    }
    store_relaxed(&load->now, load_relaxed(&load->now) + 1);
}

// The packets of the last window's time, about: those of this window, and of the one before as much
// as of its time isn't over yet.
STEP u32 load_of(struct call *call)
{
    const struct load *load = &registers_of(call)->load;
    u64 left = LOAD_WINDOW_MS - table_now_ms(call) % LOAD_WINDOW_MS;
    u64 before = (u64)load_relaxed(&load->before) * left / LOAD_WINDOW_MS;
    return load_relaxed(&load->now) + (u32)before;
}
