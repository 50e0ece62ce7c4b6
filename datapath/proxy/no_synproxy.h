/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tracker asks proxy/synproxy.h, for policies without a SYN proxy: packets leave as they were received. */
#ifndef WEIR_PROXY_NO_SYNPROXY_H
#define WEIR_PROXY_NO_SYNPROXY_H

#include "track/judge.h"

/*
 * A flow that a policy with a SYN proxy has left cannot be translated: only a SYN, which begins it anew, passes.
 * Returns false for all other packets.
 */
WEIR_INLINE bool proxy_judges(const struct env *env, struct track *track, uint32_t now)
{
	(void)env;
	if (!track->is_known || !status_bit(track->words[FLOW_STATE_WORDS - 1], STATUS_PROXIED))
		return false;
	if (track->subject == SUBJECT_TCP && track->segment.kind == SEGMENT_SYN)
		reopen_by_syn(track, now);
	else
		refuse_known(track, REASON_NO_STATE);
	return true;
}

WEIR_INLINE void enter_proxied(const struct env *env, const struct track *track)
{
	(void)env;
	(void)track;
}

WEIR_INLINE struct edit track_edit(const struct track *track)
{
	(void)track;
	return (struct edit){.kind = EDIT_NONE};
}

WEIR_INLINE void track_set_edit(struct track *track, const struct edit *edit)
{
	(void)track;
	(void)edit;
}

WEIR_INLINE void track_keep(struct track *track)
{
	(void)track;
}

#endif
