//! A policy from disk to something that engines take, wherever it comes from: text and lists, or a bundle.

mod kernel;

use crate::cli::{ChainOptions, EngineName};
use crate::eval::{Answers, EvalFilter, SlotAnswers};
use crate::failure::Failure;
pub use crate::failure::Rejected;
use crate::file;
use crate::limits;
use crate::lists::{ListOfLimits, Lists};
use crate::report;
pub use crate::text::Text;
use crate::text::{too_deep, unknown_labels};
pub use kernel::PART_RULES;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_abi::ABI_VERSION;
use weir_engine::bundle::trust::Trust;
use weir_engine::bundle::{self, Bundle};
use weir_engine::clang::{Clang, Compiled, NativeObject};
use weir_engine::cpu::Cpu;
use weir_engine::limits::Limits;
use weir_engine::limits::counts::Counted;
use weir_engine::limits::pool::Pool;
use weir_engine::{Artifact, Filter, NativeCode, NativeFilter, TableSlot};
use weir_policy::backend::c::{self, Target};
use weir_policy::checked;
use weir_policy::diag::render;
use weir_policy::ir::{self, Chain, Direction, FindId, Limiter, LimiterKind, Program};
use weir_policy::pass::choose_layouts::{CostModel, Planned};
use weir_policy::pipeline;
use weir_policy::source::Source;
use weir_tables::{Image, Table};

/// Bytes of a file that tell a bundle from a policy's text.
const HEAD_BYTES: u64 = 512;

/// A policy, ready for engines.
pub struct Policy {
    /// The program as lowered: one top node a rule.
    pub program: Program,
    /// Labels of each slot; empty for sets and where tables are fused.
    labels: Vec<Vec<String>>,
    images: OnceLock<Vec<Arc<Image>>>,
    origin: Origin,
    /// What `--trust` does not reach of it.
    trust_notice: Option<String>,
    /// Where the time went.
    pub timing: Timing,
}

/// What a file named on the command line holds.
enum Content {
    Text(String),
    /// Opened already: what the first bytes were read from is what is loaded.
    Bundle(fs::File),
}

impl Content {
    fn read(path: &Path) -> Result<Self, Failure> {
        let mut file = fs::File::open(path).map_err(|error| unread(path, error))?;
        let mut head = Vec::with_capacity(HEAD_BYTES as usize);
        (&mut file).take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| unread(path, error))?;
        if bundle::is_bundle(&head) {
            return Ok(Content::Bundle(file));
        }
        // A pipe gives its bytes only once: what was read is part of the text.
        Ok(Content::Text(text_from(path, head.as_slice().chain(file))?))
    }
}

/// Where a policy came from.
enum Origin {
    Text(Box<Text>),
    Bundle(Box<Bundle>),
}

/// How long each part of loading took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Reading and parsing the policy's text.
    pub parse: Duration,
    /// Reading and parsing the lists.
    pub lists: Duration,
    /// Checking and lowering.
    pub check: Duration,
}

/// What code is loaded with.
pub struct Data {
    /// In slot order.
    pub images: Vec<Arc<Image>>,
    /// What limiters police by, if there are any.
    pub limits: Option<Limits>,
}

impl Data {
    /// What limiters count, if they do.
    pub fn counted(&self) -> Option<Counted> {
        self.limits.as_ref().and_then(|limits| limits.counted.clone())
    }
}

/// What a bundle carries for reports and for the interpreter.
#[derive(Serialize, Deserialize)]
struct Report {
    ir: String,
    labels: Vec<Vec<String>>,
}

impl Policy {
    /// Loads a policy or a bundle; the file's first bytes tell which. Bundles have no signature to show.
    ///
    /// # Errors
    /// The policy is wrong, or a file cannot be read.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        Self::load_trusting(path, &Trust::default())
    }

    /// As [`Policy::load`]; a bundle must be signed by who is trusted.
    ///
    /// # Errors
    /// The policy is wrong, the bundle is not signed, or a file cannot be read.
    pub fn load_trusting(path: &Path, trust: &Trust) -> Result<Self, Failure> {
        match Content::read(path)? {
            Content::Bundle(file) => Self::from_bundle(path, file, trust),
            Content::Text(text) => {
                let policy = Self::from_main(path, text, &CostModel::default()).map_err(Failure::from)?;
                let unsigned = || format!("{}: is text, which nobody signs; --trust is about bundles", path.display());
                Ok(Policy { trust_notice: trust.wants_signatures().then(unsigned), ..policy })
            }
        }
    }

    /// Reads and checks a policy's text and lists.
    ///
    /// # Errors
    /// Outside: the main file cannot be read, or is a bundle. Inside: the policy is wrong.
    pub fn from_text(path: &Path, model: &CostModel) -> Result<Result<Self, Rejected>, Failure> {
        match Content::read(path)? {
            Content::Text(text) => Ok(Self::from_main(path, text, model)),
            Content::Bundle(_) => Err(Failure::Rejected(format!(
                "weir: {}: is a bundle already: it was checked when it was compiled; give its policy",
                path.display()
            ))),
        }
    }

    /// Checks a policy's text, reads its lists and other files.
    fn from_main(path: &Path, text: String, model: &CostModel) -> Result<Self, Rejected> {
        let mut timing = Timing::default();
        let start = Instant::now();
        let main = Source::new(path.display().to_string(), text);
        let (sources, parsed) = pipeline::parse(main, &|path: &str| read_text(Path::new(path)).map_err(text_of));
        timing.parse = start.elapsed();

        let start = Instant::now();
        let (of_tables, of_limits) = (parsed.tables(&sources), parsed.limits(&sources));
        let mut lists = Lists::read(&of_tables, &of_limits);
        let list_files =
            of_tables.iter().flat_map(|table| &table.files).chain(of_limits.iter().flat_map(|list| &list.files));
        let mut files: Vec<PathBuf> = list_files.map(|file| PathBuf::from(&file.path)).collect();
        files.extend(sources.names().map(PathBuf::from));
        timing.lists = start.elapsed();

        let start = Instant::now();
        let checked = match pipeline::check(&parsed, &sources, &lists) {
            Ok(checked) if lists.errors.is_empty() => checked,
            Ok(_) => return Err(Rejected { sources, diagnostics: vec![], lists: lists.errors }),
            Err(diagnostics) => return Err(Rejected { sources, diagnostics, lists: lists.errors }),
        };
        let lowered = pipeline::lower(&checked, &sources, &lists, model);
        timing.check = start.elapsed();

        let take =
            |table: &weir_policy::checked::Table| lists.take(&table.name).expect("check asked the catalog for it");
        let tables: Vec<Table> = checked.tables.iter().map(take).collect();
        let take = |list: &checked::Limits| lists.take_limits(&list.name).expect("check asked the catalog for it");
        let limits: Vec<ListOfLimits> = checked.limits.iter().map(take).collect();
        let deep = too_deep(&checked, &limits);
        if !deep.is_empty() {
            return Err(Rejected { sources, diagnostics: vec![], lists: deep });
        }
        lists.notices.extend(unknown_labels(&checked, &limits, &tables));
        let labels = |image: &Planned| match image.tables() {
            [one] => checked.tables[usize::from(one.0)].facts.labels.clone(),
            _ => vec![],
        };
        let labels = lowered.plan.images.iter().map(labels).collect();
        let text = Text { sources, checked, lowered, tables, limits, files, notices: lists.notices };
        Ok(Policy {
            program: text.lowered.program.clone(),
            labels,
            images: OnceLock::new(),
            origin: Origin::Text(Box::new(text)),
            trust_notice: None,
            timing,
        })
    }

    fn from_bundle(path: &Path, file: fs::File, trust: &Trust) -> Result<Self, Failure> {
        let bundle = Bundle::read_file(path, file, trust)?;
        let broken = |what: String| {
            let what = what.replace(|c: char| c.is_control(), "?");
            Failure::file(path, format_args!("not a bundle of this weir: {what}"))
        };
        let report: Report =
            serde_json::from_value(bundle.artifact.report.clone()).map_err(|error| broken(error.to_string()))?;
        let program = ir::parse::parse(&report.ir).map_err(broken)?;
        let same = shape(&program) == bundle.program()
            && report.labels.len() == program.slots.len()
            && program.slots.iter().zip(&bundle.images).all(|(slot, image)| answers_for(image, slot));
        if !same {
            return Err(broken("its IR and its code are of different policies".to_owned()));
        }
        let images = OnceLock::from(bundle.images.clone());
        let unverified = || format!("{}: its signature is not verified: no --trust KEY is given", path.display());
        let trust_notice = bundle.is_unverified().then(unverified);
        let origin = Origin::Bundle(Box::new(bundle));
        Ok(Policy { program, labels: report.labels, images, origin, trust_notice, timing: Timing::default() })
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

    /// Prints warnings and notices on standard error.
    pub fn print_warnings(&self) {
        if let Some(notice) = &self.trust_notice {
            eprintln!("note: {notice}");
        }
        let Some(text) = self.text() else { return };
        if !text.checked.warnings.is_empty() {
            let warnings = render::render(&text.checked.warnings, &text.sources, report::style());
            report::say_rendered(warnings.trim_end());
        }
        for notice in &text.notices {
            eprintln!("note: {notice}");
        }
    }

    /// Refuses rules that no engine can run yet.
    ///
    /// # Errors
    /// One diagnostic a rule.
    pub fn refuse_unsupported(&self, engine: EngineName) -> Result<(), Failure> {
        self.refuse(engine.name())
    }

    fn refuse(&self, engine: &str) -> Result<(), Failure> {
        let unsupported = self.program.unsupported();
        if unsupported.is_empty() {
            return Ok(());
        }
        Err(match &self.origin {
            Origin::Text(text) => {
                let diagnostics = pipeline::unsupported(&text.lowered, engine);
                Rejected { sources: text.sources.clone(), diagnostics, lists: vec![] }.into()
            }
            Origin::Bundle(_) => Failure::Rejected("weir: the bundle has rules that this weir cannot run".to_owned()),
        })
    }

    /// Index of the chain that the options name.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn chain(&self, options: &ChainOptions) -> Result<usize, Failure> {
        let posture = options.posture.as_deref();
        self.program.chain(posture, Direction::from(options.direction)).ok_or_else(|| {
            let known: Vec<&str> = self.program.chains.iter().step_by(2).filter_map(|c| c.posture.as_deref()).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            Failure::Rejected(format!("weir: the policy has no posture {}; {known}", posture.unwrap_or_default()))
        })
    }

    /// As [`Policy::chain`], and no other chain is compiled from now on, nor has an index. Rules and their counters stay. A bundle is
    /// compiled already: it keeps its chains.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn only_chain(&mut self, options: &ChainOptions) -> Result<usize, Failure> {
        let chain = self.chain(options)?;
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

    /// The tables' images, built at the first call.
    ///
    /// # Errors
    /// A table does not fit its layout.
    pub fn images(&self) -> Result<&[Arc<Image>], Failure> {
        if let Some(images) = self.images.get() {
            return Ok(images);
        }
        let text = self.text().expect("a bundle comes with its images");
        let built: Vec<Result<Image, String>> = std::thread::scope(|scope| {
            let build = |image: &Planned| text.build(image);
            let threads: Vec<_> =
                text.lowered.plan.images.iter().map(|image| scope.spawn(move || build(image))).collect();
            threads.into_iter().map(|thread| thread.join().expect("building a table does not panic")).collect()
        });
        let images = built.into_iter().map(|image| image.map(Arc::new)).collect::<Result<_, _>>();
        let images = images.map_err(|error| Failure::Rejected(format!("weir: {error}")))?;
        Ok(self.images.get_or_init(|| images))
    }

    /// What code is loaded with: images, and what limiters police by. Buckets come from `pool`; without one, the limiters have buckets of their
    /// own.
    ///
    /// # Errors
    /// A table or list does not fit its layout, or there are not enough buckets.
    pub fn data(&self, pool: Option<&Pool>) -> Result<Data, Failure> {
        let Some(text) = self.text().filter(|_| !self.program.limiters.is_empty()) else {
            return Ok(Data { images: self.images()?.to_vec(), limits: None });
        };
        let assembled =
            limits::assemble(text, &self.program, pool, weir_engine::limits::now_ns())?.expect("there are limiters");
        let of_tables = self.images()?.iter().cloned();
        let images = assembled.images.into_iter().zip(of_tables).map(|(tickets, of_table)| match tickets {
            Some(image) => Arc::new(image),
            None => of_table,
        });
        Ok(Data { images: images.collect(), limits: Some(assembled.limits) })
    }

    /// Words of the largest table of addresses (`limit each`); 0 if there is none.
    pub fn largest_table_of_addresses(&self) -> usize {
        let size = |limiter: &Limiter| match limiter.kind {
            LimiterKind::Each(each) => each.size as usize,
            LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => 0,
        };
        self.program.limiters.iter().map(size).max().unwrap_or(0)
    }

    /// Buckets that its limiters need.
    pub fn buckets(&self) -> usize {
        self.text().map_or(0, |text| 1 + limits::buckets(text, &self.program))
    }

    fn shape(&self) -> weir_engine::Program {
        shape(&self.program)
    }

    /// The program as C, with what reports need.
    ///
    /// # Errors
    /// A rule is not supported yet.
    pub fn artifact(&self) -> Result<Artifact, Failure> {
        self.refuse("native, xdp")?;
        if let Origin::Bundle(bundle) = &self.origin {
            return Ok(bundle.artifact.clone());
        }
        let report = Report { ir: self.program.to_string(), labels: self.labels.clone() };
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
            report: serde_json::to_value(report).expect("strings are JSON"),
        })
    }

    /// Native code, and clang's own time; a bundle's is at hand.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or nobody vouches for a bundle's code.
    pub fn native_object(&self, cpu: Cpu) -> Result<Compiled<NativeObject>, Failure> {
        if let Origin::Bundle(bundle) = &self.origin {
            return Ok(Compiled { object: bundle.native()?.clone(), took: Duration::ZERO });
        }
        let artifact = self.artifact()?;
        Ok(Clang::find()?.native(&artifact.name, &artifact.native_c, cpu)?)
    }

    /// The program loaded as native code that filters of many workers share.
    ///
    /// # Errors
    /// The code is not this machine's, or a table does not fit its layout.
    pub fn load_code(&self, object: &NativeObject, data: Data) -> Result<Arc<NativeCode>, Failure> {
        Ok(NativeCode::load(&self.program.name, object, &self.shape(), data.images, data.limits)?)
    }

    /// The program loaded as native code.
    ///
    /// # Errors
    /// A rule is not supported, or the code is not this machine's.
    pub fn load_native(&self, object: &NativeObject) -> Result<NativeFilter, Failure> {
        let data = self.data(None)?;
        Ok(NativeFilter::load(&self.program.name, object, &self.shape(), data.images, data.limits)?)
    }

    /// The program compiled and loaded as native code; clang and the table builders run at the same time.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or a table does not fit its layout.
    pub fn native(&self) -> Result<NativeFilter, Failure> {
        let (object, data) = std::thread::scope(|scope| {
            let object = scope.spawn(|| self.native_object(Cpu::Native));
            let data = self.data(None);
            (object.join().expect("compiling does not panic"), data)
        });
        let data = data?;
        let (name, object) = (&self.program.name, object?.object);
        Ok(NativeFilter::load(name, &object, &self.shape(), data.images, data.limits)?)
    }

    /// The program in an engine.
    ///
    /// # Errors
    /// As the engine's.
    pub fn filter(&self, engine: EngineName) -> Result<Box<dyn Filter + '_>, Failure> {
        self.refuse_unsupported(engine)?;
        Ok(match engine {
            EngineName::Eval => Box::new(EvalFilter::new(&self.program, self.answers())),
            EngineName::Native => Box::new(self.native()?),
            EngineName::Xdp => Box::new(self.xdp()?),
            EngineName::P4 => return Err(Failure::Runtime("the p4 engine is not there yet".to_owned())),
        })
    }
}

/// What a loader must know of a program; its C is not needed for that.
fn shape(program: &Program) -> weir_engine::Program {
    let slots = program.slots.iter();
    weir_engine::Program {
        chains: c::chain_symbols(program),
        rules: program.rules.len(),
        tables: slots.map(|slot| TableSlot { name: slot.name(), layout: slot.layout }).collect(),
        limiters: program.limiters.len(),
        limited: program.limited().len(),
    }
}

/// Whether an image is of as many tables as the slot has.
fn answers_for(image: &Image, slot: &ir::Slot) -> bool {
    !slot.is_fused() || image.view().labels() == (1 << slot.tables().len()) - 1
}

fn text_of(failure: Failure) -> String {
    failure.to_string()
}

fn unread(path: &Path, error: std::io::Error) -> Failure {
    Failure::Rejected(format!("weir: {}: {error}", path.display()))
}

/// A policy's text.
fn read_text(path: &Path) -> Result<String, Failure> {
    text_from(path, file::open_regular(path).map_err(|error| unread(path, error))?)
}

/// The text that `reader` gives; `path` is for messages.
fn text_from(path: &Path, reader: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let limit = weir_policy::syntax::TEXT_BYTES_MAX as u64 + 1;
    reader.take(limit).read_to_end(&mut bytes).map_err(|error| unread(path, error))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        Failure::Rejected(format!("weir: {}:{line}: not UTF-8 text", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::Policy;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    #[test]
    fn a_pipe_is_read_from_its_start() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"upstream { tcp drop; accept }\ndownstream { accept }\n").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let policy = Policy::load(Path::new(&path)).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(policy.program.rules.len(), 3);
    }
}
