/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Generates packets in the kernel, to measure their receivers: lab/instruments/src/generate.rs.
 *
 * BPF_PROG_TEST_RUN runs the program in live frames mode. The kernel gives the program one frame after the other from a
 * small pool, and acts on its return value. Each frame gets the next source of a list, and leaves through the interface
 * that the run names as its origin. A frame comes back to the pool as its receiver left it. A receiver that forwards
 * has changed the Ethernet addresses, the TTL and the header's checksum; so these are written anew.
 *
 * With a pace, frames are spread in time: before each GENERATED_GROUP of them the program waits for the time at which
 * they are due. Time that the machine had no room for is made up for, but no more than GENERATED_LATE_NS of it.
 */
#ifndef WEIR_MEASURE_GENERATE_H
#define WEIR_MEASURE_GENERATE_H

#include "kernel/plain.h"
#include "sources.h"

enum {
	GENERATED_WORDS = STREAM_SOURCE_AT / 4,	     /* of the frame in front of the source, without the checksum */
	GENERATED_CHECKSUM_AT = GENERATED_WORDS * 4, /* two bytes, up to the source */
	GENERATED_GROUP = 16,			     /* frames that are due at the same time */
	GENERATED_LATE_NS = 100000,
	GENERATED_LOOKS = 1 << 15, /* at the clock, at most, for a group */
};

_Static_assert(GENERATED_CHECKSUM_AT + 2 == STREAM_SOURCE_AT, "the checksum is in front of the source");

/* The first frame's bytes in front of the source, and whether they are known. */
uint32_t generated_known WEIR_SECTION(".bss.generated");
uint32_t generated_words[GENERATED_WORDS] WEIR_SECTION(".bss.generated");
uint16_t generated_checksum WEIR_SECTION(".bss.generated");
/* The sum of the first frame's header without its checksum and source. */
uint32_t generated_sum WEIR_SECTION(".bss.generated");

/* User space sets the first before it runs the program: nanoseconds for each group, 0 for no pace. */
uint64_t generated_pace_ns WEIR_SECTION(".bss.pace");
uint64_t generated_due_ns WEIR_SECTION(".bss.due");

/* Whether the next group of frames is due. */
static long generate_is_due(uint32_t look, void *state)
{
	(void)look;
	(void)state;
	return bpf_ktime_get_ns() >= generated_due_ns;
}

/* Waits until the next group of frames is due. */
WEIR_INLINE void generate_wait(void)
{
	const uint64_t now = bpf_ktime_get_ns();

	generated_due_ns += generated_pace_ns;
	if (generated_due_ns + GENERATED_LATE_NS < now)
		generated_due_ns = now;
	repeat(GENERATED_LOOKS, generate_is_due, NULL);
}

/* The two halves of the frame's source. Sums do not depend on the byte order. */
WEIR_INLINE uint32_t generated_halves(const uint8_t *frame)
{
	const unaligned16 *source = (const unaligned16 *)(frame + STREAM_SOURCE_AT);

	return (uint32_t)source[0] + source[1];
}

WEIR_INLINE uint16_t generated_fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* Writes the checksum for the frame's source, if the first frame had a checksum. */
WEIR_INLINE void generate_checksum(uint8_t *frame)
{
	uint16_t checksum = 0;

	if (generated_checksum)
		checksum = (uint16_t)~generated_fold(generated_sum + generated_halves(frame));
	*(unaligned16 *)(frame + GENERATED_CHECKSUM_AT) = checksum;
}

/* Writes what receivers change, but for the checksum, or remembers it of the first frame. The frame has a source. */
WEIR_INLINE void generate_header(uint8_t *frame)
{
	if (!generated_known) {
		for (uint32_t i = 0; i < GENERATED_WORDS; i++)
			generated_words[i] = ((const unaligned32 *)frame)[i];
		generated_checksum = *(const unaligned16 *)(frame + GENERATED_CHECKSUM_AT);
		/* RFC 1624: the sum less the source. */
		generated_sum = generated_fold((uint16_t)~generated_checksum + (2 * 0xffff - generated_halves(frame)));
		generated_known = 1;
	}
	for (uint32_t i = 0; i < GENERATED_WORDS; i++)
		((unaligned32 *)frame)[i] = generated_words[i];
}

WEIR_SECTION("xdp") uint32_t weir_generate(struct xdp_md *ctx)
{
	uint8_t *frame = (uint8_t *)(uintptr_t)ctx->data;

	if (frame + STREAM_SOURCE_AT + sizeof(uint32_t) > (const uint8_t *)(uintptr_t)ctx->data_end)
		return XDP_ABORTED;
	if (generated_pace_ns && weir_stream.next % GENERATED_GROUP == 0)
		generate_wait();
	generate_header(frame);
	if (!stream_next(ctx))
		return XDP_ABORTED;
	generate_checksum(frame);
	return XDP_TX;
}

#endif
