//! Raw bits of frames: expressions that read them, and the columns that keep them.

use super::column::{Column, Width};
use crate::field::{Raw, RawBase, Subject};
use crate::ir::{Chain, Node, Test};
use std::collections::BTreeMap;

/// Most columns of raw bits in a burst. A column has at most 2 KB.
const RAW_COLUMNS_MAX: usize = 16;

/// The call that reads raw bits into `raw`. It returns false if the frame ends before them. Bits count from `offset`,
/// by default the start of the frame.
pub(super) fn raw_bits(raw: Raw, frame: &str, offset: Option<&str>) -> String {
    let (byte, bit) = (raw.offset_bits / 8, raw.offset_bits % 8);
    format!("raw_bits({frame}, {} + {byte}, {bit}, {}, &raw)", offset.unwrap_or("0"), raw.bits)
}

/// The C name of raw bits: `nh_96_32` for `@nh,96,32`.
pub(super) fn raw_name(raw: Raw) -> String {
    let base = match raw.base {
        RawBase::Link => "ll",
        RawBase::Network => "nh",
        RawBase::Transport => "th",
    };
    format!("{base}_{}_{}", raw.offset_bits, raw.bits)
}

/// The statements that set the two columns of raw bits: whether the frame has them, and their value.
pub(super) fn fill_raw(raw: Raw) -> Vec<String> {
    let name = raw_name(raw);
    let offset = Column::of_raw(raw).map(|offset| offset.expression);
    let mut lines = vec![format!("packets->{name}_there[i] = {};", raw_bits(raw, "&frame", offset))];
    lines.extend(match Width::of_raw(raw) {
        Width::Wide => Width::Wide.fill(&name, "raw"),
        width => width.fill(&name, "raw.lo"),
    });
    lines
}

/// The raw bits that several tests read. They are read once per packet, even if no rule needs them.
pub(super) fn raw_columns(chain: &Chain) -> Vec<Raw> {
    let mut uses = BTreeMap::new();
    count_raw(&chain.tree.nodes, &mut uses);
    uses.into_iter().filter(|&(_, uses)| uses > 1).map(|(raw, _)| raw).take(RAW_COLUMNS_MAX).collect()
}

fn count_raw(nodes: &[Node], uses: &mut BTreeMap<Raw, usize>) {
    for node in nodes {
        let Node::When { test, body } = node else { continue };
        if let Test::Value { subject: Subject::Raw(raw), .. } = test {
            *uses.entry(*raw).or_default() += 1;
        }
        count_raw(body, uses);
    }
}
