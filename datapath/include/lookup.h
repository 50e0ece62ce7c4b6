/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lookups in table images, one for each enum layout: what generated code includes.
 *
 *	dxr16x4_find(table, addr)	IPv4 address -> label, 0 if no prefix holds it
 *	exact_set_find(table, addr)	IPv4 address -> 1 or 0
 *	exact_sets_find(table, addr)	IPv4 address -> a bit for each set that holds it
 *	exact_set6_find(table, hi, lo)	IPv6 address -> 1 or 0
 *	range6_find(table, hi, lo)	IPv6 address -> label, 0 if no prefix holds it
 *	rank_leaf_find(table, addr)	IPv4 address -> label, 0 if no prefix holds it
 *	rank_leaf6_find(table, hi, lo)	IPv6 address -> label, 0 if no prefix holds it
 *	counted_leaf_find(table, addr)	IPv4 address -> label, 0 if no prefix holds it
 *
 * Where packets come in bursts, sets and leaves have <name>_find_burst() as well, which looks up to WEIR_BURST_MAX
 * keys up together.
 *
 * The image was checked when it was loaded (ImageView in crates/tables), so that no index leaves it. In BPF every index
 * is masked as well, and every loop bounded, because the verifier takes nobody's word.
 */
#ifndef WEIR_LOOKUP_H
#define WEIR_LOOKUP_H

#include "counted_leaf.h"
#include "dxr.h"
#include "exact_set.h"
#include "exact_set6.h"
#include "exact_sets.h"
#include "range6.h"
#include "rank_leaf.h"
#include "rank_leaf_burst.h"

#endif
