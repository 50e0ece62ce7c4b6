/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Chains in parts: the programs of rules that are too much for one program (crates/policy/src/backend/c/parts.rs).
 * Generated BPF code includes this instead of kernel/hook.h, and says how many parts its chains have together
 * (WEIR_PARTS).
 *
 * weir_<chain> parses the packet and jumps to the chain's first part. Each part decides the packet or jumps to the
 * next. The parsed packet stays in the CPU's memory. A part reads everything else again.
 */
#ifndef WEIR_KERNEL_PARTS_H
#define WEIR_KERNEL_PARTS_H

#include "kernel/hook.h"

/* The programs of WEIR_PARTS parts, filled in by the engine: weir_<number>_<part> has the key <number>. */
struct {
	int (*type)[BPF_MAP_TYPE_PROG_ARRAY];
	int (*max_entries)[WEIR_PARTS ? WEIR_PARTS : 1];
	int (*key_size)[sizeof(uint32_t)];
	int (*value_size)[sizeof(uint32_t)];
} weir_parts WEIR_SECTION(".maps");

/* Passes the packet to a part. */
WEIR_INLINE uint32_t part_enter(hook_context *ctx, uint32_t number)
{
	bpf_tail_call(ctx, &weir_parts, number);
	return HOOK_LOST;
}

/* Defines the program weir_<chain>. */
#define WEIR_CHAIN_IN_PARTS(chain, first)                                                                              \
	WEIR_SECTION(HOOK_SECTION) uint32_t weir_##chain(hook_context *ctx)                                            \
	{                                                                                                              \
		struct arrival arrival;                                                                                \
		struct frame frame;                                                                                    \
		struct env env;                                                                                        \
		struct cpu_packet *own = hook_begin(ctx, &arrival, &env, &frame);                                      \
		uint32_t verdict;                                                                                      \
                                                                                                                       \
		if (WEIR_UNLIKELY(!own))                                                                               \
			return hook_refuse(ctx, CHAIN_SIDE(chain));                                                    \
		own->sampled = 0;                                                                                      \
		own->halves = env.halves;                                                                              \
		verdict = chain##_frame(&env, &frame, &own->packet);                                                   \
		if (verdict == VERDICT_NONE)                                                                           \
			return part_enter(ctx, first);                                                                 \
		return hook_end(ctx, arrival, &frame, verdict);                                                        \
	}

/* Defines the program weir_<number>_<part>. */
#define WEIR_PART_OF_CHAIN(part, number)                                                                               \
	WEIR_SECTION(HOOK_SECTION) uint32_t weir_##number##_##part(hook_context *ctx)                                  \
	{                                                                                                              \
		struct arrival arrival;                                                                                \
		struct frame frame;                                                                                    \
		struct env env;                                                                                        \
		struct cpu_packet *own = hook_begin(ctx, &arrival, &env, &frame);                                      \
		uint32_t verdict;                                                                                      \
                                                                                                                       \
		if (WEIR_UNLIKELY(!own))                                                                               \
			return HOOK_LOST;                                                                              \
		env.halves = own->halves;                                                                              \
		verdict = part(&env, &own->packet, &frame, &own->sampled);                                             \
		if (verdict == VERDICT_NONE)                                                                           \
			return part_enter(ctx, number + 1);                                                            \
		return hook_end(ctx, arrival, &frame, verdict);                                                        \
	}

#endif
