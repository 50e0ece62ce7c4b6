/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The environment in the kernel's BPF machine. Only core/env.h includes it, after the types that both environments
 * share.
 */
#ifndef WEIR_CORE_ENV_BPF_H
#define WEIR_CORE_ENV_BPF_H

#define WEIR_SECTION(name) __attribute__((section(name), used))

/* A function that the verifier follows once per program, with unknown arguments, and not at each call. */
#define WEIR_GLOBAL __attribute__((noinline))
#define WEIR_NATIVE_FUNCTION WEIR_INLINE

/*
 * Rules load a packet's fields for each use. The verifier distinguishes values kept in registers, so the paths through
 * many rules multiply. A value that was just loaded is the same on every path.
 */
#define WEIR_FRESH volatile

/*
 * One value per table, addressed directly: no helper call, no null check. The engine passes the capacities. A word may
 * be read from any byte on, so there are bytes after the last one.
 *
 * A table that can change has two halves (crates/state/src/tables/kernel.rs), and WEIR_TABLE_<index>_OTHER is the
 * offset of the second one; for other tables it is 0. `halves` says by a bit for each table which half is read. It is
 * the same for the whole packet for the first 64 tables, which is more than one program can have. The bits of further
 * tables, which programs in parts can have, are read at each lookup.
 */
#define WEIR_TABLE_BYTES(index, bytes)                                                                                 \
	uint8_t weir_table_##index[bytes] __attribute__((aligned(64))) WEIR_SECTION(".bss.table" #index)
#define WEIR_HALF(halves, index)                                                                                       \
	(((index) < 64 ? (halves) : weir_words.more[(index) / 64 - ((index) >= 64)]) >> ((index) & 63) & 1)

#ifndef WEIR_SIZES_AT_LOAD

#define WEIR_TABLE_STORAGE(index)                                                                                      \
	WEIR_TABLE_BYTES(index, WEIR_TABLE_##index##_BYTES + WEIR_TABLE_##index##_OTHER + sizeof(uint64_t))
#define WEIR_TABLE_HALF(halves, index)                                                                                 \
	((struct table){weir_table_##index + WEIR_HALF(halves, index) * WEIR_TABLE_##index##_OTHER,                    \
			WEIR_TABLE_##index##_BYTES - 1, 0})
#define WEIR_KNOWN_SIZES true

#else

/*
 * A bundle does not know the sizes of its data: tables continue with what they have become, and other bundles share
 * tables and buckets. The loader writes the sizes here and sets the sizes of the sections. The kernel freezes the
 * section, so the verifier knows the numbers. The compiler must not conclude anything from the sizes that it sees.
 */
struct table_sizes {
	uint32_t mask;	  /* of the image: its capacity less 1 */
	uint32_t other;	  /* offset of the second half; 0 if there is none */
	uint32_t entries; /* counters of a CPU, a power of two; 0 if entries have none */
};

const volatile struct loaded_sizes {
	uint32_t limits_mask;
	uint32_t buckets;
	struct table_sizes tables[WEIR_TABLES];
} weir_sizes WEIR_SECTION(".rodata.sizes") = {.buckets = 64};

WEIR_INLINE void *sized_at_load(void *memory)
{
	__asm__("" : "+r"(memory));
	return memory;
}

/* The offset of a half. A product is one path for the verifier; the compiler would make it a branch. */
WEIR_INLINE uint64_t half_offset(uint64_t half, uint32_t other)
{
	__asm__("" : "+r"(half));
	return half * other;
}

#define WEIR_TABLE_STORAGE(index) WEIR_TABLE_BYTES(index, sizeof(uint64_t))
#define WEIR_TABLE_HALF(halves, index)                                                                                 \
	((struct table){(uint8_t *)sized_at_load(weir_table_##index) +                                                 \
				half_offset(WEIR_HALF(halves, index), weir_sizes.tables[index].other),                 \
			weir_sizes.tables[index].mask, 0})
#define WEIR_KNOWN_SIZES false

#endif

#define WEIR_TABLE(env, index) WEIR_TABLE_HALF((env)->halves, index)

/* Words that programs read and the engine writes: struct Words in crates/abi/src/kernel.rs. */
struct words {
	uint64_t halves;	     /* of tables that change, a bit for each of the first 64 tables */
	uint32_t zero;		     /* always 0, see forget() */
	uint32_t policy;	     /* its number in copies of packets (observe/kernel_tap.h) */
	uint64_t more[31];	     /* the bits of further tables */
	uint8_t taps[WEIR_COUNTERS]; /* by reason: bits of the taps that want its packets */
};

_Static_assert(offsetof(struct words, taps) == 264, "Words");

volatile struct words weir_words WEIR_SECTION(".bss.words");

struct env {
	struct weir_counter *counters;	   /* of this CPU: WEIR_COUNTERS of them, a power of two */
	uint64_t now_ns;		   /* time of a replayed frame */
	uint64_t halves;		   /* of tables that change: the same for the whole packet */
	const WEIR_FRESH uint8_t *answers; /* of a card about the packet (card/answers.h); none in other chains */
};

/*
 * Data of programs with limiters (limits/limit.h): their image, the buckets, and the counts of each bucket if a limiter
 * counts (WEIR_LOGGED: the highest enum limit_logged). The engine passes the sizes.
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

#ifndef WEIR_SIZES_AT_LOAD
#define WEIR_LIMITS_MASK (WEIR_LIMITS_BYTES - 1)
#define WEIR_BUCKET_COUNT WEIR_BUCKETS
#define WEIR_WORDS(name) weir_##name
#define WEIR_LIMITS weir_limits
#else
#define WEIR_LIMITS_MASK weir_sizes.limits_mask
#define WEIR_BUCKET_COUNT weir_sizes.buckets
#define WEIR_WORDS(name) ((uint64_t *)sized_at_load(weir_##name))
#define WEIR_LIMITS sized_at_load(weir_limits)
#endif

WEIR_INLINE struct table env_limits(const struct env *env)
{
	(void)env;
	return (struct table){WEIR_LIMITS, WEIR_LIMITS_MASK, 0};
}

/*
 * The index of a bucket's words, or of the first of `count` consecutive ones: one comparison bounds all of them. Bucket
 * 0 belongs to no limit. The compiler must not compare one copy of the index and use another, see frame_at().
 */
WEIR_INLINE uint64_t bounded_place(uint32_t place, uint32_t count)
{
	uint64_t index = place;

	__asm__ volatile("" : "+r"(index));
	return index <= WEIR_BUCKET_COUNT - count ? index : 0;
}

WEIR_INLINE uint64_t *env_bucket(const struct env *env, uint32_t place)
{
	(void)env;
	return &WEIR_WORDS(buckets)[bounded_place(place, 1)];
}

/* Like env_bucket() for the first of `count` consecutive buckets. */
WEIR_INLINE uint64_t *env_buckets(const struct env *env, uint32_t place, uint32_t count)
{
	(void)env;
	return &WEIR_WORDS(buckets)[bounded_place(place, count)];
}

/* The count of a bucket; NULL if no limiter counts it. */
WEIR_INLINE uint64_t *env_exceeded(const struct env *env, uint32_t place)
{
	(void)env;
	return WEIR_LOGGED >= 1 ? &WEIR_WORDS(exceeded)[bounded_place(place, 1)] : NULL;
}

/* Like env_exceeded() for the first of `count` consecutive words. */
#if WEIR_LOGGED >= 1
WEIR_INLINE uint64_t *env_exceeded_words(const struct env *env, uint32_t place, uint32_t count)
{
	(void)env;
	return &WEIR_WORDS(exceeded)[bounded_place(place, count)];
}
#endif

WEIR_INLINE uint64_t *env_passed(const struct env *env, uint32_t place)
{
	(void)env;
	return WEIR_LOGGED >= 2 ? &WEIR_WORDS(passed)[bounded_place(place, 1)] : NULL;
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
	if ((!WEIR_KNOWN_SIZES || table.mask >= WEIR_PLAIN_BYTES) && !__builtin_constant_p(offset))
		__asm__ volatile("" : "+r"(offset));
	return offset;
}

WEIR_INLINE const uint8_t *table_at(struct table table, uint32_t offset)
{
	return table.image + (table_offset(table, table.base + offset) & table.mask);
}

/* Like table_at() for a block of `bytes` (a power of two) at a multiple of its size: one mask bounds all of it. */
WEIR_INLINE const uint8_t *table_block(struct table table, uint32_t offset, uint32_t bytes)
{
	return table.image + (table_offset(table, table.base + offset) & table.mask & ~(bytes - 1));
}

/* The image inside this one that begins at byte `base`, a multiple of 64, which the mask shows to the verifier. */
WEIR_INLINE struct table table_inside(struct table table, uint32_t base)
{
	return (struct table){table.image, table.mask, base & ~UINT32_C(63)};
}

/*
 * An index that is at most `mask`, 2^n - 1. The compiler may know that, and leave the mask out; the verifier does not
 * know it.
 */
WEIR_INLINE uint32_t bounded(uint32_t x, uint32_t mask)
{
	__asm__ volatile("" : "+r"(x));
	return x & mask;
}

/* Like bounded(), for 64 bits: a word from memory is not truncated first. */
WEIR_INLINE uint64_t bounded64(uint64_t x, uint32_t mask)
{
	__asm__ volatile("" : "+r"(x));
	return x & mask;
}

/*
 * a + b. Where the compiler knows that they have no bit in common, it would OR them. The verifier of Linux 6.1 does not
 * know the bound of that.
 */
WEIR_INLINE uint64_t plus(uint64_t a, uint64_t b)
{
	__asm__ volatile("" : "+r"(b));
	return a + b;
}

/*
 * Lengths for helpers of the kernel, which take none that may be 0. Verifiers before Linux 6.8 learn nothing from a
 * comparison with 0. So a length is one more than a number that is compared with its bound:
 *
 *	const uint64_t before = one_less(bytes);
 *
 *	if (before < BYTES_MAX && !bpf_xdp_load_bytes(ctx, 0, to, one_more(before)))
 *
 * The assembly keeps the compiler from adding before it compares, and from comparing `bytes`.
 */
WEIR_INLINE uint64_t one_less(uint32_t bytes)
{
	uint64_t before = (uint64_t)bytes - 1;

	__asm__ volatile("" : "+r"(before));
	return before;
}

WEIR_INLINE uint32_t one_more(uint64_t before)
{
	__asm__ volatile("%0 += 1" : "+r"(before));
	return (uint32_t)before;
}

/*
 * Makes the verifier forget what it knows of x. The verifier follows every path through a loop as long as their states
 * differ, for example in the range of an offset. Once forgotten, the states are equal, and the next round is followed
 * once. Costs a load.
 */
WEIR_INLINE uint32_t forget(uint32_t x)
{
	return x + weir_words.zero;
}

WEIR_INLINE uint64_t forget64(uint64_t x)
{
	return x + weir_words.zero;
}

/*
 * Keeps an object in memory. Else each of its fields may become several variables, each with its place on the stack. A
 * program and its functions together have a stack of 512 bytes.
 */
WEIR_INLINE void keep_in_memory(void *object)
{
	__asm__ volatile("" : : "r"(object) : "memory");
}

/*
 * Calls `step` with 0, 1, ... and the state until it returns 1, at most `steps` times: the verifier follows only a few
 * steps of this loop (bpf_loop, Linux 5.17).
 */
WEIR_INLINE void repeat(uint32_t steps, long (*step)(uint32_t step, void *state), void *state)
{
	static long (*const bpf_loop)(uint32_t steps, const void *step, void *state, uint64_t flags) = (void *)181;

	bpf_loop(steps, step, state, 0);
}

/* Keeps reads below it after reads above it. BPF has no fence for reads; x86 needs none. */
WEIR_INLINE void read_fence(void)
{
	__asm__ volatile("" ::: "memory");
}

/*
 * The start and the end of a packet's first buffer. They are words of a program's context (struct xdp_md, or struct
 * __sk_buff for packets that a host sends), which the verifier knows as pointers. C would read them as 32 bits. When
 * the compiler runs out of registers it stores those in 32 bits of the stack, and the verifier no longer accepts them
 * as pointers. So they are read by assembly.
 */
#ifdef WEIR_SENT
#define CONTEXT_DATA "76"
#define CONTEXT_END "80"
#else
#define CONTEXT_DATA "0"
#define CONTEXT_END "4"
#endif

WEIR_INLINE const uint8_t *context_data(const void *ctx)
{
	const uint8_t *data;

	__asm__ volatile("%0 = *(u32 *)(%1 + " CONTEXT_DATA ")" : "=r"(data) : "r"(ctx));
	return data;
}

WEIR_INLINE const uint8_t *context_end(const void *ctx)
{
	const uint8_t *end;

	__asm__ volatile("%0 = *(u32 *)(%1 + " CONTEXT_END ")" : "=r"(end) : "r"(ctx));
	return end;
}

/* Whether the VLAN tag of a packet that a host sends is beside it, for the card to put in: word 5 of its context. */
#ifdef WEIR_SENT
WEIR_INLINE bool context_is_tagged(const void *ctx)
{
	return ((const volatile uint32_t *)ctx)[5] != 0;
}
#endif

/*
 * A copy of the `bytes` at `offset` of a frame whose first buffer does not have them; NULL if the frame ends before
 * them. The next call overwrites it. Programs that read frames define it (kernel/hook.h).
 *
 * It is inlined where the verifier of Linux 6.1 must prove the program. Behind a call of a function that verifier takes
 * the exact value of every number for significant, and follows each path through the parser to the end of the program.
 * Programs for packets that a host sends need Linux 6.6. There it is hidden, so the verifier follows its pointer to the
 * caller. Programs without a context never call it and have none.
 */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-internal"
#ifdef WEIR_SENT
__attribute__((visibility("hidden"))) const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes);
#else
WEIR_INLINE const uint8_t *frame_copy(void *ctx, uint32_t offset, uint32_t bytes);
#endif
#pragma clang diagnostic pop

enum {
	FRAME_COPY_BYTES = 40,			      /* the most bytes of one call: an IPv6 header */
	FRAME_PADDING_MASK = 15,		      /* fewer bytes than this are in front of a frame */
	FRAME_PLACE_MASK = 2 * WEIR_WINDOW_BYTES - 1, /* of a place that is not beyond the window */
};

/*
 * The `bytes` at `offset`, or NULL if the frame ends before them. The verifier applies what a comparison proves to that
 * one register only. So the compiler must not compute the offset or the address again and read through the copy. `cap`
 * need not be compared: memory ends where the frame ends (kernel/xdp.h). The caller reads the bytes before the next
 * call, because they may be a copy.
 */
WEIR_INLINE const uint8_t *frame_at(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
	uint64_t place = offset;
	const uint8_t *at;

	if (!__builtin_constant_p(offset))
		__asm__ volatile("" : "+r"(place));
	if (place > WEIR_WINDOW_BYTES || place + bytes > WEIR_WINDOW_BYTES)
		return NULL;
	/* Linux 6.1 does not know that a copy on the stack has the same bound. */
	if (!__builtin_constant_p(offset)) {
		__asm__ volatile("" : "+r"(place));
		place &= FRAME_PLACE_MASK;
	}
#ifdef WEIR_SENT
	if (frame->tagged)
		return frame->ctx ? frame_copy(frame->ctx, (uint32_t)place, bytes) : NULL;
#endif
	at = frame->data + place;
	__asm__ volatile("" : "+r"(at));
	if (WEIR_UNLIKELY(at + bytes > frame->end))
		return frame->ctx ? frame_copy(frame->ctx, (uint32_t)place, bytes) : NULL;
	if (!at)
		__builtin_unreachable();
	return at;
}

/* The frame, as if nothing had been read yet: the verifier forgets how much of it has been found to be there. */
WEIR_INLINE struct frame frame_again(const struct frame *frame)
{
	uint32_t padding = frame->padding;
	struct frame again = *frame;

	/* It was compared with its bound in another register. */
	__asm__ volatile("" : "+r"(padding));
	again.data = context_data(frame->ctx) + (padding & FRAME_PADDING_MASK);
	again.end = context_end(frame->ctx);
#ifdef WEIR_SENT
	again.tagged = context_is_tagged(frame->ctx);
#endif
	return again;
}

/*
 * frame_at() for rules. The verifier would distinguish what it learns of a packet's length in all rules that follow.
 * Rules in parts make it forget that: they begin anew at the start of the memory.
 */
WEIR_INLINE const uint8_t *frame_at_again(const struct frame *frame, uint32_t offset, uint32_t bytes)
{
#ifdef WEIR_PARTS
	const struct frame again = frame_again(frame);

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

/* The first `bytes`, or NULL if they are not read in place. */
WEIR_INLINE const uint8_t *frame_start(const struct frame *frame, uint32_t bytes)
{
	const struct frame first = {.data = frame->data, .end = frame->end};

#ifdef WEIR_SENT
	if (frame->tagged)
		return NULL;
#endif
	return frame_at(&first, 0, bytes);
}

/* x86 and arm64 kernels read unaligned words. Without this the BPF back end reads byte by byte. */
typedef uint16_t unaligned16 __attribute__((may_alias));
typedef uint32_t unaligned32 __attribute__((may_alias));
typedef uint64_t unaligned64 __attribute__((may_alias));

WEIR_INLINE uint16_t be16(const uint8_t *at)
{
	return __builtin_bswap16(*(const unaligned16 *)at);
}

WEIR_INLINE uint32_t host32(const uint8_t *at)
{
	return *(const unaligned32 *)at;
}

WEIR_INLINE uint64_t host64(const uint8_t *at)
{
	return *(const unaligned64 *)at;
}

#endif
