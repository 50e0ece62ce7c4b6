/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What holds of a table of flows after each packet (docs/reference/tracking.md#the-table). The file that includes this
 * one declares `tracking`.
 */
#ifndef C_TRACKER_INVARIANTS_H
#define C_TRACKER_INVARIANTS_H

#include "track/burst.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the run if something does not hold. */
static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "it does not hold that %s\n", what);
	abort();
}

static bool is_zero(const uint64_t *words, uint32_t count)
{
	uint64_t any = 0;

	for (uint32_t i = 0; i < count; i++)
		any |= words[i];
	return !any;
}

static struct flow_key key_of(const uint64_t *entry)
{
	struct flow_key key = {.is_ipv6 = status_bit(entry[FLOW_STATUS], STATUS_IPV6)};

	memcpy(key.words, entry, sizeof(key.words));
	return key;
}

/* An IPv4 address is the low half of a word. */
static void check_key(const uint64_t *entry)
{
	const struct flow_key key = key_of(entry);
	const uint64_t *words = key.words;

	check(key.is_ipv6 || (!words[0] && !words[2] && words[1] <= UINT32_MAX && words[3] <= UINT32_MAX),
	      "IPv4 addresses have 32 bits");
}

static void check_state(const uint64_t *entry)
{
	const uint64_t status = entry[FLOW_STATUS];
	const uint32_t state = status_state(status), protocol = entry[4] >> 24 & 0xff;

	check(state >= FLOW_SYN_SENT, "a flow has a state");
	check((protocol == PROTO_TCP) == (state < FLOW_UNREPLIED || state == FLOW_RESTORED),
	      "the state is one of the protocol");
	check(!status_bit(status, STATUS_LOCK), "no flow stays locked");
	check((state == FLOW_UNREPLIED) != status_bit(status, STATUS_REPLIED) || protocol == PROTO_TCP,
	      "the state says whether the flow was answered");
	for (uint32_t side = 0; side < 2; side++)
		check((status >> (STATUS_WINDOW + 8 * side) & 0xff) <= window_of(WINDOW_MAX),
		      "a window has 2^30 bytes");
}

static uint32_t count_of(const struct flow_bucket *bucket, uint32_t class)
{
	return (uint32_t)__builtin_popcount(entries_of(bucket, class));
}

/* Whether a class has no more flows in a bucket than its share, or than before. */
static bool keeps_share(const struct flow_bucket *before, const struct flow_bucket *after, uint32_t class)
{
	const uint32_t share = class == FLOW_EMBRYONIC ? tracking.embryonic_max : tracking.unproven_max;
	const uint32_t had = count_of(before, class);

	return count_of(after, class) <= (had > share ? had : share);
}

static void check_entry(const struct flow_head *head, const struct flow_bucket *buckets, uint32_t number,
			uint32_t index)
{
	const uint64_t *entry = buckets[number].entries[index];
	const uint32_t tag = buckets[number].tags[index];
	struct flow_key key;
	struct flow_hash hash;

	if (!tag) {
		check(is_zero(entry, FLOW_ENTRY_WORDS), "a free entry is empty");
		return;
	}
	key = key_of(entry);
	hash = flow_hash(head, &key);
	check((tag & TAG_HASH) == hash.tag, "the tag is that of the key");
	check(tag >> TAG_CLASS_SHIFT == status_class(entry[FLOW_STATUS]), "the tag says the class");
	check(number == hash.bucket[0] || number == hash.bucket[1], "a flow is in one of its buckets");
	check_key(entry);
	check_state(entry);
	for (uint32_t which = 0; which < 2; which++) {
		const struct flow_bucket *bucket = &buckets[hash.bucket[which]];

		for (uint32_t other = 0; other < FLOW_ENTRIES; other++)
			check((number == hash.bucket[which] && index == other) || bucket->tags[other] == 0 ||
				      !key_equals(bucket->entries[other], &key),
			      "a key is in the table once");
	}
}

/* Checks a table. */
static void check_table(const struct flow_head *head, const struct flow_bucket *buckets)
{
	for (uint32_t number = 0; number < head->buckets; number++)
		for (uint32_t index = 0; index < FLOW_ENTRIES; index++)
			check_entry(head, buckets, number, index);
	for (uint32_t lock = 0; lock < OPENING_LOCKS; lock++)
		check(!(head->opening[lock] & FLOW_LOCK), "no key stays locked");
}

/* Checks what one packet changed of an entry, whose word or tag differs. Returns whether it has a new flow. */
static bool check_change(const struct flow_bucket *before, const struct flow_bucket *after, uint32_t index,
			 uint32_t now, bool is_refused)
{
	const uint64_t *old = before->entries[index], *new = after->entries[index];
	const bool was_used = before->tags[index], is_used = after->tags[index];
	const uint32_t class = after->tags[index] >> TAG_CLASS_SHIFT;
	const bool was_proven = was_used && before->tags[index] >> TAG_CLASS_SHIFT == FLOW_PROVEN;
	const bool had_expired = was_used && flow_expired(old, &tracking.timeouts, now);
	const struct flow_key key = key_of(new);

	check(!is_refused || (!is_used && had_expired), "a refused packet changes no flow");
	if (is_used && was_used && key_equals(old, &key))
		return false;
	check(!was_proven || had_expired || !is_used, "no proven flow makes room");
	check(!is_used || status_time(new[FLOW_STATUS]) == now, "a new flow has the time of its packet");
	check(!is_used || class == FLOW_EMBRYONIC || class == FLOW_UNPROVEN, "a new flow has proven nothing");
	return is_used;
}

/* Checks what one packet changed of a table. */
static void check_changes(const struct flow_head *head, const struct flow_bucket *before,
			  const struct flow_bucket *after, bool is_refused)
{
	const uint32_t now = (uint32_t)head->clock & (FLOW_TICKS - 1);
	uint32_t entered = 0, lost = 0;

	for (uint32_t number = 0; number < head->buckets; number++) {
		const struct flow_bucket *old = &before[number], *new = &after[number];
		uint32_t entered_here = 0;

		if (!memcmp(old, new, sizeof(*old)))
			continue;
		for (uint32_t index = 0; index < FLOW_ENTRIES; index++) {
			const bool differs =
				old->tags[index] != new->tags[index] ||
				memcmp(old->entries[index], new->entries[index], sizeof(old->entries[index]));

			if (!differs)
				continue;
			entered_here += check_change(old, new, index, now, is_refused);
			lost += old->tags[index] && !flow_expired(old->entries[index], &tracking.timeouts, now) &&
				memcmp(old->entries[index], new->entries[index], 8 * FLOW_KEY_WORDS);
		}
		check(!entered_here || (keeps_share(old, new, FLOW_EMBRYONIC) && keeps_share(old, new, FLOW_UNPROVEN)),
		      "new flows take no more than their share");
		entered += entered_here;
	}
	check(entered <= 1 && lost <= 1, "a packet enters one flow at most, and evicts or ends one");
}

#endif
