//! Prints a syntax tree. The printed text parses to the same tree.

use super::tree::{
    Add, Atom, AtomKind, DirectionBlock, EachLimit, File, InsideMember, Item, Limit, LimitEach, LimitsSetting,
    ListFile, Match, ObserveSetting, OnExceed, Operand, Operator, Rule, SlotSetting, Statement, Subject, SynproxyOffer,
    SynproxyThreshold, TableSetting, TrackingSetting, Value, Values,
};
use std::fmt::{self, Display, Formatter};

impl Display for File {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.items.iter().try_for_each(|item| writeln!(f, "{item}"))
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Item::Include(include) => write!(f, "include \"{}\"", include.path.text),
            Item::Define(define) => {
                write!(f, "define {} = ", define.name.text)?;
                define.values.iter().try_for_each(|values| write!(f, "{values}"))
            }
            Item::Table(table) => {
                writeln!(f, "table {} {{", table.name.text)?;
                table.settings.iter().try_for_each(|setting| writeln!(f, "  {setting}"))?;
                write!(f, "}}")
            }
            Item::Limits(limits) => {
                writeln!(f, "limits {} {{", limits.name.text)?;
                limits.settings.iter().try_for_each(|setting| writeln!(f, "  {setting}"))?;
                write!(f, "}}")
            }
            Item::Defaults(defaults) => {
                writeln!(f, "defaults {{")?;
                defaults.entries.iter().try_for_each(|(kind, what)| writeln!(f, "  {} {}", kind.text, what.text))?;
                write!(f, "}}")
            }
            Item::Tracking(tracking) => {
                writeln!(f, "tracking {{")?;
                tracking.settings.iter().try_for_each(|setting| writeln!(f, "  {setting}"))?;
                write!(f, "}}")
            }
            Item::Slot(slot) => {
                writeln!(f, "slot {} {{", slot.name.text)?;
                for SlotSetting::Size(size, _) in &slot.settings {
                    writeln!(f, "  size {size}")?;
                }
                write!(f, "}}")
            }
            Item::Observe(observe) => {
                writeln!(f, "observe {{")?;
                observe.settings.iter().try_for_each(|setting| writeln!(f, "  {setting}"))?;
                write!(f, "}}")
            }
            Item::Inside(inside) => {
                let members: Vec<String> = inside.members.iter().map(ToString::to_string).collect();
                write!(f, "inside {{ {} }}", members.join(", "))
            }
            Item::OnExit(on_exit) => write!(f, "on-exit {}", on_exit.value.text),
            Item::Direction(block) => print_direction(f, block, ""),
            Item::Posture(posture) => {
                writeln!(f, "posture {} {{", posture.name.text)?;
                for block in &posture.directions {
                    print_direction(f, block, "  ")?;
                    writeln!(f)?;
                }
                write!(f, "}}")
            }
        }
    }
}

fn print_direction(f: &mut Formatter, block: &DirectionBlock, indent: &str) -> fmt::Result {
    writeln!(f, "{indent}{} {{", block.direction.name())?;
    block.rules.iter().try_for_each(|rule| writeln!(f, "{indent}  {rule}"))?;
    write!(f, "{indent}}}")
}

impl Display for TableSetting {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            TableSetting::Type { family, label: Some(label) } => write!(f, "type {} : {}", family.text, label.text),
            TableSetting::Type { family, label: None } => write!(f, "type {}", family.text),
            TableSetting::Elements(elements, _) => {
                write!(f, "elements = {{ ")?;
                for (i, element) in elements.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{}", element.value)?;
                    element.label.iter().try_for_each(|label| write!(f, " : {label}"))?;
                }
                write!(f, " }}")
            }
            TableSetting::File(file) => write!(f, "{file}"),
            TableSetting::Dynamic(_) => write!(f, "dynamic"),
            TableSetting::Size(size) => write!(f, "size {size}"),
            TableSetting::Timeout(timeout) => write!(f, "timeout {timeout}"),
            TableSetting::Layout(layout) => write!(f, "layout {}", layout.text),
            TableSetting::Counters(_) => write!(f, "counters"),
            TableSetting::Watch(_) => write!(f, "watch"),
            TableSetting::Protect(table) => write!(f, "protect @{}", table.text),
            TableSetting::MaxChange(percent) => write!(f, "max-change {percent}%"),
        }
    }
}

impl Display for ObserveSetting {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            ObserveSetting::Size(size) => write!(f, "size {size}"),
            ObserveSetting::Each(of, None) => write!(f, "each {}", of.text),
            ObserveSetting::Each(of, Some(length)) => write!(f, "each {}/{length}", of.text),
            ObserveSetting::Inside(values, _) => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(f, "inside {{ {} }}", values.join(", "))
            }
        }
    }
}

impl Display for InsideMember {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            InsideMember::Addresses(value) => write!(f, "{value}"),
            InsideMember::Table(table) => write!(f, "@{}", table.text),
        }
    }
}

impl Display for TrackingSetting {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            TrackingSetting::Size(size) => write!(f, "size {size}"),
            TrackingSetting::Embryonic(percent) => write!(f, "embryonic {percent}%"),
            TrackingSetting::Unproven(percent) => write!(f, "unproven {percent}%"),
            TrackingSetting::Timeout(of, timeout) => write!(f, "timeout {} {timeout}", of.text),
            TrackingSetting::Pickup(word) => write!(f, "pickup {}", word.text),
            TrackingSetting::OneWay(_) => write!(f, "one-way"),
            TrackingSetting::Vlan(word) => write!(f, "vlan {}", word.text),
            TrackingSetting::Invalid(word) => write!(f, "invalid {}", word.text),
            TrackingSetting::SynproxyOffer(SynproxyOffer { mss, wscale, sack_perm, timestamp, .. }) => {
                write!(f, "synproxy mss {mss}")?;
                wscale.iter().try_for_each(|wscale| write!(f, " wscale {wscale}"))?;
                sack_perm.iter().try_for_each(|_| write!(f, " sack-perm"))?;
                timestamp.iter().try_for_each(|_| write!(f, " timestamp"))
            }
            TrackingSetting::SynproxyThreshold(SynproxyThreshold { on, off, calm, .. }) => {
                write!(f, "synproxy on {} off {} for {calm}", on.text, off.text)
            }
        }
    }
}

impl Display for LimitsSetting {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            LimitsSetting::File(file) => write!(f, "{file}"),
            LimitsSetting::Elements(elements, _) => {
                write!(f, "elements = {{ ")?;
                for (i, element) in elements.iter().enumerate() {
                    write!(f, "{}{} : {}", if i == 0 { "" } else { ", " }, element.key, element.limit)?;
                }
                write!(f, " }}")
            }
            LimitsSetting::Default(limit) => write!(f, "default {limit}"),
            LimitsSetting::Table(table) => write!(f, "table {}", table.text),
            LimitsSetting::Nested(_) => write!(f, "nested"),
            LimitsSetting::Log(log, _) => write!(f, "log {}", log.name()),
        }
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "{}", self.rate.text)?;
        self.burst.iter().try_for_each(|burst| write!(f, " burst {}", burst.text))
    }
}

fn print_exceed(f: &mut Formatter, OnExceed { add, exceed }: &OnExceed) -> fmt::Result {
    if add.is_some() || exceed.is_some() {
        write!(f, " exceed")?;
    }
    if let Some(add) = add {
        write!(f, " add @{}", add.table.text)?;
        add.timeout.iter().try_for_each(|timeout| write!(f, " timeout {timeout}"))?;
    }
    exceed.iter().try_for_each(|exceed| write!(f, " {}", exceed.name()))
}

impl Display for ListFile {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "file \"{}\"", self.path.text)?;
        self.field.iter().try_for_each(|field| write!(f, " field \"{}\"", field.text))?;
        self.lenient.iter().try_for_each(|_| write!(f, " lenient"))
    }
}

impl Display for Atom {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self.kind {
            AtomKind::String => write!(f, "\"{}\"", self.text),
            _ => write!(f, "{}", self.text),
        }
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Operand::Atom(atom) => write!(f, "{atom}"),
            Operand::Variable(name) => write!(f, "${}", name.text),
        }
    }
}

fn print_joined(f: &mut Formatter, parts: &[impl Display], by: &str) -> fmt::Result {
    for (i, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if i == 0 { "" } else { by })?;
    }
    Ok(())
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Value::Single(operand) => write!(f, "{operand}"),
            Value::Prefix { address, length } => write!(f, "{address}/{length}"),
            // Without blanks `a-b` would be one word.
            Value::Range { start: Operand::Atom(start), end } if start.kind != AtomKind::Word => {
                write!(f, "{start}-{end}")
            }
            Value::Range { start, end } => write!(f, "{start} - {end}"),
            Value::Bits(operands) => {
                write!(f, "(")?;
                print_joined(f, operands, " | ")?;
                write!(f, ")")
            }
        }
    }
}

impl Display for Values {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Values::One(value) => write!(f, "{value}"),
            Values::List(values) => print_joined(f, values, ","),
            Values::Set { elements, .. } => {
                write!(f, "{{ ")?;
                print_joined(f, elements, ", ")?;
                write!(f, " }}")
            }
            Values::Masked { value, mask } => {
                print_joined(f, value, ",")?;
                write!(f, " / ")?;
                print_joined(f, mask, ",")
            }
        }
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Subject::Named { layer, field } => write!(f, "{} {}", layer.text, field.text),
            Subject::Raw { base, offset, bits, .. } => write!(f, "@{},{offset},{bits}", base.text),
        }
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let spaced = |operator: &Operator| match operator {
            Operator::Implicit => " ".to_owned(),
            operator => format!(" {} ", operator.text()),
        };
        match self {
            Match::Guard(name) => write!(f, "{}", name.text),
            Match::Compare { subject, mask, operator, values, .. } => {
                write!(f, "{subject}")?;
                mask.iter().try_for_each(|mask| write!(f, " & {mask}"))?;
                write!(f, "{}{values}", spaced(operator))
            }
            Match::Table { subject, operator, table, labels, .. } => {
                write!(f, "{subject}{}@{}", spaced(operator), table.text)?;
                let Some(labels) = labels else { return Ok(()) };
                write!(f, " {{ ")?;
                print_joined(f, labels, ", ")?;
                write!(f, " }}")
            }
        }
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Statement::Counter(_) => write!(f, "counter"),
            Statement::Sample { copies, packets } => write!(f, "sample {copies}/{packets}"),
            Statement::Limit { subject, limits, exceed, .. } => {
                write!(f, "{subject} limit @{}", limits.text)?;
                print_exceed(f, exceed)
            }
            Statement::LimitRate { limit, exceed, .. } => {
                write!(f, "limit rate {limit}")?;
                print_exceed(f, exceed)
            }
            Statement::LimitEach(LimitEach { subject, length, limit, size, log, exceed, .. }) => {
                write!(f, "limit each {subject}")?;
                length.iter().try_for_each(|length| write!(f, "/{length}"))?;
                match limit {
                    EachLimit::Rate(limit) => write!(f, " {limit}")?,
                    EachLimit::Connections(number) => write!(f, " connections {number}")?,
                }
                size.iter().try_for_each(|size| write!(f, " size {size}"))?;
                log.iter().try_for_each(|log| write!(f, " log {}", log.name()))?;
                print_exceed(f, exceed)
            }
            Statement::Add(Add { kind, table, subject, length, timeout, .. }) => {
                write!(f, "{} @{} {{ {subject}", kind.name(), table.text)?;
                length.iter().try_for_each(|length| write!(f, "/{length}"))?;
                timeout.iter().try_for_each(|timeout| write!(f, " timeout {timeout}"))?;
                write!(f, " }}")
            }
            Statement::Track(_) => write!(f, "track"),
            Statement::Synproxy(_) => write!(f, "synproxy"),
            Statement::Slot { slot, .. } => write!(f, "slot {}", slot.text),
            Statement::Verdict(action, _) => write!(f, "{}", action.name()),
        }
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        print_joined(f, &self.matches, " ")?;
        write!(f, "{}", if self.matches.is_empty() || self.statements.is_empty() { "" } else { " " })?;
        print_joined(f, &self.statements, " ")
    }
}
