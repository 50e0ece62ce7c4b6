//! Tables of bundles: what a bundle says of them, and which tables of an attacker are refused.

use crate::bundles::{Parts, bundle_of, forged, refused, replay, sandbox, unpacked, with_manifest};
use crate::weir::Sandbox;
use serde_json::{Value, json};
use std::fs;
use weir_engine::clang::{BpfShape, Clang, DataSizes, Hook, TableRoom};
use weir_tables::limit_image::Logged;

/// Tables of every kind. No rule looks `admin` up.
const TABLES: &str = "table admin { type ipv4; elements = { 203.0.113.0/24 } }
table bad { type ipv4; elements = { 198.51.100.7, 192.0.2.0/24, 198.51.100.7 }; protect @admin; max-change 20% }
table geo { type ipv4 : label; counters; elements = { 10.0.0.0/8 : SI, 11.0.0.0-11.0.0.2 : AT } }
table seen { type ipv4; dynamic; size 1000; timeout 10m }
table one { type ipv4; elements = { 192.0.2.1 } }
table two { type ipv4; elements = { 192.0.2.2 } }
upstream {
  ip saddr @bad drop
  ip saddr @geo { SI } drop
  ip saddr @one drop
  ip saddr @two drop
  udp update @seen { ip saddr }
  accept
}
downstream { accept }
";

/// A bundle with tables, and its members.
fn bundled(sandbox: &Sandbox) -> (Vec<u8>, Parts) {
    bundle_of(sandbox, "t", TABLES)
}

#[test]
fn a_bundle_has_the_entries_and_settings_of_all_tables() {
    let sandbox = sandbox();
    let (_, parts) = bundled(&sandbox);
    let lists = parts.iter().filter(|(name, _)| name.starts_with("table"));
    let lists: Vec<(&str, String)> =
        lists.map(|(name, list)| (name.as_str(), String::from_utf8_lossy(list).into_owned())).collect();
    let expected = [
        ("table0.csv", "# prefix\n203.0.113.0/24\n"),
        ("table1.csv", "# prefix\n192.0.2.0/24\n198.51.100.7/32\n"),
        ("table2.csv", "# prefix,label number\n10.0.0.0/8,1\n11.0.0.0/31,2\n11.0.0.2/32,2\n"),
        ("table3.csv", "# prefix\n"),
        ("table4.csv", "# prefix\n192.0.2.1/32\n"),
        ("table5.csv", "# prefix\n192.0.2.2/32\n"),
    ];
    assert_eq!(lists, expected.map(|(name, list)| (name, list.to_owned())));
    let manifest: Value = serde_json::from_slice(&parts[0].1).expect("a manifest");
    let table = |name: &str| {
        json!({"name": name, "family": "ipv4", "labels": null, "dynamic": null, "counters": false, "protect": [],
               "max_change_percent": null})
    };
    let mut expected = ["admin", "bad", "geo", "seen", "one", "two"].map(table);
    expected[1]["protect"] = json!([0]);
    expected[1]["max_change_percent"] = json!(20);
    expected[2]["labels"] = json!(["SI", "AT"]);
    expected[2]["counters"] = json!(true);
    expected[3]["dynamic"] = json!({"size": 1000, "timeout_ms": 600_000});
    assert_eq!(manifest["report"]["tables"], json!(expected));
    assert_eq!((&manifest["entries"], &manifest["adders"], &manifest["additions"]), (&json!(6), &json!(1), &json!(1)));
}

/// Engines in user space need no memory of the kernel.
#[test]
fn tables_that_the_kernel_has_no_memory_for_are_reported() {
    let sandbox = sandbox();
    let policy = "table t { type ipv4; dynamic; counters; size 100000000; elements = { 198.51.100.7 } }\n\
                  upstream { ip saddr @t drop; accept }\ndownstream { accept }\n";
    sandbox.put("t.weir", policy);
    let problem = "table t: the counters of 134217728 entries on";
    sandbox.run("compile t.weir -o t.weirb").fails(0, &["note: the engine xdp cannot have these tables", problem]);
    assert_eq!(replay(&sandbox, "t.weirb", "native").json()["dropped"], 1);
    for policy in ["t.weir", "t.weirb"] {
        replay(&sandbox, policy, "xdp").fails(1, &[problem]);
    }
}

#[test]
fn entries_of_a_hostile_bundle_are_refused() {
    let sandbox = sandbox();
    let (whole, parts) = bundled(&sandbox);
    let listed = |member: &str, list: &str, message: &str| {
        refused(&sandbox, forged(&whole, member, list.as_bytes()), message);
    };
    listed("table1.csv", "10.0.0.0/33\n", "h.weirb: table bad:1: `10.0.0.0/33`: prefix length above 32");
    listed("table1.csv", "# prefix\n2001:db8::/32\n", "table bad:2: `2001:db8::/32`: address of the other family");
    listed("table2.csv", "10.0.0.0/8\n", "table geo:1: `10.0.0.0/8`: label missing");
    listed("table2.csv", "10.0.0.0/8,3\n", "table geo: there is no label 3; the labels have the numbers 1 to 2");
    listed("table2.csv", "10.0.0.0/8,SI\n", "table geo: there is no label SI;");
    let edited = |field: &str, value: Value, message: &str| {
        refused(&sandbox, with_manifest(parts.clone(), |manifest| manifest[field] = value), message);
    };
    edited("entries", json!(5), "manifest.json lists more members than a bundle has");
    edited("entries", json!(7), "manifest.json does not list table6.csv in its place");
    edited("entries", json!(1025), "1025 tables, at most 1024 are possible");
    edited("adders", json!(0), "belong to different policies");
    edited("additions", json!(0), "belong to different policies");
    edited("additions", json!(1u64 << 40), "belong to different policies");
    // Engines build the image: entries that the layout cannot hold.
    sandbox.put("h.weirb", forged(&whole, "table4.csv", b"10.0.0.0/8\n"));
    for engine in ["native", "xdp"] {
        replay(&sandbox, "h.weirb", engine).fails(2, &["table one+two: layout exact-sets holds /32 addresses only"]);
    }
}

#[test]
fn declarations_of_tables_of_a_hostile_bundle_are_refused() {
    let sandbox = sandbox();
    let (_, parts) = bundled(&sandbox);
    let report = |at: &str, value: Value, message: &str| {
        let change = |manifest: &mut Value| {
            *manifest["report"].pointer_mut(&format!("/tables{at}")).expect("a field") = value;
        };
        refused(&sandbox, with_manifest(parts.clone(), change), message);
    };
    report("", json!([]), "it has 6 tables, and its report 0");
    report("/0", json!(null), "invalid type: null");
    report("/0/name", json!("bad"), "table bad: it is there twice");
    report("/0/name", json!("a\u{1b}[2J"), "a name that no table can have");
    report("/1/name", json!("good"), "table bad: its entries are missing, or of another family");
    report("/1/protect", json!([1]), "table bad: it protects a table that is missing, of another family, or itself");
    report("/1/protect", json!([6]), "table bad: it protects a table that is missing, of another family, or itself");
    report("/1/max_change_percent", json!(0), "table bad: a share for `max-change` that is not possible");
    report("/1/dynamic", json!({"size": 5, "timeout_ms": null}), "table bad: its declaration does not match its rules");
    report("/1/labels", json!(["x"]), "table bad:2: `192.0.2.0/24`: label missing");
    report("/1", json!({"watch": true}), "unknown field `watch`");
    report("/2/labels", json!(["SI"]), "table geo: there is no label 2; the labels have the numbers 1 to 1");
    report("/2/labels", json!(["SI", "SI"]), "table geo: its 2 labels are not those of a map");
    report("/2/labels", json!(["SI", ""]), "table geo: a label of 0 bytes");
    report("/2/labels/0", json!("x".repeat(256)), "table geo: a label of 256 bytes");
    report("/2/counters", json!(false), "table geo: its declaration does not match its rules");
    report("/3/family", json!("ipv6"), "table seen: its entries are missing, or of another family");
    report("/3/labels", json!(["x"]), "table seen: rules add to it, and it has labels");
    report("/3/dynamic", json!(null), "table seen: its declaration does not match its rules");
    report("/3/dynamic/size", json!(0), "table seen: a size or timeout that is not possible");
    report("/3/dynamic/size", json!(1u32 << 31), "table seen: a size or timeout that is not possible");
    report("/3/dynamic/timeout_ms", json!(u64::MAX), "table seen: a size or timeout that is not possible");
    report("/4/counters", json!(true), "table one+two: its declaration does not match its rules");
}

/// An object whose sizes differ from the sizes of the tables that it would share with other programs.
#[test]
fn code_without_room_for_its_tables_is_refused() {
    let sandbox = sandbox();
    sandbox.put("t.weir", "table t { type ipv4; dynamic; counters }\nupstream { ip saddr @t drop; add @t { ip saddr } accept }\ndownstream { accept }\n");
    assert_eq!(sandbox.run("compile t.weir -o t.weirb").code, 0);
    let whole = fs::read(sandbox.path("t.weirb")).expect("it was written");
    let c = unpacked(&whole).into_iter().find(|(name, _)| name == "bpf.c").expect("it is there").1;
    let c = String::from_utf8(c).expect("text");
    let clang = Clang::find().expect("clang is installed");
    let room = |bytes: u32, entries: usize| {
        let tables = vec![TableRoom { bytes, twice: true, entries: Some((entries, 1)) }];
        let shape = BpfShape {
            sizes: DataSizes::Known { tables, limits: None },
            counters: 64,
            logged: Logged::Nothing,
            hook: Hook::Received,
        };
        let object = clang.bpf("t", &c, &shape).unwrap_or_else(|error| panic!("{error}")).object;
        sandbox.put("h.weirb", forged(&whole, "bpf.o", object.bytes()));
        replay(&sandbox, "h.weirb", "xdp")
    };
    room(1 << 12, 1 << 17).fails(1, &[".bss.table0: 8200 bytes set aside, the shared map has "]);
    room(1 << 20, 64).fails(1, &["bytes set aside, the shared map has "]);
}
