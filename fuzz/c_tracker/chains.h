/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Two chains as generated code has them: one whose rules need the states of packets, with rules before its tracking
 * point, and one that tracks what it accepts. The file that includes this one declares `tracking`.
 */
#ifndef C_TRACKER_CHAINS_H
#define C_TRACKER_CHAINS_H

#include "track/burst.h"

enum {
	RULE_TELNET = 0,
	RULE_DNS = 1,
	RULE_TRACK = 2,
	RULE_KNOWN = 3,
	RULE_UNTRACKED = 4,
	RULE_NEW = 5,
	RULE_INVALID = 6,
	RULE_REST = 7,
	RULE_ACCEPT = 8,
	RULE_PROXY = 9,
	RULES = 10,
};

/* What rules do in this input. */
static struct {
	bool track;	     /* whether there is a rule with `tcp track` */
	bool accept_invalid; /* or rules refuse them */
	bool synproxy;	     /* whether there is a rule with `tcp synproxy` */
	uint16_t refused;    /* the first port that no new connection may have */
} rules;

struct stateful_packets {
	uint16_t dport[WEIR_BURST_MAX];
	uint8_t ct_state[WEIR_BURST_MAX];
	uint8_t l4[WEIR_BURST_MAX];
	struct track_burst tracked;
} WEIR_COLUMNS;

static void chain_parse(const struct env *env, const struct weir_burst *burst, struct stateful_packets *packets,
			struct verdicts *verdicts)
{
	uint64_t open = 0;

	for (uint32_t i = 0; i < burst->count; i++) {
		const struct frame frame = burst_frame(burst, i);
		struct packet parsed;
		packet_view *packet = &parsed;
		enum reason reason = parse_packet(&frame, &parsed);

		if (reason == REASON_NONE && packet->l3 == L3_ARP)
			reason = REASON_ARP;
		packets->dport[i] = packet->dport;
		packets->l4[i] = packet->l4;
		verdicts->lens[i] = frame.len;
		if (reason == REASON_NONE)
			open |= 1ULL << i;
		else
			verdicts->words[i] =
				decide(env, reason == REASON_ARP ? ACTION_ACCEPT : ACTION_DROP, reason, frame.len);
	}
	verdicts->open = open;
	verdicts->sampled = 0;
}

/* Counts and decides the hits of a rule. Returns false if no packet stays open. */
static bool rule(const struct env *env, struct verdicts *verdicts, uint64_t hits, enum action action, uint32_t number)
{
	if (!hits)
		return verdicts->open;
	count_hits(env, REASON_RULE + number, hits, verdicts);
	return settle(verdicts, hits, rule_verdict(action, number, 0));
}

static void stateful_before(const struct env *env, const struct stateful_packets *packets, struct verdicts *verdicts)
{
	const uint64_t telnet = u8_is(packets->l4, L4_TCP) & u16_is(packets->dport, 23);
	const uint64_t dns = u8_is(packets->l4, L4_UDP) & u16_is(packets->dport, 53);

	if (rule(env, verdicts, verdicts->open & telnet, ACTION_DROP, RULE_TELNET))
		rule(env, verdicts, verdicts->open & dns, ACTION_ACCEPT, RULE_DNS);
}

#ifndef WEIR_REWRITES

/* Without a SYN proxy. */
static uint64_t answer_hits(const struct env *env, const struct weir_burst *burst, struct verdicts *verdicts,
			    struct track_burst *tracked, uint64_t hits)
{
	(void)env;
	(void)burst;
	(void)verdicts;
	(void)tracked;
	return hits;
}

static void rewrite_burst(const struct weir_burst *burst, struct verdicts *verdicts, struct track_burst *tracked)
{
	(void)burst;
	(void)verdicts;
	(void)tracked;
}

#endif

static void stateful_rules(const struct env *env, const struct weir_burst *burst, struct stateful_packets *packets,
			   struct verdicts *verdicts)
{
	uint64_t hits = verdicts->open & u8_is(packets->l4, L4_TCP);

	if (rules.track && hits) {
		hits = drop_refused(env, verdicts, &packets->tracked, hits);
		count_hits(env, REASON_RULE + RULE_TRACK, hits, verdicts);
	}
	hits = verdicts->open & u8_is(packets->l4, L4_TCP);
	if (rules.synproxy && hits) {
		hits = answer_hits(env, burst, verdicts, &packets->tracked, hits);
		count_hits(env, REASON_RULE + RULE_PROXY, hits, verdicts);
	}
	hits = u8_is(packets->ct_state, STATE_ESTABLISHED) | u8_is(packets->ct_state, STATE_RELATED);
	if (!rule(env, verdicts, verdicts->open & hits, ACTION_ACCEPT, RULE_KNOWN))
		return;
	hits = verdicts->open & u8_is(packets->ct_state, STATE_UNTRACKED);
	if (!rule(env, verdicts, hits, ACTION_ACCEPT, RULE_UNTRACKED))
		return;
	hits = u8_is(packets->ct_state, STATE_NEW) & u16_between(packets->dport, 0, rules.refused);
	if (!rule(env, verdicts, verdicts->open & hits, ACTION_ACCEPT, RULE_NEW))
		return;
	hits = rules.accept_invalid ? verdicts->open & u8_is(packets->ct_state, STATE_INVALID) : 0;
	if (rule(env, verdicts, hits, ACTION_ACCEPT, RULE_INVALID))
		rule(env, verdicts, verdicts->open, ACTION_DROP, RULE_REST);
}

static struct env chain_env(const struct weir_burst *burst, enum from_side from)
{
	return (struct env){.counters = burst->counters, .tables = burst->tables, .flows = burst->flows, .from = from};
}

/* Tracks before its rules, or most of them. */
static void chain_stateful(const struct weir_burst *burst, enum from_side from)
{
	const struct env env = chain_env(burst, from);
	struct stateful_packets packets;
	struct verdicts verdicts;

	chain_parse(&env, burst, &packets, &verdicts);
	stateful_before(&env, &packets, &verdicts);
	track_begin_late(&env, burst, &verdicts, &packets.tracked);
	while (track_next(&env, burst, &verdicts, &packets.tracked, packets.ct_state))
		stateful_rules(&env, burst, &packets, &verdicts);
	rewrite_burst(burst, &verdicts, &packets.tracked);
	give_verdicts(burst, &verdicts);
}

/* Tracks what its rules have accepted. */
static void chain_accepting(const struct weir_burst *burst, enum from_side from)
{
	const struct env env = chain_env(burst, from);
	struct stateful_packets packets;
	struct verdicts verdicts;

	chain_parse(&env, burst, &packets, &verdicts);
	stateful_before(&env, &packets, &verdicts);
	rule(&env, &verdicts, verdicts.open, ACTION_ACCEPT, RULE_ACCEPT);
	track_accepted(&env, burst, &verdicts, &packets.tracked);
	rewrite_burst(burst, &verdicts, &packets.tracked);
	give_verdicts(burst, &verdicts);
}

#endif
