/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bare access to cells in the kernel. `features` compares observing with it. A program finds the cell of its
 * packet's source, which is at a known place of the frame, and adds to one word of it. There is neither a parser nor a
 * class, and nothing is counted later. Without BARE_TOUCHES it is what remains of such a program.
 */
#include "core/env.h"
#include "core/verdict.h"
#include "core/packet.h"
#include "core/raw.h"
#include "kernel/hook.h"
#include "observe/feature.h"

static const struct observing observing = {.size = CELLS, .shift4 = 0};

#include "observe/kernel.h"

WEIR_INLINE uint32_t bare(const struct frame *frame, uint32_t number)
{
	union feature_element *elements = feature_elements_of(0);
	union feature_element *cell = elements ? element_at(elements, FEATURE_HEADS + number) : NULL;

	if (BARE_TOUCHES && cell)
		cell->cell.bytes += frame->len;
	return rule_verdict(ACTION_ACCEPT, 0, 0);
}

WEIR_INLINE uint32_t downstream_frame(const struct env *env, const struct frame *frame, struct packet *packet)
{
	const uint8_t *at = frame_start(frame, ETHERNET_BYTES + 16);

	(void)env;
	(void)packet;
	return at ? bare(frame, be32(at + ETHERNET_BYTES + 12) & (CELLS - 1)) : VERDICT_NONE;
}

WEIR_INLINE uint32_t upstream_frame(const struct env *env, const struct frame *frame, struct packet *packet)
{
	(void)env;
	(void)packet;
	return bare(frame, 0);
}

WEIR_CHAIN(upstream)
WEIR_CHAIN(downstream)
