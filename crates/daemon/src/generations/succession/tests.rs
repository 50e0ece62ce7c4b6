//! Compares every short sequence of requests, and long random sequences, with a model that keeps the whole history.

use super::*;
use crate::generations::automatic::LEASE;
use proptest::prelude::*;

/// The automatic posture of these tests, and its holder.
const EMERGENCY: &str = "emergency";
const HOLDER: Holder = 7;

/// Every second generation lacks the automatic posture.
fn has_posture(generation: u64, posture: &str) -> bool {
    posture != EMERGENCY || !generation.is_multiple_of(2)
}

fn take() -> Change {
    Change::Take { holder: HOLDER, posture: EMERGENCY.to_owned() }
}

/// An event of a test.
#[derive(Clone, Debug)]
enum Event {
    Load,
    /// A generation by its number among all that were loaded.
    Activate(u64, Option<Duration>),
    /// Likewise, for the operator's posture.
    Reconfigure(u64, Option<Duration>),
    Posture(Option<&'static str>),
    Confirm,
    Rollback,
    /// The active generation is loaded again with other lists.
    Update,
    /// Time passes, and due timeouts happen.
    Wait(Duration),
    /// Mitigation activates its posture, renews it, or needs it no more.
    Take,
    Renew,
    Release,
    /// Lets enough time pass, so that a posture that is not renewed ends.
    Lapse,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeOutcome {
    Done,
    Failed,
}

/// The whole history.
struct Model {
    now: Instant,
    /// All confirmed policies, the latest last, without repetitions.
    confirmed: Vec<Active>,
    trial: Option<(Active, Instant)>,
    loaded: u64,
    /// The end of the automatic posture's lease.
    automatic: Option<Instant>,
}

impl Model {
    /// With `trial` the first generation is on trial.
    fn new(trial: Option<Duration>) -> (Succession, Self) {
        let (first, now) = (Active { generation: 1, posture: None }, Instant::now());
        let model = |confirmed, trial| Model { now, confirmed, trial, loaded: 1, automatic: None };
        match trial {
            None => (Succession::default(), model(vec![first], None)),
            Some(time) => {
                let succession = Succession::on_trial(time, now).expect("it is short enough");
                (succession, model(vec![], Some((first, now + time))))
            }
        }
    }

    fn last(&self) -> Option<&Active> {
        self.confirmed.last()
    }

    /// What the operator has decided for.
    fn decided(&self) -> &Active {
        let decided = self.trial.as_ref().map(|(active, _)| active).or(self.last());
        decided.expect("a policy is confirmed or on trial")
    }

    /// What decides packets.
    fn active(&self) -> Active {
        let decided = self.decided().clone();
        match self.automatic {
            Some(_) => Active { posture: Some(EMERGENCY.to_owned()), ..decided },
            None => decided,
        }
    }

    fn confirm(&mut self, active: Active) {
        if Some(&active) != self.last() {
            self.confirmed.push(active);
        }
    }

    /// The rollback target.
    fn rollback_target(&self) -> Option<Active> {
        match (&self.trial, &self.confirmed[..]) {
            (Some(_), [.., last]) => Some(last.clone()),
            (None, [.., before, _]) => Some(before.clone()),
            _ => None,
        }
    }
}

/// Applies an event to both.
fn step(succession: &mut Succession, model: &mut Model, event: &Event, outcome: ChangeOutcome) {
    if let Event::Update = event {
        step(succession, model, &Event::Load, outcome);
    }
    let before = succession.clone();
    let change = match event.clone() {
        Event::Load => {
            let (added, gone) = succession.add();
            model.loaded += 1;
            assert_eq!(added, model.loaded);
            for one in gone {
                assert!(!before.is_in_use(one) && !succession.is_in_use(one), "{one} went: {before:?}");
            }
            return;
        }
        Event::Confirm => {
            assert_eq!(succession.confirm().is_ok(), model.trial.is_some());
            if let Some((active, _)) = model.trial.take() {
                model.confirm(active);
            }
            return;
        }
        Event::Activate(generation, trial) => Change::Activate { generation: 1 + generation % model.loaded, trial },
        Event::Reconfigure(at, trial) => Change::Reconfigure { generation: 1 + at % model.loaded, trial },
        Event::Posture(name) => Change::Posture(name.map(str::to_owned)),
        Event::Rollback => Change::Rollback,
        Event::Update => Change::Succeed { of: model.decided().generation, generation: model.loaded },
        Event::Take => take(),
        Event::Release => Change::Release(HOLDER),
        Event::Renew => {
            let renewed = succession.renew(HOLDER, model.now);
            assert_eq!(renewed.is_ok(), model.automatic.is_some(), "{renewed:?}");
            model.automatic = model.automatic.map(|_| model.now + LEASE);
            return;
        }
        Event::Lapse => {
            model.now += LEASE;
            Change::Lapse
        }
        Event::Wait(time) => {
            model.now += time;
            Change::Timeout
        }
    };
    let now = model.now;
    let to = match succession.begin(change.clone(), now, has_posture) {
        Ok(to) => to,
        Err(refusal) => {
            assert_eq!(*succession, before, "a refused change has no effect");
            check_refusal(model, &change, refusal);
            return;
        }
    };
    // The target of a pending change is in use, and no other change can begin.
    assert!(succession.is_in_use(to.generation) && succession.ready.contains(&to.generation));
    assert_eq!(succession.begin(Change::Rollback, now, has_posture), Err(Refusal::Busy(to.clone())));
    assert_eq!(succession.confirm(), Err(Refusal::Busy(to.clone())));
    assert_eq!(succession.active(), model.active(), "a pending change is not active");
    if outcome == ChangeOutcome::Failed {
        succession.abandon();
        assert_eq!(*succession, before);
        return;
    }
    let was_automatic = model.automatic.is_some();
    let ended = succession.commit(now);
    apply(model, change, &to);
    assert_eq!(to, model.active(), "what was activated is what decides");
    assert_eq!(ended.is_some(), was_automatic && model.automatic.is_none(), "it is said when it ends");
}

/// Checks that a change was refused for a reason.
fn check_refusal(model: &Model, change: &Change, refusal: Refusal) {
    match refusal {
        Refusal::Unknown { generation, ready } => assert!(!ready.contains(&generation)),
        Refusal::NothingBefore => assert_eq!(model.rollback_target(), None),
        Refusal::NothingOnTrial => assert!(model.trial.is_none()),
        Refusal::NotDue if *change == Change::Lapse => assert!(model.automatic.is_none_or(|ends| model.now < ends)),
        Refusal::NotDue => assert!(model.trial.as_ref().is_some_and(|(_, ends)| model.now < *ends)),
        Refusal::IsActive(posture) => assert_eq!(model.active().posture, Some(posture)),
        Refusal::NothingAutomatic => assert!(model.automatic.is_none()),
        Refusal::OnTrial => assert!(model.trial.is_some()),
        Refusal::InUse { .. } | Refusal::TrialLength | Refusal::NotActive(_) | Refusal::Busy(_) | Refusal::GivenUp => {
            panic!("{refusal}")
        }
    }
}

/// Applies a completed change to the model. `active` is what was activated.
fn apply(model: &mut Model, change: Change, active: &Active) {
    // What the operator has decided for.
    let mut to = Active { generation: active.generation, posture: None };
    match &change {
        Change::Activate { .. } => {}
        Change::Reconfigure { .. }
        | Change::Succeed { .. }
        | Change::Take { .. }
        | Change::Release(_)
        | Change::Lapse => {
            to.posture.clone_from(&model.decided().posture);
        }
        Change::Posture(posture) => to.posture.clone_from(posture),
        Change::Rollback | Change::Timeout => to = active.clone(),
    }
    let survives = match &change {
        Change::Activate { .. } | Change::Reconfigure { .. } | Change::Succeed { .. } => {
            has_posture(to.generation, EMERGENCY)
        }
        Change::Take { .. } => true,
        Change::Posture(_) | Change::Rollback | Change::Timeout | Change::Release(_) | Change::Lapse => false,
    };
    match change {
        Change::Take { .. } => model.automatic = Some(model.now + LEASE),
        _ if !survives => model.automatic = None,
        _ => {}
    }
    match change {
        Change::Take { .. } | Change::Release(_) | Change::Lapse => {}
        Change::Rollback | Change::Timeout => {
            assert_eq!(Some(&to), model.rollback_target().as_ref());
            assert!(model.confirmed.contains(&to), "a rollback activates a confirmed policy");
            if model.trial.take().is_none() {
                model.confirm(to);
            }
        }
        Change::Succeed { of, generation } => {
            // The policy is the same as before, so nothing is added to the history.
            model.confirmed.iter_mut().filter(|one| one.generation == of).for_each(|one| one.generation = generation);
            assert_eq!(Some(&to), model.last(), "the posture stays");
        }
        Change::Activate { trial: Some(time), .. } | Change::Reconfigure { trial: Some(time), .. } => {
            assert!(model.trial.is_none() || matches!(change, Change::Activate { .. }), "refused during a trial");
            model.trial = Some((to, model.now + time));
        }
        Change::Activate { trial: None, .. } | Change::Reconfigure { trial: None, .. } | Change::Posture(_) => {
            match &mut model.trial {
                Some((active, _)) => *active = to,
                None => model.confirm(to),
            }
        }
    }
}

/// Checks the invariants.
fn check(succession: &Succession, model: &Model) {
    assert_eq!((succession.active(), succession.decided()), (model.active(), model.decided()));
    let mut back = succession.rollback_target().into_iter().chain(succession.confirmed());
    assert!(back.all(|one| one.posture.as_deref() != Some(EMERGENCY)), "nobody has decided for it");
    assert_eq!(succession.rollback_target(), model.rollback_target().as_ref());
    assert_eq!(succession.trial_ends(), model.trial.as_ref().map(|(_, ends)| *ends));
    assert!(succession.ready.len() <= READY_MAX);
    let back = succession.rollback_target().map(|back| back.generation);
    assert_eq!(succession.confirmed(), model.last());
    let confirmed = model.last().map(|last| last.generation);
    for kept in [Some(succession.active().generation), confirmed, back].into_iter().flatten() {
        assert!(succession.ready.contains(&kept), "{kept} is in use and gone: {succession:?}");
    }
    if model.trial.is_none() {
        assert_ne!(
            succession.rollback_target(),
            Some(succession.decided()),
            "the rollback target is not the active policy"
        );
    }
}

fn run(events: &[(Event, ChangeOutcome)]) {
    for trial in [None, Some(2 * SECOND)] {
        let (mut succession, mut model) = Model::new(trial);
        for (event, outcome) in events {
            step(&mut succession, &mut model, event, *outcome);
            check(&succession, &model);
        }
        // It gives up if and only if nothing was ever confirmed, and then nothing else happens.
        assert_eq!(succession.give_up(), model.last().is_none());
        if model.last().is_none() {
            assert_eq!(succession.confirm(), Err(Refusal::GivenUp));
            assert_eq!(succession.begin(Change::Rollback, model.now, has_posture), Err(Refusal::GivenUp));
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn event() -> impl Strategy<Value = Event> {
    let trial = prop_oneof![Just(None), (1u32..5).prop_map(|seconds| Some(seconds * SECOND))];
    prop_oneof![
        3 => Just(Event::Load),
        4 => (0u64..20, trial.clone()).prop_map(|(generation, trial)| Event::Activate(generation, trial)),
        2 => (0u64..20, trial).prop_map(|(generation, trial)| Event::Reconfigure(generation, trial)),
        2 => prop_oneof![Just(None), Just(Some("high")), Just(Some("low"))].prop_map(Event::Posture),
        1 => Just(Event::Confirm),
        2 => Just(Event::Rollback),
        2 => Just(Event::Update),
        2 => (0u32..4).prop_map(|seconds| Event::Wait(seconds * SECOND)),
        3 => Just(Event::Take),
        1 => Just(Event::Renew),
        1 => Just(Event::Release),
        1 => Just(Event::Lapse),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn long_sequences_do_as_the_model_does(
        events in prop::collection::vec((event(), prop_oneof![4 => Just(ChangeOutcome::Done), 1 => Just(ChangeOutcome::Failed)]), 0..60)
    ) {
        run(&events);
    }
}

#[test]
fn every_sequence_of_six_does_as_the_model_does() {
    const LENGTH: u32 = 6;
    let kinds = [
        (Event::Activate(0, None), ChangeOutcome::Done),
        (Event::Activate(1, None), ChangeOutcome::Done),
        (Event::Activate(1, Some(SECOND)), ChangeOutcome::Done),
        (Event::Activate(2, Some(2 * SECOND)), ChangeOutcome::Done),
        (Event::Posture(Some("high")), ChangeOutcome::Done),
        (Event::Confirm, ChangeOutcome::Done),
        (Event::Rollback, ChangeOutcome::Done),
        (Event::Wait(SECOND), ChangeOutcome::Done),
        (Event::Update, ChangeOutcome::Done),
    ];
    every_sequence(&kinds, LENGTH);
}

#[test]
fn every_sequence_of_five_with_an_automatic_posture_does_as_the_model_does() {
    const LENGTH: u32 = 5;
    let kinds = [
        Event::Activate(0, None),
        Event::Activate(1, None),
        Event::Activate(2, Some(SECOND)),
        Event::Posture(Some("high")),
        Event::Confirm,
        Event::Rollback,
        Event::Wait(SECOND),
        Event::Update,
        Event::Take,
        Event::Release,
    ];
    every_sequence(&kinds.map(|event| (event, ChangeOutcome::Done)), LENGTH);
}

fn every_sequence(kinds: &[(Event, ChangeOutcome)], length: u32) {
    for number in 0..kinds.len().pow(length) {
        let mut events = vec![(Event::Load, ChangeOutcome::Done), (Event::Load, ChangeOutcome::Done)];
        events.extend((0..length).map(|index| kinds[number / kinds.len().pow(index) % kinds.len()].clone()));
        run(&events);
    }
}

fn base(generation: u64) -> Active {
    Active { generation, posture: None }
}

fn change(succession: &mut Succession, change: Change, now: Instant) -> Active {
    let to = succession.begin(change, now, has_posture).expect("it can be");
    succession.commit(now);
    to
}

#[test]
fn a_posture_and_a_second_activation_are_on_trial_too() {
    let (mut succession, now) = (Succession::default(), Instant::now());
    succession.add();
    succession.add();
    change(&mut succession, Change::Activate { generation: 2, trial: Some(SECOND) }, now);
    change(&mut succession, Change::Posture(Some("high".to_owned())), now);
    assert_eq!(succession.trial_ends(), Some(now + SECOND));
    change(&mut succession, Change::Activate { generation: 3, trial: None }, now);
    assert_eq!((succession.active(), succession.trial_ends()), (base(3), Some(now + SECOND)));
    assert_eq!(succession.begin(Change::Timeout, now, has_posture), Err(Refusal::NotDue));
    assert_eq!(change(&mut succession, Change::Timeout, now + SECOND), base(1));
    assert_eq!((succession.rollback_target(), succession.trial_ends()), (None, None));
}

#[test]
fn confirming_the_same_policy_keeps_the_rollback_target() {
    let (mut succession, now) = (Succession::default(), Instant::now());
    succession.add();
    for _ in 0..2 {
        change(&mut succession, Change::Activate { generation: 2, trial: None }, now);
        assert_eq!(succession.rollback_target(), Some(&base(1)));
    }
    change(&mut succession, Change::Activate { generation: 2, trial: Some(SECOND) }, now);
    succession.confirm().expect("it is on trial");
    assert_eq!(succession.rollback_target(), Some(&base(1)));
}

#[test]
fn other_lists_keep_the_posture_and_the_rollback_target() {
    let (mut succession, now) = (Succession::default(), Instant::now());
    succession.add();
    change(&mut succession, Change::Activate { generation: 2, trial: None }, now);
    let high = Change::Posture(Some("high".to_owned()));
    succession.add();
    assert_eq!(change(&mut succession, Change::Succeed { of: 2, generation: 3 }, now), base(3));
    assert_eq!(succession.rollback_target(), Some(&base(1)));
    change(&mut succession, high, now);
    succession.add();
    let to = change(&mut succession, Change::Succeed { of: 3, generation: 4 }, now);
    assert_eq!((to.generation, to.posture.as_deref()), (4, Some("high")));
    assert_eq!(succession.rollback_target(), Some(&base(4)), "the base policy with the new lists");
    let late = Change::Succeed { of: 3, generation: 4 };
    assert_eq!(succession.begin(late, now, has_posture), Err(Refusal::NotActive(3)));
    change(&mut succession, Change::Activate { generation: 1, trial: Some(SECOND) }, now);
    assert_eq!(succession.begin(Change::Succeed { of: 1, generation: 4 }, now, has_posture), Err(Refusal::OnTrial));
}

#[test]
fn the_length_of_trials_is_bounded() {
    let (mut succession, now) = (Succession::default(), Instant::now());
    for time in [Duration::ZERO, TRIAL_MAX + Duration::from_nanos(1), Duration::MAX] {
        assert_eq!(Succession::on_trial(time, now), Err(Refusal::TrialLength));
        let change = Change::Activate { generation: 1, trial: Some(time) };
        assert_eq!(succession.begin(change, now, has_posture), Err(Refusal::TrialLength));
    }
    change(&mut succession, Change::Activate { generation: 1, trial: Some(TRIAL_MAX) }, now);
}

#[test]
fn a_trial_starts_when_it_is_active() {
    let (mut succession, now) = (Succession::default(), Instant::now());
    succession
        .begin(Change::Activate { generation: 1, trial: Some(SECOND) }, now, has_posture)
        .expect("it stands ready");
    succession.commit(now + 60 * SECOND);
    assert_eq!(succession.trial_ends(), Some(now + 61 * SECOND));
}

#[test]
fn a_generation_is_unloaded_unless_it_is_in_use() {
    let (mut succession, now) = (Succession::default(), Instant::now());
    (0..3).for_each(|_| _ = succession.add());
    change(&mut succession, Change::Activate { generation: 2, trial: None }, now);
    change(&mut succession, Change::Activate { generation: 3, trial: Some(Duration::from_secs(9)) }, now);
    let said = |succession: &Succession, generation: u64| {
        succession.may_remove(generation).map_err(|refusal| refusal.to_string())
    };
    let refused = |text: &str| Err(text.to_owned());
    assert_eq!(said(&succession, 3), refused("generation 3 stays loaded: it is active, on trial"));
    assert_eq!(said(&succession, 2), refused("generation 2 stays loaded: `weir ctl rollback` would activate it"));
    assert_eq!(
        said(&succession, 1),
        refused("generation 1 stays loaded: it is the rollback target once the trial is over")
    );
    assert_eq!(said(&succession, 9), refused("there is no generation 9; ready generations: 1, 2, 3, 4"));
    assert_eq!((said(&succession, 4), succession.remove(4), said(&succession, 4).is_err()), (Ok(()), true, true));
}
