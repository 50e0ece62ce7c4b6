//! The options of `weir run` for a card.

use super::values::time;
use clap::Args;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use weir_abi::wire_card::SPINS_MAX;
use weir_engine::live::card::CardSpec;

/// What a card does.
#[derive(Clone, Debug, Args)]
pub struct CardOptions {
    /// Use a card. `wire:outer=IF,inner=IF[,netns=NAME|PATH][,entries=N][,update=TIME][,place=hybrid|card|card-cpu]
    /// [,cpu-entries=N][,cpu-slowdown=TIME]` drops the fastest sources of tables; it is a stand-in for a card, between two
    /// interfaces on the wire. `hybrid:profile=PROFILE[,interface=IF][,rules=all|plan|none]` answers a part of the policy's
    /// rules for every packet that the lower interface IF receives.
    #[arg(long, value_name = "CARD", value_parser = given_card)]
    pub card: Option<GivenCard>,
    /// The tables of a card `wire:`. Each needs `counters` and a rule `ip saddr @NAME drop` in front of what else happens to its sources.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "card")]
    pub card_table: Vec<String>,
    /// How often entries are exchanged.
    #[arg(long, value_name = "TIME", value_parser = period, default_value = "1s", requires = "card")]
    pub card_period: Duration,
    /// Packets of blocked sources that this machine can drop in a second. At less load, an exchange must gain more. The
    /// default is a million for each CPU.
    #[arg(long, value_name = "PPS", value_parser = clap::value_parser!(u64).range(1..), requires = "card")]
    pub card_load: Option<u64>,
}

/// Which part of the card drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Its table, and the software those of other sources.
    Hybrid,
    /// Its table, and its CPU those of other sources.
    Card,
    /// Its CPU.
    CardCpu,
}

impl Placement {
    /// All, with their names.
    const ALL: [(Placement, &str); 3] =
        [(Placement::Hybrid, "hybrid"), (Placement::Card, "card"), (Placement::CardCpu, "card-cpu")];

    /// Its name.
    pub fn name(self) -> &'static str {
        Placement::ALL.iter().find(|(one, _)| *one == self).expect("each has one").1
    }
}

/// A card on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenCard {
    /// A card that drops the fastest sources of tables.
    Wire(GivenWire),
    /// A card that answers rules.
    Hybrid(GivenHybrid),
}

/// The wire-side card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenWire {
    /// Its interfaces and properties.
    pub wire: CardSpec,
    /// Which part of it drops packets.
    pub placement: Placement,
}

/// A card that leaves its answers in packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenHybrid {
    /// The profile: a name or a file.
    pub profile: String,
    /// The lower interface behind which it is; without it the only one.
    pub interface: Option<String>,
    /// Which rules it gets.
    pub rules: CardRules,
}

/// Which rules a card gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardRules {
    /// All that it can take, the first ones first.
    All,
    /// Those that `weir card plan` chooses without a capture.
    Plan,
    /// None: it only seals packets.
    None,
}

impl CardOptions {
    /// Refuses options that do not fit the card.
    ///
    /// # Errors
    /// The text for the operator.
    pub fn check(&self) -> Result<(), String> {
        match &self.card {
            Some(GivenCard::Wire(_)) if self.card_table.is_empty() => {
                Err("--card wire: needs --card-table: the tables whose sources it drops".to_owned())
            }
            Some(GivenCard::Hybrid(_)) if !self.card_table.is_empty() || self.card_load.is_some() => {
                Err("--card-table and --card-load are only for --card wire:".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for GivenWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CardSpec { namespace, outer, inner, .. } = &self.wire;
        write!(f, "wire between {outer} and {inner}")?;
        namespace.iter().try_for_each(|namespace| write!(f, " in {}", namespace.display()))
    }
}

/// The paper's card.
const ENTRIES: usize = 512;
const UPDATE: Duration = Duration::from_millis(2);
/// The most entries of a place.
const ENTRIES_MAX: usize = 1 << 20;
const UPDATE_MAX: Duration = Duration::from_secs(1);
/// Entries of the card's CPU: the paper's largest attack.
const CPU_ENTRIES: usize = 128 << 10;
/// A look at the clock takes at least so long.
const SPIN: Duration = Duration::from_nanos(10);

fn given_card(text: &str) -> Result<GivenCard, String> {
    match text.split_once(':') {
        Some(("wire", options)) => wire(options).map(GivenCard::Wire),
        Some(("hybrid", options)) => hybrid(options).map(GivenCard::Hybrid),
        Some(("flower" | "rte-flow", _)) => Err(
            "cards by TC flower and rte_flow are not supported yet; virtual interfaces, and DPDK's virtual ports, could \
             not be such cards: use `wire:`"
                .to_owned(),
        ),
        _ => Err("a card as `wire:outer=IF,inner=IF` or `hybrid:profile=PROFILE`".to_owned()),
    }
}

/// The options behind a kind of card.
fn options(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let mut options = BTreeMap::new();
    for option in text.split(',') {
        let (name, value) = option.split_once('=').ok_or_else(|| format!("`{option}` is not NAME=VALUE"))?;
        if options.insert(name, value).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    Ok(options)
}

fn no_more(options: &BTreeMap<&str, &str>) -> Result<(), String> {
    options.keys().next().map_or(Ok(()), |unknown| Err(format!("`{unknown}` is not an option of a card")))
}

fn hybrid(text: &str) -> Result<GivenHybrid, String> {
    let mut options = options(text)?;
    let profile = options.remove("profile").filter(|name| !name.is_empty()).ok_or("`profile=PROFILE` is missing")?;
    let interface = options.remove("interface").map(str::to_owned);
    let rules = match options.remove("rules").unwrap_or("all") {
        "all" => CardRules::All,
        "plan" => CardRules::Plan,
        "none" => CardRules::None,
        other => return Err(format!("`{other}` is not a choice of rules: all, plan, none")),
    };
    no_more(&options)?;
    Ok(GivenHybrid { profile: profile.to_owned(), interface, rules })
}

fn wire(text: &str) -> Result<GivenWire, String> {
    let mut options = options(text)?;
    let mut take = |name: &str| options.remove(name);
    let interface = |given: Option<&str>, name| match given {
        Some(given) if !given.is_empty() => Ok(given.to_owned()),
        _ => Err(format!("`{name}=IF` is missing")),
    };
    let (outer, inner) = (interface(take("outer"), "outer")?, interface(take("inner"), "inner")?);
    let placement = placement(take("place").unwrap_or("hybrid"))?;
    let given = [take("entries"), take("update"), take("cpu-entries"), take("cpu-slowdown")];
    let [entries, update, cpu_entries, slowdown] = given;
    let needs = |given: Option<&str>, name: &str, place: &str| match given {
        Some(_) => Err(format!("`{name}` is only for cards with {place}")),
        None => Ok(()),
    };
    if placement == Placement::CardCpu {
        needs(entries, "entries", "a table").and_then(|()| needs(update, "update", "a table"))?;
    }
    if placement == Placement::Hybrid {
        needs(cpu_entries, "cpu-entries", "place=card or card-cpu")?;
        needs(slowdown, "cpu-slowdown", "place=card or card-cpu")?;
    }
    let namespace = take("netns").map(PathBuf::from);
    no_more(&options)?;
    let (has_table, has_cpu) = (placement != Placement::CardCpu, placement != Placement::Hybrid);
    let wire = CardSpec {
        namespace,
        outer,
        inner,
        entries: if has_table { count(entries, ENTRIES)? } else { 0 },
        update: short_time(update, UPDATE, UPDATE_MAX)?,
        cpu_entries: if has_cpu { count(cpu_entries, CPU_ENTRIES)? } else { 0 },
        cpu_slowdown: short_time(slowdown, Duration::ZERO, SPIN * SPINS_MAX)?,
    };
    Ok(GivenWire { wire, placement })
}

fn placement(name: &str) -> Result<Placement, String> {
    let found = Placement::ALL.iter().find(|(_, known)| *known == name);
    found.map(|(one, _)| *one).ok_or_else(|| format!("`{name}` is not a place: hybrid, card, card-cpu"))
}

fn count(given: Option<&str>, otherwise: usize) -> Result<usize, String> {
    let Some(text) = given else { return Ok(otherwise) };
    let found = text.parse().ok().filter(|count| (1..=ENTRIES_MAX).contains(count));
    found.ok_or_else(|| format!("`{text}` is not a number of entries from 1 to {ENTRIES_MAX}"))
}

/// A time with the units `ns`, `us`, `ms` and `s`.
fn short_time(given: Option<&str>, otherwise: Duration, longest: Duration) -> Result<Duration, String> {
    let Some(text) = given else { return Ok(otherwise) };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse::<u64>().ok();
    let found = number.and_then(|number| match &text[digits..] {
        "ns" => Some(Duration::from_nanos(number)),
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    });
    let found = found.filter(|time| *time <= longest);
    found.ok_or_else(|| format!("`{text}` is not a time up to {longest:?}, such as 300ns, 20us, 2ms"))
}

/// The shortest and the longest period.
const PERIODS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(60)];

fn period(text: &str) -> Result<Duration, String> {
    let period = time(text)?;
    if (PERIODS[0]..=PERIODS[1]).contains(&period) { Ok(period) } else { Err("a time from 50ms to 60s".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::{CardRules, GivenCard, GivenHybrid, Placement, given_card, wire};
    use std::time::Duration;

    #[test]
    fn a_card_is_the_papers_unless_options_say_otherwise() {
        let card = wire("outer=o,inner=i").expect("a card");
        assert_eq!((card.wire.entries, card.wire.update.as_millis(), card.wire.cpu_entries), (512, 2, 0));
        assert_eq!((card.placement, card.placement.name()), (Placement::Hybrid, "hybrid"));
        let card = wire("netns=/x/y,outer=o,inner=i,entries=9,update=300us,place=card,cpu-slowdown=2us");
        let card = card.expect("a card");
        assert_eq!((card.wire.entries, card.wire.cpu_entries, card.placement), (9, 131_072, Placement::Card));
        assert_eq!((card.wire.update, card.wire.cpu_slowdown), (Duration::from_micros(300), Duration::from_micros(2)));
        assert_eq!(card.to_string(), "wire between o and i in /x/y");
        let card = wire("outer=o,inner=i,place=card-cpu,cpu-entries=7").expect("a card");
        assert_eq!((card.wire.entries, card.wire.cpu_entries), (0, 7));
    }

    #[test]
    fn a_hybrid_card_takes_all_rules_unless_options_say_otherwise() {
        let card = |interface: Option<&str>, rules| {
            let interface = interface.map(str::to_owned);
            Ok(GivenCard::Hybrid(GivenHybrid { profile: "open-nic".to_owned(), interface, rules }))
        };
        assert_eq!(given_card("hybrid:profile=open-nic"), card(None, CardRules::All));
        assert_eq!(given_card("hybrid:profile=open-nic,rules=plan"), card(None, CardRules::Plan));
        assert_eq!(given_card("hybrid:rules=none,interface=l,profile=open-nic"), card(Some("l"), CardRules::None));
    }

    #[test]
    fn what_is_no_card_is_said() {
        for (text, problem) in [
            ("wire", "a card as `wire:outer=IF,inner=IF` or `hybrid:profile=PROFILE`"),
            ("hybrid:interface=lower0", "`profile=PROFILE` is missing"),
            ("hybrid:profile=open-nic,rules=some", "`some` is not a choice of rules: all, plan, none"),
            ("hybrid:profile=open-nic,outer=o", "`outer` is not an option of a card"),
            ("wire:outer=o", "`inner=IF` is missing"),
            ("wire:outer=o,inner=i,entries=0", "`0` is not a number of entries from 1 to 1048576"),
            ("wire:outer=o,inner=i,entries=1,entries=2", "`entries` is given twice"),
            ("wire:outer=o,inner=i,size=1", "`size` is not an option of a card"),
            ("wire:outer=o,inner=i,place=moon", "`moon` is not a place: hybrid, card, card-cpu"),
            ("wire:outer=o,inner=i,cpu-entries=7", "`cpu-entries` is only for cards with place=card or card-cpu"),
            ("wire:outer=o,inner=i,update=2m", "`2m` is not a time up to 1s, such as 300ns, 20us, 2ms"),
        ] {
            assert_eq!(given_card(text), Err(problem.to_owned()), "{text}");
        }
        assert!(given_card("rte-flow:0000:01:00.0").expect_err("it is refused").contains("rte_flow"));
    }
}
