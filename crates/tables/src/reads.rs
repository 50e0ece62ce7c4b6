//! Measures what a lookup reads of an image. The lookups are the real ones; they are traced word by word for a sample
//! of the table's own addresses.
//!
//! The policy compiler compares layouts by this measure. The description of a layout gives the most that a lookup
//! reads. The mean for a real table depends on its nodes, ranges per block and 16-bit chunks, which only the image
//! knows.
//!
//! Example: a set of 2001:db8::/32 alone as `range6`. The root names a block of three ranges. The search reads two of
//! them. The label is the fourth word. The two starts are in one cache line, so `words` is 4 and `lines` is 3.

use crate::entries::{Prefixes, Table};
use crate::image::Image;
use crate::trace::Trace;

/// Number of traced lookups. Their addresses are in prefixes spread evenly over the table.
const SAMPLES: usize = 2048;

/// Mean cost of a lookup of an address in the table's prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reads {
    /// Words read one after the other. A line that is compared as a whole counts as one.
    pub words: f64,
    /// Distinct cache lines.
    pub lines: f64,
}

impl Table {
    /// Measures what lookups of the table's addresses read of `image`, an image of this table.
    pub fn reads(&self, image: &Image) -> Reads {
        Reads::of(&self.prefixes, image)
    }
}

impl Reads {
    /// Measures an image of the prefixes; zero if there are none.
    pub(crate) fn of(prefixes: &Prefixes, image: &Image) -> Self {
        let view = image.view();
        match prefixes {
            Prefixes::V4(prefixes) => mean(prefixes, |prefix, scattered, trace| {
                view.trace4(prefix.addr | scattered as u32 & (prefix.last() ^ prefix.addr), trace);
            }),
            Prefixes::V6(prefixes) => mean(prefixes, |prefix, scattered, trace| {
                view.trace6(prefix.addr | scattered & (prefix.last() ^ prefix.addr), trace);
            }),
        }
    }
}

/// The mean over lookups by `follow`. Each looks up an address in a prefix, chosen by bits without a pattern.
fn mean<P>(prefixes: &[P], follow: impl Fn(&P, u128, &mut Trace)) -> Reads {
    let (mut words, mut lines, mut samples) = (0, 0, 0);
    for index in (0..prefixes.len()).step_by(prefixes.len().div_ceil(SAMPLES).max(1)) {
        let scattered = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let scattered = u128::from(scattered) << 64 | u128::from(scattered.rotate_left(32));
        let mut trace = Trace::default();
        follow(&prefixes[index], scattered, &mut trace);
        (words, lines, samples) = (words + trace.words(), lines + trace.lines(), samples + 1);
    }
    let share = |sum: usize| sum as f64 / f64::from(samples.max(1));
    Reads { words: share(words), lines: share(lines) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::{Entries, Kind};
    use weir_abi::{Family, Layout};

    fn reads(family: Family, prefixes: &[&str], layout: Layout) -> (f64, f64) {
        let mut entries = Entries::new(family, Kind::Set);
        prefixes.iter().for_each(|prefix| entries.insert_text(prefix, None).expect("a prefix"));
        let table = entries.settle();
        let image = table.build(layout).expect("the layout holds it");
        let Reads { words, lines } = table.reads(&image);
        (words, lines)
    }

    #[test]
    fn reads_of_layouts_with_a_short_way() {
        let (v4, v6) = (Family::Ipv4, Family::Ipv6);
        assert_eq!(reads(v6, &["2001:db8::/32"], Layout::Range6), (4.0, 3.0));
        // Root, entry, starts, value. For a /48 the last three are read again, and a small table has some of them in
        // one line.
        assert_eq!(reads(v6, &["2001:db8::/32"], Layout::RankLeaf6), (4.0, 4.0));
        let (words, lines) = reads(v6, &["2001:db8:7::/48"], Layout::RankLeaf6);
        assert!(words == lines && (4.0..=7.0).contains(&lines), "{words} words, {lines} lines");
        assert_eq!(reads(v6, &["2001:db8::/64", "2001:db8::1/128"], Layout::ExactSet6), (2.0, 2.0));
        assert_eq!(reads(v6, &["2001:db8::/64"], Layout::ExactSet6), (1.0, 1.0));
        assert_eq!(reads(v4, &["192.0.2.1/32"], Layout::ExactSet), (1.0, 1.0));
        assert_eq!(reads(v4, &["192.0.2.0/24"], Layout::RankLeaf), (4.0, 4.0));
        // Direct, extension, and of three ranges the second and the third. The third also holds the answer.
        assert_eq!(reads(v4, &["192.0.2.0/24"], Layout::Dxr16x4).1, 3.0);
    }

    #[test]
    fn a_search_in_many_ranges_takes_words_and_lines() {
        let hosts: Vec<String> = (0..3000).map(|host| format!("2001:db8::{:x}/128", host * 3)).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let (words, lines) = reads(Family::Ipv6, &hosts, Layout::Range6);
        // Root and three nodes, then 6,000 ranges in 12 or 13 halvings. The last two halvings are in one line.
        assert!((17.0..=20.0).contains(&words) && lines < words && lines > 12.0, "{words} words, {lines} lines");
    }

    #[test]
    fn nothing_is_read_for_nothing() {
        assert_eq!(reads(Family::Ipv6, &[], Layout::Range6), (0.0, 0.0));
    }
}
