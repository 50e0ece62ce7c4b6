//! Fuzz targets for the control protocol: requests that a server reads, and answers that a client reads.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use weir_control::{Answer, LimitsStatus, Ready, Request, Stats, Status, read};

/// Any bytes are a request or an error, and a request prints and parses back to itself.
pub(crate) fn control_request(data: &[u8]) {
    let Ok(request) = Request::parse(data) else { return };
    let line = request.line().expect("what was parsed is UTF-8");
    assert_eq!(line.find('\n'), Some(line.len() - 1), "a request is one line");
    assert_eq!(Request::parse(line.as_bytes()).expect("what was printed is a request"), request);
}

/// Any text is an answer or an error, and an answer prints and parses back to itself. The same holds for its value as
/// any type of answer.
pub(crate) fn control_answer(data: &[u8]) {
    let Ok(Ok(answer)) = str::from_utf8(data).map(Answer::parse) else { return };
    let line = answer.line();
    assert_eq!(line.find('\n'), Some(line.len() - 1), "an answer is one line");
    assert_eq!(Answer::parse(&line).expect("what was printed is an answer"), answer);
    if let Answer::Ok(value) = answer {
        round_trip::<Status>(&value);
        round_trip::<Stats>(&value);
        round_trip::<LimitsStatus>(&value);
        round_trip::<Ready>(&value);
    }
}

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &serde_json::Value) {
    let Ok(parsed) = read::<T>(value.clone()) else { return };
    let printed = serde_json::to_value(&parsed).expect("it is JSON");
    assert_eq!(read::<T>(printed).expect("what was printed is of its type"), parsed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_what_they_are_named_for() {
        let value = |text: &str| match Answer::parse(text).expect("an answer") {
            Answer::Ok(value) => value,
            other => panic!("{other:?}"),
        };
        let limits = read::<LimitsStatus>(value(include_str!("../seeds/control_answer/limits")));
        assert_eq!(limits.expect("counts of limits").limits.iter().filter(|limit| limit.what.is_some()).count(), 3);
        read::<Ready>(value(include_str!("../seeds/control_answer/ready"))).expect("a generation");
        read::<Stats>(value(include_str!("../seeds/control_answer/stats"))).expect("a snapshot");
        read::<Status>(value(include_str!("../seeds/control_answer/status"))).expect("a status");
        let activate = Request::parse(include_bytes!("../seeds/control_request/activate")).expect("a request");
        assert_eq!(activate, Request::Activate { generation: 2, confirm_s: Some(0.1 + 0.2) });
    }
}
