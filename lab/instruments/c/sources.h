/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Gives packets for measurements one source after the other: IPv4 or IPv6 in Ethernet without tags. Checksums are not
 * updated, because none of the measured programs reads them.
 */
#ifndef WEIR_MEASURE_SOURCES_H
#define WEIR_MEASURE_SOURCES_H

#include "kernel/bpf.h"
#include "core/packet.h"

enum {
	STREAM_SOURCES_MAX = 1 << 18,		/* the same in lab/instruments/src/sources.rs */
	STREAM_PACKETS = 1 << 9,		/* the same in lab/instruments/src/sources.rs */
	STREAM_SOURCE_AT = ETHERNET_BYTES + 12, /* in an IPv4 packet in an Ethernet frame without tags */
	STREAM_SOURCE6_AT = ETHERNET_BYTES + 8, /* in an IPv6 packet */
	STREAM_WORDS6 = 4,			/* of an IPv6 source */
};

/* User space fills this before it runs the program: Stream in lab/instruments/src/sources.rs. */
struct stream {
	uint32_t next;	/* index of the next source */
	uint32_t count; /* of sources, for streams */
	uint32_t words; /* of a source: 1 or STREAM_WORDS6 */
	uint32_t zero[13];
	uint32_t sources[STREAM_WORDS6 * STREAM_SOURCES_MAX]; /* network byte order */
};

_Static_assert(offsetof(struct stream, sources) == 64, "Stream");

struct stream weir_stream __attribute__((aligned(64))) WEIR_SECTION(".bss.stream");

/* Gives an IPv6 packet this source. The stores are as wide as the loads of a parser, which wait for no two of them. */
WEIR_INLINE bool stream_give6(const struct xdp_md *ctx, const uint32_t *source)
{
	uint8_t *at = (uint8_t *)(uintptr_t)ctx->data + STREAM_SOURCE6_AT;

	if (at + STREAM_WORDS6 * sizeof(uint32_t) > (const uint8_t *)(uintptr_t)ctx->data_end)
		return false;
	((unaligned64 *)at)[0] = ((const unaligned64 *)source)[0];
	((unaligned64 *)at)[1] = ((const unaligned64 *)source)[1];
	return true;
}

/* Gives the packet the next source. Returns false if the packet is too short for one. */
WEIR_INLINE bool stream_next(const struct xdp_md *ctx)
{
	uint8_t *at = (uint8_t *)(uintptr_t)ctx->data + STREAM_SOURCE_AT;
	const uint32_t number = weir_stream.next++ & (STREAM_SOURCES_MAX - 1);

	if (weir_stream.words == STREAM_WORDS6)
		return stream_give6(ctx, &weir_stream.sources[STREAM_WORDS6 * number]);
	if (at + sizeof(uint32_t) > (const uint8_t *)(uintptr_t)ctx->data_end)
		return false;
	*(unaligned32 *)at = weir_stream.sources[number];
	return true;
}

/* How many packets a run of a stream decides. */
WEIR_INLINE uint32_t stream_packets(void)
{
	const uint32_t left = weir_stream.count - weir_stream.next;

	return left < STREAM_PACKETS ? left : STREAM_PACKETS;
}

#endif
