// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Names and numbers of this directory's headers, for those who have to agree with them:
// crates/datapath compares its own, crates/xdp reads records and lanes out of BPF maps by them.
// Part of native.c.
#pragma once

#include "native.h"

const struct switchback_number *switchback_layout(u32 *length)
{
#define FIELD_ENTRY(name, offset, bytes) {"wire." #name, (offset) * 16 + (bytes)},
#define OP_ENTRY(name, number)           {"op." #name, (number)},
#define STATUS_ENTRY(name, number)       {"status." #name, (number)},
#define FLAG_ENTRY(name, number)         {"flag." #name, (number)},
#define RECORD_FLAG_ENTRY(name, number)  {"record_flag." #name, (number)},
#define FEATURE_ENTRY(name, bit)         {"feature." #name, 1ull << (bit)},
#define REASON_ENTRY(name)               {"drop." #name, DROP_##name},
#define CONSTANT(name)                   {"constant." #name, (name)},
#define SIZE(name)                       {"size." #name, sizeof(struct name)},
#define PLACE(of, name)                  {#of "." #name, __builtin_offsetof(struct of, name)},
    static const struct switchback_number numbers[] = {
        WIRE_FIELDS(FIELD_ENTRY)             //
        OPERATIONS(OP_ENTRY)                 //
        STATUSES(STATUS_ENTRY)               //
        FLAGS(FLAG_ENTRY)                    //
        RECORD_FLAGS(RECORD_FLAG_ENTRY)      //
        FEATURES(FEATURE_ENTRY)              //
        DROP_REASONS(REASON_ENTRY)           //
        CONSTANT(MAGIC)                      //
        CONSTANT(VERSION)                    //
        CONSTANT(HEADER_BYTES)               //
        CONSTANT(PACKET_BYTES_MAX)           //
        CONSTANT(KEY_BYTES_MAX)              //
        CONSTANT(CACHED_KEY_BYTES_MAX)       //
        CONSTANT(CACHED_VALUE_BYTES_MAX)     //
        CONSTANT(EPOCH_MAX)                  //
        CONSTANT(SEQ_COUNTER_BITS)           //
        CONSTANT(SWITCH_PORT)                //
        CONSTANT(NO_LOCATION)                //
        CONSTANT(STATISTIC_COUNT)            //
        CONSTANT(STATE_VALID)                //
        CONSTANT(STATE_LATEST)               //
        CONSTANT(STATE_EVICTING)             //
        CONSTANT(STATE_REFRESH)              //
        CONSTANT(STATE_TOMBSTONE)            //
        CONSTANT(STATE_DIRTY)                //
        CONSTANT(STATE_DEPENDENT)            //
        CONSTANT(LANE_NONE)                  //
        CONSTANT(LANE_APPLIED)               //
        CONSTANT(LANE_CONDITION_FAILED)      //
        CONSTANT(LANE_FORWARDED)             //
        CONSTANT(LANE_DONE)                  //
        CONSTANT(LAYERS_MAX)                 //
        CONSTANT(SPINE_HOP)                  //
        CONSTANT(LEAF_HOP)                   //
        CONSTANT(EPOCHS_OF_ROUND)            //
        SIZE(address)                        //
        SIZE(chain_place)                    //
        SIZE(range)                          //
        SIZE(route_bucket)                   //
        SIZE(switchback_config)              //
        SIZE(switchback_verdict)             //
        SIZE(switchback_item)                //
        SIZE(switchback_record_image)        //
        SIZE(switchback_lane_image)          //
        SIZE(switchback_registers_image)     //
        SIZE(switchback_number)              //
        CONSTANT(SEQUENCE_BUCKETS)           //
        SIZE(record)                         //
        SIZE(lane)                           //
        SIZE(registers)                      //
        PLACE(record, version)               //
        PLACE(record, generation)            //
        PLACE(record, seq)                   //
        PLACE(record, adm)                   //
        PLACE(record, expiry_ms)             //
        PLACE(record, incarnation)           //
        PLACE(record, value_bytes)           //
        PLACE(record, key_bytes)             //
        PLACE(record, state)                 //
        PLACE(record, key)                   //
        PLACE(record, hash_high)             //
        PLACE(record, hash_low)              //
        PLACE(lane, locked)                  //
        PLACE(lane, state)                   //
        PLACE(lane, status)                  //
        PLACE(lane, flags)                   //
        PLACE(lane, request)                 //
        PLACE(lane, seq)                     //
        PLACE(lane, epoch)                   //
        PLACE(registers, epoch)              //
        PLACE(registers, durable_generation) //
        PLACE(registers, snapshot)           //
        PLACE(registers, lanes)              //
        PLACE(registers, sequence_used)      //
        PLACE(registers, sampling)           //
        PLACE(registers, threshold)          //
        PLACE(registers, offers)             //
        PLACE(registers, place)              //
        PLACE(registers, heard)              //
    };
    *length = array_length(numbers);
    return numbers;
}
