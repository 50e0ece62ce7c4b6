/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where the kernel calls the programs of a policy. An object has programs for one hook: XDP, or with WEIR_SENT packets
 * that a host sends. Generated BPF code is the same for both. It names each chain's function
 *
 *	uint32_t <chain>_frame(const struct env *env, const struct frame *frame, struct packet *packet);
 *
 * with WEIR_CHAIN(<chain>). kernel/xdp.h and kernel/egress.h define
 *
 *	hook_context	the program's context
 *	HOOK_SECTION	the section of programs
 *	HOOK_LOST	the return value for packets that no program decided
 *	hook_begin()	prepares the environment and the memory for a packet; NULL if it is not a port's
 *	hook_refuse()	returns the program's return value for such a packet
 *	hook_frame()	the packet of a context, once more; false if a replay has none
 *	hook_end()	acts on a verdict and returns the program's return value
 *	frame_load()	copies bytes of a frame, which has them
 */
#ifndef WEIR_KERNEL_HOOK_H
#define WEIR_KERNEL_HOOK_H

#ifdef WEIR_SENT
#include "kernel/egress.h"
#else
#include "kernel/xdp.h"
#endif

/* The side of a chain: names of chains end in "upstream" (0, from the lower side) or "downstream" (1). */
#define CHAIN_SIDE(chain) (#chain[sizeof(#chain) - sizeof("nstream")] == 'n')

/* Defines hook_<chain>, which handles a packet, and the program weir_<chain>. */
#define WEIR_CHAIN(chain)                                                                                              \
	WEIR_INLINE uint32_t hook_##chain(hook_context *ctx)                                                           \
	{                                                                                                              \
		struct arrival arrival;                                                                                \
		struct frame frame;                                                                                    \
		struct env env;                                                                                        \
		struct cpu_packet *own = hook_begin(ctx, &arrival, &env, &frame);                                      \
                                                                                                                       \
		if (WEIR_UNLIKELY(!own))                                                                               \
			return hook_refuse(ctx, CHAIN_SIDE(chain));                                                    \
		return hook_end(ctx, arrival, &frame, chain##_frame(&env, &frame, &own->packet));                      \
	}                                                                                                              \
                                                                                                                       \
	WEIR_SECTION(HOOK_SECTION) uint32_t weir_##chain(hook_context *ctx)                                            \
	{                                                                                                              \
		return hook_##chain(ctx);                                                                              \
	}

#endif
