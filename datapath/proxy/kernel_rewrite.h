/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What leaves in place of packets that a program changes, and how it takes their place. Programs that change none leave
 * all of it out.
 */
#ifndef WEIR_PROXY_KERNEL_REWRITE_H
#define WEIR_PROXY_KERNEL_REWRITE_H

#include "kernel/checksum.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"

#ifdef WEIR_REWRITES

/* One for each CPU. The engine makes the section that long. A replay has one, which it reads after each packet. */
struct weir_rewrite weir_rewrites[1] __attribute__((aligned(64))) WEIR_SECTION(".bss.rewrites");

/*
 * Replaces the received packet by what leaves. `unfinished`: its sender has left the checksum to a card. The field is
 * put back then, because the update of an incomplete checksum is wrong. Returns whether there is room in the packet's
 * memory.
 */
__attribute__((noinline)) int weir_replace(struct xdp_md *ctx, uint32_t unfinished)
{
	struct weir_rewrite *rewrite = &weir_rewrites[live_cpu()];
	const int32_t more = (int32_t)(rewrite->len - (uint32_t)bpf_xdp_get_buff_len(ctx));
	const uint64_t head = one_less(*(volatile uint32_t *)&rewrite->head);

	if (unfinished && rewrite->checksum_at) {
		const uint32_t field = bounded(rewrite->checksum_at, WEIR_WINDOW_BYTES - 1);

		rewrite->bytes[field] = rewrite->checksum[0];
		rewrite->bytes[field + 1] = rewrite->checksum[1];
	}
	if (more && bpf_xdp_adjust_tail(ctx, more))
		return false;
	if (head >= REWRITE_BYTES)
		return false;
	return !bpf_xdp_store_bytes(ctx, 0, rewrite->bytes, one_more(head));
}

/* The bytes that leave. */
WEIR_INLINE uint32_t rewritten_len(void)
{
	return weir_rewrites[live_cpu()].len;
}

/* Whether what leaves has a new checksum, which is complete. */
WEIR_INLINE bool is_built(void)
{
	return !weir_rewrites[live_cpu()].checksum_at;
}

#else

WEIR_INLINE int weir_replace(struct xdp_md *ctx, uint32_t unfinished)
{
	(void)ctx;
	(void)unfinished;
	return false;
}

WEIR_INLINE uint32_t rewritten_len(void)
{
	return 0;
}

WEIR_INLINE bool is_built(void)
{
	return false;
}

#endif

/* The verdict's bit, known to be 0 in programs that change no packets. */
WEIR_INLINE bool is_rewritten(uint32_t verdict)
{
#ifdef WEIR_REWRITES
	return verdict & VERDICT_REWRITTEN;
#else
	(void)verdict;
	return false;
#endif
}

#endif
