/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the tracker asks synproxy.h, for policies without a SYN proxy: packets leave as they were received. */
#ifndef WEIR_NO_SYNPROXY_H
#define WEIR_NO_SYNPROXY_H

#include "track_judge.h"

WEIR_INLINE bool proxy_judges(const struct env *env, struct track *track, uint32_t now)
{
	(void)env;
	(void)track;
	(void)now;
	return false;
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
