/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where programs in the kernel find a card's answers about a packet: the body of its trailer. In front of the chain,
 * card/kernel_front.h copies it here and removes the trailer. In a replay the engine writes it. Generated code whose
 * policy has a card says how long bodies are (WEIR_ANSWERS).
 */
#ifndef WEIR_CARD_KERNEL_ANSWERS_H
#define WEIR_CARD_KERNEL_ANSWERS_H

#include "core/env.h"

#ifdef WEIR_ANSWERS

enum { CPU_ANSWERS_BYTES = 64 };

/* One for each CPU: the engine makes the section that long. A replay has one. */
struct cpu_answers {
	uint8_t body[CPU_ANSWERS_BYTES];
} __attribute__((aligned(64)));

struct cpu_answers weir_answers[1] WEIR_SECTION(".bss.answers");

WEIR_INLINE void answers_begin(struct env *env, uint32_t cpu)
{
	env->answers = weir_answers[cpu].body;
}

#else

WEIR_INLINE void answers_begin(struct env *env, uint32_t cpu)
{
	(void)cpu;
	env->answers = NULL;
}

#endif
#endif
