//! Lists in the forms of Spamhaus (JSON lines) and CrowdSec (CSV with named columns).

use super::*;

const DROP: &str = "{\"cidr\":\"192.0.2.0/24\",\"sblid\":\"SBL1\",\"rir\":\"ripencc\"}\n\
                    {\"cidr\": \"198.51.100.0/25\", \"sblid\": \"SBL2\", \"rir\": \"arin\"}\n\
                    {\"type\":\"metadata\",\"timestamp\":1733130365,\"size\":76,\"records\":2,\"terms\":\"https://x/\"}\n";

#[test]
fn spamhaus_publishes_json_lines() {
    assert_eq!(set("drop_v4.json", DROP), ["192.0.2.0/24", "198.51.100.0/25"]);
    assert_eq!(labels("drop_v4.json", DROP), ["192.0.2.0/24 SBL1", "198.51.100.0/25 SBL2"]);
    let (_, report) = read4(Kind::Set, "drop_v4.json", DROP).unwrap();
    assert_eq!((report.format, report.lines, report.prefixes), (Format::JsonLines, 3, 2));
    assert_eq!(set6("drop_v6.json", "{\"cidr\":\"2001:db8::/32\",\"sblid\":\"SBL3\"}\n").unwrap(), ["2001:db8::/32"]);
}

#[test]
fn a_json_line_that_is_not_understood_is_an_error() {
    let refused = |line: &str| set_error("drop.json", &format!("{{\"cidr\":\"192.0.2.0/24\"}}\n{line}\n"));
    for line in [
        "{\"cidr\":\"198.51.100.0/2",
        "{\"cidr\":\"198.51.100.0/25\"",
        "{\"cidr\":\"198.51.100.0/25\",}",
        "{\"cidr\":\"198.51.100.0/25\" \"a\":1}",
        "{\"cidr\":\"198.51.100.0/25\",\"cidr\":\"203.0.113.0/24\"}",
        "{\"cidr\":\"198.51.100.0\\/25\"}",
        "{\"cidr\":198}",
        "{\"sblid\":\"SBL1\"}",
        "{\"type\":\"list\"}",
        "203.0.113.0/24",
    ] {
        assert!(refused(line).contains(":2"), "{line}: {}", refused(line));
    }
    assert!(refused("{\"cidr\":\"198.51.100.1/25\"}").contains("bits are set behind the length"));
    assert!(set_error("x.json", "{\"ip\":\"192.0.2.1\"}\n").contains("JSON"), "another kind of JSON");
}

#[test]
fn crowdsec_names_its_columns() {
    let text = "duration,scope,value\n4h,ip,192.0.2.1\n24h,range,198.51.100.0/25\n";
    assert_eq!(set("crowdsec.txt", text), ["192.0.2.1/32", "198.51.100.0/25"]);
    let text = "duration,origin,reason,scope,type,value\n4h,cscli,\"scan, slow\",ip,ban,192.0.2.1\n";
    assert_eq!(set("decisions.csv", text), ["192.0.2.1/32"]);
    assert_eq!(labels("decisions.csv", text), ["192.0.2.1/32 scan, slow"]);
    assert!(set_error("x.csv", "duration,scope,value\n4h,country,HR\n").contains(":2"));
    assert!(set_error("x.csv", "duration,scope,value\n4h,192.0.2.1\n").contains("2 fields"));
    assert!(label_error("x.csv", "duration,scope,value\n4h,ip,192.0.2.1\n").contains("label missing"));
}
