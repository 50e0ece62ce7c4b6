//! Lists of limits, as a policy's author sees them.

use crate::weir::Desk;
use std::fmt::Write;

#[test]
fn a_list_whose_prefixes_enclose_each_other_too_often_is_refused() {
    let nested = |depth: u8| {
        let mut list = String::new();
        (8..8 + depth).for_each(|length| writeln!(list, "10.0.0.0/{length},5").expect("a string grows"));
        list
    };
    let desk = Desk::new();
    let policy = |nested: &str| {
        format!(
            "limits d {{ file \"d.csv\"; {nested} }}\nupstream {{ ip saddr limit @d; accept }}\ndownstream {{ accept }}\n"
        )
    };
    desk.put("nested.weir", policy("nested")).put("flat.weir", policy("")).put("d.csv", nested(9));
    desk.run("check nested.weir --quick").fails(2, &["limits d: 9 of its prefixes enclose each other, at most 8 may"]);
    assert_eq!(desk.run("check flat.weir --quick").code, 0);
    desk.put("d.csv", nested(8));
    assert_eq!(desk.run("check nested.weir --quick").code, 0);
}
