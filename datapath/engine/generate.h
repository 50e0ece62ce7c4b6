/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Generates packets in the kernel, to measure their receivers: crates/engine/src/xdp/generate.rs.
 *
 * BPF_PROG_TEST_RUN runs the program in live frames mode. The kernel gives the program one frame after the other from a
 * small pool, and acts on its return value. Each frame gets the next source of a list, and leaves through the interface
 * that the run names as its origin. A frame comes back to the pool as its receiver left it. A receiver that forwards
 * has changed the Ethernet addresses, the TTL and the header's checksum; so these are written anew.
 */
#ifndef WEIR_GENERATE_H
#define WEIR_GENERATE_H

#include "plain.h"
#include "sources.h"

enum {
	GENERATED_WORDS = STREAM_SOURCE_AT / 4,	     /* of the frame in front of the source, without the checksum */
	GENERATED_CHECKSUM_AT = GENERATED_WORDS * 4, /* two bytes, up to the source */
};

_Static_assert(GENERATED_CHECKSUM_AT + 2 == STREAM_SOURCE_AT, "the checksum is in front of the source");

/* The first frame's bytes in front of the source, and whether they are known. */
uint32_t generated_known WEIR_SECTION(".bss.generated");
uint32_t generated_words[GENERATED_WORDS] WEIR_SECTION(".bss.generated");
uint16_t generated_checksum WEIR_SECTION(".bss.generated");

/* Writes what receivers change, or remembers it of the first frame. The frame has a source. */
WEIR_INLINE void generate_header(uint8_t *frame)
{
	if (!generated_known) {
		for (uint32_t i = 0; i < GENERATED_WORDS; i++)
			generated_words[i] = ((const unaligned32 *)frame)[i];
		generated_checksum = *(const unaligned16 *)(frame + GENERATED_CHECKSUM_AT);
		generated_known = 1;
	}
	for (uint32_t i = 0; i < GENERATED_WORDS; i++)
		((unaligned32 *)frame)[i] = generated_words[i];
	*(unaligned16 *)(frame + GENERATED_CHECKSUM_AT) = generated_checksum;
}

WEIR_SECTION("xdp") uint32_t weir_generate(struct xdp_md *ctx)
{
	uint8_t *frame = (uint8_t *)(uintptr_t)ctx->data;

	if (frame + STREAM_SOURCE_AT + sizeof(uint32_t) > (const uint8_t *)(uintptr_t)ctx->data_end)
		return XDP_ABORTED;
	generate_header(frame);
	return stream_next(ctx) ? XDP_TX : XDP_ABORTED;
}

#endif
