/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Checksums that a sender left to the card (CHECKSUM_PARTIAL). A virtual wire has no card, and what the kernel knows of
 * such a packet is lost when a program redirects it: the receiver would drop it.
 *
 * What the sender left in the checksum's place is the sum of the pseudo header (RFC 9293, section 3.1). A packet that
 * has it there gets the checksum that belongs there; one that has both, once in 65535, is not changed by that. TCP and
 * UDP behind IPv4 and IPv6; not what lies in tunnels. The same for engines in user space:
 * crates/engine/src/live/checksum.rs.
 */
#ifndef WEIR_CHECKSUM_H
#define WEIR_CHECKSUM_H

#include "kernel.h"
#include "mode.h"
#include "packet.h"

enum {
	SUM_BYTES = 128, /* summed up at a time */
	TCP_CHECKSUM_AT = 16,
	UDP_CHECKSUM_AT = 6,
};

/*
 * Memory to work in, one a CPU, for the stack is the calling program's: it may have filled it. The engine makes the
 * section as long as that.
 */
struct checksum_slot {
	struct packet packet;
	uint8_t zero[32];
	uint64_t words[SUM_BYTES / 8];
};

_Static_assert(sizeof(struct checksum_slot) == 256, "ChecksumSlot in crates/abi/src/kernel.rs");

struct checksum_slot weir_checksums[1] __attribute__((aligned(64))) WEIR_SECTION(".bss.checksums");

/* Where a packet's addresses are; the transport header and what follows it; the checksum. */
struct summed {
	uint32_t addresses;
	uint32_t address_bytes;
	uint32_t at;
	uint32_t bytes;
	uint32_t field;
	uint32_t proto;
};

/* Folds a sum of 16-bit words to one, carries added. */
WEIR_INLINE uint16_t sum_fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* A sum on its way through a packet. */
struct sum {
	struct xdp_md *ctx;
	uint64_t *words;
	uint32_t at;
	uint32_t sum;
	bool failed;
};

/* Adds the next SUM_BYTES of the packet; whether to stop. */
static int sum_step(uint32_t step, struct sum *sum)
{
	(void)step;
	sum->failed = bpf_xdp_load_bytes(sum->ctx, sum->at, sum->words, SUM_BYTES) != 0;
	sum->sum = (uint32_t)bpf_csum_diff(NULL, 0, (uint32_t *)sum->words, SUM_BYTES, sum->sum);
	sum->at += SUM_BYTES;
	return sum->failed;
}

/* What weir_sum() returns where bytes are not there. */
#define SUM_NONE (1ull << 32)

/*
 * Adds bytes of the packet, which may be in several buffers, to a sum. This and what follows are functions of their
 * own, which the verifier looks at once, whatever ways lead to them.
 */
__attribute__((noinline)) uint64_t weir_sum(struct xdp_md *ctx, uint32_t at, uint32_t bytes, uint32_t start)
{
	uint64_t *words = weir_checksums[live_cpu()].words;
	struct sum sum = {.ctx = ctx, .words = words, .at = at, .sum = start};
	uint32_t rest = bytes % SUM_BYTES;

	if (bytes >= SUM_BYTES)
		bpf_loop(bytes / SUM_BYTES, sum_step, &sum, 0);
	__builtin_memset(words, 0, SUM_BYTES);
	/* The verifier forgets what it knew of a number that the compiler computed anew. */
	__asm__ volatile("" : "+r"(rest));
	if (rest && rest < SUM_BYTES)
		sum.failed |= bpf_xdp_load_bytes(ctx, sum.at, words, rest) != 0;
	if (sum.failed)
		return SUM_NONE;
	return (uint32_t)bpf_csum_diff(NULL, 0, (uint32_t *)words, SUM_BYTES, sum.sum);
}

/* Parses the packet into the slot: enum reason. */
__attribute__((noinline)) int weir_parse_sums(struct xdp_md *ctx)
{
	const uint32_t len = (uint32_t)bpf_xdp_get_buff_len(ctx);
	const struct frame frame = {
		.data = context_data(ctx),
		.end = context_end(ctx),
		.ctx = ctx,
		.cap = len,
		.len = len,
		.link = LINK_ETHERNET,
	};

	return (int)parse_any(&frame, &weir_checksums[live_cpu()].packet);
}

/* Whether the packet is of a kind that has such a checksum, and where. */
WEIR_INLINE bool summed_of(const struct packet *packet, struct summed *summed)
{
	const bool tcp = packet->l4 == L4_TCP;

	/* A sender finishes the checksum of what it parts, and of what travels by a route of its own. */
	if ((!tcp && packet->l4 != L4_UDP) || packet->fragment != FRAGMENT_NONE || (packet->ext & EXT_RT))
		return false;
	*summed = (struct summed){
		.addresses = packet->l3_offset + (packet->l3 == L3_IPV4 ? 12u : 8u),
		.address_bytes = packet->l3 == L3_IPV4 ? 8 : 32,
		.at = packet->l4_offset,
		.bytes = packet->l4_length,
		.field = packet->l4_offset + (tcp ? TCP_CHECKSUM_AT : UDP_CHECKSUM_AT),
		.proto = packet->proto,
	};
	return true;
}

/* Finishes the checksum of a packet if its sender did not. */
__attribute__((noinline)) int weir_finish_checksum(struct xdp_md *ctx)
{
	struct checksum_slot *slot = &weir_checksums[live_cpu()];
	struct summed summed;
	uint16_t field;
	uint64_t sum;

	if (weir_parse_sums(ctx) != REASON_NONE || !summed_of(&slot->packet, &summed))
		return 0;
	sum = (uint32_t)__builtin_bswap16((uint16_t)summed.bytes) + __builtin_bswap16((uint16_t)summed.proto);
	sum = weir_sum(ctx, summed.addresses, summed.address_bytes, (uint32_t)sum);
	if (sum == SUM_NONE || bpf_xdp_load_bytes(ctx, summed.field, &field, sizeof(field)) ||
	    field != sum_fold((uint32_t)sum))
		return 0;
	sum = weir_sum(ctx, summed.at, summed.bytes, 0);
	if (sum == SUM_NONE)
		return 0;
	field = (uint16_t)~sum_fold((uint32_t)sum);
	/* 0 says that there is none (RFC 768). */
	if (summed.proto == PROTO_UDP && !field)
		field = 0xffff;
	bpf_xdp_store_bytes(ctx, summed.field, &field, sizeof(field));
	return 0;
}

#endif
