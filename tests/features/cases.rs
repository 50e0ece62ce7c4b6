//! Rules with their packets, a case on a few lines: each block of tests/cases is a chain of its own. The form is
//! described in tests/support/src/cases.rs.
//!
//! The blocks of a file are compiled together, one posture for each, and all packets of the file go through all of them
//! in every engine. `WEIR_BLESS=1` writes the verdicts. `WEIR_FEATURE=sets` runs one file.

use super::printing;
use crate::engines::{AsP4, Engines, frame_sets, load, root};
use std::fmt::Write;
use std::path::PathBuf;
use weir_abi::{Reason, Verdict};
use weir_engine::Filter;
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_test_support::Packet;
use weir_test_support::cases::{Block, blocks, statements_end};

fn posture(block: usize) -> String {
    format!("block-{}", block + 1)
}

/// A policy with a posture for each block. Each rule has the line that it has in the file.
fn policy_text(text: &str, blocks: &[Block<'_>]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let rules = |line: usize| blocks.iter().any(|block| block.rules.contains(&line));
    (statements_end(text).saturating_sub(1)..lines.len())
        .filter(|line| !rules(*line))
        .for_each(|line| lines[line].clear());
    for (number, Block { rules, cases }) in blocks.iter().enumerate() {
        lines[rules[0]].insert_str(0, &format!("posture {} {{ upstream {{ ", posture(number)));
        lines[cases[0].line].push_str("} }");
    }
    lines.push("upstream { accept }; downstream { accept }".to_owned());
    lines.join("\n")
}

/// What the interpreter says of the packets of a block, one after the other.
fn outcomes(policy: &Policy, block: &Block<'_>, chain: usize, packets: &[Packet]) -> Result<Vec<String>, String> {
    let program = &policy.program;
    let mut eval = EvalFilter::new(program, policy.answers());
    let mut outcomes = Vec::new();
    for packet in packets {
        let before = eval.counters();
        let mut word = [Verdict(u32::MAX)];
        for burst in frame_sets([packet]).iter().flat_map(|set| set.bursts()) {
            eval.decide(chain, &burst, &mut word).map_err(|error| error.to_string())?;
        }
        let [verdict] = word;
        let number = |reason: Reason| {
            // Counters behind the rules are those of exceeded limits.
            let rule = program.rules.get(usize::from(reason.rule_index()?))?;
            let line: usize = rule.at.rsplit(':').next()?.parse().ok()?;
            block.rules.iter().position(|of_block| of_block + 1 == line)
        };
        let mut text = verdict.action().map_or("?", |action| action.name()).to_owned();
        if verdict.sampled() {
            text.push('*');
        }
        match (verdict.reason(), number(verdict.reason())) {
            (Reason::NO_MATCH, _) => {}
            (_, Some(rule)) => write!(text, " {}", rule + 1).expect("a string takes all"),
            (reason, None) => {
                write!(text, " {}", weir_command::report::reason_name(program, reason)).expect("as above")
            }
        }
        let counted = eval.counters().into_iter().zip(before).enumerate();
        for (reason, _) in counted.filter(|(_, (now, then))| now.packets > then.packets) {
            let reason = Reason(reason as u16);
            if reason != verdict.reason()
                && let Some(rule) = number(reason)
            {
                write!(text, " +{}", rule + 1).expect("as above");
            }
        }
        outcomes.push(text);
    }
    Ok(outcomes)
}

/// Whether the verdict in the file means the outcome: the only rule of a block need not be named.
fn is_meant(block: &Block<'_>, verdict: &str, outcome: &str) -> bool {
    verdict == outcome || block.rules.len() == 1 && verdict == outcome.replacen(" 1", "", 1)
}

/// The rules of a block that decide or count none of its packets.
fn idle(block: &Block<'_>, outcomes: &[String]) -> Vec<String> {
    let is_hit = |number: usize| {
        let names = [format!("{number}"), format!("+{number}")];
        outcomes.iter().any(|outcome| outcome.split(' ').any(|word| names.iter().any(|name| name == word)))
    };
    let idle = (1..=block.rules.len()).filter(|number| !is_hit(*number));
    idle.map(|number| format!("line {}: no packet of the block matches", block.rules[number - 1] + 1)).collect()
}

/// Runs a file. Returns what is wrong, and its text with the verdicts of the interpreter.
fn run(text: &str, as_p4: &AsP4) -> Result<(Vec<String>, String), String> {
    let blocks = blocks(text)?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("policy.weir");
    std::fs::write(&file, policy_text(text, &blocks)).map_err(|error| error.to_string())?;
    let policy = load(&file)?;
    printing::program_reads_as_itself(&policy.program)?;
    printing::policy_reads_as_itself(folder.path(), &policy)?;

    let (mut wrong, mut all) = (Vec::new(), Vec::new());
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (number, block) in blocks.iter().enumerate() {
        let name = posture(number);
        let chain = policy.program.chains.iter().position(|chain| chain.posture.as_ref() == Some(&name));
        let chain = chain.ok_or_else(|| format!("{name} has no chain"))?;
        let texts: Vec<&str> = block.cases.iter().map(|case| case.packet).collect();
        let packets = weir_test_support::packets(&texts.join("\n"))
            .map_err(|error| format!("line {}: {}", block.cases[error.line - 1].line + 1, error.message))?;
        let outcomes = outcomes(&policy, block, chain, &packets)?;
        for (case, outcome) in block.cases.iter().zip(&outcomes) {
            if !is_meant(block, case.verdict, outcome) {
                wrong.push(format!("line {}: {outcome}, not {}: {}", case.line + 1, case.verdict, case.packet));
                lines[case.line] = format!("  {outcome:<12}  {}", case.packet);
            }
        }
        wrong.extend(idle(block, &outcomes));
        all.extend(packets);
    }
    let mut engines = Engines::load(&policy)?;
    as_p4.count(&engines);
    if let Err(difference) = engines.agree(&all) {
        wrong.push(difference);
    }
    Ok((wrong, lines.join("\n") + "\n"))
}

/// The files of tests/cases.
pub fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("tests/cases")).expect("tests/cases exists");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_engine_decides_as_the_cases_say() {
    let wanted = std::env::var("WEIR_FEATURE").ok();
    let is_wanted = |path: &PathBuf| wanted.as_deref().is_none_or(|name| path.with_extension("").ends_with(name));
    let (mut wrong, as_p4) = (Vec::new(), AsP4::default());
    for path in files().into_iter().filter(is_wanted) {
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let (problems, blessed) = run(&text, &as_p4).unwrap_or_else(|problem| (vec![problem], text.clone()));
        if std::env::var_os("WEIR_BLESS").is_some() && blessed != text {
            std::fs::write(&path, blessed).expect("the file can be written");
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        wrong.extend(problems.into_iter().map(|problem| format!("tests/cases/{name}: {problem}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if wanted.is_none() {
        as_p4.tell(2);
    }
}
