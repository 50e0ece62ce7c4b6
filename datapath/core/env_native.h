/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The environment in user space. Only core/env.h includes it, after the types that both environments share.
 */
#ifndef WEIR_CORE_ENV_NATIVE_H
#define WEIR_CORE_ENV_NATIVE_H

/* Packets come in bursts, and the keys of a burst are looked up together. BPF has one packet at a time. */
#define WEIR_BURSTS
#define WEIR_LIMITS_STORAGE
#define WEIR_FRESH
/* A function that a verifier would follow once per program. */
#define WEIR_GLOBAL WEIR_INLINE
/* Native code calls such a function, which is compiled once. The kernel's programs inline it. */
#define WEIR_NATIVE_FUNCTION WEIR_NOINLINE
#define WEIR_TABLE(env, index) ((struct table){(env)->tables.images[index], UINT32_MAX, 0})

#if !__STDC_HOSTED__ && defined(__x86_64__) && !defined(_STRING_H) /* no C library */

/*
 * Compilers call these for large copies, above all on processors without AVX. Policies have no C library. In the symbol
 * table they are local, so nothing else calls them.
 */
static __attribute__((used, noinline)) void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
	void *at = to;

	__asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(bytes) : : "memory");
	return to;
}

static __attribute__((used, noinline)) void *memset(void *to, int byte, size_t bytes)
{
	void *at = to;

	__asm__ volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(byte) : "memory");
	return to;
}

#endif

struct env {
	struct burst_counters counters;
	struct burst_tables tables;
	struct burst_limits limits;
	struct burst_flows flows;
	enum from_side from; /* of the packets, if the chain tracks them */
};

WEIR_INLINE struct table env_limits(const struct env *env)
{
	return (struct table){env->limits.image, UINT32_MAX, 0};
}

WEIR_INLINE uint64_t *env_bucket(const struct env *env, uint32_t place)
{
	return env->limits.buckets + place;
}

WEIR_INLINE uint64_t *env_buckets(const struct env *env, uint32_t place, uint32_t count)
{
	(void)count;
	return env->limits.buckets + place;
}

/* The count of a bucket whose limiter counts. */
WEIR_INLINE uint64_t *env_exceeded(const struct env *env, uint32_t place)
{
	return env->limits.exceeded + place;
}

WEIR_INLINE uint64_t *env_passed(const struct env *env, uint32_t place)
{
	return env->limits.passed + place;
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

/* The image inside this one that begins at byte `base`, a multiple of 64. */
WEIR_INLINE struct table table_inside(struct table table, uint32_t base)
{
	return (struct table){table.image + base, UINT32_MAX, 0};
}

WEIR_INLINE uint32_t bounded(uint32_t x, uint32_t mask)
{
	(void)mask;
	return x;
}

WEIR_INLINE uint32_t forget(uint32_t x)
{
	return x;
}

WEIR_INLINE void keep_in_memory(void *object)
{
	(void)object;
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

/* No verifier remembers what was read of a frame. */
WEIR_INLINE struct frame frame_again(const struct frame *frame)
{
	return *frame;
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

WEIR_INLINE uint64_t host64(const uint8_t *at)
{
	uint64_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	return word;
}

#endif
