/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Taps: copies of decided packets for user space (crates/abi/src/tap.rs has the layout). All generations share the
 * taps, so they open and close while programs run. Without an open tap a packet costs one read of a word that nothing
 * writes. A packet that a tap wants and that is not one in so many costs one counter of the CPU.
 *
 * A tap gets a limited number of copies (`left`), which its reader renews. So the cost of packets that a tap wants is
 * bounded, and an attacker who sends only such packets gains nothing. A full ring loses copies. Both are counted.
 */
#ifndef WEIR_OBSERVE_KERNEL_TAP_H
#define WEIR_OBSERVE_KERNEL_TAP_H

#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "kernel/ports.h"
#include "core/verdict.h"
#include "observe/tap_head.h"

enum {
	TAPS = 4, /* all these are the same in crates/abi/src/tap.rs */
	TAP_BYTES_MAX = 9216,
	TAP_RECORD_HEAD = 32,
	TAP_RING_BYTES = 4096, /* if it has no reader; the engine makes a larger one */
};

/* What a tap wants, and what it may still get. A cache line each, because `left` is written. */
struct tap {
	int64_t left;
	uint64_t skips;	  /* most packets that go by between two copies; 0: each packet is copied */
	uint64_t lets_by; /* `skips`; 0 if the tap tests headers, because it has to see each packet */
	uint32_t snap;
	uint32_t zero[9];
};

/* What a CPU counts for a tap: a cache line, because most packets write to no other one. */
struct tap_count {
	uint64_t matched;  /* without those that are excluded */
	uint64_t over;	   /* not copied: the tap has had enough */
	uint64_t lost;	   /* the ring was full */
	uint64_t excluded; /* the headers are not what the tap wants */
	uint64_t next;	   /* the next packet that is copied, as a number of `matched` */
	uint64_t zero[3];
};

struct tap_record {
	uint64_t at_ns;
	uint32_t verdict;
	uint32_t len;
	uint32_t cap;
	uint32_t policy;
	uint32_t epoch;
	uint8_t taps;
	uint8_t side;
	uint16_t port;
	uint8_t bytes[TAP_BYTES_MAX + 160]; /* a tag beside a packet has its place behind the last byte */
};

struct tap_cpu {
	struct tap_count count[TAPS];
	struct tap_head head;
	struct tap_record record;
};

struct taps {
	uint64_t open;	 /* epoch << 32 | 4 bits for each action and side: the open taps that want its packets */
	uint32_t wheres; /* bits of taps whose `headers` packets must be in */
	uint32_t zero[13];
	struct tap tap[TAPS];
	uint64_t zeros[8];
	struct tap_where headers[TAPS];
	struct tap_cpu cpu[1]; /* the engine makes the section longer: one for each CPU */
};

_Static_assert(sizeof(struct tap) == 64 && sizeof(struct tap_count) == 64, "Tap");
_Static_assert(sizeof(struct tap_cpu) == 9728 && offsetof(struct taps, cpu) == 896, "Taps");

struct taps weir_taps __attribute__((aligned(64))) WEIR_SECTION(".bss.taps");

struct {
	int (*type)[BPF_MAP_TYPE_RINGBUF];
	int (*max_entries)[TAP_RING_BYTES];
} weir_tap_ring WEIR_SECTION(".maps");

/* The word that says which taps are open. */
WEIR_INLINE uint64_t taps_open(void)
{
	return *(volatile uint64_t *)&weir_taps.open;
}

/* What a CPU writes. */
WEIR_INLINE struct tap_cpu *tap_cpu(uint32_t cpu)
{
	const uint32_t bounded_cpu = cpu & weir_mode.cpu_mask;

	return (struct tap_cpu *)((uint8_t *)weir_taps.cpu + plus(0, bounded_cpu * sizeof(struct tap_cpu)));
}

/* Bits of the open taps that want a packet with this verdict. */
WEIR_INLINE uint32_t taps_wanting(uint64_t open, uint32_t verdict, uint32_t side)
{
	const uint32_t reason = bounded(verdict >> 16, WEIR_COUNTERS - 1);
	const uint32_t kind = bounded(verdict, 3) * 2 + bounded(side, 1);

	return (uint32_t)open >> kind * TAPS & weir_words.taps[reason] & ((1 << TAPS) - 1);
}

/*
 * Whether a packet is one in so many, and counts it. Only a copy draws a number: as many packets go by until the next
 * one, at most `skips`. The mean is half of that (sFlow version 5, section 3.1). If more are left, the number is of an
 * earlier tap.
 */
WEIR_INLINE bool tap_chooses(const struct tap *tap, struct tap_count *count)
{
	const uint64_t left = count->next - count->matched++;

	if (left - 1 < tap->skips)
		return false;
	count->next = count->matched;
	if (tap->skips)
		count->next += bpf_get_prandom_u32() * (tap->skips + 1) >> 32;
	return true;
}

/* The number of the only bit in a word of TAPS bits. */
WEIR_INLINE uint32_t tap_number(uint32_t bit)
{
	return bounded((bit >> 1) - (bit >> 3), TAPS - 1);
}

/* Counts a packet for taps that want it. Returns those that choose it. */
WEIR_INLINE uint32_t taps_choosing(struct tap_cpu *own, uint32_t wanting)
{
	uint32_t left = wanting, chosen = 0;

	for (uint32_t i = 0; i < TAPS && left; i++) {
		const uint32_t bit = left & -left, at = tap_number(bit);

		chosen = forget(chosen | (tap_chooses(&weir_taps.tap[at], &own->count[at]) ? bit : 0));
		left = forget(left & ~bit);
	}
	return chosen;
}

/*
 * Counts a packet that only one tap wants and does not choose. False, and nothing is counted, if it is another packet.
 * One word of the CPU is written, without a call.
 */
WEIR_INLINE bool tap_lets_by(uint32_t cpu, uint32_t wanting)
{
	const uint32_t at = tap_number(wanting);
	struct tap_count *count = &tap_cpu(cpu)->count[at];
	const uint64_t matched = count->matched;

	if (wanting & (wanting - 1) || count->next - matched - 1 >= weir_taps.tap[at].lets_by)
		return false;
	count->matched = matched + 1;
	return true;
}

/* Takes a copy from what a tap may still get. Returns the bytes that the tap gets; 0 if it has had enough. */
WEIR_INLINE uint32_t tap_takes(uint32_t at, struct tap_count *count)
{
	struct tap *tap = &weir_taps.tap[at];

	/* The word is written only while there is something left, so CPUs do not contend for it in a flood. */
	if (*(volatile int64_t *)&tap->left <= 0 || __sync_fetch_and_add(&tap->left, -1) <= 0) {
		count->over++;
		return 0;
	}
	return tap->snap;
}

#ifdef WEIR_SENT
#define TAP_CONTEXT struct __sk_buff
#else
#define TAP_CONTEXT struct xdp_md
#endif

/* Copies the first bytes of a packet, 1 to TAP_BYTES_MAX. The hook defines it. */
WEIR_INLINE bool hook_copy(TAP_CONTEXT *ctx, uint8_t *to, uint32_t bytes);

/* Reads the headers of a packet that was copied to the CPU's record, `have` bytes of it. The verifier follows it once.
 */
WEIR_GLOBAL uint32_t weir_tap_head(uint32_t have, uint32_t cpu)
{
	struct tap_cpu *own = tap_cpu(cpu);

	tap_read_head(own->record.bytes, have, &own->head);
	return 0;
}

/* Whether the headers of the CPU's packet cannot be what a tap wants. Counts the packet then. */
WEIR_GLOBAL uint32_t weir_tap_excludes(uint32_t number, uint32_t cpu)
{
	const uint32_t at = bounded(number, TAPS - 1);
	struct tap_cpu *own = tap_cpu(cpu);

	if (!tap_excludes(&weir_taps.headers[at], &own->head))
		return 0;
	own->count[at].excluded++;
	return 1;
}

/* The taps that want a packet, without those that its headers exclude. */
WEIR_INLINE uint32_t taps_by_head(TAP_CONTEXT *ctx, uint32_t cpu, uint32_t wanting, uint32_t len)
{
	const uint32_t have = len < TAP_HEAD_BYTES ? len : TAP_HEAD_BYTES;
	uint32_t left = wanting;

	/* What cannot be read is left to the reader of the tap. */
	if (!hook_copy(ctx, tap_cpu(cpu)->record.bytes, have))
		return wanting;
	weir_tap_head(have, cpu);
	for (uint32_t i = 0; i < TAPS; i++) {
		const uint32_t asks = wanting & weir_taps.wheres & 1u << i;

		left = forget(asks && weir_tap_excludes(i, cpu) ? left & ~asks : left);
	}
	return left;
}

/* The taps that get a copy, and in `most` the bytes that one of them wants. */
WEIR_INLINE uint32_t taps_taking(struct tap_cpu *own, uint32_t wanting, uint32_t *most)
{
	const uint32_t chosen = taps_choosing(own, wanting);
	uint32_t takers = 0;

	*most = 0;
	for (uint32_t i = 0; i < TAPS; i++) {
		const uint32_t snap = chosen >> i & 1 ? tap_takes(i, &own->count[i]) : 0;

		takers = forget(takers | (uint32_t)(snap != 0) << i);
		*most = forget(snap > *most ? snap : *most);
	}
	return takers;
}

/* Copies a packet, as it was received or is sent, to the taps that want it. The verifier follows it once. */
WEIR_GLOBAL uint32_t weir_tap(TAP_CONTEXT *ctx, uint32_t verdict, uint32_t port, uint32_t len, uint32_t cpu)
{
	const uint64_t open = taps_open();
	const uint32_t side = weir_ports.port[bounded(port, PORTS_MAX - 1)].side;
	uint32_t wanting = taps_wanting(open, verdict, side);
	struct tap_cpu *own = tap_cpu(cpu);
	struct tap_record *record = &own->record;
	uint32_t takers, most;
	uint64_t before;

	if (wanting & weir_taps.wheres)
		wanting = taps_by_head(ctx, cpu, wanting, len);
	takers = taps_taking(own, wanting, &most);
	if (!takers)
		return 0;
	before = one_less(len < most ? len : most);
	if (before >= TAP_BYTES_MAX)
		return 0;
	record->at_ns = bpf_ktime_get_ns();
	record->verdict = verdict;
	record->len = len;
	record->policy = weir_words.policy;
	record->epoch = (uint32_t)(open >> 32);
	record->taps = (uint8_t)takers;
	record->side = (uint8_t)side;
	record->port = (uint16_t)port;
	record->cap = one_more(before);
	if (hook_copy(ctx, record->bytes, one_more(before)) &&
	    !bpf_ringbuf_output(&weir_tap_ring, record, TAP_RECORD_HEAD + one_more(before), BPF_RB_NO_WAKEUP))
		return 0;
	for (uint32_t i = 0; i < TAPS; i++)
		own->count[i].lost += takers >> i & 1;
	return 0;
}

/* Copies a packet to the taps that want it, if any is open. Packets that no tap gets are most: they cost no call. */
WEIR_INLINE void put_taps(TAP_CONTEXT *ctx, struct arrival arrival, uint32_t verdict, uint32_t len)
{
	const uint64_t open = weir_mode.taps ? taps_open() : 0;
	uint32_t wanting;

	if (!WEIR_UNLIKELY(open << 32))
		return;
	wanting = taps_wanting(open, verdict, weir_ports.port[bounded(arrival.port, PORTS_MAX - 1)].side);
	if (wanting && !tap_lets_by(arrival.cpu, wanting))
		weir_tap(ctx, verdict, arrival.port, len, arrival.cpu);
}

#endif
