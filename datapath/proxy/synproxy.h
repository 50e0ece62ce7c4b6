/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The SYN proxy: flows that a cookie opens, and packets of proxied flows. proxy/syn_answer.h answers SYNs. The
 * reference is synproxy.rs and proxied.rs in crates/policy/src/ir/eval/tracking; docs/decisions/0037-synproxy.md says
 * why it is so.
 *
 * The numbers of a proxied flow are the server's. A segment of the client is translated before it is judged, one of the
 * server afterwards.
 */
#ifndef WEIR_PROXY_SYNPROXY_H
#define WEIR_PROXY_SYNPROXY_H

#include "proxy/cookie.h"
#include "track/judge.h"

enum { EPOCH_TICKS_SHIFT = COOKIE_EPOCH_SHIFT - FLOW_TICK_SHIFT };

/* What becomes of the packet. */
WEIR_INLINE struct edit track_edit(const struct track *track)
{
	return track->edit;
}

WEIR_INLINE void track_set_edit(struct track *track, const struct edit *edit)
{
	track->edit = *edit;
}

/* The packet leaves as it was received, and asks for nothing. */
WEIR_INLINE void track_keep(struct track *track)
{
	track->edit.kind = EDIT_NONE;
	track->asks = false;
}

/* What is kept of a proxied flow, beside its entry, whose lock is held. In the kernel NULL, which does not happen. */
#ifdef WEIR_BURSTS
WEIR_INLINE struct flow_proxied *proxied_at(const struct env *env, const struct flow_at *at)
{
	return &env->flows.proxied[at->bucket * FLOW_ENTRIES + at->entry];
}

WEIR_INLINE struct flow_head *flow_head(const struct env *env)
{
	return env->flows.head;
}

/* The cookie of a client in an epoch: cookie_make(). */
WEIR_NOINLINE uint32_t track_cookie(const struct env *env, const struct track *track, uint32_t isn, uint32_t epoch,
				    uint32_t mss_index)
{
	const struct cookie_request request = {.key = track->key, .client = track->sender, .isn = isn};

	return cookie_make(env->flows.head->cookie_secret, &request, epoch, mss_index);
}
#else
WEIR_IN_KERNEL struct flow_proxied *proxied_at(const struct env *env, const struct flow_at *at);
WEIR_IN_KERNEL struct flow_head *flow_head(const struct env *env);
WEIR_IN_KERNEL uint32_t track_cookie(const struct env *env, const struct track *track, uint32_t isn, uint32_t epoch,
				     uint32_t mss_index);
#endif

/* The clock when a packet was tracked, in ticks since its zero. `time` is the time of the packet's flow. */
WEIR_INLINE uint64_t clock_at(const struct env *env, uint32_t time)
{
	const uint64_t clock = *(volatile uint64_t *)&flow_head(env)->clock;

	return clock - flow_age((uint32_t)clock & (FLOW_TICKS - 1), time);
}

WEIR_INLINE uint32_t epoch_at(const struct env *env, uint32_t time)
{
	return (uint32_t)(clock_at(env, time) >> EPOCH_TICKS_SHIFT);
}

/* Whether a cookie was made in an epoch or the one before. No cookie of another epoch can be valid. */
WEIR_INLINE bool made_cookies(const struct env *env, uint32_t epoch)
{
	const uint64_t made = *(volatile uint64_t *)&flow_head(env)->cookies_made;

	return made && epoch - (uint32_t)(made - 1) <= 1;
}

/* The MSS in a cookie that was made for the number of a client's SYN: cookie_check(). */
WEIR_INLINE uint32_t track_cookie_check(const struct env *env, const struct track *track, uint32_t isn, uint32_t now,
					uint32_t cookie)
{
	const uint32_t epoch = now - ((cookie >> COOKIE_MSS_BITS ^ now) & 1);
	const uint32_t index = cookie & (COOKIE_SIZES - 1);

	return track_cookie(env, track, isn, epoch, index) == cookie ? cookie_mss(index) : 0;
}

/*
 * Replaces the packet by the SYN to the server. Returns false if it lacks the timestamps that were agreed on (RFC 7323,
 * section 3.2).
 */
WEIR_NATIVE_FUNCTION bool edit_syn(struct track *track, uint32_t isn)
{
	const struct segment *segment = &track->segment;
	const struct flow_proxied *proxied = &track->edit.proxied;
	const bool has_stamp = proxied_has(proxied, PROXIED_TIMESTAMPS);
	const bool has_syn = segment->kind == SEGMENT_SYN || segment->kind == SEGMENT_SYN_ACK;

	if (has_stamp && !segment->options.has_stamp)
		return false;
	track->edit.kind = EDIT_ON;
	track->edit.segment = (struct new_segment){
		.seq = isn,
		.stamp = segment->options.stamp,
		/* The window of a SYN is never shifted (RFC 7323, section 2.2). */
		.window = (uint16_t)(has_syn ? segment->window : window_for_server(proxied, segment->window, 0)),
		.mss = proxied->mss,
		.scale = (uint8_t)proxied_scale(proxied, PROXIED_CLIENT_SCALE),
		.flags = TCP_SYN,
		.has_stamp = has_stamp,
		.sack = proxied_has(proxied, PROXIED_SACK),
	};
	return true;
}

/*
 * Replaces the server's SYN-ACK by a keep-alive for the client (RFC 9293, section 3.8.4), which the client answers. It
 * has the number of the SYN-ACK, and an octet in place of its SYN.
 */
WEIR_NATIVE_FUNCTION void edit_keep_alive(struct track *track)
{
	const struct segment *segment = &track->segment;
	const struct flow_proxied *proxied = &track->edit.proxied;

	track->edit.kind = EDIT_ON;
	track->edit.segment = (struct new_segment){
		.seq = segment->seq + proxied->delta,
		.ack = segment->ack,
		.stamp = segment->options.stamp + proxied->stamp,
		.echo = segment->options.echo,
		.window = (uint16_t)window_for_client(proxied, segment->window, 0),
		.scale = SCALE_NONE,
		.flags = TCP_ACK,
		.octets = 1,
		.has_stamp = segment->options.has_stamp && proxied_has(proxied, PROXIED_TIMESTAMPS),
	};
}

/* Replaces the client's reset by one without the acknowledgement, which the server does not know. */
WEIR_INLINE void edit_reset(struct track *track)
{
	track->edit.kind = EDIT_ON;
	track->edit.segment = (struct new_segment){.seq = track->segment.seq, .scale = SCALE_NONE, .flags = TCP_RST};
}

/*
 * What was agreed with the client that returned a cookie: Proxied::new(). Another policy may have made the offer, so
 * the segment says what it was.
 */
WEIR_INLINE struct flow_proxied proxied_of_cookie(const struct segment *segment, uint32_t cookie, uint32_t mss)
{
	const bool has_stamp = segment->options.has_stamp;
	const uint32_t echo = segment->options.echo;
	const uint32_t kept = has_stamp ? echo & SCALE_NONE : SCALE_NONE;
	const uint32_t told = kept != SCALE_NONE ? echo >> STAMP_TOLD & 0xf : 0;
	const bool sack = has_stamp && (echo & STAMP_SACK);

	return (struct flow_proxied){
		.delta = cookie,
		.stamp = has_stamp ? echo : 0,
		.mss = (uint16_t)mss,
		.bits = (uint16_t)(kept << PROXIED_CLIENT_SCALE | told << PROXIED_TOLD_SCALE |
				   (uint32_t)has_stamp << PROXIED_TIMESTAMPS | (uint32_t)sack << PROXIED_SACK),
	};
}

/*
 * Opens a flow if the packet is an ACK that returns a valid cookie. It has the number behind the client's SYN; a probe
 * of the closed window has the number of the SYN (RFC 9293, section 3.8.6.1).
 */
WEIR_NATIVE_FUNCTION bool open_by_cookie(const struct env *env, struct track *track, uint32_t now)
{
	const struct segment *segment = &track->segment;
	const uint32_t epoch = epoch_at(env, now), cookie = segment->ack - 1;
	uint32_t isn = segment->seq - 1, mss;
	struct flow flow;

	if (segment->kind != SEGMENT_ACK || !made_cookies(env, epoch))
		return false;
	mss = track_cookie_check(env, track, isn, epoch, cookie);
	if (!mss) {
		isn = segment->seq;
		mss = track_cookie_check(env, track, isn, epoch, cookie);
	}
	if (!mss)
		return false;
	track->edit.proxied = proxied_of_cookie(segment, cookie, mss);
	edit_syn(track, isn);
	flow = (struct flow){
		.mine = {isn, isn + 1, offered_window(track->edit.segment.window), track->edit.segment.scale,
			 track->edit.segment.sack},
		.time = now,
		.state = FLOW_SYN_SENT,
		.from_opener = true,
		.proxied = true,
	};
	flow_store(track->words, &flow, track->sender, track->key.is_ipv6);
	track->state = STATE_NEW;
	track->refused = REASON_NO_MATCH;
	return true;
}

/* Opens a connection by a cookie in place of a known flow. */
WEIR_INLINE bool reopen_by_cookie(const struct env *env, struct track *track, uint32_t now)
{
	if (!open_by_cookie(env, track, now))
		return false;
	track->opens = PLACE_KNOWN;
	track->outcome = OUTCOME_REOPEN;
	return true;
}

WEIR_INLINE void syn_again(struct track *track, uint32_t isn)
{
	if (!edit_syn(track, isn)) {
		refuse_known(track, REASON_OUT_OF_WINDOW);
		return;
	}
	track->outcome = OUTCOME_NONE;
	track->state = STATE_NEW;
	track->refused = REASON_NO_MATCH;
}

/*
 * A packet of the client before the server has answered. The SYN may have been lost, so each acknowledgement of the
 * cookie becomes the SYN again.
 */
WEIR_INLINE void client_waits(const struct env *env, struct track *track, uint32_t now)
{
	const struct segment *segment = &track->segment;
	const uint32_t isn = half_of(track->words[0], track->sender);

	switch (segment->kind) {
	case SEGMENT_SYN:
		if (segment->seq == isn) {
			syn_again(track, isn);
			break;
		}
		reopen_by_syn(track, now);
		break;
	case SEGMENT_ACK:
		if (segment->ack == track->edit.proxied.delta + 1) {
			/* The client's window is 0: it sends the next number, or probes the window. */
			if (segment->seq - isn <= 1)
				syn_again(track, isn);
			else
				refuse_known(track, REASON_OUT_OF_WINDOW);
		} else if (!reopen_by_cookie(env, track, now)) {
			refuse_known(track, REASON_BAD_ACK);
		}
		break;
	case SEGMENT_RESET:
		track_judge_tcp(track, now);
		if (track->state != STATE_INVALID)
			edit_reset(track);
		break;
	default:
		refuse_known(track, REASON_BAD_FLAGS);
		break;
	}
}

/* The server's answer to the SYN. */
WEIR_INLINE void server_answers(struct track *track, struct flow_proxied *kept, uint32_t now)
{
	const struct segment *segment = &track->segment;

	switch (segment->kind) {
	case SEGMENT_SYN_ACK:
		track_judge_tcp(track, now);
		if (track->state == STATE_INVALID)
			break;
		proxied_answer(&track->edit.proxied, segment->seq, segment->options.has_stamp, segment->options.stamp);
		*kept = track->edit.proxied;
		edit_keep_alive(track);
		break;
	case SEGMENT_RESET:
		track_judge_tcp(track, now);
		if (track->state == STATE_INVALID)
			break;
		/* The client expects the number behind the cookie. */
		track->edit.proxied.delta += 1 - segment->seq;
		track->edit.kind = EDIT_FROM_SERVER;
		track->edit.scale = 0;
		break;
	case SEGMENT_ACK:
		/* An old connection. The client does not know its numbers. */
		refuse_known(track, REASON_BAD_ACK);
		break;
	default:
		refuse_known(track, REASON_BAD_FLAGS);
		break;
	}
}

WEIR_INLINE void client_goes_on(struct track *track, uint32_t now)
{
	struct segment *segment = &track->segment;
	const struct flow_proxied *proxied = &track->edit.proxied;

	track->edit.kind = EDIT_FROM_CLIENT;
	/* A reset whose only meaningful number is `seq` acknowledges 0. */
	if (segment->has_ack && (segment->kind != SEGMENT_RESET || segment->ack)) {
		segment->ack -= proxied->delta;
		segment->options.highest -= proxied->delta;
	}
	if (segment->kind != SEGMENT_SYN && segment->kind != SEGMENT_SYN_ACK)
		segment->window = window_for_server(proxied, segment->window, track->edit.scale);
	track_judge_tcp(track, now);
	if (track->opens != PLACE_FULL)
		track->edit.kind = EDIT_NONE;
}

WEIR_INLINE void server_goes_on(struct track *track, uint32_t now)
{
	bool has_begun_anew;

	track_judge_tcp(track, now);
	has_begun_anew = (track->outcome == OUTCOME_UPDATE || track->outcome == OUTCOME_KEEP) &&
			 !status_bit(track->words[FLOW_STATE_WORDS - 1], STATUS_PROXIED);
	if (has_begun_anew || track->opens != PLACE_FULL)
		return;
	/* The octet of the keep-alive is old to the client only at the number of the cookie. */
	if (track->segment.kind == SEGMENT_SYN_ACK && track->segment.seq == track->edit.proxied.isn)
		edit_keep_alive(track);
	else
		track->edit.kind = EDIT_FROM_SERVER;
}

/* Judges a segment of a proxied flow. */
WEIR_INLINE void judge_proxied(const struct env *env, struct track *track, uint32_t now)
{
	struct flow_proxied *kept = proxied_at(env, &track->at);
	const uint64_t status = track->words[FLOW_STATE_WORDS - 1];
	const bool waits = status_state(status) == FLOW_SYN_SENT;

	if (!kept) {
		refuse_known(track, REASON_NO_STATE);
		return;
	}
	track->edit.proxied = *kept;
	track->edit.scale = status >> (STATUS_SCALE + 4 * track->sender) & 0xf;
	if (status_bit(status, STATUS_OPENER) == track->sender) {
		if (waits)
			client_waits(env, track, now);
		else
			client_goes_on(track, now);
	} else if (waits) {
		server_answers(track, kept, now);
	} else {
		server_goes_on(track, now);
	}
}

/* Judges an ICMP error about a segment of the server, whose number was translated. */
WEIR_INLINE void judge_proxied_error(const struct env *env, struct track *track)
{
	const struct flow_proxied *kept = proxied_at(env, &track->at);

	if (!kept) {
		refuse_known(track, REASON_NO_STATE);
		return;
	}
	track->edit.proxied = *kept;
	track->segment.seq -= kept->delta;
	judge_error(track);
	if (track->state != STATE_INVALID)
		track->edit.kind = EDIT_QUOTE;
}

/* Whether a known connection is over, so that a SYN would open it anew, and a cookie does. */
WEIR_INLINE bool is_over(const struct track *track)
{
	const uint64_t status = track->words[FLOW_STATE_WORDS - 1];
	const uint32_t state = status_state(status);

	return state == FLOW_TIME_WAIT || (state == FLOW_CLOSED && status_bit(status, STATUS_OPENER) == track->sender);
}

/*
 * Whether the sender opened a known connection without a cookie, and has not finished the handshake. Its address may be
 * forged. So its SYN is answered like a SYN without a flow, and a cookie opens the connection anew.
 */
WEIR_INLINE bool is_unproven(const struct track *track)
{
	const uint64_t status = track->words[FLOW_STATE_WORDS - 1];
	const uint32_t handshake = STATES_OPENING | STATES_ANSWERED;

	return !status_bit(status, STATUS_PROXIED) && status_bit(status, STATUS_OPENER) == track->sender &&
	       ((handshake >> status_state(status) & 1) || !status_bit(status, STATUS_REPLIED));
}

/* Whether the packet acknowledges the cookie that opened its flow, and the server has answered. */
WEIR_INLINE bool has_used_cookie(const struct env *env, const struct track *track)
{
	const uint64_t status = track->words[FLOW_STATE_WORDS - 1];
	const struct flow_proxied *kept;

	if (!status_bit(status, STATUS_PROXIED) || !status_bit(status, STATUS_REPLIED))
		return false;
	kept = proxied_at(env, &track->at);
	return kept && track->segment.ack - 1 == kept->delta + kept->isn;
}

/* Refuses a SYN that no host answers. */
WEIR_INLINE void refuse_stray(struct track *track)
{
	if (track->is_known)
		refuse_known(track, REASON_NO_STATE);
	else
		track_refuse(track, REASON_NO_STATE);
}

/* Judges a packet, where the proxy has a say. Returns false if it has none. */
WEIR_INLINE bool proxy_judges(const struct env *env, struct track *track, uint32_t now)
{
	const uint64_t status = track->words[FLOW_STATE_WORDS - 1];

	track_keep(track);
	track->now = now;
	if (track->subject == SUBJECT_TCP) {
		track->asks = track->segment.kind == SEGMENT_SYN;
		if (track->asks && track->is_stray) {
			refuse_stray(track);
			return true;
		}
		track->is_unproven = track->is_known && is_unproven(track);
		if (!track->is_known)
			return open_by_cookie(env, track, now);
		if ((is_over(track) || track->is_unproven) && !has_used_cookie(env, track) &&
		    reopen_by_cookie(env, track, now))
			return true;
		if (!status_bit(status, STATUS_PROXIED))
			return false;
		judge_proxied(env, track, now);
		return true;
	}
	if (track->subject == SUBJECT_ERROR && track->is_known && status_bit(status, STATUS_PROXIED) &&
	    status_bit(status, STATUS_OPENER) != track->sender && track->segment.has_ack) {
		judge_proxied_error(env, track);
		return true;
	}
	return false;
}

/* Enters what is kept of the flow that the packet opens, if it is proxied. The entry's lock is held. */
WEIR_INLINE void enter_proxied(const struct env *env, const struct track *track)
{
	struct flow_proxied *kept;

	if (!status_bit(track->words[FLOW_STATE_WORDS - 1], STATUS_PROXIED))
		return;
	kept = proxied_at(env, &track->at);
	if (kept)
		*kept = track->edit.proxied;
}

#endif
