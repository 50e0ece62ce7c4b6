/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Whether SYNs are answered: a threshold with hysteresis, in seconds of the packets' time. The reference is
 * crates/policy/src/ir/eval/tracking/switch.rs.
 *
 * All CPUs share a switch. Beyond the threshold nothing is counted any more in that second, so a flood does not make
 * them write one cache line.
 */
#ifndef WEIR_PROXY_SYN_SWITCH_H
#define WEIR_PROXY_SYN_SWITCH_H

#include "track/flow_bucket.h"

#define SECOND_NS UINT64_C(1000000000)

/* When the proxy answers: Threshold in crates/policy/src/tracking.rs. */
struct syn_threshold {
	bool is_set; /* otherwise it always does */
	uint32_t on; /* SYNs in a second */
	uint32_t off;
	uint32_t calm_s;
};

/* Whether enough calm seconds have passed, so that an earlier flood is over. */
WEIR_INLINE bool switch_is_calm(uint64_t calm_from, uint64_t second, const struct syn_threshold *threshold)
{
	return calm_from <= second && second - calm_from >= threshold->calm_s;
}

/* Begins a second. */
WEIR_INLINE void switch_begin(volatile struct syn_switch *syns, uint64_t last, uint64_t second,
			      const struct syn_threshold *threshold)
{
	/* One CPU does it. Counts of others that come between are lost, few of many. */
	if (!__sync_bool_compare_and_swap(&syns->second, last, second))
		return;
	if (syns->count >= threshold->off)
		syns->calm_from = last + 1;
	syns->count = 0;
}

/* Counts a SYN. Returns whether it is answered. */
WEIR_INLINE bool switch_counts(volatile struct syn_switch *syns, uint64_t time_ns,
			       const struct syn_threshold *threshold)
{
	uint64_t second = syns->second, count;
	const uint64_t now = time_ns / SECOND_NS;

	if (now > second) {
		switch_begin(syns, second, now, threshold);
		second = now;
	}
	if (syns->is_on && syns->count > threshold->on)
		return true;
	count = __sync_fetch_and_add(&syns->count, 1) + 1;
	if (syns->is_on && switch_is_calm(syns->calm_from, second, threshold))
		syns->is_on = 0;
	if (count > threshold->on) {
		syns->calm_from = second + 1;
		syns->is_on = 1;
	}
	return syns->is_on;
}

/* Whether the next SYNs of a burst may be answered. */
WEIR_INLINE bool switch_may_answer(const volatile struct syn_switch *syns, const struct syn_threshold *threshold)
{
	return !threshold->is_set || syns->is_on || syns->count + WEIR_BURST_MAX > threshold->on;
}

/* Whether the next SYNs of a burst are treated alike, so that it does not matter which one is counted first. */
WEIR_INLINE bool switch_is_steady(const volatile struct syn_switch *syns, uint64_t time_ns,
				  const struct syn_threshold *threshold)
{
	const uint64_t second = syns->second;

	if (!threshold->is_set)
		return true;
	if (time_ns / SECOND_NS > second)
		return false;
	if (syns->is_on)
		return syns->count > threshold->on || !switch_is_calm(syns->calm_from, second, threshold);
	return syns->count + WEIR_BURST_MAX <= threshold->on;
}

#endif
