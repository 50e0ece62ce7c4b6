/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bare access to cells. `features` compares observing with it. The source is at a known place of the frame. The
 * cells of the sources of a burst are fetched first, then one word of each is written. There is neither a parser nor a
 * class.
 */
#include "core/env.h"
#include "core/verdict.h"
#include "observe/feature.h"

const uint32_t weir_abi_version = WEIR_ABI_VERSION;

void weir_upstream(const struct weir_burst *burst)
{
	(void)burst;
}

void weir_downstream(const struct weir_burst *burst)
{
	union feature_element *cells = (union feature_element *)burst->features.sheet + FEATURE_HEADS;
	uint32_t numbers[WEIR_BURST_MAX];

	for (uint32_t i = 0; i < burst->count; i++) {
		numbers[i] = be32(burst->frames[i].data + ETHERNET_BYTES + 12) & (CELLS - 1);
		__builtin_prefetch(&cells[numbers[i]], 1);
	}
	for (uint32_t i = 0; i < burst->count; i++) {
		cells[numbers[i]].cell.bytes += burst->frames[i].len;
		burst->verdicts[i] = (uint32_t)ACTION_ACCEPT | (uint32_t)REASON_NO_MATCH << 16;
	}
}
