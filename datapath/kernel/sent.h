/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames that a host sends (kernel/egress.h), as they are on the wire: a card puts in the VLAN tag that the kernel
 * keeps beside the packet.
 */
#ifndef WEIR_KERNEL_SENT_H
#define WEIR_KERNEL_SENT_H

#include "kernel/bpf.h"
#include "core/packet.h"
#include "kernel/cpu_packet.h"

enum {
	TAG_AT = 12, /* of a VLAN tag in a frame: between the addresses and the EtherType */
	TAG_BYTES = 4,
	TAG_END = TAG_AT + TAG_BYTES,
};

/* The byte at an offset of the frame on the wire, for a packet with its tag beside it; 0 if there is none. */
WEIR_INLINE uint8_t tagged_byte(const struct __sk_buff *skb, uint32_t at)
{
	const uint32_t tag = __builtin_bswap16((uint16_t)skb->vlan_proto) << 16 | (skb->vlan_tci & 0xffff);
	uint8_t byte = 0;

	if (at >= TAG_AT && at < TAG_END)
		return (uint8_t)(tag >> (8 * (TAG_END - 1 - at)));
	bpf_skb_load_bytes(skb, at < TAG_AT ? at : at - TAG_BYTES, &byte, 1);
	return byte;
}

/*
 * Copies `bytes` (1 to 63) at an offset of the frame on the wire, which has them. Returns 0, or an error if the packet
 * does not have them.
 */
WEIR_INLINE long sent_load(const struct __sk_buff *skb, uint32_t offset, uint8_t *to, uint32_t bytes)
{
	if (skb->vlan_present && offset >= TAG_END)
		offset -= TAG_BYTES;
	return bpf_skb_load_bytes(skb, offset, to, bytes);
}

/*
 * Copies the first `bytes` of the frame on the wire (1 to `most`, a constant) to memory with room for TAG_END more.
 * Returns whether the packet has them.
 */
WEIR_INLINE bool sent_first(struct __sk_buff *skb, uint8_t *to, uint32_t bytes, uint32_t most)
{
	uint32_t at = 0;
	uint64_t before;

	if (skb->vlan_present) {
		if (bytes <= TAG_END || bpf_skb_load_bytes(skb, 0, to, TAG_AT))
			return false;
		for (uint32_t i = TAG_AT; i < TAG_END; i++)
			to[i] = tagged_byte(skb, i);
		to += TAG_END;
		bytes -= TAG_END;
		at = TAG_AT;
	}
	before = one_less(bytes);
	return before < most && !bpf_skb_load_bytes(skb, at, to, one_more(before));
}

/*
 * Copies up to FRAME_COPY_BYTES at an offset of the frame on the wire to the CPU's memory. Returns whether the packet
 * has them. The verifier follows it once.
 */
WEIR_GLOBAL uint32_t weir_sent_copy(struct __sk_buff *skb, uint32_t offset, uint32_t bytes)
{
	uint8_t *copy = weir_packets[live_cpu()].copy;
	const uint64_t before = one_less(bytes);

	if (before >= FRAME_COPY_BYTES || offset > WEIR_WINDOW_BYTES)
		return false;
	if (!skb->vlan_present || offset >= TAG_END || offset + bytes <= TAG_AT)
		return !sent_load(skb, offset, copy, one_more(before));
	if (offset + bytes > skb->len + TAG_BYTES)
		return false;
	for (uint32_t i = 0; i < FRAME_COPY_BYTES; i++)
		if (i < bytes)
			copy[i] = tagged_byte(skb, offset + i);
	return true;
}

__attribute__((noinline)) const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes)
{
	const uint8_t *copy = weir_packets[live_cpu()].copy;

	return weir_sent_copy(ctx, offset, bytes) ? copy : NULL;
}

/* The frame that the host sends. */
WEIR_INLINE struct frame sent_frame(struct __sk_buff *skb)
{
	const uint32_t len = skb->len + (skb->vlan_present ? TAG_BYTES : 0);

	return (struct frame){
		.data = context_data(skb),
		.end = context_end(skb),
		.ctx = skb,
		.cap = len,
		.len = len,
		.link = LINK_ETHERNET,
		.tagged = context_is_tagged(skb),
	};
}

#endif
