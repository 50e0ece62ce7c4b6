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

#include "sources.h"
#include "xdp.h"

/* Defines weir_<chain>_stream: weir_<chain> for packets of changing sources. */
#define WEIR_XDP_STREAM(chain)                                                                                         \
	WEIR_SECTION("xdp") uint32_t weir_##chain##_stream(struct xdp_md *ctx)                                         \
	{                                                                                                              \
		return stream_next(ctx) ? xdp_##chain(ctx) : VERDICT_NONE;                                             \
	}

#endif
