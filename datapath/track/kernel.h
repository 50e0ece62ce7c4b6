/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tracks packets in the kernel, one at a time. For bursts: track/burst.h.
 *
 * All CPUs use one table. What is known of a packet is in its CPU's memory, a map's value, so the verifier knows
 * nothing about it: the steps of the tracker are global functions without pointers, which it follows once each.
 */
#ifndef WEIR_TRACK_KERNEL_H
#define WEIR_TRACK_KERNEL_H

#include "kernel/bpf.h"
#include "kernel/mode.h"
#include "track/tracker.h"
#include "kernel/hook.h"

/* Defines what the headers of the tracker declare. */
#define WEIR_KERNEL_PART WEIR_IN_KERNEL __attribute__((always_inline))

/* What a CPU knows of its packet. Its size is CPU_TRACK_BYTES in crates/abi/src/kernel.rs. */
struct cpu_track {
	struct track track;
	uint64_t now_ns;
	uint32_t now; /* ticks */
	bool is_tracked;
	bool is_asked; /* whether the SYN proxy has seen it */
	uint8_t options[OPTIONS_ROOM + OPTIONS_BEYOND];
	struct edit edit; /* enter_among_others() */
} __attribute__((aligned(512)));

_Static_assert(sizeof(struct cpu_track) == 512, "CPU_TRACK_BYTES");

/* One for each CPU. The engine makes the section that long. */
struct cpu_track weir_tracks[1] __attribute__((aligned(64))) WEIR_SECTION(".bss.tracks");

/* The head of the table. The engine replaces the section by the map that all programs share. */
struct flow_head weir_flow_head __attribute__((aligned(64))) WEIR_SECTION(".bss.flow_head");

/* The buckets of the table. The engine replaces the map, too. */
struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[1];
	uint32_t *key;
	struct flow_bucket *value;
	int (*map_flags)[BPF_F_MMAPABLE];
} weir_flows WEIR_SECTION(".maps");

WEIR_INLINE struct cpu_track *own_track(void)
{
	return &weir_tracks[live_cpu()];
}

WEIR_KERNEL_PART bool flow_alone(const struct env *env)
{
	(void)env;
	return false;
}

WEIR_KERNEL_PART struct flow_bucket *flow_bucket(const struct env *env, uint32_t number)
{
	(void)env;
	return bpf_map_lookup_elem(&weir_flows, &number);
}

enum { LOCK_STEPS = 1 << 22 }; /* about a tenth of a second: the CPU with the lock may stand still in its host */

struct lock_wait {
	volatile uint64_t *word;
	uint64_t is_held;
};

static long lock_step(uint32_t step, void *state)
{
	struct lock_wait *wait = state;

	(void)step;
	wait->is_held = lock_once(wait->word);
	return (long)wait->is_held;
}

WEIR_NOINLINE bool lock_slowly(volatile uint64_t *word)
{
	struct lock_wait wait = {.word = word, .is_held = 0};

	repeat(LOCK_STEPS, lock_step, &wait);
	return wait.is_held;
}

WEIR_KERNEL_PART bool flow_lock(const struct env *env, volatile uint64_t *word)
{
	(void)env;
	return lock_once(word) || lock_slowly(word);
}

#include "track/kernel_ack.h"

WEIR_KERNEL_PART void frame_options(const struct frame *frame, uint32_t offset, uint32_t bytes,
				    struct tcp_options *found)
{
	uint8_t *options = own_track()->options;
	const uint64_t before = one_less(bytes);

	if (before >= OPTIONS_ROOM || offset + bytes > WEIR_WINDOW_BYTES || offset + bytes > frame->cap)
		return;
	if (frame_load(frame, offset, options, one_more(before)))
		return;
	read_options(options, bytes, found);
}

/* The steps of a packet. They return a number because they are global. */
WEIR_GLOBAL uint32_t weir_track_find(uint32_t now)
{
	find_flow(NULL, &own_track()->track, now);
	return 0;
}

WEIR_GLOBAL uint32_t weir_flow_free_expired(uint32_t bucket, uint32_t now)
{
	free_expired_in(NULL, bucket, now);
	return 0;
}

WEIR_GLOBAL uint32_t weir_flow_use(uint32_t bucket, uint32_t class)
{
	return use_in(NULL, bucket, class);
}

WEIR_GLOBAL uint32_t weir_flow_spare(uint32_t bucket, uint32_t class, uint32_t age_min, uint32_t start, uint32_t now)
{
	const struct spare spare = {class, age_min, start, now};

	return spare_in(NULL, bucket, &spare);
}

WEIR_KERNEL_PART void place_free_expired(const struct env *env, uint32_t bucket, uint32_t now)
{
	(void)env;
	weir_flow_free_expired(bucket, now);
}

WEIR_KERNEL_PART uint32_t place_use(const struct env *env, uint32_t bucket, uint32_t class)
{
	(void)env;
	return weir_flow_use(bucket, class);
}

WEIR_KERNEL_PART uint32_t place_spare(const struct env *env, uint32_t bucket, const struct spare *spare)
{
	(void)env;
	return weir_flow_spare(bucket, spare->class, spare->age_min, spare->start, spare->now);
}

WEIR_GLOBAL uint32_t weir_track_place(uint32_t now)
{
	place_flow(NULL, &own_track()->track, now);
	return 0;
}

WEIR_GLOBAL uint32_t weir_judge_tcp(uint32_t now)
{
	judge_tcp(&own_track()->track, now);
	return 0;
}

WEIR_KERNEL_PART void track_judge_tcp(struct track *track, uint32_t now)
{
	(void)track;
	weir_judge_tcp(now);
}

#ifdef WEIR_REWRITES
#include "proxy/kernel.h"
#else
/* Without a SYN proxy. */
WEIR_INLINE uint32_t proxy_verdict(const struct frame *frame, uint32_t verdict)
{
	(void)frame;
	return verdict;
}
#endif

WEIR_GLOBAL uint32_t weir_track_judge(uint32_t now)
{
	judge(NULL, &own_track()->track, now);
	return 0;
}

WEIR_KERNEL_PART void track_find(const struct env *env, struct track *track, uint32_t now)
{
	(void)env;
	(void)track;
	weir_track_find(now);
}

WEIR_KERNEL_PART void track_place(const struct env *env, struct track *track, uint32_t now)
{
	(void)env;
	(void)track;
	weir_track_place(now);
}

WEIR_KERNEL_PART void track_judge(const struct env *env, struct track *track, uint32_t now)
{
	(void)env;
	(void)track;
	weir_track_judge(now);
}

/*
 * Reads the well-formed packet in the CPU's memory. The verifier would follow the reads of a frame in the program again
 * for each of its paths, so the frame is found anew here.
 */
WEIR_GLOBAL uint32_t weir_track_read(hook_context *ctx, uint32_t from)
{
	packet_view *packet = &weir_packets[live_cpu()].packet;
	struct cpu_track *own = own_track();
	struct env env = {.now_ns = 0};
	struct frame frame;

	if (!hook_frame(ctx, &env, &frame))
		return 0;
	own->now_ns = env_coarse_now(&env);
	own->now = track_time(&weir_flow_head, own->now_ns);
	own->is_tracked = true;
	own->is_asked = false;
	track_keep(&own->track);
	track_read(&weir_flow_head, &frame, packet, (enum from_side)(from & 1), &own->track);
	if (own->track.subject == SUBJECT_TCP)
		read_segment(&frame, packet, &own->track.segment);
	return 0;
}

/* The common case; returns whether it was. */
WEIR_GLOBAL uint32_t weir_track_fast(uint32_t now)
{
	struct track *track = &own_track()->track;
	packet_view *packet = &weir_packets[live_cpu()].packet;
	struct flow_bucket *bucket = flow_bucket(NULL, track->at.bucket);
	struct fast_ack ack;

	if (!bucket || !is_plain_ack(packet) || track->segment.options.highest != track->segment.ack)
		return false;
	ack = read_fast_ack(packet);
	return track_fast(bucket->entries[track->at.entry & (FLOW_ENTRIES - 1)], FAST_MASK, &ack, track->sender & 1,
			  now);
}

/* Tracks the packet that was read. */
WEIR_INLINE void track_packet(struct track *track, uint32_t now)
{
	if (track->subject < SUBJECT_TCP)
		return;
	track_find(NULL, track, now);
	if (track->is_known && track->subject == SUBJECT_TCP && weir_track_fast(now)) {
		track_established(track);
		return;
	}
	track_judge(NULL, track, now);
	track_finish(NULL, track, now);
}

WEIR_GLOBAL uint32_t weir_track(uint32_t now)
{
	track_packet(&own_track()->track, now);
	return 0;
}

WEIR_GLOBAL uint32_t weir_track_open(uint32_t now)
{
	struct cpu_track *own = own_track();

	enter_among_others(NULL, &weir_flow_head, &own->track, &own->edit, now);
	return 0;
}

/* The common case of almost all packets, in one step; returns whether it was. */
WEIR_GLOBAL uint32_t weir_track_ack(hook_context *ctx, uint32_t from)
{
	struct cpu_track *own = own_track();
	struct env env = {.now_ns = 0};
	const uint8_t *at;
	struct frame frame;

	if (!hook_frame(ctx, &env, &frame))
		return false;
	at = ack_frame(&frame);
	if (!at || !track_ack(at, from & 1, track_time(&weir_flow_head, env_coarse_now(&env))))
		return false;
	own->is_tracked = true;
	own->track.opens = PLACE_FULL;
	track_keep(&own->track);
	track_established(&own->track);
	return true;
}

/* Tracks a well-formed packet that arrived from a side. */
WEIR_INLINE void track(const struct frame *frame, enum from_side from)
{
	if (WEIR_LIKELY(weir_track_ack(frame->ctx, from)))
		return;
	weir_track_read(frame->ctx, from);
	weir_track(own_track()->now);
}

/* Before a packet: nothing is known of it. */
WEIR_INLINE void track_forget(void)
{
	own_track()->is_tracked = false;
}

/* After a packet: tracks it if it is accepted and was not tracked before, and enters the flow that it opens. */
WEIR_INLINE uint32_t track_verdict(const struct frame *frame, enum from_side from, uint32_t verdict)
{
	struct cpu_track *own = own_track();

	if (is_tracked_late(verdict)) {
		if (!own->is_tracked)
			track(frame, from);
		if (own->track.opens != PLACE_FULL)
			weir_track_open(own->now);
	} else if ((verdict & 0xff) != ACTION_REPLY) {
		return verdict;
	}
	return proxy_verdict(frame, verdict);
}

/* The state of a packet that was tracked, as rules test it. */
WEIR_INLINE uint32_t packet_state(packet_view *packet)
{
	(void)packet;
	return *(volatile uint8_t *)&own_track()->track.state;
}

/* Whether the tracker has refused the packet. */
WEIR_INLINE bool is_refused(packet_view *packet)
{
	return packet_state(packet) == STATE_INVALID;
}

/* Why it has. */
WEIR_INLINE enum reason refusal(packet_view *packet)
{
	(void)packet;
	return (enum reason) * (volatile uint8_t *)&own_track()->track.refused;
}

#endif
