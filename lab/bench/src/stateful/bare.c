/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bare access to the table of flows. `stateful` compares tracking with it. The headers of a burst of TCP segments
 * are at known places. The keys are hashed, found and compared whole, and one line of each flow is written. There is
 * neither a parser nor a judgement.
 */
#include "core/env.h"
#include "core/verdict.h"
#include "track/tcp_states.h"

static const struct tracking tracking = {.timeouts = {.of = {[CLASS_TCP * FLOW_STATES + FLOW_ESTABLISHED] = 1 << 27}}};

#include "track/burst.h"

const uint32_t weir_abi_version = WEIR_ABI_VERSION;

static void read_key(const struct weir_frame *frame, struct flow_key *key)
{
	const uint8_t *ip = frame->data + ETHERNET_BYTES;
	const uint32_t source = be32(ip + 12), destination = be32(ip + 16);
	const uint32_t sport = be16(ip + 20), dport = be16(ip + 22);
	const bool swap = source > destination;

	key->words[0] = 0;
	key->words[1] = swap ? destination : source;
	key->words[2] = 0;
	key->words[3] = swap ? source : destination;
	key->words[4] = key_word(swap ? dport : sport, swap ? sport : dport, PROTO_TCP, 0, 0);
	key->is_ipv6 = 0;
}

void weir_upstream(const struct weir_burst *burst)
{
	const struct env env = {.counters = burst->counters, .tables = burst->tables, .flows = burst->flows};
	struct flow_key keys[WEIR_BURST_MAX];
	struct flow_hash hashes[WEIR_BURST_MAX];
	const uint64_t time = burst->times.now_ns >> FLOW_TICK_SHIFT & (FLOW_TICKS - 1);

	for (uint32_t i = 0; i < burst->count; i++) {
		read_key(&burst->frames[i], &keys[i]);
		hashes[i] = flow_hash(env.flows.head, &keys[i]);
		__builtin_prefetch(flow_bucket(&env, hashes[i].bucket[0]));
		__builtin_prefetch(flow_bucket(&env, hashes[i].bucket[1]));
	}
	for (uint32_t i = 0; i < burst->count; i++) {
		for (uint32_t b = 0; b < 2; b++) {
			const struct flow_bucket *bucket = flow_bucket(&env, hashes[i].bucket[b]);
			const uint32_t entries = entries_with(bucket, TAG_HASH, hashes[i].tag);

			if (entries) {
				__builtin_prefetch(bucket->entries[first_entry(entries)]);
				break;
			}
		}
	}
	for (uint32_t i = 0; i < burst->count; i++) {
		burst->verdicts[i] = (uint32_t)ACTION_DROP | (uint32_t)REASON_NO_STATE << 16;
		for (uint32_t b = 0; b < 2; b++) {
			struct flow_bucket *bucket = flow_bucket(&env, hashes[i].bucket[b]);
			const uint32_t index = flow_find_in(&env, bucket, hashes[i].tag, &keys[i]);

			if (index == FLOW_ENTRIES)
				continue;
			bucket->entries[index][FLOW_STATUS] =
				(bucket->entries[index][FLOW_STATUS] & ~(uint64_t)(FLOW_TICKS - 1)) | time;
			burst->verdicts[i] = (uint32_t)ACTION_ACCEPT | (uint32_t)REASON_NO_MATCH << 16;
			break;
		}
	}
}
