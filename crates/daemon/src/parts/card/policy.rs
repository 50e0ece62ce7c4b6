//! What the active policy says about tables of the card.

use crate::generations::generation::{Generation, Loader};
use crate::parts::card::counted_rule::CountedRule;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use weir_abi::Family;
use weir_engine::live::Datapath;
use weir_policy::ir::{Program, RuleId, Slot};
use weir_policy::offload::{Exempt, Offload, offload};
use weir_state::tables::{TableBinding, TableStore};

/// The policy that decides packets.
pub trait Policy: Send + Sync {
    /// Its program.
    fn program(&self) -> &Program;
    /// Its posture; `None` for the base policy.
    fn posture(&self) -> Option<&str>;
    /// Its tables.
    fn tables(&self) -> &TableBinding;
    /// The tables of all policies.
    fn store(&self) -> &TableStore;
    /// The tables whose entries a table must not have.
    fn protected(&self, table: &str) -> Vec<String>;
}

/// A generation that decides packets.
pub struct Deciding<L: Loader> {
    /// For its shared state.
    pub loader: L,
    /// The generation.
    pub generation: Arc<Generation<<L::Datapath as Datapath>::Code>>,
    /// Its posture.
    pub posture: Option<String>,
}

impl<L: Loader> Policy for Deciding<L>
where
    <L::Datapath as Datapath>::Code: Send + Sync,
{
    fn program(&self) -> &Program {
        self.generation.program()
    }

    fn posture(&self) -> Option<&str> {
        self.posture.as_deref()
    }

    fn tables(&self) -> &TableBinding {
        self.generation.tables().expect("tables of a running Weir can change")
    }

    fn store(&self) -> &TableStore {
        self.loader.shared().tables()
    }

    fn protected(&self, table: &str) -> Vec<String> {
        let declared = self.generation.declared();
        let protected = declared.named(table).map(|table| table.updates.protected.clone()).unwrap_or_default();
        protected.iter().map(|id| declared.all()[usize::from(id.0)].name.clone()).collect()
    }
}

/// A table by which the card may drop packets.
pub struct Blocked {
    /// Its name.
    pub table: String,
    /// The rule that drops its sources.
    pub rule: Arc<CountedRule>,
    /// Citations of rules that do not see what the card drops.
    pub unseen: Vec<String>,
    family: Family,
    exempt: Vec<Exempt>,
}

/// Which rule and sources of a table a card may drop, in a posture.
///
/// # Errors
/// It must not drop packets by the table: the reason.
pub fn offloaded(program: &Program, posture: Option<&str>, table: &str) -> Result<Offload, String> {
    let found = offload(program, posture, table).map_err(|refusal| refusal.to_string())?;
    let counts = |slot: &Slot| slot.counted.is_some() && slot.tables().iter().any(|name| name == table);
    match program.slots.iter().any(counts) {
        true => Ok(found),
        false => Err(format!("table {table}: it has no `counters`, which say whose packets are most")),
    }
}

impl Blocked {
    /// Asks a policy about a table.
    ///
    /// # Errors
    /// The card must not drop packets by it: the reason.
    pub fn of(policy: &dyn Policy, table: &str) -> Result<Self, String> {
        let program = policy.program();
        let found = offloaded(program, policy.posture(), table)?;
        let at = |rule: RuleId| program.rule(rule).at.clone();
        let tables = &program.tables_tested()[usize::from(found.rule.0)];
        let rule = CountedRule {
            at: at(found.rule),
            text: program.rule(found.rule).text.clone(),
            tables: tables.iter().map(|&table| table.to_owned()).collect(),
        };
        let mut exempt = found.exempt;
        exempt.extend(policy.protected(table).into_iter().map(Exempt::Table));
        let unseen = found.unseen.into_iter().map(at).collect();
        Ok(Blocked { table: table.to_owned(), rule: Arc::new(rule), unseen, family: found.family, exempt })
    }

    /// Whether entries of another table stay out of the card.
    pub fn is_exempt_by(&self, table: &str) -> bool {
        self.exempt.iter().any(|exempt| matches!(exempt, Exempt::Table(name) if name == table))
    }

    /// Whether entries of any other table stay out of the card.
    pub fn is_exempt_by_tables(&self) -> bool {
        self.exempt.iter().any(|exempt| matches!(exempt, Exempt::Table(_)))
    }

    /// Length of the prefix of a single source.
    pub fn full_length(&self) -> u8 {
        self.family.bits()
    }

    /// Selects the sources that the card may drop: entries of the table that are not exempt.
    pub fn may_drop(&self, policy: &dyn Policy, sources: &[IpAddr]) -> HashSet<IpAddr> {
        let (store, tables, length) = (policy.store(), policy.tables(), self.full_length());
        let mut left: HashSet<IpAddr> = store
            .read(tables, &self.table, |view| {
                let of_family = sources.iter().filter(|source| source.is_ipv4() == (self.family == Family::Ipv4));
                let is_there = |source: &&IpAddr| view.longest(**source).is_some_and(|one| one.len == length);
                of_family.filter(is_there).copied().collect()
            })
            .unwrap_or_default();
        for exempt in &self.exempt {
            match exempt {
                Exempt::Addresses(set) => left.retain(|source| !set.contains(bits(*source))),
                Exempt::Table(table) => {
                    let others = store.read(tables, table, |view| {
                        left.iter().filter(|source| view.longest(**source).is_some()).copied().collect::<Vec<_>>()
                    });
                    match others {
                        Ok(others) => others.iter().for_each(|other| _ = left.remove(other)),
                        // The exempt sources are unknown.
                        Err(_) => left.clear(),
                    }
                }
            }
        }
        left
    }
}

/// An address as rules compare it.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u32::from(four).into(),
        IpAddr::V6(six) => six.into(),
    }
}
