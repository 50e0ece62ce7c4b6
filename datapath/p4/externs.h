/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the extern objects of a P4 program do: counters, lookups, samples and raw bits. Limits are in p4/limits.h,
 * tables that change or count in p4/tables.h.
 *
 * With a stage clock (core/env_native.h), lookups are its stage of lookups and counters its stage of rules. The rest of
 * a packet's cycles is in the pipeline itself.
 *
 * A program has a function of two or three lines for each object, which calls one of these with its constants. The
 * structs are the mailboxes: fields in the byte order of the machine, without padding.
 */
#ifndef WEIR_P4_EXTERNS_H
#define WEIR_P4_EXTERNS_H

#include "core/env.h"
#include "core/raw.h"
#include "core/verdict.h"
#include "p4/program.h"

#define P4_MAILBOX __attribute__((packed))

struct p4_count {
	uint32_t reason;
	uint32_t length;
} P4_MAILBOX;

struct p4_find4 {
	uint32_t key;
	uint32_t found;
} P4_MAILBOX;

struct p4_find6 {
	uint64_t hi;
	uint64_t lo;
	uint32_t found;
} P4_MAILBOX;

struct p4_sampled {
	uint8_t sampled;
} P4_MAILBOX;

struct p4_raw {
	uint32_t packet;
	uint16_t offset; /* of the header from whose start the bits are counted, in the frame */
	uint64_t hi;
	uint64_t lo;
	uint8_t present;
} P4_MAILBOX;

WEIR_INLINE const struct env *p4_env(const void *worker)
{
	return &((const struct p4_worker *)worker)->env;
}

WEIR_INLINE const struct weir_burst *p4_burst(const void *worker)
{
	return ((const struct p4_worker *)worker)->burst;
}

WEIR_INLINE int p4_count(const void *worker, const void *mailbox)
{
	const struct p4_count *mail = mailbox;
	const uint64_t start = stage_start();

	count(p4_env(worker), mail->reason, mail->length);
	stage_end(STAGE_RULES, start);
	return 1;
}

/* Looks up an IPv4 address in the table of a slot, by the function of its layout. */
WEIR_INLINE int p4_find4(const void *worker, void *mailbox, uint32_t slot, uint32_t (*find)(struct table, uint32_t))
{
	struct p4_find4 *mail = mailbox;
	const uint64_t start = stage_start();

	mail->found = find(WEIR_TABLE(p4_env(worker), slot), mail->key);
	stage_end(STAGE_LOOKUP, start);
	return 1;
}

WEIR_INLINE int p4_find6(const void *worker, void *mailbox, uint32_t slot,
			 uint32_t (*find)(struct table, uint64_t, uint64_t))
{
	struct p4_find6 *mail = mailbox;
	const uint64_t start = stage_start();

	mail->found = find(WEIR_TABLE(p4_env(worker), slot), mail->hi, mail->lo);
	stage_end(STAGE_LOOKUP, start);
	return 1;
}

/* Decides whether to sample the packet that the rule has just counted. */
WEIR_INLINE int p4_sample(const void *worker, void *mailbox, uint32_t rule, uint64_t below)
{
	struct p4_sampled *mail = mailbox;

	mail->sampled = sample(p4_env(worker), rule, below) != 0;
	return 1;
}

/* Reads `bits` bits that begin at bit `first` of byte `byte` behind the offset. */
WEIR_INLINE int p4_raw(const void *worker, void *mailbox, uint32_t byte, uint32_t first, uint32_t bits)
{
	struct p4_raw *mail = mailbox;
	const struct frame frame = burst_frame(p4_burst(worker), mail->packet);
	struct wide raw = {0, 0};

	mail->present = raw_bits(&frame, mail->offset + byte, first, bits, &raw);
	mail->hi = raw.hi;
	mail->lo = raw.lo;
	return 1;
}

#endif
