// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// What the two compilers don't share: integer types, byte order, atomics, waiting, assertions.
//
// The pipeline is compiled natively (gcc, clang) and with `clang -target bpf`; nothing outside this
// file, tables_*.h and packet_*.h knows which one it is.
#pragma once

typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;

#ifndef __cplusplus
#define bool  _Bool
#define true  1
#define false 0
#endif

#ifdef __bpf__
// Clang takes fields of low alignment apart into bytes; the kernel's JITs load them whole.
#define ANY_ALIGNMENT
#else
#define ANY_ALIGNMENT __attribute__((aligned(1)))
#endif

// Big-endian fields. They are never read without from_be*, which the names are to remind of.
typedef u16 ANY_ALIGNMENT be16;
typedef u32 ANY_ALIGNMENT be32;
typedef u64 ANY_ALIGNMENT be64;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define from_be16(x) ((u16)__builtin_bswap16(x))
#define from_be32(x) ((u32)__builtin_bswap32(x))
#define from_be64(x) ((u64)__builtin_bswap64(x))
#else
#define from_be16(x) ((u16)(x))
#define from_be32(x) ((u32)(x))
#define from_be64(x) ((u64)(x))
#endif
#define to_be16 from_be16
#define to_be32 from_be32
#define to_be64 from_be64

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

// Compilers take this for a change of the variable. In BPF: clang may know a bound that the
// verifier has lost, and drop the check that restores it. Natively: gcc would prepare a loop that
// nearly always runs once.
#define forget(variable) asm volatile("" : "+r"(variable))

// A stage, or a step of one. Inlined natively; in BPF a function of its own unless it says STEP.
#define STEP                static inline __attribute__((always_inline, unused))
#define array_length(array) (sizeof(array) / sizeof((array)[0]))

STEP u64 maximum(u64 a, u64 b)
{
    return a > b ? a : b;
}

#ifdef __bpf__

// clang 19 has no acquire, release or fences for BPF. Those below keep the compiler from reordering
// and leave the rest to the processor. That is right on x86, which keeps loads in order and stores
// in order; a fence_full() always follows an exchange, which is one. Elsewhere a reader of a
// seqlock could see a new version with an old value.
#ifndef __TARGET_ARCH_x86
#error "memory order of BPF programs is only implemented for x86 (-D__TARGET_ARCH_x86)"
#endif

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define NULL  ((void *)0)
#define STAGE static __attribute__((noinline, unused))
// What runs so seldom that its stack would only be added to that of every packet.
#define SELDOM static __attribute__((noinline, unused))
// The verifier proves what it must; the rest is proven by the native build, whose tests run the
// same lines.
#define invariant(condition) ((void)0)
#define load_relaxed(at)     (*(const volatile __typeof__(*(at)) *)(at))
#define store_relaxed(at, x) (*(volatile __typeof__(*(at)) *)(at) = (x))
#define load_acquire(at)                                                                           \
    ({                                                                                             \
        __typeof__(*(at)) loaded_ = load_relaxed(at);                                              \
        barrier();                                                                                 \
        loaded_;                                                                                   \
    })
#define fence_acquire()            barrier()
#define fence_release()            barrier()
#define fence_full()               barrier()
#define compare_exchange(at, a, b) (__sync_val_compare_and_swap((at), (a), (b)) == (a))
#define exchange(at, x)            __sync_lock_test_and_set((at), (x))
#define fetch_add(at, x)           __sync_fetch_and_add((at), (x))
#define store_release(at, x)       ((void)exchange((at), (x)))
// There is no instruction for it; a load whose value is not used does as well.
#define prefetch(at) ((void)load_relaxed((const u8 *)(const void *)(at)))
// `then` where two 64-bit words are equal, else `otherwise`, without a branch: there is no
// conditional move.
#define if_equal(a, b, then, otherwise)                                                            \
    ({                                                                                             \
        u64 difference_ = (a) ^ (b);                                                               \
        u64 where_different_ = (u64)((long)(difference_ | -difference_) >> 63);                    \
        forget(where_different_);                                                                  \
        (__typeof__(otherwise))((then) ^ (((then) ^ (otherwise)) & where_different_));             \
    })
// How often a reader or writer tries a record again; the other side is another CPU that can't be
// preempted in it.
#define RECORD_ATTEMPTS 8
// Runs `step(index, with)` for each index below `times`, or until it returns 1. The verifier looks
// at the step once.
#define repeat(times, step, with) ((void)bpf_loop((times), (step), (with), 0))
STEP void relax(u32 attempt)
{
    (void)attempt;
}

#else

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE  STEP
// What runs so seldom that it would only take registers from the rest. It gets no `struct call`: as
// long as its address doesn't escape, compilers keep it in registers.
#define SELDOM static __attribute__((noinline, unused))
#define invariant(condition)                                                                       \
    do {                                                                                           \
        if (unlikely(!(condition))) {                                                              \
            (void)fprintf(stderr, "%s:%d: invariant violated: %s\n", __FILE__, __LINE__,           \
                          #condition);                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)
#define load_relaxed(at)     __atomic_load_n((at), __ATOMIC_RELAXED)
#define store_relaxed(at, x) __atomic_store_n((at), (x), __ATOMIC_RELAXED)
#define load_acquire(at)     __atomic_load_n((at), __ATOMIC_ACQUIRE)
#define store_release(at, x) __atomic_store_n((at), (x), __ATOMIC_RELEASE)
#define fence_acquire()      __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define fence_release()      __atomic_thread_fence(__ATOMIC_RELEASE)
#define fence_full()         __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define compare_exchange(at, a, b)                                                                 \
    ({                                                                                             \
        __typeof__(*(at)) expected_ = (a);                                                         \
        __atomic_compare_exchange_n((at), &expected_, (b), false, __ATOMIC_SEQ_CST,                \
                                    __ATOMIC_RELAXED);                                             \
    })
#define exchange(at, x)                 __atomic_exchange_n((at), (x), __ATOMIC_SEQ_CST)
#define fetch_add(at, x)                __atomic_fetch_add((at), (x), __ATOMIC_SEQ_CST)
#define if_equal(a, b, then, otherwise) ((a) == (b) ? (then) : (otherwise))
#define prefetch(at)                    __builtin_prefetch((at), 0, 3)
#define prefetch_for_write(at)          __builtin_prefetch((at), 1, 3)
// In user space the other side may be preempted in the middle of it, so wait longer than a time
// slice.
#define RECORD_ATTEMPTS                 (1u << 16)
// Runs `step(index, with)` for each index below `times`, or until it returns 1.
#define repeat(times, step, with)                                                                  \
    for (u32 index_ = 0, times_ = (times); index_ < times_ && (step)(index_, (with)) == 0;         \
         index_++) {                                                                               \
    }
// Waits a little before the next attempt.
STEP void relax(u32 attempt)
{
    if (attempt >= 64) {
        (void)sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
