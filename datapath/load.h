// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// DistCache: how loaded a switch is, which its answers tell. Clients send a read to the less loaded
// one of the two switches that may have a copy. Nothing but speed rests on it. (Protocol, section
// 4, "DistCache".)
//
// Packets are counted in windows, the present one and the one before. Two packets at once may be
// counted as one, and at a window's edge some not at all: it is an estimate.
#pragma once

#include "tables.h"

#define LOAD_WINDOW_MS 10u
// Clocks of processors, and of batches, differ by less than this. One that lags behind begins no
// window; one that was set back by more does.
#define LOAD_LAG_WINDOWS 100u

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
    u32 window = (u32)(table_now_ms(call) / LOAD_WINDOW_MS), was = load_relaxed(&load->window);
    u32 lag = was - window;
    if (unlikely(lag > LOAD_LAG_WINDOWS) && compare_exchange(&load->window, was, window)) {
        bool is_next = window - was == 1;
        store_relaxed(&load->before, is_next ? load_relaxed(&load->now) : 0u);
        store_relaxed(&load->now, 0u);
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
