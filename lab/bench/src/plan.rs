//! One run of a scenario: what it measures of all that it could, what it leaves out, and its progress.

use crate::data::{Data, Dataset};
use crate::options::Options;
use crate::scale::{Scale, Scaled};
use crate::scenario::{Axis, Member, Picks, Scenario};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_command::failure::Failure;

/// Most prefixes of a list.
const PREFIXES_MAX: Scaled<usize> = Scaled { full: usize::MAX, quick: usize::MAX, smoke: 1 << 12 };

/// A run of a scenario.
pub struct Plan<'a> {
    pub options: &'a Options,
    pub scale: Scale,
    scenario: &'a Scenario,
    /// The members that are measured, for each axis.
    measured: Vec<Vec<&'static str>>,
    left_out: Mutex<Vec<LeftOut>>,
}

/// Something that a scenario can measure, but not on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub name: String,
    /// What the machine does not have, or what failed.
    pub missing: String,
}

impl<'a> Plan<'a> {
    /// Plans a run on this machine.
    ///
    /// # Errors
    /// The options name something that the scenario does not have, or the machine does not have what all of it needs.
    pub fn new(scenario: &'a Scenario, options: &'a Options) -> Result<Self, Failure> {
        check_picks(scenario, options)?;
        let mut left_out: Vec<LeftOut> = Vec::new();
        let mut measured = Vec::new();
        let scale = options.scale();
        let fewer = if scale == Scale::Smoke { scenario.smoke_only } else { &[] };
        for axis in scenario.axes {
            let mut names = Vec::new();
            for member in selected(axis, &options.only, fewer) {
                match member.needs.iter().find_map(|need| need.missing(options)) {
                    Some(missing) => left_out.push(LeftOut { name: member.name.to_owned(), missing }),
                    None => names.push(member.name),
                }
            }
            measured.push(names);
        }
        let plan = Plan { options, scale, scenario, measured, left_out: Mutex::new(left_out) };
        plan.announce();
        let missing: Vec<String> = scenario.needs.iter().filter_map(|need| need.missing(options)).collect();
        if !missing.is_empty() {
            let missing = missing.join("; ");
            return Err(Failure::Runtime(format!("{} cannot run on this machine. Missing: {missing}", scenario.name)));
        }
        let is_empty = |names: &Vec<&str>| names.is_empty() && scenario.picks == Picks::Members;
        if let Some(at) = plan.measured.iter().position(is_empty) {
            let (name, axis) = (scenario.name, scenario.axes[at].name);
            return Err(Failure::Runtime(format!("{name} cannot measure any {axis} on this machine")));
        }
        Ok(plan)
    }

    /// Says what will be measured, what will not, and how long it takes.
    fn announce(&self) {
        let name = self.scenario.name;
        eprintln!("weir: {name}: about {} if all of it is measured", duration(self.scenario.seconds.at(self.scale)));
        for LeftOut { name: part, missing } in self.notes().iter() {
            eprintln!("weir: {name}: leaves out {part}. Missing: {missing}");
        }
        for (axis, members) in self.scenario.axes.iter().zip(&self.measured) {
            let members = if members.is_empty() { "none".to_owned() } else { members.join(", ") };
            eprintln!("weir: {name}: measures, by {}: {members}", axis.name);
        }
        if self.scale == Scale::Smoke {
            eprintln!("weir: {name}: {SMOKE}");
        }
    }

    /// The members of an axis that are measured.
    ///
    /// # Panics
    /// If the scenario has no such axis.
    pub fn members(&self, axis: &str) -> &[&'static str] {
        let at = self.scenario.axes.iter().position(|known| known.name == axis);
        &self.measured[at.expect("compiler bug: the scenario declares its axes")]
    }

    /// Whether a member of an axis is measured.
    pub fn has(&self, axis: &str, member: &str) -> bool {
        self.members(axis).contains(&member)
    }

    /// Like `members`. Announces each member on standard error when its turn comes.
    pub fn each(&self, axis: &str) -> impl Iterator<Item = &'static str> {
        let members = self.members(axis);
        members.iter().enumerate().map(move |(at, member)| {
            self.begin(&format!("{axis} {member}, {} of {}", at + 1, members.len()));
            *member
        })
    }

    /// Says what is measured next.
    pub fn begin(&self, what: &str) {
        eprintln!("weir: {}: {what}", self.scenario.name);
    }

    /// Notes that something is left out after all.
    pub fn leave_out(&self, name: &str, failure: &Failure) {
        eprintln!("weir: {}: leaves out {name}: {}", self.scenario.name, failure.message());
        let missing = failure.message().to_owned();
        self.notes().push(LeftOut { name: name.to_owned(), missing });
    }

    fn notes(&self) -> MutexGuard<'_, Vec<LeftOut>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was left out.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.notes().clone()
    }

    /// Loads a list, or a part of it at the smallest scale.
    ///
    /// # Errors
    /// The file cannot be read, or is not a list.
    pub fn load(&self, dataset: Dataset) -> Result<Data, Failure> {
        dataset.load_part(&self.options.data, PREFIXES_MAX.at(self.scale))
    }

    /// The file of a list, for policies. At the smallest scale it is a file in the folder, with a part of the list.
    ///
    /// # Errors
    /// There is no file, or it cannot be read.
    pub fn file(&self, dataset: Dataset, folder: &Path) -> Result<PathBuf, Failure> {
        let path = dataset.path(&self.options.data);
        let path = path.canonicalize().map_err(|error| {
            Failure::Rejected(format!("weir: {}: {error}; set the directory of lists with --data", path.display()))
        })?;
        if self.scale != Scale::Smoke {
            return Ok(path);
        }
        let part = folder.join(path.file_name().expect("lists have names"));
        fs::write(&part, self.load(dataset)?.text()).map_err(|error| Failure::file(&part, error))?;
        Ok(part)
    }

    /// A list that was read in another way, or a part of it at the smallest scale.
    pub fn part_of(&self, data: Data) -> Data {
        data.part(PREFIXES_MAX.at(self.scale))
    }
}

/// What output of the smallest scale says.
pub const SMOKE: &str = "smoke: figures mean nothing";

/// Refuses options that the scenario does not take.
fn check_picks(scenario: &Scenario, options: &Options) -> Result<(), Failure> {
    let Scenario { name, picks, .. } = scenario;
    let cells = [&options.table, &options.layout, &options.keys].iter().any(|names| !names.is_empty());
    if cells && *picks != Picks::Cells {
        return Err(Failure::Rejected(format!("weir: {name} takes no --table, --layout or --keys")));
    }
    if !options.only.is_empty() && *picks != Picks::Members {
        return Err(Failure::Rejected(format!("weir: {name} takes no --only")));
    }
    let known: Vec<&str> = scenario.axes.iter().flat_map(|axis| axis.members).map(|member| member.name).collect();
    match options.only.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => {
            Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

/// The members of an axis that `only` names, else those that `fewer` names, else all of them.
fn selected<'a>(axis: &'a Axis, only: &[String], fewer: &[&str]) -> Vec<&'a Member> {
    let named = |is_named: &dyn Fn(&str) -> bool| -> Vec<&'a Member> {
        axis.members.iter().filter(|member| is_named(member.name)).collect()
    };
    let some = [named(&|name| only.iter().any(|only| only == name)), named(&|name| fewer.contains(&name))];
    some.into_iter().find(|some| !some.is_empty()).unwrap_or_else(|| axis.members.iter().collect())
}

fn duration(seconds: u32) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::Need;
    use crate::plot::Drawing;
    use clap::Parser;

    const SCENARIO: Scenario = Scenario {
        name: "example",
        paper: "",
        needs: &[],
        axes: &[
            Axis { name: "part", members: &[Member::plain("a"), Member::plain("b")] },
            Axis { name: "peer", members: &[Member::plain("c"), Member::with("d", &[Need::Program("no-such")])] },
        ],
        smoke_only: &["a"],
        picks: Picks::Members,
        seconds: Scaled { full: 100, quick: 10, smoke: 1 },
        run: |_| Ok(Vec::new()),
        plot: |_, _| Drawing::Charts(vec![]),
    };

    fn options(arguments: &[&str]) -> Options {
        Options::parse_from(["weir-bench", "example"].iter().chain(arguments))
    }

    #[test]
    fn names_exclude_the_others_of_their_axis() {
        let options = options(&["--only", "b"]);
        let plan = Plan::new(&SCENARIO, &options).expect("it is known");
        assert_eq!((plan.members("part"), plan.members("peer")), (&["b"][..], &["c"][..]));
        assert_eq!(plan.each("part").collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_missing_program_leaves_out_its_member() {
        let options = options(&["--smoke"]);
        let plan = Plan::new(&SCENARIO, &options).expect("nothing is needed");
        // The smallest scale measures less.
        assert_eq!((plan.members("part"), plan.members("peer")), (&["a"][..], &["c"][..]));
        plan.leave_out("c", &Failure::Runtime("it failed".to_owned()));
        let left_out = plan.left_out();
        assert_eq!((left_out[0].name.as_str(), left_out[1].missing.as_str()), ("d", "it failed"));
        assert!(left_out[0].missing.contains("no-such"));
        assert_eq!(plan.scale, Scale::Smoke);
    }

    #[test]
    fn a_kind_of_which_nothing_is_left_is_a_failure() {
        let options = options(&["--only", "d"]);
        let failure = Plan::new(&SCENARIO, &options).err().expect("its program is missing").to_string();
        assert!(failure.contains("example cannot measure any peer"), "{failure}");
    }

    #[test]
    fn a_scenario_without_what_it_needs_does_not_begin() {
        let scenario = Scenario { needs: &[Need::Program("no-such")], ..SCENARIO };
        let options = options(&[]);
        let failure = Plan::new(&scenario, &options).err().expect("the program is missing").to_string();
        assert!(failure.contains("example") && failure.contains("no-such"), "{failure}");
        assert_eq!((duration(7), duration(100)), ("7 s".to_owned(), "2 min".to_owned()));
    }
}
