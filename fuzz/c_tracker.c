/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs libFuzzer on the C tracker, with AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 * The input is bytes of settings, and then bursts: number and link type of its packets, the time since the burst
 * before, and packets (c_tracker/packets.h). Chains as generated code has them decide each burst three times, with a
 * table of flows each: in a burst, as the only worker and as one of several, and packet by packet. All three must have
 * the same verdicts, counters and tables. After each packet the table must keep its invariants.
 */
#include "core/packet.h"
#include "track/tcp_states.h"

/* The settings of this input. Generated code has a constant. */
#define WEIR_TRACKING
static struct tracking tracking;

#include "c_tracker/chains.h"
#include "c_tracker/invariants.h"
#include "c_tracker/packets.h"
#include "c_tracker/proxied.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BUCKETS_MAX = 5,
	BURSTS_MAX = 64,
	COUNTERS = REASON_RULE + RULES,
	MILLISECOND_NS = 1000000,
};

/* A table of flows, and the results of its users. */
struct run {
	struct flow_bucket buckets[BUCKETS_MAX];
	struct flow_head head;
	struct weir_counter counters[COUNTERS];
	uint32_t verdicts[WEIR_BURST_MAX];
	struct proxied proxied;
	bool is_shared;
} WEIR_COLUMNS;

static struct run alone, among_others, one_by_one;
static struct flow_bucket before[BUCKETS_MAX] WEIR_COLUMNS;

/* A burst. */
struct packets {
	struct weir_frame frames[WEIR_BURST_MAX];
	uint64_t times_ns[WEIR_BURST_MAX];
	uint32_t count;
	uint32_t link;
	bool is_stateful; /* whether rules need the states of its packets */
	enum from_side from;
};

static void set_timeouts(uint32_t ticks)
{
	struct flow_timeouts *timeouts = &tracking.timeouts;

	for (uint32_t class = 0; class < CLASSES; class ++)
		for (uint32_t state = FLOW_SYN_SENT; state < FLOW_STATES; state++)
			timeouts->of[class * FLOW_STATES + state] = ticks * (1 + (class + state) % 3);
	timeouts->of[CLASS_TCP * FLOW_STATES + FLOW_ESTABLISHED] = ticks * 20;
	timeouts->unacknowledged = ticks * 5;
}

static void set_up(struct run *run, uint32_t buckets, bool is_shared)
{
	memset(run, 0, sizeof(*run));
	run->is_shared = is_shared;
	run->head.buckets = buckets;
	for (uint32_t i = 0; i < FLOW_KEY_WORDS; i++)
		run->head.hash_words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
	run->head.hash_start = UINT64_C(0x243f6a8885a308d3);
	run->head.hash_mix = UINT64_C(0x13198a2e03707344);
	run->head.cookie_secret[0] = UINT64_C(0xa4093822299f31d0);
	run->head.cookie_secret[1] = UINT64_C(0x082efa98ec4e6c89);
}

/* Six bytes, and those of the SYN proxy. */
static void read_settings(struct input *input)
{
	static const uint32_t timeouts_ms[4] = {30000, 17, 200, 3600000};
	static const uint32_t invalids[4] = {VERDICT_NONE, VERDICT_NONE, ACTION_DROP, ACTION_DIVERT};
	const uint8_t form = input_byte(input), share = input_byte(input);
	const uint32_t buckets = 1 + input_byte(input) % BUCKETS_MAX;

	memset(&tracking, 0, sizeof(tracking));
	tracking.pickup = form & 1;
	tracking.one_way = form >> 1 & 1;
	tracking.invalid = invalids[form >> 2 & 3];
	tracking.embryonic_max = 1 + share % FLOW_ENTRIES;
	tracking.unproven_max = 1 + (share >> 3) % FLOW_ENTRIES;
	set_timeouts((uint32_t)((uint64_t)timeouts_ms[form >> 4 & 3] * MILLISECOND_NS >> FLOW_TICK_SHIFT));
	rules.track = form >> 6 & 1;
	rules.accept_invalid = form >> 7;
	rules.refused = (uint16_t)input_word(input, 2);
	set_up(&alone, buckets, false);
	set_up(&among_others, buckets, true);
	set_up(&one_by_one, buckets, input_byte(input) & 1);
	rules.synproxy = read_proxy(input, &tracking.synproxy);
}

/* The time until the next packet, or backwards. */
static int64_t input_pause_ms(struct input *input, int64_t max_ms)
{
	static const int64_t pauses_ms[16] = {0,    0,	   0,	  1,	  17,	   17,	     100,
					      1000, 10000, 60000, 600000, 3600000, 86400000, INT64_C(4500000000),
					      -100, -60000};

	const int64_t pause_ms = pauses_ms[input_byte(input) & 15];

	return pause_ms < max_ms ? pause_ms : max_ms;
}

/* Copies a frame to memory of its exact size, so that reads beyond its end are detected. */
static struct weir_frame frame_of(const struct draft *draft, uint32_t cut, uint32_t more)
{
	const uint32_t cap = draft->length > cut ? draft->length - cut : 0;
	uint8_t *bytes = malloc(cap ? cap : 1);

	check(bytes, "memory suffices");
	memcpy(bytes, draft->bytes, cap);
	return (struct weir_frame){.data = bytes, .cap = cap, .len = draft->length + more};
}

static struct weir_frame read_frame(struct input *input, uint32_t link, uint32_t form, uint64_t time_ns)
{
	struct draft draft = {.length = 0};
	const bool is_cut = form >> 6 == 3;

	if (form >> 4 < proxied_forms)
		put_proxied(&draft, input, &one_by_one.head, link, time_ns);
	else if (form >> 4 == 11)
		put_input(&draft, input, input_byte(input));
	else if (form >> 4 == 10)
		put_syn(&draft, link, input_word(input, 2));
	else
		put_packet(&draft, input, link);
	return frame_of(&draft, is_cut ? input_byte(input) & 63 : 0, form >> 4 == 9 ? input_byte(input) : 0);
}

/* A number of SYNs, or a packet for each byte that says when it follows and what it is. */
static void read_burst(struct input *input, struct packets *packets, uint64_t *clock_ns)
{
	const uint8_t size = input_byte(input), form = input_byte(input);
	const bool is_flood = form >> 3 == 1;
	const uint32_t number = is_flood ? input_word(input, 2) : 0;

	packets->count = size < 128 ? 1 + size % 4 : 1 + size % WEIR_BURST_MAX;
	packets->link = form & 3;
	packets->is_stateful = !(form >> 2 & 1);
	packets->from = form >> 4 & 1 ? FROM_INSIDE : FROM_OUTSIDE;
	for (uint32_t i = 0; i < packets->count; i++) {
		struct draft draft = {.length = 0};

		*clock_ns += (uint64_t)(input_pause_ms(input, i ? pause_max_ms : INT64_MAX) * MILLISECOND_NS);
		packets->times_ns[i] = *clock_ns;
		if (is_flood) {
			put_syn(&draft, packets->link, number + i);
			packets->frames[i] = frame_of(&draft, 0, 0);
		} else {
			packets->frames[i] = read_frame(input, packets->link, input_byte(input), *clock_ns);
		}
	}
}

/* Decides packets of a burst. */
static void decide_packets(struct run *run, const struct packets *packets, uint32_t from, uint32_t count)
{
	const struct weir_burst burst = {
		.frames = packets->frames + from,
		.verdicts = run->verdicts + from,
		.count = count,
		.link = packets->link,
		.times = {.now_ns = packets->times_ns[from], .each_ns = packets->times_ns + from},
		.counters = {run->counters},
		.flows = {.head = &run->head,
			  .buckets = run->buckets,
			  .shared = run->is_shared,
			  .proxied = proxied_flows(&run->proxied)},
		.rewrites = {proxied_rewrites(&run->proxied, from)},
	};

	if (packets->is_stateful)
		chain_stateful(&burst, packets->from);
	else
		chain_accepting(&burst, packets->from);
}

static void decide_one(struct run *run, const struct packets *packets, uint32_t i)
{
	uint32_t reason;

	memcpy(before, run->buckets, sizeof(before));
	decide_packets(run, packets, i, 1);
	check_table(&run->head, run->buckets);
	check_rewritten(&run->proxied, &packets->frames[i], packets->link, i, run->verdicts[i]);
	reason = run->verdicts[i] >> 16;
	check_changes(&run->head, before, run->buckets, reason >= REASON_BAD_FLAGS && reason <= REASON_STATE_FULL);
}

/* Compares the results of a burst with the results of its packets one by one. */
static void compare(const struct run *packets, const struct run *burst, uint32_t count, const char *how)
{
	const bool verdicts = !memcmp(packets->verdicts, burst->verdicts, count * sizeof(packets->verdicts[0]));
	const bool counters = !memcmp(packets->counters, burst->counters, sizeof(packets->counters));
	const bool tables = !memcmp(packets->buckets, burst->buckets, sizeof(packets->buckets));
	const bool clocks = packets->head.clock == burst->head.clock;
	const bool rewrites = same_proxied(&packets->proxied, &burst->proxied, packets->verdicts, count) &&
			      !memcmp(&packets->head.cookies_made, &burst->head.cookies_made, sizeof(uint64_t)) &&
			      !memcmp(&packets->head.syns, &burst->head.syns, sizeof(packets->head.syns));

	if (verdicts && counters && tables && clocks && rewrites)
		return;
	fprintf(stderr, "a burst %s has other %s than its packets\n", how,
		!verdicts   ? "verdicts"
		: !counters ? "counters"
		: !tables   ? "flows"
		: !clocks   ? "times"
			    : "rewritten packets");
	abort();
}

static void decide_burst(const struct packets *packets)
{
	for (uint32_t i = 0; i < packets->count; i++)
		decide_one(&one_by_one, packets, i);
	decide_packets(&alone, packets, 0, packets->count);
	compare(&one_by_one, &alone, packets->count, "as the only worker");
	decide_packets(&among_others, packets, 0, packets->count);
	check_table(&among_others.head, among_others.buckets);
	compare(&one_by_one, &among_others, packets->count, "as one of several workers");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, data + size};
	uint64_t clock_ns = UINT64_C(1) << 62;
	struct packets packets;

	read_settings(&input);
	for (uint32_t bursts = 0; bursts < BURSTS_MAX && input.at < input.end; bursts++) {
		read_burst(&input, &packets, &clock_ns);
		decide_burst(&packets);
		for (uint32_t i = 0; i < packets.count; i++)
			free((void *)packets.frames[i].data);
	}
	return 0;
}
