//! Cards on the command line: profiles by name or file, and what a card takes of a policy.

use serde::Serialize;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use weir_abi::Layout;
use weir_abi::card::SEAL_BYTES;
use weir_card::image::Memory;
use weir_card::profile::SHIPPED;
use weir_card::split::{Placed, Split, split};
use weir_card::{Lookups, Profile, TableSizes};
use weir_command::failure::Failure;
use weir_loading::Policy;
use weir_policy::ir::{Chain, Program, RuleId};
use weir_tables::Image;

/// Longest file of a profile.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What a card takes of one chain.
#[derive(Debug, Serialize)]
pub struct CardReport {
    /// The profile's name.
    pub profile: String,
    /// The chain.
    pub chain: String,
    /// Each rule of the chain, in order.
    pub rules: Vec<RuleReport>,
    /// Rules whose packets the card drops.
    pub dropping: usize,
    /// Patterns, rules and lookups that the card uses, of those that it has.
    pub patterns: [usize; 2],
    #[allow(missing_docs)]
    pub card_rules: [usize; 2],
    #[allow(missing_docs)]
    pub lookups: [usize; 2],
    /// Bytes that the card appends to a packet with answers, and to others.
    pub trailer_bytes: usize,
    #[allow(missing_docs)]
    pub trailer_bytes_alone: usize,
    /// Time that a change of the card's configuration takes, ms.
    pub reconfigure_ms: u64,
}

/// Where a rule is decided, and why.
#[derive(Debug, Serialize)]
pub struct RuleReport {
    /// `edge.weir:12`
    pub at: String,
    /// `P1Dc`
    pub category: String,
    /// `hardware`, `hybrid` or `software`.
    pub offload: &'static str,
    /// Numbers of the metadata that it needs.
    pub metadata: Vec<u8>,
    /// What the card can do with its patterns, or why it does nothing.
    pub why: String,
}

/// Reads a profile: one that comes with Weir, or a file.
///
/// # Errors
/// The file cannot be read, or is no profile.
pub fn profile(name: &str) -> Result<Profile, Failure> {
    let refuse = |what: String| Failure::Rejected(format!("weir: {name}{what}"));
    let text = match Profile::shipped(name) {
        Some(text) => text.to_owned(),
        None => read(name).map_err(|what| {
            let shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
            refuse(format!(": {what}; profiles that come with Weir: {}", shipped.join(", ")))
        })?,
    };
    Profile::parse(&text).map_err(|error| refuse(format!(":{}: {}", error.line, error.message)))
}

fn read(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX { Err("too long for a profile".to_owned()) } else { Ok(text) }
}

/// The tables of a policy as a card has them.
pub struct CardTables<'p> {
    policy: &'p Policy,
    /// What was asked before: building an image takes time.
    blocks: RefCell<HashMap<String, Option<usize>>>,
}

impl<'p> CardTables<'p> {
    /// The tables of a policy.
    pub fn new(policy: &'p Policy) -> Self {
        CardTables { policy, blocks: RefCell::default() }
    }

    /// The image of a table, if the card's layout can hold it.
    pub fn image(&self, table: &str) -> Option<Image> {
        self.policy.tables().named(table)?.entries.build(Layout::Dxr16x4).ok()
    }
}

impl TableSizes for CardTables<'_> {
    fn blocks(&self, table: &str) -> Option<usize> {
        let count = || Some(self.image(table)?.view().stages()?.blocks());
        *self.blocks.borrow_mut().entry(table.to_owned()).or_insert_with(count)
    }
}

/// The images of a split's lookups. The card begins a lookup in them, and the software finishes it.
pub struct CardImages(Vec<Image>);

impl CardImages {
    /// Builds the images.
    ///
    /// # Panics
    /// The split is of another policy.
    pub fn new(policy: &Policy, split: &Split) -> Self {
        let image = |name: &str| CardTables::new(policy).image(name).expect("the split has seen its size");
        CardImages(split.card.lookups.iter().map(|lookup| image(&lookup.name)).collect())
    }

    /// The memories of the card that have them.
    pub fn memories(&self) -> Vec<Memory> {
        let memories = |(lookup, image): (usize, &Image)| {
            let stages = image.view().stages().expect("built in this layout");
            weir_card::image::table(lookup, stages.direct(), stages.extension())
        };
        self.0.iter().enumerate().flat_map(memories).collect()
    }
}

impl Lookups for CardImages {
    fn begin(&self, lookup: usize, address: u32) -> u32 {
        self.0[lookup].view().stages().expect("built in this layout").begin(address)
    }

    fn finish(&self, lookup: usize, entry: u32, low: u16) -> u32 {
        self.0[lookup].view().stages().expect("built in this layout").finish(entry, low)
    }
}

/// Splits a chain of a policy that was read as text.
///
/// # Panics
/// The policy is a bundle.
pub fn split_of(policy: &Policy, chain: usize, profile: &Profile, wanted: &dyn Fn(RuleId) -> bool) -> Split {
    let lowered = &policy.text().expect("a bundle is not split").lowered;
    split(&lowered.program, &lowered.counters, chain, profile, &CardTables::new(policy), wanted)
}

/// What the card takes of a chain.
pub fn report(program: &Program, profile: &Profile, split: &Split) -> CardReport {
    let rule = |placed: &Placed| RuleReport {
        at: program.rule(placed.rule).at.clone(),
        category: placed.category.to_string(),
        offload: placed.offload.name(),
        metadata: placed.metadata.clone(),
        why: placed.why.clone(),
    };
    let card = &split.card;
    CardReport {
        profile: profile.name.clone(),
        chain: chain_name(&program.chains[split.plain]),
        rules: split.rules.iter().map(rule).collect(),
        dropping: card.dropped.len(),
        patterns: [card.patterns.len(), profile.patterns],
        card_rules: [card.rules.len(), profile.rules],
        lookups: [card.lookups.len(), profile.lookups],
        trailer_bytes: card.body.bytes() + SEAL_BYTES,
        trailer_bytes_alone: SEAL_BYTES,
        reconfigure_ms: profile.reconfigure_ms,
    }
}

/// `upstream`, `high-alert upstream`.
pub fn chain_name(chain: &Chain) -> String {
    match &chain.posture {
        None => chain.direction.name().to_owned(),
        Some(posture) => format!("{posture} {}", chain.direction.name()),
    }
}

/// The report as text.
pub fn describe(text: &mut String, report: &CardReport) {
    let _ = writeln!(text, "\n  {} on {}", report.chain, report.profile);
    let _ = writeln!(text, "  {:<20} {:<8} {:<8} {:<8}  why", "rule", "category", "offload", "metadata");
    for RuleReport { at, category, offload, metadata, why } in &report.rules {
        let metadata: Vec<String> = metadata.iter().map(u8::to_string).collect();
        let metadata = if metadata.is_empty() { "-".to_owned() } else { metadata.join(", ") };
        let _ = writeln!(text, "  {at:<20} {category:<8} {offload:<8} {metadata:<8}  {why}");
    }
    let of = |[used, all]: [usize; 2]| format!("{used} of {all}");
    let _ = writeln!(
        text,
        "  the card uses {} patterns, {} rules, {} lookups, drops for {} rules, and appends {} bytes to a packet",
        of(report.patterns),
        of(report.card_rules),
        of(report.lookups),
        report.dropping,
        report.trailer_bytes
    );
}
