/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Generates packets in the kernel, to measure their receivers: crates/engine/src/xdp/generate.rs.
 *
 * BPF_PROG_TEST_RUN runs the program in live frames mode. The kernel gives the program one frame after the other from a
 * small pool, and acts on its return value. Each frame gets the next source of a list, and leaves through the interface
 * that the run names as its origin. A frame comes back to the pool unchanged, so nothing else needs to be written.
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
