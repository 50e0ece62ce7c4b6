//! What the verdict of a rule does with its packets: they end, or the rest of their way is written for them.

use super::{DEPTH_MAX, Flattener, Flow, Frame, Place, Refused};
use crate::condition::Condition;
use crate::ruleset::{Rule, Verdict};

impl Flattener<'_> {
    /// What the verdict of a rule does with the packets that match.
    pub(super) fn verdict(
        &mut self,
        place: Place<'_>,
        rule: &Rule,
        here: &[Condition],
        is_whole: bool,
        statements: Vec<String>,
    ) -> Result<Option<Flow>, Refused> {
        let ended = |flow| Ok(is_whole.then_some(flow));
        let (base, callers) = (place.base, place.callers);
        let drops = self.chain_of(base).1.drops;
        let next = [callers, &[Frame { rule: place.at.rule + 1, ..place.at }]].concat();
        match &rule.verdict {
            Verdict::Foreign(_) => unreachable!("it was left out"),
            Verdict::Continue => {
                self.write(rule, here, statements, None)?;
                Ok(None)
            }
            Verdict::Drop => {
                self.write(rule, here, statements, Some(false))?;
                ended(Flow::Decided)
            }
            Verdict::Return if callers.is_empty() && drops => {
                self.write(rule, here, statements, Some(false))?;
                ended(Flow::Decided)
            }
            Verdict::Accept => self.accept(place, rule, here, is_whole, statements),
            Verdict::Return if callers.is_empty() => self.accept(place, rule, here, is_whole, statements),
            Verdict::Return => {
                self.write_statements(rule, here, statements)?;
                if is_whole {
                    return Ok(Some(Flow::Through));
                }
                if !self.is_idle(next[next.len() - 1], 0) {
                    self.continue_at(base, callers, here)?;
                }
                Ok(None)
            }
            Verdict::Jump(target) => {
                self.write_statements(rule, here, statements)?;
                if callers.len() >= DEPTH_MAX {
                    return Err(format!("{}: more than {DEPTH_MAX} chains call each other", rule.at));
                }
                let at = Frame { chain: *target, rule: 0 };
                match self.walk(Place { base, callers: &next, at }, here)? {
                    Flow::Decided => ended(Flow::Decided),
                    Flow::Through | Flow::NextBase => Ok(None),
                }
            }
            Verdict::Goto(target) => {
                self.write_statements(rule, here, statements)?;
                let at = Frame { chain: *target, rule: 0 };
                let flow = self.walk(Place { base, callers, at }, here)?;
                match flow {
                    _ if is_whole => return Ok(Some(flow)),
                    Flow::Decided => {}
                    Flow::Through => self.continue_at(base, callers, here)?,
                    Flow::NextBase => self.way_from(base + 1, here)?,
                }
                Ok(None)
            }
        }
    }

    /// Packets that leave their base chain and go on to the next one.
    fn accept(
        &mut self,
        place: Place<'_>,
        rule: &Rule,
        here: &[Condition],
        is_whole: bool,
        statements: Vec<String>,
    ) -> Result<Option<Flow>, Refused> {
        let ended = |flow| Ok(is_whole.then_some(flow));
        if self.is_last(place.base, here) {
            self.write(rule, here, statements, Some(true))?;
            return ended(Flow::Decided);
        }
        self.write_statements(rule, here, statements)?;
        if is_whole && place.callers.is_empty() {
            return Ok(Some(Flow::NextBase));
        }
        let next = [place.callers, &[Frame { rule: place.at.rule + 1, ..place.at }]].concat();
        if self.is_rest_inert(&next) && !self.chain_of(place.base).1.drops {
            return Ok(None);
        }
        self.way_from(place.base + 1, here)?;
        ended(Flow::Decided)
    }

    /// A rule whose verdict follows in other rules.
    fn write_statements(&mut self, rule: &Rule, here: &[Condition], statements: Vec<String>) -> Result<(), Refused> {
        if statements.is_empty() { Ok(()) } else { self.write(rule, here, statements, None) }
    }

    pub(super) fn write(
        &mut self,
        rule: &Rule,
        here: &[Condition],
        mut statements: Vec<String>,
        accepts: Option<bool>,
    ) -> Result<(), Refused> {
        if rule.counts {
            statements.insert(0, "counter".to_owned());
        }
        if self.emit(here, statements, accepts, rule.comment.clone())? {
            self.written.insert(rule.at.clone());
        } else {
            self.covered.push((rule.at.clone(), rule.text.clone()));
        }
        Ok(())
    }
}
