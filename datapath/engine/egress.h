/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The programs for packets that a host sends, beside the XDP programs (xdp.h). The kernel calls them where it hands
 * packets to an interface (tcx, egress). Generated BPF code defines one for each downstream chain. They are loaded only
 * for a host that Weir protects (docs/host.md).
 *
 * A packet is not yet as on the wire:
 *
 * - Its VLAN tag may be beside it, for the card to put in. Frames have it where the wire has it.
 * - It may be a large one, of which the card makes several (GSO). It is decided once, and counted and charged as what
 *   the card makes of it. Rules read it as it is: they see the first header, and the length of all.
 * - Its checksum may be left to the card. Nothing here reads one.
 * - Its first buffer ends anywhere. Headers behind it are copied, as in xdp.h.
 *
 * The kernel runs them with softirqs off, so neither interrupts the other on a CPU, and they share its slots.
 */
#ifndef WEIR_EGRESS_H
#define WEIR_EGRESS_H

#include "host.h"
#include "kernel.h"
#include "sent.h"
#include "xdp.h"

/* How many packets the card makes of one, less 1, and the bytes of their headers. */
WEIR_INLINE void sent_segments(const struct __sk_buff *skb, struct env *env)
{
	const uint32_t more = skb->gso_segs > 1 ? skb->gso_segs - 1 : 0;

	env->more_packets = more;
	env->more_bytes = more ? skb->wire_len - skb->len + more * (skb->vlan_present ? TAG_BYTES : 0) : 0;
}

/* Prepares the environment and the memory for a packet; NULL if it is not sent from a port. */
WEIR_INLINE struct packet_slot *egress_begin(struct __sk_buff *skb, struct arrival *arrival, struct env *env,
					     struct frame *frame)
{
	const uint32_t wire = port_number(skb->ifindex);

	*env = (struct env){.halves = weir_words.halves};
	*frame = sent_frame(skb);
	*arrival = (struct arrival){.cpu = live_cpu(), .port = host_opposite(wire)};
	env->counters = weir_counters + (arrival->cpu * 2 + 1) * WEIR_COUNTERS;
	if (WEIR_UNLIKELY(weir_ports.port[wire].receives != skb->ifindex))
		return NULL;
	sent_segments(skb, env);
	return &weir_packets[arrival->cpu];
}

/* Acts on a verdict. Returns the program's return value. */
WEIR_INLINE int egress_end(struct arrival arrival, const struct env *env, const struct frame *frame, uint32_t verdict)
{
	return host_count(arrival, verdict, env_packets(env), env_bytes(env, frame->len)) ? TCX_NEXT : TCX_DROP;
}

/* Drops a packet that is not sent from a port, which does not happen. */
WEIR_INLINE int egress_refuse(const struct env *env, const struct frame *frame)
{
	count(env, REASON_UNKNOWN_INTERFACE, frame->len);
	return TCX_DROP;
}

/* Defines the program weirtc_<chain>. */
#define WEIR_EGRESS_CHAIN(chain)                                                                                       \
	WEIR_SECTION("tcx/egress") int weirtc_##chain(struct __sk_buff *skb)                                           \
	{                                                                                                              \
		struct arrival arrival;                                                                                \
		struct frame frame;                                                                                    \
		struct env env;                                                                                        \
		struct packet_slot *slot = egress_begin(skb, &arrival, &env, &frame);                                  \
                                                                                                                       \
		if (WEIR_UNLIKELY(!slot))                                                                              \
			return egress_refuse(&env, &frame);                                                            \
		return egress_end(arrival, &env, &frame, chain##_frame(&env, &frame, &slot->packet));                  \
	}

#endif
