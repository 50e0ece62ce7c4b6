/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a chain like a driver's receive loop: one packet after the other, each from another source, without system calls
 * between them. For measurements. Generated BPF code comes first, and names its chains with WEIR_XDP_STREAM(<chain>).
 *
 * One BPF_PROG_TEST_RUN with many repeats calls the program again and again for the same packet. Each time, the next
 * IPv4 source of a list is written into it first. Checksums are not updated, because the parser reads none.
 */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include "sources.h"
#include "hook.h"

/* Defines weir_<chain>_stream: weir_<chain> for packets of changing sources. */
#define WEIR_XDP_STREAM(chain)                                                                                         \
	WEIR_SECTION("xdp") uint32_t weir_##chain##_stream(struct xdp_md *ctx)                                         \
	{                                                                                                              \
		return stream_next(ctx) ? hook_##chain(ctx) : VERDICT_NONE;                                            \
	}

#endif
