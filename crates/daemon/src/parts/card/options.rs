//! The options of `weir run` for a card.

use clap::Args;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use weir_abi::wire_card::SPINS_MAX;
use weir_command::values::time;
use weir_engine::live::card::CardSpec;
use weir_engine::live::card::flower::FlowerSpec;

/// What a card does.
#[derive(Clone, Debug, Args)]
pub struct CardOptions {
    /// Use a card. `wire:outer=IF,inner=IF[,netns=NAME|PATH][,entries=N][,update=TIME][,place=hybrid|card|card-cpu]
    /// [,cpu-entries=N][,cpu-slowdown=TIME]` drops the fastest sources of tables; it is a stand-in for a card, between
    /// two interfaces on the wire. `flower:dev=IF[,netns=NAME|PATH][,entries=N][,pref=N]` is one whose driver takes
    /// filters of TC flower, `rte-flow:port=PORT[,entries=N]` a port of `--engine dpdk` whose driver takes flows.
    /// `hybrid:profile=PROFILE[,interface=IF][,rules=all|plan|follow|none][,link=GBIT]` answers a part of the policy's
    /// rules for every packet that the lower interface IF receives.
    #[arg(long, value_name = "CARD", value_parser = given_card)]
    pub card: Option<GivenCard>,
    /// The tables of a card `wire:`. Each needs `counters` and a rule `ip saddr @NAME drop` in front of what else
    /// happens to its sources.
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

/// Options of the process that deletes the filters of a card.
#[derive(Clone, Debug, Args)]
pub struct SweepOptions {
    /// Index of the interface.
    #[arg(long)]
    pub index: u32,
    /// The first preference of the filters.
    #[arg(long)]
    pub pref: u16,
    /// The number of the Weir whose filters they are.
    #[arg(long)]
    pub owner: u64,
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
    Dropping(GivenDropping),
    /// A card that answers rules.
    Hybrid(GivenHybrid),
}

/// A card that drops sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenDropping {
    /// What it is.
    pub kind: CardKind,
    /// Which part of it drops packets.
    pub placement: Placement,
}

/// The kinds of cards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardKind {
    /// The wire-side card.
    Wire(CardSpec),
    /// A card that takes filters of TC flower.
    Flower(FlowerSpec),
    /// A port of DPDK that takes flows.
    RteFlow {
        /// Its name.
        port: String,
        /// The most entries.
        entries: usize,
    },
}

impl CardKind {
    /// Its name on the command line.
    fn name(&self) -> &'static str {
        match self {
            CardKind::Wire(_) => "wire",
            CardKind::Flower(_) => "flower",
            CardKind::RteFlow { .. } => "rte-flow",
        }
    }
}

impl GivenDropping {
    /// The interface at which it drops.
    pub fn interface(&self) -> &str {
        match &self.kind {
            CardKind::Wire(wire) => &wire.outer,
            CardKind::Flower(flower) => &flower.interface,
            CardKind::RteFlow { port, .. } => port,
        }
    }
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
    /// Bits a second of the link between card and host.
    pub link_bits: u64,
}

/// Which rules a card gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardRules {
    /// All that it can take, the first ones first.
    All,
    /// The rules that `weir card plan` chooses without a capture.
    Plan,
    /// First the rules of the plan, then the rules that are worth it for live traffic.
    Follow,
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
            Some(GivenCard::Dropping(given)) if self.card_table.is_empty() => {
                let kind = given.kind.name();
                Err(format!("--card {kind}: needs --card-table: the tables whose sources it drops"))
            }
            Some(GivenCard::Hybrid(_)) if !self.card_table.is_empty() || self.card_load.is_some() => {
                Err("--card-table and --card-load are only for cards that drop sources".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for GivenDropping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = match &self.kind {
            CardKind::Wire(CardSpec { namespace, outer, inner, .. }) => {
                write!(f, "wire between {outer} and {inner}")?;
                namespace
            }
            CardKind::Flower(FlowerSpec { namespace, interface, .. }) => {
                write!(f, "flower on {interface}")?;
                namespace
            }
            CardKind::RteFlow { port, .. } => return write!(f, "rte_flow on {port}"),
        };
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

/// The preference of filters: behind those that an operator numbers by hand.
const PREF: u16 = 5730;

fn given_card(text: &str) -> Result<GivenCard, String> {
    match text.split_once(':') {
        Some(("wire", options)) => wire(options).map(GivenCard::Dropping),
        Some(("hybrid", options)) => hybrid(options).map(GivenCard::Hybrid),
        Some(("flower", options)) => flower(options).map(GivenCard::Dropping),
        Some(("rte-flow", options)) => rte_flow(options).map(GivenCard::Dropping),
        _ => {
            Err("a card as `flower:dev=IF`, `rte-flow:port=PORT`, `wire:outer=IF,inner=IF` or `hybrid:profile=PROFILE`"
                .to_owned())
        }
    }
}

/// The options of a card.
struct Given<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Given<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut options = BTreeMap::new();
        for option in text.split(',') {
            let (name, value) = option.split_once('=').ok_or_else(|| format!("`{option}` is not NAME=VALUE"))?;
            if options.insert(name, value).is_some() {
                return Err(format!("`{name}` is given twice"));
            }
        }
        Ok(Given(options))
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        self.0.remove(name)
    }

    fn interface(&mut self, name: &str) -> Result<String, String> {
        match self.take(name) {
            Some(given) if !given.is_empty() => Ok(given.to_owned()),
            _ => Err(format!("`{name}=IF` is missing")),
        }
    }

    /// What is left is no option.
    fn end(self) -> Result<(), String> {
        self.0.keys().next().map_or(Ok(()), |unknown| Err(format!("`{unknown}` is not an option of a card")))
    }
}

fn flower(text: &str) -> Result<GivenDropping, String> {
    let mut options = Given::read(text)?;
    let interface = options.interface("dev")?;
    let namespace = options.take("netns").map(PathBuf::from);
    let entries = count(options.take("entries"), ENTRIES)?;
    let pref = options.take("pref").map_or(Ok(PREF), |text| {
        let found = text.parse().ok().filter(|pref| (1..u16::MAX).contains(pref));
        found.ok_or_else(|| format!("`{text}` is not a preference from 1 to {}", u16::MAX - 1))
    })?;
    options.end()?;
    let flower = FlowerSpec { namespace, interface, entries, pref };
    Ok(GivenDropping { kind: CardKind::Flower(flower), placement: Placement::Hybrid })
}

fn rte_flow(text: &str) -> Result<GivenDropping, String> {
    let mut options = Given::read(text)?;
    let port = options.take("port").filter(|port| !port.is_empty()).ok_or("`port=PORT` is missing")?.to_owned();
    let entries = count(options.take("entries"), ENTRIES)?;
    options.end()?;
    Ok(GivenDropping { kind: CardKind::RteFlow { port, entries }, placement: Placement::Hybrid })
}

fn hybrid(text: &str) -> Result<GivenHybrid, String> {
    let mut options = Given::read(text)?;
    let profile = options.take("profile").filter(|name| !name.is_empty()).ok_or("`profile=PROFILE` is missing")?;
    let interface = options.take("interface").map(str::to_owned);
    let rules = match options.take("rules").unwrap_or("all") {
        "all" => CardRules::All,
        "plan" => CardRules::Plan,
        "follow" => CardRules::Follow,
        "none" => CardRules::None,
        other => return Err(format!("`{other}` is not a choice of rules: all, plan, follow, none")),
    };
    let link = options.take("link");
    if link.is_some() && rules != CardRules::Follow {
        return Err("`link` is only for rules=follow".to_owned());
    }
    let link_bits = link_bits(link.unwrap_or("10"))?;
    options.end()?;
    Ok(GivenHybrid { profile: profile.to_owned(), interface, rules, link_bits })
}

/// The most Gbit/s of a link.
const LINK_MAX: f64 = 1000.0;

/// Bits a second of a link in Gbit/s.
fn link_bits(text: &str) -> Result<u64, String> {
    let found = text.parse::<f64>().ok().filter(|gbit| *gbit > 0.0 && *gbit <= LINK_MAX);
    let found = found.ok_or_else(|| format!("`{text}` is not a link in Gbit/s up to {LINK_MAX}, such as 10 or 2.5"))?;
    Ok((found * 1e9).round().max(1.0) as u64)
}

fn wire(text: &str) -> Result<GivenDropping, String> {
    let mut options = Given::read(text)?;
    let (outer, inner) = (options.interface("outer")?, options.interface("inner")?);
    let placement = placement(options.take("place").unwrap_or("hybrid"))?;
    let [entries, update, cpu_entries, slowdown] =
        ["entries", "update", "cpu-entries", "cpu-slowdown"].map(|name| options.take(name));
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
    let namespace = options.take("netns").map(PathBuf::from);
    options.end()?;
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
    Ok(GivenDropping { kind: CardKind::Wire(wire), placement })
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
    use super::{CardKind, CardRules, CardSpec, GivenCard, GivenDropping, GivenHybrid, Placement, given_card};
    use std::path::Path;
    use std::time::Duration;

    fn dropping(text: &str) -> Result<GivenDropping, String> {
        match given_card(text)? {
            GivenCard::Dropping(given) => Ok(given),
            other => panic!("{other:?}"),
        }
    }

    fn wire(card: &GivenDropping) -> &CardSpec {
        match &card.kind {
            CardKind::Wire(wire) => wire,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_card_is_the_papers_unless_options_say_otherwise() {
        let card = dropping("wire:outer=o,inner=i").expect("a card");
        assert_eq!((wire(&card).entries, wire(&card).update.as_millis(), wire(&card).cpu_entries), (512, 2, 0));
        assert_eq!((card.placement, card.placement.name()), (Placement::Hybrid, "hybrid"));
        let card = dropping("wire:netns=/x/y,outer=o,inner=i,entries=9,update=300us,place=card,cpu-slowdown=2us");
        let card = card.expect("a card");
        assert_eq!((wire(&card).entries, wire(&card).cpu_entries, card.placement), (9, 131_072, Placement::Card));
        assert_eq!(
            (wire(&card).update, wire(&card).cpu_slowdown),
            (Duration::from_micros(300), Duration::from_micros(2))
        );
        assert_eq!(card.to_string(), "wire between o and i in /x/y");
        let card = dropping("wire:outer=o,inner=i,place=card-cpu,cpu-entries=7").expect("a card");
        assert_eq!((wire(&card).entries, wire(&card).cpu_entries), (0, 7));
    }

    #[test]
    fn a_card_of_flower_has_an_interface() {
        let card = dropping("flower:dev=eth0").expect("a card");
        assert_eq!(
            (card.to_string(), card.interface(), card.placement.name()),
            ("flower on eth0".into(), "eth0", "hybrid")
        );
        let CardKind::Flower(flower) = card.kind else { panic!("{card:?}") };
        assert_eq!((flower.entries, flower.pref, flower.namespace), (512, 5730, None));
        let card = dropping("flower:netns=x,dev=eth0,entries=1000000,pref=65534").expect("a card");
        let CardKind::Flower(flower) = card.kind else { panic!("{card:?}") };
        assert_eq!(
            (flower.entries, flower.pref, flower.namespace.as_deref()),
            (1_000_000, 65534, Some(Path::new("x")))
        );
    }

    #[test]
    fn a_card_of_rte_flow_has_a_port() {
        let card = dropping("rte-flow:port=0000:01:00.0,entries=7").expect("a card");
        assert_eq!((card.to_string(), card.interface()), ("rte_flow on 0000:01:00.0".into(), "0000:01:00.0"));
        assert_eq!(card.kind, CardKind::RteFlow { port: "0000:01:00.0".to_owned(), entries: 7 });
    }

    #[test]
    fn a_hybrid_card_takes_all_rules_unless_options_say_otherwise() {
        let card = |interface: Option<&str>, rules| {
            let interface = interface.map(str::to_owned);
            let link_bits = 10_000_000_000;
            Ok(GivenCard::Hybrid(GivenHybrid { profile: "open-nic".to_owned(), interface, rules, link_bits }))
        };
        assert_eq!(given_card("hybrid:profile=open-nic"), card(None, CardRules::All));
        assert_eq!(given_card("hybrid:profile=open-nic,rules=plan"), card(None, CardRules::Plan));
        assert_eq!(given_card("hybrid:rules=none,interface=l,profile=open-nic"), card(Some("l"), CardRules::None));
        assert_eq!(given_card("hybrid:profile=open-nic,rules=follow"), card(None, CardRules::Follow));
        let slow = given_card("hybrid:profile=open-nic,rules=follow,link=2.5");
        assert!(matches!(slow, Ok(GivenCard::Hybrid(GivenHybrid { link_bits: 2_500_000_000, .. }))), "{slow:?}");
    }

    #[test]
    fn what_is_no_card_is_said() {
        for (text, problem) in [
            (
                "wire",
                "a card as `flower:dev=IF`, `rte-flow:port=PORT`, `wire:outer=IF,inner=IF` or `hybrid:profile=PROFILE`",
            ),
            ("hybrid:profile=open-nic,rules=plan,link=1", "`link` is only for rules=follow"),
            (
                "hybrid:profile=open-nic,rules=follow,link=0",
                "`0` is not a link in Gbit/s up to 1000, such as 10 or 2.5",
            ),
            ("flower:entries=1", "`dev=IF` is missing"),
            ("rte-flow:0000:01:00.0", "`0000:01:00.0` is not NAME=VALUE"),
            ("rte-flow:entries=1", "`port=PORT` is missing"),
            ("rte-flow:port=net_tap0,dev=e", "`dev` is not an option of a card"),
            ("flower:dev=e,place=card", "`place` is not an option of a card"),
            ("flower:dev=e,pref=65535", "`65535` is not a preference from 1 to 65534"),
            ("hybrid:interface=lower0", "`profile=PROFILE` is missing"),
            ("hybrid:profile=open-nic,rules=some", "`some` is not a choice of rules: all, plan, follow, none"),
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
    }
}
