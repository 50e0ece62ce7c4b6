//! The stage that text and bundles have in common: a program that is right, with its tables.

use crate::bundle_report;
use crate::error::{LoadError, Rejected};
use crate::eval::{Answers, SlotAnswers};
use crate::shape::shape;
use crate::text::Text;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use weir_abi::ABI_VERSION;
use weir_engine::Artifact;
use weir_engine::bundle::Bundle;
use weir_policy::backend::c::{self, Target};
use weir_policy::capability::{self, Engine, Unsupported};
use weir_policy::ir::{Chain, Direction, FindId, Program};
use weir_policy::pipeline;
use weir_tables::Image;

/// The engines of compiled code, which every artifact and every bundle is for.
const COMPILED: [Engine; 2] = [Engine::Native, Engine::Xdp];

/// A policy, ready for engines.
pub struct Policy {
    /// The program as lowered: one top node a rule.
    pub program: Program,
    /// Labels of each slot; empty for sets and where tables are fused.
    labels: Vec<Vec<String>>,
    pub(crate) images: OnceLock<Vec<Arc<Image>>>,
    pub(crate) origin: Origin,
    unverified: Option<Unverified>,
}

/// Where a policy came from.
pub(crate) enum Origin {
    Text(Box<Text>),
    Bundle(Box<Bundle>),
}

/// A policy whose author was not verified, for the caller to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// Signatures were asked for, and this is text, which has none.
    Text(PathBuf),
    /// This bundle is signed, and no key was named to verify it with.
    Bundle(PathBuf),
}

impl Policy {
    pub(crate) fn of_text(text: Text) -> Self {
        Policy {
            program: text.lowered.program.clone(),
            labels: text.labels(),
            images: OnceLock::new(),
            origin: Origin::Text(Box::new(text)),
            unverified: None,
        }
    }

    /// The same, where signatures were asked for.
    pub(crate) fn unsigned(self, path: PathBuf) -> Self {
        Policy { unverified: Some(Unverified::Text(path)), ..self }
    }

    /// # Errors
    /// The parts of the bundle do not belong together, or another version wrote it.
    pub(crate) fn of_bundle(path: &Path, bundle: Bundle) -> Result<Self, LoadError> {
        let foreign = |problem: String| {
            let problem = problem.replace(|c: char| c.is_control(), "?");
            LoadError::ForeignBundle { path: path.to_owned(), problem }
        };
        let (program, labels) = bundle_report::read(&bundle).map_err(foreign)?;
        let images = OnceLock::from(bundle.images.clone());
        let unverified = bundle.is_unverified().then(|| Unverified::Bundle(path.to_owned()));
        Ok(Policy { program, labels, images, origin: Origin::Bundle(Box::new(bundle)), unverified })
    }

    /// The policy as text, if it is one.
    pub fn text(&self) -> Option<&Text> {
        match &self.origin {
            Origin::Text(text) => Some(text),
            Origin::Bundle(_) => None,
        }
    }

    /// The files that it was read from besides the one that was named: nothing may be written there.
    pub fn files(&self) -> &[PathBuf] {
        self.text().map_or(&[], |text| &text.files)
    }

    /// Whether code is at hand without a compiler.
    pub fn is_bundle(&self) -> bool {
        matches!(self.origin, Origin::Bundle(_))
    }

    /// Set if its author was not verified.
    pub fn unverified(&self) -> Option<&Unverified> {
        self.unverified.as_ref()
    }

    /// What compiled code cannot do of the policy yet.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        capability::unsupported(&self.program, &COMPILED.map(Engine::into))
    }

    /// Refuses rules that the engines cannot run yet.
    ///
    /// # Errors
    /// One diagnostic a rule.
    pub fn refuse_unsupported(&self, engines: &[Engine]) -> Result<(), LoadError> {
        let targets: Vec<capability::Target> = engines.iter().map(|&engine| engine.into()).collect();
        if capability::unsupported(&self.program, &targets).is_empty() {
            return Ok(());
        }
        match &self.origin {
            Origin::Text(text) => {
                let diagnostics = pipeline::unsupported(&text.lowered, &targets);
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

    /// As [`Policy::chain`], and no other chain is compiled from now on, nor has an index. Rules and their counters stay. A bundle is
    /// compiled already: it keeps its chains.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn only_chain(&mut self, posture: Option<&str>, direction: Direction) -> Result<usize, LoadError> {
        let chain = self.chain(posture, direction)?;
        if self.is_bundle() {
            return Ok(chain);
        }
        self.keep_chains(&[chain]);
        Ok(0)
    }

    /// Leaves all chains of a policy's text but these out of what is compiled; those that stay are numbered anew, in order.
    pub fn keep_chains(&mut self, wanted: &[usize]) {
        assert!(!self.is_bundle(), "compiler bug: a bundle's code has the chains that it has");
        let chains = std::mem::take(&mut self.program.chains);
        let kept = chains.into_iter().enumerate().filter(|(index, _)| wanted.contains(index));
        self.program.chains = kept.map(|(_, chain)| chain).collect();
    }

    /// Name of a label that a find found; its number if it has none (a set's members).
    pub fn label(&self, chain: &Chain, find: FindId, label: u32) -> String {
        let slot = usize::from(chain.finds[usize::from(find.0)].slot.0);
        let name = (label as usize).checked_sub(1).and_then(|index| self.labels[slot].get(index));
        name.cloned().unwrap_or_else(|| if label == 1 { "found".to_owned() } else { format!("label {label}") })
    }

    /// What the interpreter asks: the entries themselves, or a bundle's images.
    pub fn answers(&self) -> SlotAnswers {
        let families = self.program.slots.iter().map(|slot| slot.family);
        match &self.origin {
            Origin::Text(text) => {
                let references =
                    text.lowered.plan.images.iter().map(|image| Answers::References(text.references(image)));
                SlotAnswers { slots: families.zip(references).collect(), limits: text.limit_entries(&self.program) }
            }
            Origin::Bundle(bundle) => {
                let images = bundle.images.iter().cloned().map(Answers::Image);
                SlotAnswers { slots: families.zip(images).collect(), limits: vec![] }
            }
        }
    }

    pub(crate) fn shape(&self) -> weir_engine::ProgramShape {
        shape(&self.program)
    }

    /// The program as C, with what reports need.
    ///
    /// # Errors
    /// A rule is not supported yet.
    pub fn artifact(&self) -> Result<Artifact, LoadError> {
        self.refuse_unsupported(&COMPILED)?;
        if let Origin::Bundle(bundle) = &self.origin {
            return Ok(bundle.artifact.clone());
        }
        let shape = self.shape();
        Ok(Artifact {
            name: self.program.name.clone(),
            abi_version: ABI_VERSION,
            chains: shape.chains,
            rules: shape.rules,
            tables: shape.tables,
            limiters: shape.limiters,
            limited: shape.limited,
            native_c: c::emit(&self.program, Target::Native),
            bpf_c: c::emit(&self.program, Target::Bpf),
            report: bundle_report::written(&self.program, &self.labels),
        })
    }
}
