/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The hook of packets that a host sends (kernel/hook.h). The kernel calls the programs where it hands packets to an
 * interface (tcx, egress). The programs of downstream chains are loaded, only for a host that Weir protects
 * (docs/guide/host.md).
 *
 * A packet is not yet as on the wire:
 *
 * - Its VLAN tag may be beside it, for the card to put in. Frames have it where the wire has it.
 * - It may be a large packet that the card splits into several (GSO). It is decided once, and counted and charged as
 *   what the card makes of it. Rules read it as it is: they see the first header, and the length of all.
 * - Its checksum may be left to the card. Nothing here reads one.
 * - Its first buffer ends anywhere. Headers behind it are copied, as in kernel/xdp.h.
 *
 * The kernel runs them with softirqs off, so they and XDP programs do not interrupt each other on a CPU.
 */
#ifndef WEIR_KERNEL_EGRESS_H
#define WEIR_KERNEL_EGRESS_H

#include "kernel/host.h"
#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "kernel/cpu_packet.h"
#include "observe/kernel_samples.h"
#include "observe/kernel_tap.h"
#include "kernel/sent.h"

typedef struct __sk_buff hook_context;

#define HOOK_SECTION "tcx/egress"
#define HOOK_LOST ((uint32_t)TCX_DROP)

WEIR_INLINE bool hook_frame(hook_context *ctx, struct env *env, struct frame *frame)
{
	(void)env;
	*frame = sent_frame(ctx);
	return true;
}

WEIR_INLINE long frame_load(const struct frame *frame, uint32_t offset, uint8_t *to, uint32_t bytes)
{
	return sent_load(frame->ctx, offset, to, bytes);
}

/* Writes to the CPU's memory what a card makes of the packet. */
WEIR_INLINE void sent_segments(const hook_context *ctx, struct cpu_packet *own)
{
	const uint32_t packets = ctx->gso_segs > 1 ? ctx->gso_segs : 1;

	own->packets = packets;
	own->added = packets > 1 ? ctx->wire_len - ctx->len + (packets - 1) * (ctx->vlan_present ? TAG_BYTES : 0) : 0;
}

WEIR_INLINE struct cpu_packet *hook_begin(hook_context *ctx, struct arrival *arrival, struct env *env,
					  struct frame *frame)
{
	const uint32_t wire = port_number(ctx->ifindex);
	struct cpu_packet *own;

	*env = (struct env){.halves = weir_words.halves};
	*frame = sent_frame(ctx);
	*arrival = (struct arrival){.cpu = live_cpu(), .port = host_opposite(wire)};
	env->counters = weir_counters + plus(arrival->cpu * 2, 1) * WEIR_COUNTERS;
	if (WEIR_UNLIKELY(weir_ports.port[wire].receives != ctx->ifindex))
		return NULL;
	own = &weir_packets[arrival->cpu];
	sent_segments(ctx, own);
	return own;
}

/* Copies the beginning of a sampled packet to the ring, as it is on the wire. */
WEIR_INLINE void put_sample(hook_context *ctx, struct arrival arrival, uint32_t verdict, uint32_t len)
{
	struct sample_record *record = sample_begin(arrival, verdict, len);

	if (!record)
		return;
	/* So many fit behind a tag, and one number is known to the verifier for both cases. */
	if (record->cap > SAMPLE_BYTES - TAG_END)
		record->cap = SAMPLE_BYTES - TAG_END;
	if (sent_first(ctx, record->bytes, record->cap, SAMPLE_BYTES - TAG_END))
		bpf_ringbuf_submit(record, 0);
	else
		bpf_ringbuf_discard(record, 0);
}

/* As they are on the wire. */
WEIR_INLINE bool hook_copy(hook_context *ctx, uint8_t *to, uint32_t bytes)
{
	return sent_first(ctx, to, bytes, TAP_BYTES_MAX);
}

WEIR_INLINE uint32_t hook_end(hook_context *ctx, struct arrival arrival, const struct frame *frame, uint32_t verdict)
{
	put_sample(ctx, arrival, verdict, frame->len);
	put_taps(ctx, arrival, verdict, frame->len);
	return (uint32_t)(host_pass(arrival, verdict, frame->len) ? TCX_NEXT : TCX_DROP);
}

/* Drops a packet that is not sent from a port, which does not happen. */
WEIR_NOINLINE uint32_t hook_refuse(hook_context *ctx, uint32_t side)
{
	const struct env env = {.counters = weir_counters + plus(live_cpu() * 2, side & 1) * WEIR_COUNTERS};

	sent_segments(ctx, &weir_packets[live_cpu()]);
	count(&env, REASON_UNKNOWN_INTERFACE, sent_frame(ctx).len);
	return TCX_DROP;
}

#endif
