/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lookups of bursts as a bundle for x86-64-v3 has them. They are part of Weir and of no policy: the engine times them
 * with each value of weir_kernels (crates/engine/src/kernels.rs).
 */
#include "core/env.h"
#include "tables/lookup.h"

void weir_trial_exact(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count);
void weir_trial_exact(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count)
{
	exact_set_find_burst(table, keys, labels, count);
}

void weir_trial_rank(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count);
void weir_trial_rank(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count)
{
	rank_leaf_find_burst(table, keys, labels, count);
}

void weir_trial_rank6(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count);
void weir_trial_rank6(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count)
{
	rank_leaf6_find_burst(table, hi, lo, labels, count);
}

void weir_trial_exact6(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count);
void weir_trial_exact6(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count)
{
	exact_set6_find_burst(table, hi, lo, labels, count);
}
