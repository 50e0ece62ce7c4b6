/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The split of tracking between a pipeline and its controller, as in "Moving down the stack" (Dietz et al., 2023,
 * section III), but with sequence numbers checked in the pipeline.
 *
 * The pipeline tracks the packets that leave the state and class of a known flow as they are: it checks their numbers,
 * refuses what the windows refuse, and writes the three state words of the entry. It never writes keys and tags. All
 * other packets go to the controller: those of unknown flows, and those that change a state.
 *
 * Verdicts are those of one packet after the other, however long the controller takes:
 *
 *	The flow is proven, no earlier packet of it waits, and those that wait came in the same tick: the packet passes
 *	them. The controller never evicts such a flow, and reads nothing of it but its class and whether it has expired.
 *
 *	All others wait until no earlier packet of the burst waits, and the controller has nothing to do.
 *
 * A program whose verdicts depend on the order of different flows (`is_ordered`) decides one packet at a time.
 */
#ifndef WEIR_P4_SPLIT_H
#define WEIR_P4_SPLIT_H

#include "p4/controller.h"
#include "p4/flow.h"

/* Which flows are tracked in the pipeline. */
enum split_flows {
	SPLIT_PROVEN,
	SPLIT_ALL,
};

WEIR_INLINE uint64_t split_status(const struct track *track)
{
	return track->words[FLOW_STATE_WORDS - 1];
}

/* Finds the flow of a packet, and locks it. An expired flow counts as unknown, and stays. */
WEIR_INLINE bool split_find(const struct env *env, struct track *track, uint32_t now)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct flow_bucket *bucket = flow_bucket(env, track->hash.bucket[i]);
		const uint32_t index = flow_find_in(env, bucket, track->hash.tag, &track->key);
		uint64_t *entry;

		if (index >= FLOW_ENTRIES)
			continue;
		entry = bucket->entries[index];
		if (flow_expired(entry, &tracking.timeouts, now)) {
			flow_unlock(env, &entry[FLOW_STATUS]);
			return false;
		}
		track->at = (struct flow_at){track->hash.bucket[i], index};
		for (uint32_t word = 0; word < FLOW_STATE_WORDS; word++)
			track->words[word] = entry[FLOW_KEY_WORDS + word];
		return true;
	}
	return false;
}

/* Whether the judgement of a packet leaves the state and the class that its flow had with a status word. */
WEIR_INLINE bool split_keeps(const struct track *track, uint64_t before)
{
	const uint64_t after = split_status(track);

	if (track->outcome == OUTCOME_REFUSE)
		return true;
	return (track->outcome == OUTCOME_UPDATE || track->outcome == OUTCOME_KEEP) &&
	       status_state(after) == status_state(before) && status_class(after) == status_class(before);
}

/* Tracks a packet in the pipeline. Returns false, and changes nothing, if its flow is none of these or would change. */
WEIR_NOINLINE bool split_track_here(const struct env *env, struct track *track, uint32_t now, enum split_flows flows)
{
	uint64_t before;
	bool here;

	track->is_known = split_find(env, track, now);
	if (!track->is_known)
		return false;
	before = split_status(track);
	here = flows == SPLIT_ALL || status_class(before) == FLOW_PROVEN;
	if (here) {
		p4_judge_flow(env, track, now);
		here = split_keeps(track, before);
	}
	if (!here)
		track->outcome = OUTCOME_REFUSE;
	write_flow(env, track);
	return here;
}

/* Whether packet `i` may not pass the earlier packets that wait: one has the same flow, or another time. */
WEIR_INLINE bool split_follows(const struct p4_worker *worker, uint32_t i)
{
	const struct p4_flow *own = p4_flow(worker, i);
	const struct flow_hash *hash = &own->track.hash;

	for (uint64_t rest = worker->waiting & ((UINT64_C(1) << i) - 1); rest; rest &= rest - 1) {
		const struct p4_flow *other = p4_flow(worker, first_of(rest));
		const struct flow_hash *others = &other->track.hash;

		if (other->now != own->now || (hash->tag == others->tag && hash->bucket[0] == others->bucket[0]))
			return true;
	}
	return false;
}

/* Sends a packet to the controller. */
WEIR_INLINE void split_send(struct p4_worker *worker, uint32_t i, enum from_side from)
{
	struct p4_errand *errand = &worker->controller->errand;
	const struct frame frame = burst_frame(worker->burst, i);

	errand->request = REQUEST_TRACK;
	errand->captured = frame.cap;
	errand->length = frame.len;
	errand->link = frame.link;
	errand->now = p4_flow(worker, i)->now;
	errand->from = from;
	worker->controller->tracked_away++;
	worker->controller->send(worker->controller, frame.data);
}

/* Takes the controller's answer. */
WEIR_INLINE void split_take(const struct p4_errand *errand, struct track *track)
{
	track->state = errand->state;
	track->refused = errand->refused;
	track->opens = errand->opens;
}

/* Continues with a packet that waits. Returns whether it is tracked. */
WEIR_INLINE bool split_continue(struct p4_worker *worker, uint32_t i, enum from_side from)
{
	struct p4_flow *flow = p4_flow(worker, i);
	const bool is_first = !(worker->waiting & ((UINT64_C(1) << i) - 1));

	if (!is_first || controller_is_busy(worker->controller))
		return false;
	if (flow->stage == P4_AWAY) {
		split_take(&worker->controller->errand, &flow->track);
		return true;
	}
	if (split_track_here(&worker->env, &flow->track, flow->now, SPLIT_ALL)) {
		worker->controller->tracked_here++;
		return true;
	}
	split_send(worker, i, from);
	flow->stage = P4_AWAY;
	return false;
}

/* Tracks packet `i` here or at the controller. Returns false if the packet waits, and must be called again then. */
WEIR_NOINLINE bool split_track(struct p4_worker *worker, uint32_t i, enum from_side from)
{
	struct p4_flow *flow = p4_flow(worker, i);
	const uint64_t bit = UINT64_C(1) << i;

	if (flow->stage == P4_FRESH) {
		const struct frame frame = burst_frame(worker->burst, i);

		p4_read(&worker->env, &frame, track_time(worker->env.flows.head, burst_time(worker->burst, i)), from,
			flow);
		flow->stage = P4_TRACKED;
		if (flow->track.subject < SUBJECT_TCP)
			return true;
		if (!split_follows(worker, i) &&
		    split_track_here(&worker->env, &flow->track, flow->now, SPLIT_PROVEN)) {
			worker->controller->tracked_here++;
			return true;
		}
		worker->waiting |= bit;
		flow->stage = P4_WAITS;
	}
	if (!split_continue(worker, i, from)) {
		worker->waits++;
		return false;
	}
	worker->waiting &= ~bit;
	flow->stage = P4_TRACKED;
	return true;
}

/*
 * Tells the controller that the packet whose answer was the last one is accepted. No packet has been sent since,
 * because the pipeline has not left the packet.
 */
WEIR_INLINE void split_accept(struct p4_controller *controller)
{
	controller->errand.request = REQUEST_ACCEPT;
	controller->errand.captured = 0;
	controller->send(controller, NULL);
}

/* What the controller does with an errand. `worker` is its own, and keeps the packet until it is accepted. */
static void __attribute__((unused)) split_serve(struct p4_worker *worker, struct p4_errand *errand)
{
	struct p4_flow *flow = p4_flow(worker, 0);
	struct track *track = &flow->track;
	const struct frame frame = {
		.data = errand->bytes, .cap = errand->captured, .len = errand->length, .link = errand->link};

	if (errand->request == REQUEST_ACCEPT) {
		track_open(&worker->env, track);
		return;
	}
	p4_read(&worker->env, &frame, errand->now, (enum from_side)errand->from, flow);
	p4_judge(&worker->env, flow);
	errand->state = track->state;
	errand->refused = track->refused;
	errand->opens = track->opens;
}

#endif
