//! The shapes of synthetic lists, next to the figures of the paper's Table 1 that they reproduce.
//!
//! mu of D16X2R and D16X4R determines the number of broken /18s and /20s, and phi of D16X4R the number of broken /16s.
//! The other numbers were tuned until the number of prefixes, their mean length and rho matched.

use super::geo::GeoShape;
use super::hosts::HostShape;

/// blacklist_1: 177,935 addresses.
pub const BLOCK_178K: HostShape = HostShape {
    occupied: &[(16, 20_103), (18, 43_254), (20, 69_206), (24, 115_000), (32, 177_935)],
    adjacent_per_mille: 500,
};

/// blacklist_3: 1,113,393 addresses.
pub const BLOCK_1_1M: HostShape = HostShape {
    occupied: &[(16, 29_082), (18, 83_886), (20, 190_841), (24, 560_000), (32, 1_113_393)],
    adjacent_per_mille: 300,
};

/// Between whitelist_1 (82,156 addresses) and whitelist_2 (201,477), nearer to the former.
pub const ALLOW_100K: HostShape = HostShape {
    occupied: &[(16, 19_200), (18, 37_500), (20, 54_900), (24, 80_000), (32, 100_000)],
    adjacent_per_mille: 300,
};

/// gl2_country: 338,006 prefixes of 24.1 bits, 252 labels.
pub const COUNTRY: GeoShape = GeoShape {
    bits: 32,
    top: 8,
    broken: &[
        200, 380, 700, 1_200, 2_000, 3_200, 4_900, 6_600, 8_000, 11_500, 17_826, 20_500, 31_457, 15_000, 13_000,
        11_000, 5_000, 6_000, 6_500, 6_500, 5_500, 4_000, 2_500, 1_500,
    ],
    crowds: &[16],
    labels: 252,
    continued_per_mille: 0,
    gap_one_in: 20,
    prefixes: 338_006,
};

/// gl2_asn: 430,965 prefixes of 22.1 bits, 66,349 labels.
pub const ASN: GeoShape = GeoShape {
    bits: 32,
    top: 8,
    broken: &[
        221, 430, 820, 1_500, 2_700, 4_700, 8_000, 13_000, 19_050, 29_000, 40_894, 55_000, 76_546, 52_000, 41_000,
        36_000, 9_000, 3_000, 2_500, 2_500, 2_000, 2_000, 1_500, 1_000,
    ],
    crowds: &[16],
    labels: 66_349,
    continued_per_mille: 0,
    gap_one_in: 12,
    prefixes: 430_965,
};

/// gl2_city: 3,075,441 prefixes of 25.0 bits, 115,503 labels.
pub const CITY: GeoShape = GeoShape {
    bits: 32,
    top: 8,
    broken: &[
        221, 436, 850, 1_640, 3_100, 5_900, 10_900, 20_000, 34_300, 61_000, 104_595, 155_000, 247_463, 250_000,
        280_000, 320_000, 135_000, 125_000, 115_000, 107_000, 85_000, 62_000, 42_000, 24_000,
    ],
    crowds: &[16],
    labels: 115_503,
    continued_per_mille: 0,
    gap_one_in: 200,
    prefixes: 3_075_441,
};

/// The registries' allocations and assignments by country: 250 labels.
pub const COUNTRY6: GeoShape = GeoShape {
    bits: 64,
    top: 16,
    broken: &[
        124, 177, 272, 448, 732, 1_282, 2_359, 4_507, 8_737, 17_156, 32_372, 38_069, 41_153, 29_609, 33_811, 35_034,
        5_676, 6_535, 7_781, 9_573, 9_038, 10_322, 11_572, 13_772, 9_393, 11_614, 13_588, 16_003, 15_860, 17_454,
        21_561, 23_329, 6_496, 7_909, 9_305, 11_170, 11_546, 12_329, 10_474, 11_599, 10_864, 12_899, 16_159, 20_997,
        26_767, 35_050, 41_920, 44_563,
    ],
    crowds: &[24, 32, 40, 48, 56],
    labels: 250,
    continued_per_mille: 870,
    gap_one_in: 5,
    prefixes: 0,
};

/// The autonomous systems of IPv6 (`@ip-location-db/asn`): 167,903 prefixes, 52,521 labels.
pub const ASN6: GeoShape = GeoShape {
    bits: 64,
    top: 16,
    broken: &[
        60, 111, 196, 357, 656, 1_219, 2_331, 4_499, 8_679, 16_119, 26_722, 31_261, 34_713, 28_798, 33_689, 35_179,
        10_415, 11_869, 13_315, 14_900, 14_515, 15_982, 17_344, 19_255, 18_079, 21_286, 24_290, 26_488, 25_366, 28_636,
        32_352, 32_795, 684, 700, 720, 749, 705, 658, 673, 726, 734, 865, 976, 1_045, 1_062, 1_069, 1_062, 1_026,
    ],
    crowds: &[24, 32, 40],
    labels: 52_521,
    continued_per_mille: 0,
    gap_one_in: 3,
    prefixes: 167_903,
};

/// The reserved prefixes of IANA that filters use (RFC 6890): 9 prefixes of 11.1 bits on average.
pub const RESERVED: [(u32, u8); 9] = [
    (0, 8),
    (10 << 24, 8),
    (127 << 24, 8),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc0a8_0000, 16),
    (0xe000_0000, 4),
    (0xf000_0000, 4),
];
