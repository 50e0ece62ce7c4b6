/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The extern object of a slot: rules that change while packets pass. They decide the packet as a burst of one. */
#ifndef WEIR_P4_SLOTS_H
#define WEIR_P4_SLOTS_H

#include "p4/externs.h"
#include "slots/burst.h"

struct p4_slot {
	uint32_t packet;
	uint32_t length;
	uint8_t drops; /* whether a rule of the slot drops the packet */
} P4_MAILBOX;

WEIR_INLINE int p4_slot(const void *worker, void *mailbox, uint32_t number)
{
	struct p4_slot *mail = mailbox;
	const struct weir_burst *burst = p4_burst(worker);
	struct rule_slot *slot = burst->slots.slots[number];
	const uint64_t active = __atomic_load_n(&slot->active, __ATOMIC_ACQUIRE), hit = UINT64_C(1) << mail->packet;
	struct verdicts verdicts;

	mail->drops = 0;
	if (WEIR_LIKELY(!(uint32_t)active))
		return 1;
	verdicts.lens[mail->packet] = mail->length;
	mail->drops = slot_rules(burst, &verdicts, slot, active, hit) != 0;
	return 1;
}

#endif
