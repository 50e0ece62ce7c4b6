//! Changes the policy on several interfaces: on all or on none. If an interface accepts neither the new policy nor the
//! previous one back, the result says what it has. There are no system calls here; the caller passes the function that
//! replaces a program.

/// The result of a change. `P` is a policy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<P, E> {
    /// All interfaces have the new policy.
    Replaced,
    /// The interfaces have the previous policy, except for `strays`: interfaces by number, with their policies.
    Failed { strays: Vec<(usize, P)>, error: E },
}

/// Puts a policy on interfaces `0..count` by `put`, replacing `before`. `strays` have another policy after an earlier
/// failed change.
///
/// If the change fails, the interfaces that it reached get the previous policy back, and so does each stray. Even a
/// failed change may therefore repair a stray.
pub(super) fn replace_all<P: Clone, E>(
    count: usize,
    policy: &P,
    before: &P,
    strays: Vec<(usize, P)>,
    mut put: impl FnMut(usize, &P) -> Result<(), E>,
) -> Outcome<P, E> {
    let Some((failed, error)) = (0..count).find_map(|number| put(number, policy).err().map(|error| (number, error)))
    else {
        return Outcome::Replaced;
    };
    // An interface that the change did not reach keeps its policy.
    let reached = (0..failed).map(|number| (number, policy.clone()));
    let not_reached = strays.into_iter().filter(|(number, _)| *number >= failed);
    let others: Vec<(usize, P)> = reached.chain(not_reached).collect();
    let strays = others.into_iter().filter(|(number, _)| put(*number, before).is_err()).collect();
    Outcome::Failed { strays, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: char = 'b';
    const NEW: char = 'n';

    /// Every pattern of failures on up to four interfaces, from every pattern of strays: the result matches what the
    /// interfaces have.
    #[test]
    fn what_is_told_is_what_interfaces_have() {
        const COUNT: usize = 4;
        // Bit `2 i`: interface `i` refuses the new policy; bit `2 i + 1`: it refuses the previous one.
        for refusals in 0u32..1 << (2 * COUNT) {
            for stray in 0u32..1 << COUNT {
                let mut has: Vec<char> = (0..COUNT).map(|i| if stray >> i & 1 == 1 { 's' } else { BEFORE }).collect();
                let strays = (0..COUNT).filter(|i| stray >> i & 1 == 1).map(|i| (i, 's')).collect();
                let outcome = replace_all(COUNT, &NEW, &BEFORE, strays, |number, policy| {
                    let refused = refusals >> (2 * number + usize::from(*policy == BEFORE)) & 1 == 1;
                    if refused {
                        return Err(number);
                    }
                    has[number] = *policy;
                    Ok(())
                });
                let refuses_new = (0..COUNT).find(|i| refusals >> (2 * i) & 1 == 1);
                match (outcome, refuses_new) {
                    (Outcome::Replaced, None) => assert!(has.iter().all(|&policy| policy == NEW)),
                    (Outcome::Failed { strays, error }, Some(first)) => {
                        assert_eq!(error, first);
                        let differ = has.iter().copied().enumerate().filter(|(_, policy)| *policy != BEFORE);
                        let differ: Vec<(usize, char)> = differ.collect();
                        assert_eq!(strays, differ, "{refusals:b}, {stray:b}");
                        // Only interfaces that refuse the previous policy are left.
                        assert!(differ.iter().all(|(i, _)| refusals >> (2 * i + 1) & 1 == 1));
                    }
                    (outcome, refuses_new) => panic!("{outcome:?}, {refuses_new:?}"),
                }
            }
        }
    }
}
