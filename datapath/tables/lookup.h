/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Lookups in table images, one for each enum layout. Generated code includes the lookups of its tables.
 *
 *	dxr16x4_find(table, addr)	IPv4 address -> label, 0 if no prefix contains it
 *	exact_set_find(table, addr)	IPv4 address -> 1 or 0
 *	exact_sets_find(table, addr)	IPv4 address -> a bit for each set that contains it
 *	exact_set6_find(table, hi, lo)	IPv6 address -> 1 or 0
 *	exact_sets6_find(table, hi, lo)	IPv6 address -> a bit for each set that contains it
 *	range6_find(table, hi, lo)	IPv6 address -> label, 0 if no prefix contains it
 *	rank_leaf_find(table, addr)	IPv4 address -> label, 0 if no prefix contains it
 *	rank_leaf6_find(table, hi, lo)	IPv6 address -> label, 0 if no prefix contains it
 *	counted_leaf_find(table, addr)	IPv4 address -> label, 0 if no prefix contains it
 *	exact_leaf_find(table, addr)	IPv4 address -> 1 or 0
 *	exact_leaf6_find(table, hi, lo)	IPv6 address -> 1 or 0
 *
 * In user space, sets and leaves also have <name>_find_burst(), which looks up as many as WEIR_BURST_MAX keys together.
 *
 * The image was checked when it was loaded (ImageView in crates/tables), so no index leaves it. In BPF every index is
 * masked and every loop bounded as well, because the verifier accepts no other proof.
 */
#ifndef WEIR_TABLES_LOOKUP_H
#define WEIR_TABLES_LOOKUP_H

#include "tables/counted_leaf.h"
#include "tables/dxr.h"
#include "tables/exact_leaf.h"
#include "tables/exact_set.h"
#include "tables/exact_set6.h"
#include "tables/exact_sets.h"
#include "tables/exact_sets6.h"
#include "tables/range6.h"
#include "tables/rank_leaf.h"
#include "tables/rank_leaf_burst.h"

#endif
