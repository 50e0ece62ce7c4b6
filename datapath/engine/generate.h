/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes packets in the kernel, for measuring what receives them: crates/engine/src/xdp/generate.rs.
 *
 * Run by BPF_PROG_TEST_RUN in live frames mode, in which the kernel gives the program one frame after the other from a
 * small pool and does what it returns. Each frame gets the next source of a list and leaves through the interface that
 * the run names as the one it came from. A frame that comes back to the pool is as it left, so that nothing else needs
 * to be written.
 */
#ifndef WEIR_GENERATE_H
#define WEIR_GENERATE_H

#include "plain.h"
#include "sources.h"

WEIR_SECTION("xdp") uint32_t weir_generate(struct xdp_md *ctx)
{
	return stream_next(ctx) ? XDP_TX : XDP_ABORTED;
}

#endif
