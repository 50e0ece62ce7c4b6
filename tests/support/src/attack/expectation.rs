//! What must happen in an attack: lines that begin with `expect`.

use std::fmt::{self, Display, Formatter};

/// What must have happened at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Its line in the file, from 1.
    pub line: usize,
    /// What it says.
    pub claim: Claim,
}

/// One statement about the outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// Of the packets of a sender in a time, so many have this fate: a verdict, a reason, or a state.
    Packets {
        /// Which packets.
        whose: Whose,
        /// The fate of these packets.
        fate: String,
        /// How many.
        amount: Amount,
    },
    /// So many flows are in this state, or in any (`all`), at the end.
    Flows {
        /// The state.
        state: String,
        /// How many.
        amount: Amount,
    },
    /// Detection drops so many packets of a sender.
    Detect {
        /// Which packets.
        whose: Whose,
        /// How many.
        amount: Amount,
    },
    /// Detection finds an attack on this prefix, at this time (ns from the beginning) at the latest.
    Attack {
        /// The prefix.
        on: String,
        /// The latest time.
        before_ns: Option<u64>,
    },
    /// Detection finds no attack.
    NoAttack,
    /// Detection blocks this source, or any.
    Blocks(Option<String>),
    /// Detection never blocks this source, or any.
    Spares(Option<String>),
}

/// Packets of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The word at the beginning of their lines; `everyone` for all.
    pub sender: String,
    /// Packets from this time on, ns from the beginning.
    pub from_ns: u64,
    /// Packets before this time.
    pub until_ns: u64,
}

/// How many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// All of them.
    All,
    /// Exactly this number.
    Exactly(u64),
    /// This number or more.
    AtLeast(u64),
    /// This number or fewer.
    AtMost(u64),
    /// This share or more, in percent.
    AtLeastPercent(f64),
    /// This share or less, in percent.
    AtMostPercent(f64),
}

impl Amount {
    /// Whether `part` of `all` is this amount.
    pub fn holds(self, part: u64, all: u64) -> bool {
        let percent = 100.0 * part as f64 / all.max(1) as f64;
        match self {
            Amount::All => part == all,
            Amount::Exactly(number) => part == number,
            Amount::AtLeast(number) => part >= number,
            Amount::AtMost(number) => part <= number,
            Amount::AtLeastPercent(least) => percent >= least,
            Amount::AtMostPercent(most) => percent <= most,
        }
    }

    fn parse(words: &[&str]) -> Result<Self, String> {
        let percent = |word: &str| word.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let wrong = || format!("`{}` is no amount such as `all`, `none`, `7` or `at most 0.1%`", words.join(" "));
        match words {
            ["all"] => Ok(Amount::All),
            ["none"] => Ok(Amount::Exactly(0)),
            [number] => number.parse().map(Amount::Exactly).map_err(|_| wrong()),
            ["at", "least", number] => match percent(number) {
                Some(share) => Ok(Amount::AtLeastPercent(share)),
                None => number.parse().map(Amount::AtLeast).map_err(|_| wrong()),
            },
            ["at", "most", number] => match percent(number) {
                Some(share) => Ok(Amount::AtMostPercent(share)),
                None => number.parse().map(Amount::AtMost).map_err(|_| wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

impl Display for Amount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Amount::All => f.write_str("all"),
            Amount::Exactly(number) => write!(f, "{number}"),
            Amount::AtLeast(number) => write!(f, "at least {number}"),
            Amount::AtMost(number) => write!(f, "at most {number}"),
            Amount::AtLeastPercent(share) => write!(f, "at least {share}%"),
            Amount::AtMostPercent(share) => write!(f, "at most {share}%"),
        }
    }
}

impl Claim {
    /// Whether it is about detection.
    pub fn is_of_detection(&self) -> bool {
        !matches!(self, Claim::Packets { .. } | Claim::Flows { .. })
    }

    /// The words behind `expect`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["flows", state, amount @ ..] => {
                Ok(Claim::Flows { state: (*state).to_owned(), amount: Amount::parse(amount)? })
            }
            ["detect", "no", "attack"] => Ok(Claim::NoAttack),
            ["detect", "attack", "on", on] => Ok(Claim::Attack { on: (*on).to_owned(), before_ns: None }),
            ["detect", "attack", "on", on, "before", time] => {
                Ok(Claim::Attack { on: (*on).to_owned(), before_ns: Some(nanoseconds(time)?) })
            }
            ["detect", "blocks", source] => Ok(Claim::Blocks(someone(source))),
            ["detect", "spares", source] => Ok(Claim::Spares(someone(source))),
            ["detect", rest @ ..] => {
                let (whose, rest) = whose(rest)?;
                match rest {
                    ["dropped", amount @ ..] => Ok(Claim::Detect { whose, amount: Amount::parse(amount)? }),
                    _ => Err(format!("`{}`: detection only says what is `dropped`", rest.join(" "))),
                }
            }
            rest => {
                let (whose, rest) = whose(rest)?;
                let [fate, amount @ ..] = rest else { return Err("what is expected of these packets?".into()) };
                Ok(Claim::Packets { whose, fate: (*fate).to_owned(), amount: Amount::parse(amount)? })
            }
        }
    }

    /// The sender that it is about.
    pub fn sender(&self) -> Option<&str> {
        match self {
            Claim::Packets { whose, .. } | Claim::Detect { whose, .. } => Some(&whose.sender),
            _ => None,
        }
    }
}

fn someone(word: &str) -> Option<String> {
    (!matches!(word, "somebody" | "everybody")).then(|| word.to_owned())
}

/// A sender, and `from` and `until` behind it.
fn whose<'a, 'w>(words: &'w [&'a str]) -> Result<(Whose, &'w [&'a str]), String> {
    let [sender, rest @ ..] = words else { return Err("whose packets?".into()) };
    let mut rest: &[&str] = rest;
    let mut whose = Whose { sender: (*sender).to_owned(), from_ns: 0, until_ns: u64::MAX };
    loop {
        match rest {
            ["from", time, after @ ..] => (whose.from_ns, rest) = (nanoseconds(time)?, after),
            ["until", time, after @ ..] => (whose.until_ns, rest) = (nanoseconds(time)?, after),
            _ => return Ok((whose, rest)),
        }
    }
}

/// `250ms`, `1.5s`, `2m` or `1h` in ns.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let unit_ns = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        "d" => 86400e9,
        _ => return Err(format!("`{text}` is no time such as 20ms or 1.5s")),
    };
    let number = number.parse::<f64>().ok().filter(|number| *number >= 0.0);
    number.map(|number| (number * unit_ns).round() as u64).ok_or_else(|| format!("`{text}` is no time"))
}
