// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// The packet as the stages see it: a header to view, a value and a key to replace. The pipeline
// starts at the application header; what is in front of it belongs to the target.
//
// - packet_length: of the application's packet
// - packet_view: struct wire *, NULL if it isn't whole; fetch again after packet_resize
// - packet_resize: a value of this many bytes, the key kept; false: no room, nothing changed
// - packet_resize_for: the same for a record's value and key, which is put in
// - packet_put_value: the record's value into the packet, which has its size already
// - packet_get_value: the packet's value into the record, where it fits
// - packet_put_bytes: bytes into the value
// - packet_take_bytes: the value's first bytes, a fixed number of them; false: there are fewer
// - packet_get_key: the key into the record
// - packet_has_key: whether the record is of the packet's key
#pragma once

#include "tables.h"

#ifdef __bpf__
#include "packet_bpf.h"
#else
#include "packet_native.h"
#endif
