//! The common stage of text and bundles: a correct program with its tables.

use crate::bundle_report::{self, Contents};
use crate::error::{LoadError, Rejected};
use crate::eval::SlotAnswers;
use crate::limit_lists::{self, LimitList};
use crate::policy_tables::PolicyTables;
use crate::shape::shape;
use crate::tables::{self, TablesOf};
use crate::text::Text;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use weir_abi::{ABI_VERSION, LimitEntries, Target};
use weir_engine::bundle::Bundle;
use weir_engine::bundle::trust::Trust;
use weir_engine::{Artifact, ProgramShape, Source};
use weir_policy::backend;
use weir_policy::capability::{self, Engine, Unsupported};
use weir_policy::ir::{Chain, Direction, FindId, Program, Slot, SlotContents};
use weir_policy::pipeline;
use weir_policy::slot_rule::SlotRule;
use weir_tables::Image;

/// A policy that engines can load.
pub struct Policy {
    /// The lowered program, with one top node per rule.
    pub program: Program,
    /// The tables that it declares.
    tables: PolicyTables,
    /// The lists of limits; of a bundle those that its limiters use.
    pub(crate) lists: Vec<LimitList>,
    /// The rules of slots in replays, by slot.
    pub(crate) slot_rules: Vec<Vec<SlotRule>>,
    /// The images of slots that were built already.
    pub(crate) images: Vec<OnceLock<Arc<Image>>>,
    pub(crate) origin: Origin,
    unverified: Option<Unverified>,
}

/// The origin of a policy.
pub(crate) enum Origin {
    Text(Box<Text>),
    Bundle(Box<Bundle>),
}

/// A policy whose author was not verified. The caller warns about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// The policy is text, which cannot be signed, although keys were given.
    Text(PathBuf),
    /// The bundle is signed, but no key was given.
    Bundle(PathBuf),
}

impl Policy {
    pub(crate) fn of_text(text: Text) -> Self {
        Policy {
            slot_rules: vec![vec![]; text.lowered.program.rule_slots.len()],
            program: text.lowered.program.clone(),
            tables: PolicyTables::of_text(&text.checked, &text.tables),
            lists: text.limit_lists(),
            images: text.lowered.plan.images.iter().map(|_| OnceLock::new()).collect(),
            origin: Origin::Text(Box::new(text)),
            unverified: None,
        }
    }

    /// This policy, marked as unverified text.
    pub(crate) fn unsigned(self, path: PathBuf) -> Self {
        Policy { unverified: Some(Unverified::Text(path)), ..self }
    }

    /// Reads a bundle from bytes without a file, as fuzz targets do. `path` is for messages. Its code is run only if it
    /// is signed.
    ///
    /// # Errors
    /// The bundle is damaged, not signed by a trusted key, or of another version.
    pub fn read_bundle(path: &Path, bytes: &[u8], trust: &Trust) -> Result<Self, LoadError> {
        Policy::of_bundle(path, Bundle::read_bytes(path, bytes, trust)?)
    }

    /// This policy with the verification of another one.
    pub(crate) fn verified_like(self, other: &Policy) -> Self {
        Policy { unverified: other.unverified.clone(), ..self }
    }

    /// Makes a policy from a bundle.
    ///
    /// # Errors
    /// The parts of the bundle do not match, or another version wrote it.
    pub(crate) fn of_bundle(path: &Path, bundle: Bundle) -> Result<Self, LoadError> {
        let foreign = |problem: String| {
            let problem = problem.replace(|c: char| c.is_control(), "?");
            LoadError::ForeignBundle { path: path.to_owned(), problem }
        };
        let Contents { program, tables, lists } = bundle_report::read(path, &bundle).map_err(foreign)?;
        let images = program.slots.iter().map(|_| OnceLock::new()).collect();
        let unverified = bundle.is_unverified().then(|| Unverified::Bundle(path.to_owned()));
        let slot_rules = vec![vec![]; program.rule_slots.len()];
        let origin = Origin::Bundle(Box::new(bundle));
        Ok(Policy { program, tables, lists, slot_rules, images, origin, unverified })
    }

    /// Adds a rule to a slot, for replays.
    ///
    /// # Errors
    /// There is no such slot, it is full, or the rule is wrong. The error may have several lines.
    pub fn add_slot_rule(&mut self, slot: &str, rule: &str) -> Result<(), String> {
        let slots = &self.program.rule_slots;
        let Some(index) = slots.iter().position(|known| known.name == slot) else {
            let known: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            return Err(format!("the policy has no slot `{}`; {known}", slot.escape_debug()));
        };
        let rule = SlotRule::parse(rule).map_err(|refused| refused.to_string())?;
        let (rules, size) = (&mut self.slot_rules[index], slots[index].size);
        if rules.len() >= usize::from(size) {
            return Err(format!("the slot {slot} is full: the policy reserves {size} rules"));
        }
        rules.push(rule);
        Ok(())
    }

    /// Puts rules into all slots, for replays.
    ///
    /// # Panics
    /// Panics if there are not as many slots.
    pub fn set_slot_rules(&mut self, rules: Vec<Vec<SlotRule>>) {
        assert_eq!(rules.len(), self.slot_rules.len(), "the rules of another policy");
        self.slot_rules = rules;
    }

    /// The rules of slots in replays, by slot.
    pub fn slot_rules(&self) -> &[Vec<SlotRule>] {
        &self.slot_rules
    }

    /// This policy with the program of a split (`weir_card::split`). That program may have more chains and slots behind
    /// the existing ones.
    ///
    /// # Panics
    /// Panics if the program is of another policy, or the policy comes from a bundle.
    #[must_use]
    pub fn with_answers(self, program: Program) -> Self {
        let has = self.program.slots.len();
        assert!(!self.is_bundle(), "compiler bug: a bundle's code has the chains that it has");
        assert!(program.slots.get(..has) == Some(&self.program.slots[..]), "compiler bug: a split of another policy");
        let mut images = self.images;
        images.resize_with(program.slots.len(), OnceLock::new);
        Policy { program, images, ..self }
    }

    /// The text of the policy, unless it comes from a bundle.
    pub fn text(&self) -> Option<&Text> {
        match &self.origin {
            Origin::Text(text) => Some(text),
            Origin::Bundle(_) => None,
        }
    }

    /// Files that the policy was read from. A command must not overwrite them. The list is empty for bundles.
    pub fn files(&self) -> &[PathBuf] {
        self.text().map_or(&[], |text| &text.files)
    }

    /// Whether the policy is compiled already.
    pub fn is_bundle(&self) -> bool {
        matches!(self.origin, Origin::Bundle(_))
    }

    /// Whether and why its author was not verified.
    pub fn unverified(&self) -> Option<&Unverified> {
        self.unverified.as_ref()
    }

    /// The rules that compiled code does not support yet.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        capability::unsupported(&self.program, &compiled())
    }

    /// Refuses a policy with rules that the engines do not support yet.
    ///
    /// # Errors
    /// One diagnostic per rule.
    pub fn refuse_unsupported(&self, engines: &[Engine]) -> Result<(), LoadError> {
        if capability::unsupported(&self.program, engines).is_empty() {
            return Ok(());
        }
        match &self.origin {
            Origin::Text(text) => {
                let diagnostics = pipeline::unsupported(&text.lowered, engines);
                Err(Rejected { sources: text.sources.clone(), diagnostics, lists: vec![] }.into())
            }
            Origin::Bundle(_) => Err(LoadError::UnsupportedBundle),
        }
    }

    /// Index of the chain of a posture, or of the base policy.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn chain(&self, posture: Option<&str>, direction: Direction) -> Result<usize, LoadError> {
        self.program.chain(posture, direction).ok_or_else(|| {
            let known = self.program.chains.iter().step_by(2).filter_map(|chain| chain.posture.clone()).collect();
            LoadError::NoPosture { posture: posture.unwrap_or_default().to_owned(), known }
        })
    }

    /// Removes all other chains from a policy's text. The remaining ones are renumbered in order.
    pub fn keep_chains(&mut self, wanted: &[usize]) {
        assert!(!self.is_bundle(), "compiler bug: a bundle's code has the chains that it has");
        let chains = std::mem::take(&mut self.program.chains);
        let kept = chains.into_iter().enumerate().filter(|(index, _)| wanted.contains(index));
        self.program.chains = kept.map(|(_, chain)| chain).collect();
    }

    /// Name of a label that a lookup returned, or its number if it has no name (in sets).
    pub fn label(&self, chain: &Chain, find: FindId, label: u32) -> String {
        let slot = self.program.slot(chain.finds[usize::from(find.0)].slot);
        let labels = self.tables.alone_in(slot).map(|table| table.entries.labels()).unwrap_or_default();
        match (label as usize).checked_sub(1).and_then(|index| labels.get(index)) {
            Some(name) => name.to_string(),
            None if label == 1 => "found".to_owned(),
            None => format!("label {label}"),
        }
    }

    /// The tables that it declares.
    pub fn tables(&self) -> &PolicyTables {
        &self.tables
    }

    /// The program with the tables.
    pub(crate) fn tables_of(&self) -> TablesOf<'_> {
        TablesOf { program: &self.program, tables: &self.tables }
    }

    /// The lists of limits. Of a bundle they are those that rules use.
    pub fn limit_lists(&self) -> &[LimitList] {
        &self.lists
    }

    /// The entries of each limiter. Limiters of the same list share them.
    pub fn limit_entries(&self) -> Vec<Arc<LimitEntries>> {
        limit_lists::entries(&self.lists, &self.program)
    }

    /// The contents of tables for the interpreter.
    pub fn answers(&self) -> SlotAnswers {
        let references = |slot: &Slot| match &slot.contents {
            SlotContents::Limits(list) => {
                let table = limit_lists::named(&self.lists, list).prefixes();
                vec![Arc::new(table.reference(slot.family))]
            }
            SlotContents::Tables(_) => self.tables.references(slot),
        };
        SlotAnswers {
            slots: self.program.slots.iter().map(|slot| (slot.family, references(slot))).collect(),
            followed: tables::followed(self.tables_of()),
            protected: tables::protected(self.tables_of()),
            limits: self.limit_entries(),
        }
    }

    /// The facts about the program that loaders need.
    pub fn shape(&self) -> weir_engine::ProgramShape {
        shape(&self.program)
    }

    /// The program as source for every target, with the data for reports.
    ///
    /// # Errors
    /// A rule is not supported yet.
    pub fn artifact(&self) -> Result<Artifact, LoadError> {
        self.refuse_unsupported(&compiled())?;
        if let Origin::Bundle(bundle) = &self.origin {
            return Ok(bundle.artifact.clone());
        }
        let sources = Target::ALL.map(|target| Source { target, text: backend::emit(&self.program, target) });
        Ok(Artifact {
            name: self.program.name.clone(),
            abi_version: ABI_VERSION,
            shape: ProgramShape { answered: None, ..self.shape() },
            sources: sources.into(),
            report: bundle_report::written(&self.program, &self.tables, &self.lists),
        })
    }
}

/// The engines of compiled code, which every artifact and every bundle is for.
fn compiled() -> [Engine; Target::ALL.len()] {
    Target::ALL.map(Engine::of)
}
