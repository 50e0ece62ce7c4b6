/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The extern objects of tables to which rules add addresses, and of tables that count at their entries. */
#ifndef WEIR_P4_TABLES_H
#define WEIR_P4_TABLES_H

#include "p4/externs.h"
#include "tables/entry_counter.h"

struct p4_add4 {
	uint32_t packet;
	uint32_t key;
} P4_MAILBOX;

struct p4_add6 {
	uint32_t packet;
	uint64_t hi;
	uint64_t lo;
} P4_MAILBOX;

struct p4_label {
	uint32_t number; /* of an entry, 0 for none */
	uint32_t label;
} P4_MAILBOX;

/* A packet that a rule matches by an entry for the first time. */
struct p4_hit {
	uint32_t number;
	uint32_t length;
	uint64_t time;
} P4_MAILBOX;

/* The engine has room for every addition of a burst. */
WEIR_INLINE int p4_add(const void *worker, struct weir_addition addition)
{
	const struct burst_additions *additions = &p4_burst(worker)->additions;

	additions->records[(*additions->count)++] = addition;
	return 1;
}

WEIR_INLINE int p4_add4(const void *worker, const void *mailbox, uint32_t adder, uint32_t mask)
{
	const struct p4_add4 *mail = mailbox;

	return p4_add(worker, (struct weir_addition){0, mail->key & mask, adder, mail->packet});
}

WEIR_INLINE int p4_add6(const void *worker, const void *mailbox, uint32_t adder, uint64_t mask_hi, uint64_t mask_lo)
{
	const struct p4_add6 *mail = mailbox;

	return p4_add(worker, (struct weir_addition){mail->hi & mask_hi, mail->lo & mask_lo, adder, mail->packet});
}

WEIR_INLINE int p4_label(const void *worker, void *mailbox, uint32_t slot)
{
	struct p4_label *mail = mailbox;

	mail->label = p4_burst(worker)->entries.tables[slot].labels[mail->number];
	return 1;
}

WEIR_INLINE int p4_hit(const void *worker, const void *mailbox, uint32_t slot)
{
	const struct p4_hit *mail = mailbox;
	struct entry_counter *counters = p4_burst(worker)->entries.tables[slot].counters;

	entry_add(&counters[mail->number], 1, mail->length, mail->time >> ENTRY_TIME_SHIFT);
	return 1;
}

#endif
