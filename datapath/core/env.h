/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The environment of the datapath: user space or the kernel's BPF machine.
 *
 * This is the only header that knows which of the two. All other code is written once, against what this header
 * provides: fixed-width types, `struct env` (the argument of a chain), tables, counters, and bounded reads.
 */
#ifndef WEIR_CORE_ENV_H
#define WEIR_CORE_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The kernel needs debug information of maps and programs. Following the variables of inlined functions would take a
 * quarter of a compilation, so for BPF these functions have none. A function that reads structures of the kernel needs
 * it: relocations of their fields are made from it.
 */
#define WEIR_INLINE_RELOCATED static inline __attribute__((always_inline))
#ifdef __bpf__
#define WEIR_INLINE static inline __attribute__((always_inline, nodebug))
#else
#define WEIR_INLINE WEIR_INLINE_RELOCATED
#endif
/* For work on a burst and for rare packets. Inlined, such a function would be compiled for each caller and each chain.
 */
#define WEIR_NOINLINE static __attribute__((noinline, unused))
#define WEIR_LIKELY(x) __builtin_expect(!!(x), 1)
#define WEIR_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
	WEIR_ABI_VERSION = 20,
	WEIR_BURST_MAX = 64,
	WEIR_WINDOW_BYTES = 2048, /* bytes of a frame beyond this are never read */
	REWRITE_BYTES = WEIR_WINDOW_BYTES + 112,
	WEIR_RULE_BASE = 32, /* lower counters and reasons are built in, higher ones are rules */
};

struct weir_frame {
	const uint8_t *data;
	uint32_t cap; /* bytes readable at data */
	uint32_t len; /* bytes on the wire, >= cap */
};

struct weir_counter {
	uint64_t packets;
	uint64_t bytes;
};

/* When the frames of a burst were received. */
struct burst_times {
	uint64_t now_ns;	 /* of the burst */
	const uint64_t *each_ns; /* of each frame; NULL if all have now_ns */
};

struct burst_tables {
	const uint8_t *const *images; /* one per table */
};

struct burst_counters {
	struct weir_counter *reasons; /* one per reason */
};

/* The data of limiters (limits/limit.h); all NULL if there are none. */
struct burst_limits {
	const uint8_t *image; /* of the limiters */
	uint64_t *buckets;    /* of all limiters */
	uint64_t shared;      /* whether other workers charge them too */
	uint64_t *exceeded;   /* packets over the limit, by bucket; NULL if no limiter counts them */
	uint64_t *passed;     /* packets within the limit, by bucket; NULL if no limiter counts them */
};

/* An address that a rule adds to a table: Addition in crates/abi/src/addition.rs. */
struct weir_addition {
	uint64_t high; /* halves of the prefix */
	uint64_t low;
	uint32_t adder;
	uint32_t packet; /* index in the burst; 0 in the kernel */
};

/* What rules add (tables/addition.h); NULL if no rule does. */
struct burst_additions {
	struct weir_addition *records; /* room for every addition of a burst */
	uint64_t *count;
};

/* The counter of a table entry: tables/entry_counter.h */
struct entry_counter {
	uint64_t head;
	uint64_t size;
};

/* The entries of a table with counters, by number: this worker's counters, and the labels of a map. */
struct table_entries {
	struct entry_counter *counters;
	const uint32_t *labels;
};

/* By table. */
struct burst_entries {
	const struct table_entries *tables;
};

/* The side from which a packet arrived, which has this number in flows: Arrival in crates/abi/src/flow/key.rs. */
enum from_side {
	FROM_OUTSIDE = 0, /* it goes upstream */
	FROM_INSIDE = 1,  /* it goes downstream */
};

/* The table of flows (track/flow_table.h); NULL if the policy does not track. */
struct burst_flows {
	struct flow_head *head;
	struct flow_bucket *buckets;
	uint64_t shared;	      /* whether other workers use it too */
	struct flow_proxied *proxied; /* one for each entry; NULL if the policy has no SYN proxy */
};

/*
 * What leaves in place of a received packet: Rewrite in crates/abi/src/rewrite.rs. The first `head` bytes are new; the
 * received ones follow from there.
 */
struct weir_rewrite {
	uint32_t len; /* bytes that leave */
	uint32_t head;
	uint32_t checksum_at; /* offset of the checksum that was updated, 0 if none was */
	uint8_t checksum[2];  /* that checksum as received */
	uint8_t zero[2];
	uint8_t bytes[REWRITE_BYTES];
} __attribute__((aligned(64)));

/* Where a chain puts the packets that it changes; NULL if it changes none. */
struct burst_rewrites {
	struct weir_rewrite *packets; /* one for each frame */
};

/* Rules that change while packets pass (slots/slot.h); NULL if the policy has no slots. */
struct burst_slots {
	struct rule_slot *const *slots; /* one for each slot of the policy */
	uint64_t stripe;		/* the worker's stripe of counters */
};

/* Where features are counted (observe/feature.h); NULL if the policy does not observe. */
struct burst_features {
	union feature_element *sheet; /* of this worker */
	uint64_t seed;
};

/* The arguments of a chain: the frames, and one struct for each feature. */
struct weir_burst {
	const struct weir_frame *frames;
	uint32_t *verdicts;
	uint32_t count;
	uint32_t link; /* enum link */
	struct burst_times times;
	struct burst_tables tables;
	struct burst_counters counters;
	struct burst_limits limits;
	struct burst_additions additions;
	struct burst_entries entries;
	struct burst_flows flows;
	struct burst_rewrites rewrites;
	struct burst_slots slots;
	struct burst_features features;
};

_Static_assert(sizeof(struct weir_frame) == 16, "abi: Frame");
_Static_assert(sizeof(struct weir_counter) == 16, "abi: Counter");
_Static_assert(sizeof(struct burst_times) == 16, "abi: Times");
_Static_assert(sizeof(struct burst_tables) == 8, "abi: Tables");
_Static_assert(sizeof(struct burst_counters) == 8, "abi: Counters");
_Static_assert(sizeof(struct burst_limits) == 40, "abi: Limits");
_Static_assert(sizeof(struct weir_addition) == 24, "abi: Addition");
_Static_assert(sizeof(struct burst_additions) == 16, "abi: Additions");
_Static_assert(sizeof(struct entry_counter) == 16, "abi: EntryCounter");
_Static_assert(sizeof(struct table_entries) == 16, "abi: TableEntries");
_Static_assert(sizeof(struct burst_entries) == 8, "abi: Entries");
_Static_assert(sizeof(struct burst_flows) == 32, "abi: Flows");
_Static_assert(sizeof(struct weir_rewrite) == 2176, "abi: Rewrite");
_Static_assert(sizeof(struct burst_rewrites) == 8, "abi: Rewrites");
_Static_assert(sizeof(struct burst_slots) == 16, "abi: Slots");
_Static_assert(sizeof(struct burst_features) == 16, "abi: Features");
_Static_assert(sizeof(struct weir_burst) == 192, "abi: Burst");

/*
 * A table image as tables/lookup.h reads it. Every index goes through table_at(). In BPF it masks the index to the
 * capacity, a power of two, so the verifier can follow. In user space it costs nothing.
 */
struct table {
	const uint8_t *image;
	uint32_t mask; /* capacity in bytes - 1; all ones in user space */
	uint32_t base; /* where an image inside this one begins; 0 in user space, where `image` is its begin */
};

/*
 * A frame that is being read: its first `cap` bytes, and none beyond the window. In the kernel it may lie in several
 * buffers. `end` is the end of the first one, which proves a read to the verifier; bytes in other buffers are copied
 * from `ctx`. In user space the window is in one piece, and the code that makes the frame cuts `cap` to it.
 */
struct frame {
	const uint8_t *data;
	const uint8_t *end;
	void *ctx; /* the program's context; NULL if only the first buffer is read */
	uint32_t cap;
	uint32_t len;
	uint32_t link;	  /* enum link */
	uint32_t padding; /* in the kernel: bytes in front of the frame in the packet's memory */
#ifdef WEIR_SENT
	bool tagged; /* the VLAN tag of a packet that a host sends is beside it, so no header is read in place */
#endif
};

#ifdef __bpf__
#include "core/env_bpf.h"
#else
#include "core/env_native.h"
#endif

/*
 * The packets that a packet becomes on the wire, and their bytes. A card may split a packet of the host into several;
 * kernel/cpu_packet.h has their number.
 */
#ifdef WEIR_SENT
WEIR_INLINE uint32_t wire_packets(void);
WEIR_INLINE uint32_t wire_bytes(uint32_t len);
#else
WEIR_INLINE uint32_t wire_packets(void)
{
	return 1;
}

WEIR_INLINE uint32_t wire_bytes(uint32_t len)
{
	return len;
}
#endif

WEIR_INLINE uint32_t be32(const uint8_t *at)
{
	return __builtin_bswap32(host32(at));
}

WEIR_INLINE uint64_t be64(const uint8_t *at)
{
	return __builtin_bswap64(host64(at));
}

/* Reads a byte for nothing, so that its cache line is on its way when it is needed. */
WEIR_INLINE void touch(const uint8_t *at)
{
	const uint8_t byte = *(const volatile uint8_t *)at;

	(void)byte;
}

/* Keeps the compiler from turning a bounded value back into branches, which the verifier would follow one by one. */
WEIR_INLINE uint32_t opaque(uint32_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

/* Like opaque(), for 64 bits. */
WEIR_INLINE uint64_t opaque64(uint64_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

#endif
