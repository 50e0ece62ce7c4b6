/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * XDP programs as a baseline for policies: one that drops all packets, and blocklists in maps of the kernel. They read
 * only the parts of a packet that a blocklist needs, and count only the packets that they let pass, which should be
 * none.
 */
#include "kernel/bpf.h"
#include "core/packet.h"
#include "kernel/plain.h"

enum {
	PEER_ENTRIES = 1 << 18,
	PEER_SADDR_AT = ETHERNET_BYTES + 12,
};

struct lpm_key {
	uint32_t length;
	uint32_t addr; /* network byte order */
};

struct {
	int (*type)[BPF_MAP_TYPE_LPM_TRIE];
	int (*max_entries)[PEER_ENTRIES];
	int (*map_flags)[1]; /* BPF_F_NO_PREALLOC */
	struct lpm_key *key;
	uint8_t *value;
} peer_trie WEIR_SECTION(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[PEER_ENTRIES];
	uint32_t *key; /* network byte order */
	uint8_t *value;
} peer_hash WEIR_SECTION(".maps");

uint64_t peer_passed WEIR_SECTION(".bss.passed");

/* The source address of the packet, or NULL if it is not IPv4 without options. */
WEIR_INLINE const uint8_t *peer_source(const struct xdp_md *ctx)
{
	const uint8_t *at = (const uint8_t *)(uintptr_t)ctx->data;

	if (at + PLAIN_BYTES > (const uint8_t *)(uintptr_t)ctx->data_end || !is_plain(at))
		return NULL;
	return at + PEER_SADDR_AT;
}

WEIR_INLINE uint32_t peer_verdict(const void *found)
{
	if (found)
		return XDP_DROP;
	peer_passed++;
	return XDP_PASS;
}

WEIR_SECTION("xdp") uint32_t peer_drop_all(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_DROP;
}

WEIR_SECTION("xdp") uint32_t peer_lpm_trie(struct xdp_md *ctx)
{
	const uint8_t *source = peer_source(ctx);
	struct lpm_key key = {.length = 32};

	if (!source)
		return peer_verdict(NULL);
	key.addr = host32(source);
	return peer_verdict(bpf_map_lookup_elem(&peer_trie, &key));
}

WEIR_SECTION("xdp") uint32_t peer_hash_map(struct xdp_md *ctx)
{
	const uint8_t *source = peer_source(ctx);
	uint32_t key;

	if (!source)
		return peer_verdict(NULL);
	key = host32(source);
	return peer_verdict(bpf_map_lookup_elem(&peer_hash, &key));
}
