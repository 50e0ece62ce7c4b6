/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs a chain like a driver's receive loop: one packet after the other, each from another source, without system calls
 * between them. For measurements. Generated BPF code comes first, and names its chains with WEIR_XDP_STREAM(<chain>).
 *
 * One run of the program decides STREAM_PACKETS times the same packet, or fewer at the end of the sources. Each time,
 * the next source of the list is written into it first. Checksums are not updated, because the parser reads none.
 * The kernel could repeat the program itself, but waits for milliseconds in front of repetitions and behind them.
 */
#ifndef WEIR_MEASURE_STREAM_H
#define WEIR_MEASURE_STREAM_H

#include "sources.h"
#include "kernel/hook.h"

/* A run of a stream: the packet, and the program's last return value. */
struct stream_run {
	struct xdp_md *ctx;
	uint32_t returned;
};

/* Defines weir_<chain>_stream: weir_<chain> for packets of changing sources. */
#define WEIR_XDP_STREAM(chain)                                                                                         \
	static long stream_##chain(uint32_t step, void *state)                                                         \
	{                                                                                                              \
		struct stream_run *run = state;                                                                        \
                                                                                                                       \
		(void)step;                                                                                            \
		if (!stream_next(run->ctx))                                                                            \
			return 1;                                                                                      \
		run->returned = hook_##chain(run->ctx);                                                                \
		return 0;                                                                                              \
	}                                                                                                              \
                                                                                                                       \
	WEIR_SECTION("xdp") uint32_t weir_##chain##_stream(struct xdp_md *ctx)                                         \
	{                                                                                                              \
		struct stream_run run = {.ctx = ctx, .returned = VERDICT_NONE};                                        \
                                                                                                                       \
		repeat(stream_packets(), stream_##chain, &run);                                                        \
		return run.returned;                                                                                   \
	}

#endif
