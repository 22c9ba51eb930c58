// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
//
// Stage 2: the key hash's partition and whether it has a node.
#pragma once

#include "packet.h"

STEP u32 route(struct call *call)
{
    call->header.partition = table_partition(call);
    call->route = table_route(call, call->header.partition);
    return likely(call->route != NO_ROUTE) ? CONTINUE : drop(ROUTE);
}
