/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Verdicts and reasons. crates/abi (verdict.rs, reason.rs) has the same numbers; a test compares them.
 *
 *	 31            16 15     10   9     8   7          0
 *	+----------------+---------+-----+-----+------------+
 *	|     reason     | 0       | rwr | smp |   action   |
 *	+----------------+---------+-----+-----+------------+
 */
#ifndef WEIR_CORE_VERDICT_H
#define WEIR_CORE_VERDICT_H

#include "core/env.h"

enum action {
	ACTION_ACCEPT = 0,
	ACTION_DROP = 1,
	ACTION_DIVERT = 2,
	ACTION_REPLY = 3, /* send it back out of the port at which it came in */
};

enum {
	VERDICT_SAMPLED = 1 << 8,
	VERDICT_REWRITTEN = 1 << 9, /* the chain changed the packet */
	VERDICT_NONE = 0xff,	    /* not decided yet; no packet leaves with it */
};

enum reason {
	REASON_NO_MATCH = 0,
	REASON_NOT_IP = 1,
	REASON_ARP = 2,
	REASON_FRAGMENT = 3,
	REASON_IP_OPTIONS = 4,
	REASON_MALFORMED_LINK = 5,
	REASON_MALFORMED_VLAN = 6,
	REASON_MALFORMED_IPV4 = 7,
	REASON_MALFORMED_IPV6 = 8,
	REASON_MALFORMED_IPV6_EXT = 9,
	REASON_MALFORMED_FRAGMENT = 10,
	REASON_MALFORMED_TCP = 11,
	REASON_MALFORMED_UDP = 12,
	REASON_MALFORMED_ICMP = 13,
	REASON_MALFORMED_TRANSPORT = 14,
	REASON_LIMIT = 15,	       /* a limit had no room for the packet */
	REASON_UNKNOWN_INTERFACE = 16, /* the packet came in at no port (kernel/ports.h); always dropped */
	REASON_BAD_FLAGS = 17,
	REASON_OUT_OF_WINDOW = 18,
	REASON_BAD_ACK = 19,
	REASON_NO_STATE = 20,
	REASON_RST_OUT_OF_WINDOW = 21,
	REASON_STATE_FULL = 22,
	REASON_SYN_COOKIE = 23,	      /* a SYN that was answered */
	REASON_SLOT = 24,	      /* a rule of a slot dropped the packet */
	REASON_UNSEALED = 25,	      /* a frame at a card's port without the card's seal (card/kernel_front.h) */
	REASON_CARD_CONTROL = 26,     /* a card's answer to a control frame */
	COUNTER_ANSWERED = 29,	      /* no reason: counts packets that a card's answers decided */
	COUNTER_ALONE = 30,	      /* no reason: counts packets of a card's port that were decided alone */
	REASON_NONE = 31,	      /* none yet: the rules decide */
	REASON_RULE = WEIR_RULE_BASE, /* REASON_RULE + r: rule r */
};

WEIR_INLINE void count(const struct env *env, uint32_t reason, uint32_t len)
{
	struct weir_counter *counter = counter_at(env, reason);

	counter->packets += wire_packets();
	counter->bytes += wire_bytes(len);
}

/* Decides by a built-in reason, and counts it. A rule's counter has counted the match already. */
WEIR_INLINE uint32_t decide(const struct env *env, enum action action, enum reason reason, uint32_t len)
{
	count(env, reason, len);
	return (uint32_t)action | (uint32_t)reason << 16;
}

/*
 * Decides a packet without room. Counts it by reason, and in `beside`, which counts packets that the rule's limits
 * ended.
 */
WEIR_INLINE uint32_t decide_exceeding(const struct env *env, enum action action, uint32_t beside, uint32_t len)
{
	count(env, beside, len);
	return decide(env, action, REASON_LIMIT, len);
}

WEIR_INLINE uint32_t rule_verdict(enum action action, uint32_t rule, uint32_t sampled)
{
	return (uint32_t)action | sampled | (REASON_RULE + rule) << 16;
}

/*
 * Whether to sample a packet. Samples are spread evenly, without a period that a sender could follow. The rule's own
 * packet count walks a Weyl sequence (golden ratio of 2^32). A packet is sampled when the sequence is below 2^32 /
 * one_in, given rounded up as `below`. `nth` counts from 0.
 */
WEIR_INLINE bool is_sampled(uint32_t nth, uint64_t below)
{
	return (uint32_t)(nth * 0x9e3779b1u) < below;
}

/* Decides whether to sample the packet that the rule has just counted. */
WEIR_INLINE uint32_t sample(const struct env *env, uint32_t rule, uint64_t below)
{
	uint32_t nth = (uint32_t)counter_at(env, REASON_RULE + rule)->packets - 1;

	return is_sampled(nth, below) ? VERDICT_SAMPLED : 0;
}

#endif
