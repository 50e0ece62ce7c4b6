/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Gives packets for measurements one source after the other: IPv4 in Ethernet without tags. Checksums are not updated,
 * because none of the measured programs reads them.
 */
#ifndef WEIR_MEASURE_SOURCES_H
#define WEIR_MEASURE_SOURCES_H

#include "kernel/bpf.h"
#include "core/packet.h"

enum {
	STREAM_SOURCES_MAX = 1 << 18,		/* the same in lab/instruments/src/sources.rs */
	STREAM_PACKETS = 1 << 9,		/* the same in lab/instruments/src/sources.rs */
	STREAM_SOURCE_AT = ETHERNET_BYTES + 12, /* in an IPv4 packet in an Ethernet frame without tags */
};

/* User space fills this before it runs the program: Stream in lab/instruments/src/sources.rs. */
struct stream {
	uint32_t next;	/* index of the next source */
	uint32_t count; /* of sources, for streams */
	uint32_t zero[14];
	uint32_t sources[STREAM_SOURCES_MAX]; /* network byte order */
};

_Static_assert(offsetof(struct stream, sources) == 64, "Stream");

struct stream weir_stream __attribute__((aligned(64))) WEIR_SECTION(".bss.stream");

/* Gives the packet the next source. Returns false if the packet is too short for one. */
WEIR_INLINE bool stream_next(const struct xdp_md *ctx)
{
	uint8_t *at = (uint8_t *)(uintptr_t)ctx->data + STREAM_SOURCE_AT;

	if (at + sizeof(uint32_t) > (const uint8_t *)(uintptr_t)ctx->data_end)
		return false;
	*(unaligned32 *)at = weir_stream.sources[weir_stream.next++ & (STREAM_SOURCES_MAX - 1)];
	return true;
}

/* How many packets a run of a stream decides. */
WEIR_INLINE uint32_t stream_packets(void)
{
	const uint32_t left = weir_stream.count - weir_stream.next;

	return left < STREAM_PACKETS ? left : STREAM_PACKETS;
}

#endif
