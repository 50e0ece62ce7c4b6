/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The SYN proxy in the kernel: what proxy/synproxy.h and proxy/rewrite.h need of a CPU's memory. track/kernel.h
 * includes it.
 */
#ifndef WEIR_PROXY_KERNEL_H
#define WEIR_PROXY_KERNEL_H

#include "proxy/rewrite.h"
#include "proxy/kernel_rewrite.h"

/* What is kept of proxied flows, by bucket. The engine replaces the map by the one that all programs share. */
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	uint32_t *key;
	struct flow_proxied (*value)[FLOW_ENTRIES];
	int (*map_flags)[BPF_F_MMAPABLE];
} weir_proxied WEIR_SECTION(".maps");

WEIR_KERNEL_PART struct flow_proxied *proxied_at(const struct env *env, const struct flow_at *at)
{
	const uint32_t bucket = at->bucket;
	struct flow_proxied *of_bucket = bpf_map_lookup_elem(&weir_proxied, &bucket);

	(void)env;
	return of_bucket ? &of_bucket[at->entry & (FLOW_ENTRIES - 1)] : NULL;
}

WEIR_KERNEL_PART struct flow_head *flow_head(const struct env *env)
{
	(void)env;
	return &weir_flow_head;
}

WEIR_GLOBAL uint32_t weir_cookie(uint32_t isn, uint32_t epoch, uint32_t mss_index)
{
	const struct track *track = &own_track()->track;
	const struct cookie_request request = {.key = track->key, .client = track->sender, .isn = isn};

	return cookie_make(weir_flow_head.cookie_secret, &request, epoch, mss_index);
}

WEIR_KERNEL_PART uint32_t track_cookie(const struct env *env, const struct track *track, uint32_t isn, uint32_t epoch,
				       uint32_t mss_index)
{
	(void)env;
	(void)track;
	return weir_cookie(isn, epoch, mss_index);
}

WEIR_KERNEL_PART bool rewrite_from(const struct frame *frame, uint32_t bytes, struct weir_rewrite *rewrite)
{
	const uint64_t before = one_less(bytes);

	if (bytes > frame->cap || before >= WEIR_WINDOW_BYTES)
		return false;
	return !bpf_xdp_load_bytes(frame->ctx, frame->padding, rewrite->bytes, one_more(before));
}

WEIR_GLOBAL uint32_t weir_rewrite_option(uint32_t kind, uint32_t at, uint32_t bytes)
{
	const struct option_place option = {kind, at, bytes};

	translate_option(&weir_rewrites[live_cpu()], &own_track()->track.edit, &option);
	return 0;
}

WEIR_KERNEL_PART void rewrite_option(struct weir_rewrite *rewrite, struct edit *edit, const struct option_place *option)
{
	(void)rewrite;
	(void)edit;
	weir_rewrite_option(option->kind, option->at, option->bytes);
}

/* Makes what leaves in place of the CPU's packet. */
WEIR_GLOBAL uint32_t weir_rewrite_packet(struct xdp_md *ctx)
{
	const uint32_t cpu = live_cpu();
	struct track *track = &own_track()->track;
	struct frame frame;
	struct env env;

	if (hook_frame(ctx, &env, &frame))
		rewrite_packet(&frame, &weir_packets[cpu].packet, &track->edit, track->segment.end,
			       &weir_rewrites[cpu]);
	return 0;
}

/* After a packet: what becomes of it if it is accepted or answered. */
WEIR_INLINE uint32_t proxy_verdict(const struct frame *frame, uint32_t verdict)
{
	if (*(volatile uint32_t *)&own_track()->track.edit.kind == EDIT_NONE)
		return verdict;
	weir_rewrite_packet(frame->ctx);
	return verdict | VERDICT_REWRITTEN;
}

/* Answers the CPU's packet if it asks to open a connection, and the proxy is on. */
WEIR_GLOBAL uint32_t weir_answer(uint64_t now_ns)
{
	struct cpu_track *own = own_track();

	if (own->is_asked || !asks_to_open(&own->track))
		return false;
	own->is_asked = true;
	return answer(NULL, &own->track, now_ns);
}

/* Whether the packet is answered. */
WEIR_INLINE bool is_answered(void)
{
	return weir_answer(own_track()->now_ns);
}

#endif
