/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a program knows of its packet. */
#ifndef WEIR_PACKET_SLOT_H
#define WEIR_PACKET_SLOT_H

#include "mode.h"
#include "packet.h"

/*
 * Memory for the packet's fields that rules match. It is a map's value. The verifier does not track its contents, so
 * all paths through the parser look the same to the rules. There is one slot per CPU, because
 * programs on a CPU do not interrupt one another, and the engine makes the section that long. A replay has one slot.
 */
struct packet_slot {
	struct packet packet;
	uint32_t sampled; /* whether rules in parts sample the packet (parts.h) */
	uint64_t halves;  /* of the tables that rules in parts look up */
	uint64_t counted; /* lookups at whose entries the packet was counted (entry_counter.h) */
	uint8_t copy[FRAME_COPY_BYTES] __attribute__((aligned(128))); /* a copied header, see frame_copy() */
};

_Static_assert(sizeof(struct packet_slot) == 256, "PacketSlot in crates/abi/src/kernel.rs");

struct packet_slot weir_packets[1] WEIR_SECTION(".bss.packets");

#endif
