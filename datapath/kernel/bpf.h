/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel provides to programs on interfaces, without the kernel's headers: linux/bpf.h. */
#ifndef WEIR_KERNEL_BPF_H
#define WEIR_KERNEL_BPF_H

#include "core/env.h"

/* The context of an XDP program. */
struct xdp_md {
	uint32_t data;
	uint32_t data_end;
	uint32_t data_meta;
	uint32_t ingress_ifindex;
	uint32_t rx_queue_index;
	uint32_t egress_ifindex;
};

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
	XDP_REDIRECT = 4,
};

/* The context of a program for packets that a host sends, as far as the program reads it. */
struct __sk_buff {
	uint32_t len; /* from the Ethernet header on, without a tag beside the packet */
	uint32_t unread[4];
	uint32_t vlan_present; /* whether there is a tag beside the packet */
	uint32_t vlan_tci;
	uint32_t vlan_proto; /* network byte order */
	uint32_t unread_too[2];
	uint32_t ifindex;
	uint32_t nor[29];
	uint32_t wire_len; /* with the headers that a card repeats */
	uint32_t gso_segs; /* packets that a card makes of it; 0 if it sends it as it is */
};

_Static_assert(offsetof(struct __sk_buff, vlan_present) == 20, "context_is_tagged()");
_Static_assert(offsetof(struct __sk_buff, ifindex) == 40 && offsetof(struct __sk_buff, wire_len) == 160, "linux/bpf.h");

/* What such a program returns. */
enum tcx_action {
	TCX_NEXT = -1, /* the next program decides; after the last one the packet leaves */
	TCX_DROP = 2,
};

/* Numbers in a map declaration are the lengths of arrays to which its members point. */
enum map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_DEVMAP = 14,
	BPF_MAP_TYPE_RINGBUF = 27,
};

/* Flag of a map: user space may map its memory. */
enum { BPF_F_MMAPABLE = 1 << 10 };

/* Flag of bpf_ringbuf_output(): its reader looks by itself. */
enum { BPF_RB_NO_WAKEUP = 1 << 0 };

/* Flag of bpf_redirect_map(): a copy to each device of the map. */
enum { BPF_F_BROADCAST = 1 << 3 };

static void *(*const bpf_map_lookup_elem)(const void *map, const void *key) = (void *)1;
static uint64_t (*const bpf_ktime_get_ns)(void) = (void *)5;
static uint32_t (*const bpf_get_prandom_u32)(void) = (void *)7;
static uint32_t (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int32_t bytes) = (void *)65;
static long (*const bpf_tail_call)(void *ctx, const void *map, uint32_t index) = (void *)12;
static long (*const bpf_redirect_map)(const void *map, uint64_t key, uint64_t flags) = (void *)51;
static long (*const bpf_skb_load_bytes)(const struct __sk_buff *skb, uint32_t offset, void *to,
					uint32_t bytes) = (void *)26;
static int64_t (*const bpf_csum_diff)(const uint32_t *from, uint32_t from_bytes, const uint32_t *to, uint32_t to_bytes,
				      uint32_t seed) = (void *)28;
static long (*const bpf_ringbuf_output)(void *ring, const void *data, uint64_t bytes, uint64_t flags) = (void *)130;
static void *(*const bpf_ringbuf_reserve)(void *ring, uint64_t bytes, uint64_t flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, uint64_t flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *record, uint64_t flags) = (void *)133;
static uint64_t (*const bpf_ktime_get_coarse_ns)(void) = (void *)160;
static uint64_t (*const bpf_xdp_get_buff_len)(const struct xdp_md *ctx) = (void *)188;
static long (*const bpf_xdp_load_bytes)(const struct xdp_md *ctx, uint32_t offset, void *to,
					uint32_t bytes) = (void *)189;
static long (*const bpf_xdp_store_bytes)(const struct xdp_md *ctx, uint32_t offset, const void *from,
					 uint32_t bytes) = (void *)190;

#endif
