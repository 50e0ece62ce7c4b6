/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The environment of the datapath: user space or the kernel's BPF machine.
 *
 * This is the only header that knows which of the two. All other code is written once, against what this header
 * provides: fixed-width types, `struct env` (the argument of a chain), tables, counters, and bounded reads.
 */
#ifndef WEIR_ENV_H
#define WEIR_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_INLINE static inline __attribute__((always_inline))
#define WEIR_NOINLINE static __attribute__((noinline))
#define WEIR_LIKELY(x) __builtin_expect(!!(x), 1)
#define WEIR_UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
	WEIR_ABI_VERSION = 4,
	WEIR_BURST_MAX = 64,
	WEIR_WINDOW_BYTES = 2048, /* bytes of a frame beyond this are never read */
	WEIR_RULE_BASE = 32,	  /* lower counters and reasons are built in, higher ones are rules */
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
	const uint64_t *each_ns; /* of each frame; NULL: now_ns is that of all */
};

struct burst_tables {
	const uint8_t *const *images; /* one a slot */
};

struct burst_counters {
	struct weir_counter *reasons; /* one a reason */
};

/* What limiters charge (limit.h); all NULL if there are none. */
struct burst_limits {
	const uint8_t *image; /* of the limiters */
	uint64_t *buckets;    /* that they charge */
	uint64_t shared;      /* whether other workers charge them too */
	uint64_t *exceeded;   /* packets that each bucket had no room for; NULL if no limiter counts */
	uint64_t *passed;     /* packets that were charged to each; NULL if no limiter counts them */
};

/* The frames, and one struct for each thing that a chain uses besides them. */
struct weir_burst {
	const struct weir_frame *frames;
	uint32_t *verdicts;
	uint32_t count;
	uint32_t link; /* enum link */
	struct burst_times times;
	struct burst_tables tables;
	struct burst_counters counters;
	struct burst_limits limits;
};

_Static_assert(sizeof(struct weir_frame) == 16, "abi: Frame");
_Static_assert(sizeof(struct weir_counter) == 16, "abi: Counter");
_Static_assert(sizeof(struct burst_times) == 16, "abi: Times");
_Static_assert(sizeof(struct burst_tables) == 8, "abi: Tables");
_Static_assert(sizeof(struct burst_counters) == 8, "abi: Counters");
_Static_assert(sizeof(struct burst_limits) == 40, "abi: Limits");
_Static_assert(sizeof(struct weir_burst) == 96, "abi: Burst");

/*
 * A table image as lookup.h reads it. Every index goes through table_at(). In BPF it masks the index to the capacity, a
 * power of two, so the verifier can follow. In user space it costs nothing.
 */
struct table {
	const uint8_t *image;
	uint32_t mask; /* capacity in bytes - 1; all ones in user space */
};

/*
 * A frame that is being read: its first `cap` bytes, and none beyond the window. In the kernel it may lie in several
 * buffers. `end` is the end of the first one, which proves a read to the verifier; bytes in other buffers are copied
 * from `ctx`. In user space the window is in one piece, and whoever makes the frame cuts `cap` to it.
 */
struct frame {
	const uint8_t *data;
	const uint8_t *end;
	void *ctx; /* the program's context; NULL if only the first buffer is read */
	uint32_t cap;
	uint32_t len;
	uint32_t link;	  /* enum link */
	uint32_t padding; /* in the kernel: bytes in front of the frame in the packet's memory */
};

#ifdef __bpf__

#define WEIR_SECTION(name) __attribute__((section(name), used))

/* A function that the verifier follows once a program with unknown arguments, and not at each call. */
#define WEIR_GLOBAL __attribute__((noinline))

/*
 * Rules load a packet's fields for each use. The verifier distinguishes values kept in registers, so the paths through
 * many rules multiply. A value that was just loaded is the same on every path.
 */
#define WEIR_FRESH volatile

/*
 * One value a table, addressed directly: no helper call, no null check. The engine passes the capacities. A word may be
 * read from any byte on, so there are bytes after the last one.
 */
#define WEIR_TABLE_STORAGE(slot)                                                                                       \
	uint8_t weir_table_##slot[WEIR_TABLE_##slot##_BYTES + sizeof(uint64_t)]                                        \
		__attribute__((aligned(64))) WEIR_SECTION(".bss.table" #slot)
#define WEIR_TABLE(env, slot) ((struct table){weir_table_##slot, WEIR_TABLE_##slot##_BYTES - 1})

struct env {
	struct weir_counter *counters; /* of this CPU: WEIR_COUNTERS of them, a power of two */
	uint64_t now_ns;	       /* time of a replayed frame */
};

/*
 * Data of programs with limiters (limit.h): their image, the buckets, and the counts of each bucket if a limiter counts
 * (WEIR_LOGGED: the highest enum limit_logged). The engine passes the sizes.
 */
#ifndef WEIR_LIMITS_BYTES
#define WEIR_LIMITS_BYTES 64
#define WEIR_BUCKETS 64
#define WEIR_LOGGED 0
#endif

#define WEIR_BUCKET_WORDS(name)                                                                                        \
	uint64_t weir_##name[WEIR_BUCKETS] __attribute__((aligned(64))) WEIR_SECTION(".bss." #name);

#define WEIR_LIMITS_STORAGE                                                                                            \
	uint8_t weir_limits[WEIR_LIMITS_BYTES + 64] __attribute__((aligned(64))) WEIR_SECTION(".bss.limits");          \
	WEIR_BUCKET_WORDS(buckets)                                                                                     \
	WEIR_EXCEEDED_STORAGE                                                                                          \
	WEIR_PASSED_STORAGE

#if WEIR_LOGGED >= 1
#define WEIR_EXCEEDED_STORAGE WEIR_BUCKET_WORDS(exceeded)
#else
#define WEIR_EXCEEDED_STORAGE
#endif

#if WEIR_LOGGED >= 2
#define WEIR_PASSED_STORAGE WEIR_BUCKET_WORDS(passed)
#else
#define WEIR_PASSED_STORAGE
#endif

extern uint8_t weir_limits[WEIR_LIMITS_BYTES + 64];
extern uint64_t weir_buckets[WEIR_BUCKETS], weir_exceeded[WEIR_BUCKETS], weir_passed[WEIR_BUCKETS];

WEIR_INLINE struct table env_limits(const struct env *env)
{
	(void)env;
	return (struct table){weir_limits, WEIR_LIMITS_BYTES - 1};
}

/* Bucket 0 belongs to no limit. */
WEIR_INLINE uint64_t *env_bucket(const struct env *env, uint32_t slot)
{
	(void)env;
	return &weir_buckets[slot < WEIR_BUCKETS ? slot : 0];
}

/* Like env_bucket() for the first of `count` consecutive buckets: one comparison bounds all of them. */
WEIR_INLINE uint64_t *env_buckets(const struct env *env, uint32_t slot, uint32_t count)
{
	(void)env;
	return &weir_buckets[slot <= WEIR_BUCKETS - count ? slot : 0];
}

/* The index of a bucket's words. The compiler must not compare one copy of it and use another, see frame_at(). */
WEIR_INLINE uint64_t bucket_place(uint32_t slot)
{
	uint64_t place = slot;

	__asm__ volatile("" : "+r"(place));
	return place < WEIR_BUCKETS ? place : 0;
}

/* The count of a bucket; NULL if no limiter counts it. */
WEIR_INLINE uint64_t *env_exceeded(const struct env *env, uint32_t slot)
{
	(void)env;
	return WEIR_LOGGED >= 1 ? &weir_exceeded[bucket_place(slot)] : NULL;
}

WEIR_INLINE uint64_t *env_passed(const struct env *env, uint32_t slot)
{
	(void)env;
	return WEIR_LOGGED >= 2 ? &weir_passed[bucket_place(slot)] : NULL;
}

WEIR_INLINE struct weir_counter *counter_at(const struct env *env, uint32_t index)
{
	return &env->counters[index & (WEIR_COUNTERS - 1)];
}

/*
 * Larger images hide their offsets from the compiler. It may know from the computation of an offset that it is inside
 * the image, and leave the mask out. The verifier does not know it.
 */
#define WEIR_PLAIN_BYTES (UINT32_C(1) << 24)

WEIR_INLINE uint32_t table_offset(struct table table, uint32_t offset)
{
	if (table.mask >= WEIR_PLAIN_BYTES && !__builtin_constant_p(offset))
		__asm__ volatile("" : "+r"(offset));
	return offset;
}

WEIR_INLINE const uint8_t *table_at(struct table table, uint32_t offset)
{
	return table.image + (table_offset(table, offset) & table.mask);
}

/* Like table_at() for a block of `bytes` (a power of two) at a multiple of its size: one mask bounds all of it. */
WEIR_INLINE const uint8_t *table_block(struct table table, uint32_t offset, uint32_t bytes)
{
	return table.image + (table_offset(table, offset) & table.mask & ~(bytes - 1));
}

/*
 * Makes the verifier forget what it knows of x. The verifier follows every path through a loop as long as their states
 * differ, for example in the range of an offset. Once forgotten, the states are equal, and the next round is followed
 * once. Costs a load.
 */
static volatile uint32_t weir_zero WEIR_SECTION(".bss.zero");

WEIR_INLINE uint32_t forget(uint32_t x)
{
	return x + weir_zero;
}

WEIR_INLINE uint64_t forget64(uint64_t x)
{
	return x + weir_zero;
}

/* Keeps reads below it after reads above it. Data that BPF reads is not changed while it runs: its map is replaced. */
WEIR_INLINE void read_fence(void)
{
}

/*
 * The start and the end of a packet's first buffer: words 0 and 1 of a program's context (struct xdp_md), which the
 * verifier knows as pointers. C would read them as 32 bits. When the compiler runs out of registers it stores those in
 * 32 bits of the stack, and the verifier no longer accepts them as pointers. So they are read by assembly.
 */
WEIR_INLINE const uint8_t *context_data(const void *ctx)
{
	const uint8_t *data;

	__asm__ volatile("%0 = *(u32 *)(%1 + 0)" : "=r"(data) : "r"(ctx));
	return data;
}

WEIR_INLINE const uint8_t *context_end(const void *ctx)
{
	const uint8_t *end;

	__asm__ volatile("%0 = *(u32 *)(%1 + 4)" : "=r"(end) : "r"(ctx));
	return end;
}

/*
 * A copy of the `bytes` at `offset` of a frame whose first buffer does not have them; NULL if the frame ends before
 * them. The next call overwrites it. Programs that read frames define it (xdp.h). It is hidden, so the verifier follows
 * its pointer to the caller.
 */
__attribute__((visibility("hidden"))) const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes);

enum {
	FRAME_COPY_BYTES = 40,	 /* the most bytes of one call: an IPv6 header */
	FRAME_PADDING_MASK = 15, /* fewer bytes than this are in front of a frame */
};

/*
 * The `bytes` at `offset`, or NULL if the frame ends before them. The verifier applies what a comparison proves to that
 * one register only. So the compiler must not compute the offset or the address again and read through the copy. `cap`
 * need not be compared: memory ends where the frame ends (xdp.h). The caller reads the bytes before the next call,
 * because they may be a copy.
 */
WEIR_INLINE const uint8_t *frame_at(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
	const uint8_t *at;

	if (!__builtin_constant_p(offset))
		__asm__ volatile("" : "+r"(offset));
	if (offset > WEIR_WINDOW_BYTES || offset + bytes > WEIR_WINDOW_BYTES)
		return NULL;
	at = frame->data + offset;
	__asm__ volatile("" : "+r"(at));
	if (WEIR_UNLIKELY(at + bytes > frame->end))
		return frame->ctx ? frame_copy(frame->ctx, offset, bytes) : NULL;
	if (!at)
		__builtin_unreachable();
	return at;
}

/*
 * frame_at() for rules. The verifier would distinguish what it learns of a packet's length in all rules that follow.
 * Rules in parts make it forget that: they begin anew at the start of the memory.
 */
WEIR_INLINE const uint8_t *frame_at_again(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
#ifdef WEIR_PARTS
	uint32_t padding = frame->padding;

	/* It was compared with its bound in another register. */
	__asm__ volatile("" : "+r"(padding));
	const struct frame again = {
		.data = context_data(frame->ctx) + (padding & FRAME_PADDING_MASK),
		.end = context_end(frame->ctx),
		.ctx = frame->ctx,
	};

	return frame_at(&again, offset, bytes);
#else
	return frame_at(frame, offset, bytes);
#endif
}

/* Whether the bytes before `end` can be read. */
WEIR_INLINE bool frame_has(const struct frame *frame, uint32_t end)
{
	return end <= WEIR_WINDOW_BYTES && end <= frame->cap;
}

/* The first `bytes`, or NULL if the first buffer ends before them. */
WEIR_INLINE const uint8_t *frame_start(const struct frame *frame, uint32_t bytes)
{
	const struct frame first = {.data = frame->data, .end = frame->end};

	return frame_at(&first, 0, bytes);
}

/* x86 and arm64 kernels read unaligned words. Without this the BPF back end reads byte by byte. */
typedef uint16_t unaligned16 __attribute__((may_alias));
typedef uint32_t unaligned32 __attribute__((may_alias));

WEIR_INLINE uint16_t be16(const uint8_t *at)
{
	return __builtin_bswap16(*(const unaligned16 *)at);
}

WEIR_INLINE uint32_t host32(const uint8_t *at)
{
	return *(const unaligned32 *)at;
}

#else

/* Packets come in bursts, and the keys of a burst are looked up together. BPF has one packet at a time. */
#define WEIR_BURSTS
#define WEIR_LIMITS_STORAGE
#define WEIR_FRESH
#define WEIR_TABLE(env, slot) ((struct table){(env)->tables.images[slot], UINT32_MAX})

struct env {
	struct burst_counters counters;
	struct burst_tables tables;
	struct burst_limits limits;
};

WEIR_INLINE struct table env_limits(const struct env *env)
{
	return (struct table){env->limits.image, UINT32_MAX};
}

WEIR_INLINE uint64_t *env_bucket(const struct env *env, uint32_t slot)
{
	return env->limits.buckets + slot;
}

WEIR_INLINE uint64_t *env_buckets(const struct env *env, uint32_t slot, uint32_t count)
{
	(void)count;
	return env->limits.buckets + slot;
}

/* The count of a bucket whose limiter counts. */
WEIR_INLINE uint64_t *env_exceeded(const struct env *env, uint32_t slot)
{
	return env->limits.exceeded + slot;
}

WEIR_INLINE uint64_t *env_passed(const struct env *env, uint32_t slot)
{
	return env->limits.passed + slot;
}

WEIR_INLINE struct weir_counter *counter_at(const struct env *env, uint32_t index)
{
	return &env->counters.reasons[index];
}

WEIR_INLINE const uint8_t *table_at(struct table table, uint32_t offset)
{
	return table.image + offset;
}

WEIR_INLINE const uint8_t *table_block(struct table table, uint32_t offset, uint32_t bytes)
{
	(void)bytes;
	return table.image + offset;
}

WEIR_INLINE uint32_t forget(uint32_t x)
{
	return x;
}

WEIR_INLINE uint64_t forget64(uint64_t x)
{
	return x;
}

/* Keeps reads below it after reads above it. */
WEIR_INLINE void read_fence(void)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* The stages of a burst. A benchmark defines WEIR_STAGE_CLOCK to measure them; all other code pays nothing. */
enum stage {
	STAGE_PARSE = 0,
	STAGE_LOOKUP = 1,
	STAGE_RULES = 2,
	STAGES = 3,
};

#ifdef WEIR_STAGE_CLOCK

uint64_t weir_stage_cycles[STAGES];

WEIR_INLINE uint64_t stage_start(void)
{
	return __builtin_ia32_rdtsc();
}

/* Adds the cycles since `start` to the stage. Returns the start of the next one. */
WEIR_INLINE uint64_t stage_end(enum stage stage, uint64_t start)
{
	uint64_t now = __builtin_ia32_rdtsc();

	weir_stage_cycles[stage] += now - start;
	return now;
}

#else

WEIR_INLINE uint64_t stage_start(void)
{
	return 0;
}

WEIR_INLINE uint64_t stage_end(enum stage stage, uint64_t start)
{
	(void)stage;
	return start;
}

#endif

/* Frame i of the burst, cut to the window. */
WEIR_INLINE struct frame burst_frame(const struct weir_burst *burst, uint32_t i)
{
	const struct weir_frame *from = &burst->frames[i];
	uint32_t cap = from->cap < WEIR_WINDOW_BYTES ? from->cap : WEIR_WINDOW_BYTES;

	return (struct frame){.data = from->data, .cap = cap, .len = from->len, .link = burst->link};
}

/* When frame i of the burst was received. */
WEIR_INLINE uint64_t burst_time(const struct weir_burst *burst, uint32_t i)
{
	return burst->times.each_ns ? burst->times.each_ns[i] : burst->times.now_ns;
}

/*
 * Frames that are prefetched ahead of the one that is parsed. Packets from a network card or a capture are in no near
 * cache. With fewer frames the parser waits if tables have evicted everything else.
 */
enum { FRAMES_AHEAD = 16 };

WEIR_INLINE void prefetch_frame(const struct weir_burst *burst, uint32_t i)
{
	if (i < burst->count)
		__builtin_prefetch(burst->frames[i].data);
}

/* The `bytes` at `offset`, or NULL if the frame ends before them. */
WEIR_INLINE const uint8_t *frame_at(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
	return offset + bytes > frame->cap ? NULL : frame->data + offset;
}

WEIR_INLINE const uint8_t *frame_at_again(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
	return frame_at(frame, offset, bytes);
}

/* Whether the bytes before `end` can be read. */
WEIR_INLINE bool frame_has(const struct frame *frame, uint32_t end)
{
	return end <= frame->cap;
}

/* The first `bytes`, or NULL if the frame is shorter. */
WEIR_INLINE const uint8_t *frame_start(const struct frame *frame, uint32_t bytes)
{
	return frame_at(frame, 0, bytes);
}

WEIR_INLINE uint16_t be16(const uint8_t *at)
{
	uint16_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return __builtin_bswap16(word);
}

WEIR_INLINE uint32_t host32(const uint8_t *at)
{
	uint32_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return word;
}

#endif

WEIR_INLINE uint32_t be32(const uint8_t *at)
{
	return __builtin_bswap32(host32(at));
}

WEIR_INLINE uint64_t be64(const uint8_t *at)
{
	return (uint64_t)be32(at) << 32 | be32(at + 4);
}

/* Keeps the compiler from turning a bounded value back into branches, which the verifier would follow one by one. */
WEIR_INLINE uint32_t opaque(uint32_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

#endif
