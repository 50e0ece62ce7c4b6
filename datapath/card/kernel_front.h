/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The programs on interfaces behind a card (docs/reference/card-layout.md). They compare the last eight bytes of each
 * frame with the seals that the engine has written, remove the trailer, and jump to the chain: the one that reads
 * answers, or the plain one. Frames without a seal are dropped. The card's answers to control frames are passed to the
 * kernel, for the session that asked. crates/engine/src/sealed.rs does the same for workers.
 *
 * Chains see packets without trailers, and these programs see no headers. So neither makes the other harder to verify.
 */
#ifndef WEIR_CARD_KERNEL_FRONT_H
#define WEIR_CARD_KERNEL_FRONT_H

#include "card/kernel_answers.h"
#include "kernel/ports.h"

#ifdef WEIR_ANSWERS

enum {
	CARD_SEALS_MAX = 16,
	CARD_SEAL_BYTES = 8,
	CARD_FRAME_MASK = 0x3fff, /* longer frames are not in one buffer */
};

/* What a frame is: the same in crates/abi/src/kernel.rs. */
enum card_kind {
	CARD_ANSWERED = 0,
	CARD_ALONE = 1,
	CARD_CONTROL = 2,
	CARD_UNSEALED = 3,
};

/* A seal, what has it, and the bytes of its trailer: CardSeal in crates/abi/src/kernel.rs. */
struct card_seal {
	uint64_t word;
	uint32_t kind;
	uint32_t trailer;
};

/* The seals of a port: CardSeals in crates/abi/src/kernel.rs. */
struct card_seals {
	uint32_t count;
	uint32_t without; /* what a frame without a seal is */
	uint32_t zero[2];
	struct card_seal seals[CARD_SEALS_MAX];
};

/*
 * By port, twice: the engine writes the half that is not read, and then selects it. CardPorts in
 * crates/abi/src/kernel.rs.
 */
struct card_ports {
	uint32_t half;
	uint32_t zero[15];
	struct card_seals port[2][PORTS_MAX];
};

_Static_assert(sizeof(struct card_seals) == 272, "CardSeals");
_Static_assert(sizeof(struct card_ports) == 64 + 2 * 64 * 272, "CardPorts");

struct card_ports weir_card WEIR_SECTION(".bss.card");

/* The programs of chains, by the number of the chain; filled in by the engine. */
struct {
	int (*type)[BPF_MAP_TYPE_PROG_ARRAY];
	int (*max_entries)[WEIR_CHAINS];
	int (*key_size)[sizeof(uint32_t)];
	int (*value_size)[sizeof(uint32_t)];
} weir_chains WEIR_SECTION(".maps");

/* The last `bytes` of a frame in one buffer; NULL if it has fewer. */
WEIR_INLINE const uint8_t *frame_tail(const hook_context *ctx, uint32_t bytes)
{
	const uint8_t *data = context_data(ctx), *end = context_end(ctx), *at;
	uint64_t offset = (uint64_t)(end - data) - bytes;

	__asm__ volatile("" : "+r"(offset));
	if (offset > CARD_FRAME_MASK)
		return NULL;
	at = data + offset;
	__asm__ volatile("" : "+r"(at));
	if (at + bytes > end)
		return NULL;
	return at;
}

/* What a frame is, and the bytes of its trailer. */
WEIR_INLINE struct card_seal card_receive(const hook_context *ctx, const struct card_seals *seals, uint32_t len)
{
	const struct card_seal none = {.kind = seals->without, .trailer = 0};
	const uint8_t *at = frame_tail(ctx, CARD_SEAL_BYTES);
	uint64_t word;

	/* The end of a frame in several buffers is not here. */
	if (!at || len != (uint32_t)(context_end(ctx) - context_data(ctx)))
		return none;
	word = (uint64_t)host32(at + 4) << 32 | host32(at);
	for (uint32_t i = 0; i < CARD_SEALS_MAX; i++) {
		const struct card_seal *seal = &seals->seals[i];

		if (i < seals->count && seal->word == word && seal->trailer <= len)
			return *seal;
	}
	return none;
}

/* Counts a frame by what it is. `len` is without its trailer. */
WEIR_INLINE void card_count(struct arrival arrival, enum reason counter, uint32_t len)
{
	const struct env env = {.counters = weir_counters + arrival.cpu * 2 * WEIR_COUNTERS};

	count(&env, counter, len);
}

/* Counts and drops a frame that is no packet. */
WEIR_INLINE uint32_t card_refuse(struct arrival arrival, enum reason reason, uint32_t len, uint32_t trailer)
{
	struct port_counters *counters = port_counters(arrival.cpu, arrival.port);

	card_count(arrival, reason, len - trailer);
	counters->rx_packets++;
	counters->rx_bytes += len;
	return reason == REASON_CARD_CONTROL ? XDP_PASS : XDP_DROP;
}

WEIR_INLINE uint32_t card_front(hook_context *ctx, uint32_t plain, uint32_t answered)
{
	const uint32_t half = *(volatile uint32_t *)&weir_card.half & 1;
	struct card_seal seal;
	struct arrival arrival;
	uint32_t len;

	if (WEIR_UNLIKELY(!port_arrival(ctx, &arrival)))
		return hook_refuse(ctx, 0);
	len = live_frame(ctx).len;
	seal = card_receive(ctx, &weir_card.port[half][arrival.port & (PORTS_MAX - 1)], len);
	if (WEIR_UNLIKELY(seal.kind == CARD_UNSEALED))
		return card_refuse(arrival, REASON_UNSEALED, len, 0);
	if (WEIR_UNLIKELY(seal.kind == CARD_CONTROL))
		return card_refuse(arrival, REASON_CARD_CONTROL, len, seal.trailer);
	if (WEIR_ANSWERS && seal.kind == CARD_ANSWERED) {
		const uint8_t *body = frame_tail(ctx, CARD_SEAL_BYTES + WEIR_ANSWERS);

		if (!body)
			return card_refuse(arrival, REASON_UNSEALED, len, 0);
		__builtin_memcpy(weir_answers[arrival.cpu].body, body, WEIR_ANSWERS);
	}
	/* The kernel refuses to leave less than a link header. No card sends that. */
	if (seal.trailer && bpf_xdp_adjust_tail(ctx, -(int32_t)(seal.trailer & 0xff)))
		return card_refuse(arrival, REASON_UNSEALED, len, 0);
	/* The chain counts the rest. */
	port_counters(arrival.cpu, arrival.port)->rx_bytes += seal.trailer;
	card_count(arrival, seal.kind == CARD_ANSWERED ? COUNTER_ANSWERED : COUNTER_ALONE, len - seal.trailer);
	bpf_tail_call(ctx, &weir_chains, seal.kind == CARD_ANSWERED ? answered : plain);
	return HOOK_LOST;
}

/* Defines the program weir_front_<plain> for interfaces behind a card, by the numbers of the chains. */
#define WEIR_CARD_FRONT(plain, answered)                                                                               \
	WEIR_SECTION(HOOK_SECTION) uint32_t weir_front_##plain(hook_context *ctx)                                      \
	{                                                                                                              \
		return card_front(ctx, plain, answered);                                                               \
	}

#endif
#endif
