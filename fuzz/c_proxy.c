/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Runs libFuzzer on the C tracker with the SYN proxy, as c_tracker.c does without it. */
#define WEIR_REWRITES
#include "c_tracker.c"
