/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A chain as a driver's receive loop runs it: one packet after the other, each from another source, and no system call
 * in between. For measuring; included behind generated BPF code, which names its chains with WEIR_XDP_STREAM(<chain>).
 *
 * One BPF_PROG_TEST_RUN with many repeats calls the program for the same packet again and again. Each time the next
 * IPv4 source of a list is written into it first. Checksums are left as they are: the parser looks at none.
 */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "xdp.h"

enum {
	STREAM_SOURCES_MAX = 1 << 18,		/* the same in crates/engine/src/xdp/stream.rs */
	STREAM_SOURCE_AT = ETHERNET_BYTES + 12, /* of an IPv4 packet in an Ethernet frame without tags */
};

/* What user space fills before it runs the program: crates/engine/src/xdp/stream.rs. */
struct stream {
	uint32_t next; /* source of the next packet */
	uint32_t zero[15];
	uint32_t sources[STREAM_SOURCES_MAX]; /* network byte order */
};

_Static_assert(offsetof(struct stream, sources) == 64, "Stream");

struct stream weir_stream __attribute__((aligned(64))) WEIR_SECTION(".bss.stream");

/* Gives the packet the next source. Returns false if it has no room for one. */
WEIR_INLINE bool stream_next(const struct xdp_md *ctx)
{
	uint8_t *at = (uint8_t *)(uintptr_t)ctx->data + STREAM_SOURCE_AT;

	if (at + sizeof(uint32_t) > (const uint8_t *)(uintptr_t)ctx->data_end)
		return false;
	*(unaligned32 *)at = weir_stream.sources[weir_stream.next++ & (STREAM_SOURCES_MAX - 1)];
	return true;
}

/* Defines weir_<chain>_stream: weir_<chain> for packets of changing sources. */
#define WEIR_XDP_STREAM(chain)                                                                                         \
	WEIR_SECTION("xdp.frags") uint32_t weir_##chain##_stream(struct xdp_md *ctx)                                   \
	{                                                                                                              \
		return stream_next(ctx) ? xdp_##chain(ctx) : VERDICT_NONE;                                             \
	}

#endif
