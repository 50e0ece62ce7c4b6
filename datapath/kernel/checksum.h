/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Completes checksums that a sender left to the card (CHECKSUM_PARTIAL). A virtual link has no card. When a program
 * redirects such a packet, the kernel's mark of it is lost, and the receiver would drop the packet.
 *
 * Such a sender stores the sum of the pseudo header in the checksum field (RFC 9293, section 3.1). A packet with that
 * sum gets its correct checksum. In one packet of 65535 the sum is the correct checksum, and nothing changes. This
 * covers TCP and UDP over IPv4 and IPv6, but not inside tunnels. crates/engine/src/live/checksum.rs does the same in
 * user space.
 */
#ifndef WEIR_KERNEL_CHECKSUM_H
#define WEIR_KERNEL_CHECKSUM_H

#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "core/packet.h"

enum {
	SUM_BYTES = 128, /* bytes summed in one step */
	TCP_CHECKSUM_AT = 16,
	UDP_CHECKSUM_AT = 6,
};

/*
 * Working memory, one for each CPU. It is not on the stack, because the calling program may use all of the stack. The
 * engine makes the section long enough for all CPUs.
 */
struct cpu_checksum {
	struct packet packet;
	uint8_t zero[32];
	uint64_t words[SUM_BYTES / 8];
};

_Static_assert(sizeof(struct cpu_checksum) == 256, "CpuChecksum in crates/abi/src/kernel.rs");

struct cpu_checksum weir_checksums[1] __attribute__((aligned(64))) WEIR_SECTION(".bss.checksums");

/* The offsets of the addresses, the transport header and the checksum; the lengths of the first two. */
struct summed {
	uint32_t addresses;
	uint32_t address_bytes;
	uint32_t at;
	uint32_t bytes;
	uint32_t field;
	uint32_t proto;
};

/* Folds a sum of 16-bit words to one word, with the carries added. */
WEIR_INLINE uint16_t sum_fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* A running sum over a packet. */
struct sum {
	struct xdp_md *ctx;
	uint64_t *words;
	uint32_t at;
	uint32_t sum;
	bool failed;
};

/* Adds the next SUM_BYTES of the packet. Returns whether to stop. */
static long sum_step(uint32_t step, void *state)
{
	struct sum *sum = state;

	(void)step;
	sum->failed = bpf_xdp_load_bytes(sum->ctx, sum->at, sum->words, SUM_BYTES) != 0;
	sum->sum = (uint32_t)bpf_csum_diff(NULL, 0, (uint32_t *)sum->words, SUM_BYTES, sum->sum);
	sum->at += SUM_BYTES;
	return sum->failed;
}

/* Result of weir_sum() if the packet does not have the bytes. */
#define SUM_NONE (1ull << 32)

/*
 * Adds bytes of the packet, which may be in several buffers, to a sum. This function and those below are not inlined,
 * so the verifier follows each once, and not once for every path to it.
 */
__attribute__((noinline)) uint64_t weir_sum(struct xdp_md *ctx, uint32_t at, uint32_t bytes, uint32_t start)
{
	uint64_t *words = weir_checksums[live_cpu()].words;
	struct sum sum = {.ctx = ctx, .words = words, .at = at, .sum = start};
	uint64_t rest;

	if (bytes >= SUM_BYTES)
		repeat(bytes / SUM_BYTES, sum_step, &sum);
	__builtin_memset(words, 0, SUM_BYTES);
	rest = one_less(bytes % SUM_BYTES);
	if (rest < SUM_BYTES)
		sum.failed |= bpf_xdp_load_bytes(ctx, sum.at, words, one_more(rest)) != 0;
	if (sum.failed)
		return SUM_NONE;
	return (uint32_t)bpf_csum_diff(NULL, 0, (uint32_t *)words, SUM_BYTES, sum.sum);
}

/* Parses the packet into the CPU's memory. Returns an enum reason. */
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

/* Whether the packet has an incomplete checksum, and where. */
WEIR_INLINE bool summed_of(const struct packet *packet, struct summed *summed)
{
	const bool tcp = packet->l4 == L4_TCP;

	/* A sender completes the checksum itself if it fragments the packet or gives it a routing header. */
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

/* The sum of `words` words of four bytes, added to another. */
WEIR_INLINE uint64_t sum_words(const uint8_t *at, uint32_t words, uint64_t sum)
{
	for (uint32_t word = 0; word < words; word++)
		sum += host32(at + 4 * word);
	return sum;
}

/* Whether the field of a packet holds the sum of its pseudo header, given as a sum of fewer than 16 words. */
WEIR_INLINE bool is_pseudo_sum(const uint8_t *field, uint64_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	return be16(field) == __builtin_bswap16(sum_fold((uint32_t)sum));
}

/*
 * Whether the checksum may be incomplete. False for a plain packet (no tags, options or extension headers) whose
 * checksum differs from the sum of its pseudo header. This holds for almost all packets, which call no function.
 */
WEIR_INLINE bool may_be_unfinished(struct xdp_md *ctx)
{
	enum { IP = ETHERNET_BYTES, IPV4_END = IP + 20, IPV6_END = IP + 40 };
	const uint8_t *data = context_data(ctx);
	const uint8_t *end = context_end(ctx);
	uint16_t type;
	uint64_t sum;

	if (data + IPV4_END + UDP_CHECKSUM_AT + 2 > end)
		return true;
	type = be16(data + 12);
	if (type == ETHER_IPV4) {
		const uint8_t proto = data[IP + 9];

		if (data[IP] != 0x45)
			return true;
		sum = __builtin_bswap16((uint16_t)(be16(data + IP + 2) - 20));
		sum = sum_words(data + IP + 12, 2, sum + ((uint64_t)proto << 8));
		if (proto == PROTO_UDP)
			return is_pseudo_sum(data + IPV4_END + UDP_CHECKSUM_AT, sum);
		if (proto != PROTO_TCP || data + IPV4_END + TCP_CHECKSUM_AT + 2 > end)
			return proto == PROTO_TCP;
		return is_pseudo_sum(data + IPV4_END + TCP_CHECKSUM_AT, sum);
	}
	if (type == ETHER_IPV6) {
		const uint8_t proto = data[IP + 6];

		if ((proto != PROTO_UDP && proto != PROTO_TCP) || data + IPV6_END + TCP_CHECKSUM_AT + 2 > end)
			return true;
		sum = __builtin_bswap16(be16(data + IP + 4));
		sum = sum_words(data + IP + 8, 8, sum + ((uint64_t)proto << 8));
		if (proto == PROTO_UDP)
			return is_pseudo_sum(data + IPV6_END + UDP_CHECKSUM_AT, sum);
		return is_pseudo_sum(data + IPV6_END + TCP_CHECKSUM_AT, sum);
	}
	return true;
}

/* Whether the checksum of the packet in the CPU's memory is the sum of its pseudo header. */
WEIR_INLINE bool has_pseudo_sum(struct xdp_md *ctx, const struct summed *summed)
{
	uint64_t sum = (uint32_t)__builtin_bswap16((uint16_t)summed->bytes);
	uint16_t field;

	sum += __builtin_bswap16((uint16_t)summed->proto);
	sum = weir_sum(ctx, summed->addresses, summed->address_bytes, (uint32_t)sum);
	return sum != SUM_NONE && !bpf_xdp_load_bytes(ctx, summed->field, &field, sizeof(field)) &&
	       field == sum_fold((uint32_t)sum);
}

/* Whether the packet's sender has left its checksum to a card. */
__attribute__((noinline)) int weir_is_unfinished(struct xdp_md *ctx)
{
	struct summed summed;

	return weir_parse_sums(ctx) == REASON_NONE && summed_of(&weir_checksums[live_cpu()].packet, &summed) &&
	       has_pseudo_sum(ctx, &summed);
}

/* Completes the packet's checksum if its sender did not. */
__attribute__((noinline)) int weir_finish_checksum(struct xdp_md *ctx)
{
	struct cpu_checksum *own = &weir_checksums[live_cpu()];
	struct summed summed;
	uint16_t field;
	uint64_t sum;

	if (weir_parse_sums(ctx) != REASON_NONE || !summed_of(&own->packet, &summed) || !has_pseudo_sum(ctx, &summed))
		return 0;
	sum = weir_sum(ctx, summed.at, summed.bytes, 0);
	if (sum == SUM_NONE)
		return 0;
	field = (uint16_t)~sum_fold((uint32_t)sum);
	/* 0 means that there is no checksum (RFC 768). */
	if (summed.proto == PROTO_UDP && !field)
		field = 0xffff;
	bpf_xdp_store_bytes(ctx, summed.field, &field, sizeof(field));
	return 0;
}

#endif
