/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Where the datapath runs: user space or the kernel's BPF machine.
 *
 * The only header that knows which. Everything else is written once against what this one provides: fixed-width types,
 * `struct env` (what a chain is called with), tables, counters, and bounded reads.
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
	WEIR_WINDOW_BYTES = 2048, /* no byte of a frame beyond this is ever read */
	WEIR_RULE_BASE = 32,	  /* counters and reasons below are built in, above are rules */
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
 * A table image as lookup.h sees it. Every index is taken through table_at(), which in BPF masks it to the capacity (a
 * power of two, so that the verifier can follow) and in user space is free.
 */
struct table {
	const uint8_t *image;
	uint32_t mask; /* capacity in bytes - 1; all ones in user space */
};

/*
 * A frame that is being read: `cap` bytes of it, and none beyond the window. In the kernel it may lie in several
 * buffers: `end` is where the first one ends, which proves a read to the verifier, and what lies in others is copied
 * from `ctx`. User space has neither; there the window is in one piece, and `cap` is cut to it by whoever makes it.
 */
struct frame {
	const uint8_t *data;
	const uint8_t *end;
	void *ctx; /* the program's context; NULL if the first buffer is all that is read */
	uint32_t cap;
	uint32_t len;
	uint32_t link;	  /* enum link */
	uint32_t padding; /* in the kernel: bytes of the packet's memory before the frame */
};

#ifdef __bpf__

#define WEIR_SECTION(name) __attribute__((section(name), used))

/* A function that the verifier follows once a program, knowing nothing of its arguments, and not at each of its calls.
 */
#define WEIR_GLOBAL __attribute__((noinline))

/*
 * Rules read a packet's fields afresh each time. What is kept in registers the verifier tells apart by value, and the
 * paths through many rules multiply; what was just loaded looks the same on every path.
 */
#define WEIR_FRESH volatile

/*
 * One value a table, addressed directly: no helper call, no null check. The engine passes the capacities. A word may be
 * read from any byte on, so the last one has others after it.
 */
#define WEIR_TABLE_STORAGE(slot)                                                                                       \
	uint8_t weir_table_##slot[WEIR_TABLE_##slot##_BYTES + sizeof(uint64_t)]                                        \
		__attribute__((aligned(64))) WEIR_SECTION(".bss.table" #slot)
#define WEIR_TABLE(env, slot) ((struct table){weir_table_##slot, WEIR_TABLE_##slot##_BYTES - 1})

struct env {
	struct weir_counter *counters; /* this CPU's, WEIR_COUNTERS of them (a power of two) */
	uint64_t now_ns;	       /* of a replayed frame */
};

/*
 * What programs with limiters have (limit.h): their image, the buckets, and what is counted for each bucket, if a
 * limiter counts (WEIR_LOGGED: the highest enum limit_logged). The engine passes the sizes.
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

/* Bucket 0 is nobody's. */
WEIR_INLINE uint64_t *env_bucket(const struct env *env, uint32_t slot)
{
	(void)env;
	return &weir_buckets[slot < WEIR_BUCKETS ? slot : 0];
}

/* As env_bucket() for the first of `count` neighbours: one comparison answers for all of them. */
WEIR_INLINE uint64_t *env_buckets(const struct env *env, uint32_t slot, uint32_t count)
{
	(void)env;
	return &weir_buckets[slot <= WEIR_BUCKETS - count ? slot : 0];
}

/* The place of a bucket's words. The compiler must not compare one copy of it and use another, see frame_at(). */
WEIR_INLINE uint64_t bucket_place(uint32_t slot)
{
	uint64_t place = slot;

	__asm__ volatile("" : "+r"(place));
	return place < WEIR_BUCKETS ? place : 0;
}

/* What is counted for a bucket; NULL if no limiter counts that. */
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
 * Images larger than this hide their offsets from the compiler, which may know from how an offset was made that it is
 * inside, and leave the mask out; the verifier does not know.
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

/* As table_at() for a block of `bytes` (a power of two), at a multiple of its size: one mask answers for all of it. */
WEIR_INLINE const uint8_t *table_block(struct table table, uint32_t offset, uint32_t bytes)
{
	return table.image + (table_offset(table, offset) & table.mask & ~(bytes - 1));
}

/*
 * Makes the verifier forget what it knows of x. It follows every path through a loop as long as their states differ,
 * say in the range of an offset; once forgotten, the states are the same and the next round is followed once. Costs a
 * load.
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

/* Reads below are not made before reads above. What BPF reads is not changed while it runs: its map is replaced. */
WEIR_INLINE void read_fence(void)
{
}

/*
 * Where a packet's first buffer begins and ends: words 0 and 1 of a program's context (struct xdp_md), which the
 * verifier knows as pointers. By assembly, because the compiler would keep what C reads as 32 bits in 32 bits of the
 * stack when it runs out of registers, and the verifier takes no such pointer back.
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
 * A copy of the `bytes` at `offset` of a frame that does not hold them in its first buffer, or NULL if it ends before
 * them. The next call overwrites it. Programs that read frames define it (xdp.h); hidden, since the verifier then
 * follows its pointer to the caller.
 */
__attribute__((visibility("hidden"))) const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes);

enum {
	FRAME_COPY_BYTES = 40,	 /* the most that is asked for at a time: an IPv6 header */
	FRAME_PADDING_MASK = 15, /* there is less than that before a frame */
};

/*
 * The `bytes` at `offset`, or NULL if the frame ends before them. What the verifier learns from a comparison it knows
 * of that one register; the compiler must not compute offset or address anew and read through those. `cap` need not be
 * asked: memory ends where the frame does (xdp.h). What is read is read before the next call: it may be a copy.
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
 * frame_at() for rules. What the verifier learns of a packet's length it would tell apart in all rules that follow;
 * rules in parts have it forget that: they begin anew at the memory's start.
 */
WEIR_INLINE const uint8_t *frame_at_again(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
#ifdef WEIR_PARTS
	uint32_t padding = frame->padding;

	/* It has been compared with its bound, in another register. */
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

/* x86 and arm64 kernels read unaligned words; the BPF back end would otherwise read byte by byte. */
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

/* Packets come in bursts, whose keys can be looked up together. In BPF there is one packet. */
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

/* What is counted for a bucket, of limiters that count it. */
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

/* Reads below are not made before reads above. */
WEIR_INLINE void read_fence(void)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* The stages of a burst. A benchmark that asks where the time goes defines WEIR_STAGE_CLOCK; everyone else pays
 * nothing. */
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

/* Adds the cycles since `start` to the stage; the next one starts now. */
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
 * So many frames are on their way from memory while one is parsed: what a network card or a capture left is in no near
 * cache, and fewer leave the parser waiting where tables have pushed everything else out.
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

/* Keeps the compiler from turning a bounded value back into branches that the verifier would follow one by one. */
WEIR_INLINE uint32_t opaque(uint32_t x)
{
	__asm__ volatile("" : "+r"(x));
	return x;
}

#endif
