//! `cargo xtask package-trial`: the life of the package on a bare Debian 12 that is booted by systemd-nspawn.
//!
//! Prints each step with what an operator sees, and checks it: install, the first start, policies, reload, upgrade
//! under traffic, crash, remove. It is not part of `cargo xtask ci`, because it downloads 300 MB and needs root. The
//! packages are those of `make deb`.

mod machine;
mod packets;
mod wires;

use crate::deb;
use crate::debian::Root;
use crate::shell::run;
use machine::{Machine, PACKAGES};
pub use packets::Packets;
use std::fs;
use std::process::Command;
use std::time::Duration;
use wires::Wires;

/// Ends that would show a moment without Weir: packets that the policy drops pass.
/// What continues in an upgrade is a flow that only a tracker knows, a limit with debt, and a table (packets.rs).
const POLICY: &str = "on-exit forward
inside { 10.9.0.2, 10.9.1.2 }
tracking { size 4096; pickup off }
table suspects { type ipv4; dynamic; size 1000 }
upstream {
  udp dport 666 drop
  ip saddr @suspects drop
  udp dport 11 limit each ip saddr 1/hour burst 5
  tcp track
  accept
}
downstream { tcp track; accept }
";
/// Additions by hand: the second is an address of the sender.
const SUSPECTS: [&str; 2] = ["203.0.113.5", "10.9.0.3"];
const BROKEN: &str = "upstream { udp dorp }\n";
const CONFIGURATION: &str = "policy = \"edge.weir\"\nengine = \"xdp\"\nlower = \"lower\"\nupper = \"upper\"\n";
/// The longest wait for an event in the machine.
const WAIT: Duration = Duration::from_secs(60);
/// A start of weir-dpdk without a configuration: no huge pages, ports without a card.
const DPDK: &str = "weir-dpdk run /etc/weir/plain.weir --engine dpdk --lower net_null0 --upper net_null1 --control \
                    /run/dpdk.sock --eal '--no-huge -m 256 --no-pci --vdev=net_null0 --vdev=net_null1'";
/// The instance `ports` of weir-dpdk, whose ports are interfaces of the kernel.
const PORTS: &str = "policy = \"ports.weir\"
engine = \"dpdk\"
lower = \"net_af_packet0\"
upper = \"net_af_packet1\"
eal = \"--no-huge -m 256 --no-pci --vdev=net_af_packet0,iface=lower3 --vdev=net_af_packet1,iface=upper3\"
";
/// The drop-in of that instance (docs/guide/service.md).
const PORTS_UNIT: &str = "[Service]
ExecStart=
ExecStart=/usr/bin/weir-dpdk run --config /etc/weir/%i.toml --control /run/weir/%i.sock --state /var/lib/weir/%i \
--keep-confirmed
PrivateDevices=no
DevicePolicy=auto
ProtectKernelTunables=no
CapabilityBoundingSet=CAP_IPC_LOCK CAP_SYS_RAWIO
SystemCallFilter=@raw-io
";

/// Runs all steps. `mirror` is an address of Debian's archive, in place of that of this machine's apt.
///
/// # Errors
/// The first step that goes wrong.
pub fn run_all(mirror: Option<&str>) -> Result<(), String> {
    let root = Root::new(&machine::folder()?, PACKAGES, mirror)?;
    step("install");
    install(&root)?;
    let wires = Wires::new()?;
    let machine = Machine::boot(&root, &wires.name("weir"))?;
    step("start as shipped");
    start(&machine, &root)?;
    step("policies");
    policies(&machine, &root)?;
    step("reload with a broken policy");
    reload(&machine, &root)?;
    step("upgrade under traffic");
    upgrade(&machine, &root, &wires)?;
    step("an upgrade that is refused");
    refused_upgrade(&machine, &root)?;
    step("the process is killed");
    killed(&machine)?;
    step("power cut, and a boot with a broken policy");
    root.put("/etc/weir/edge.weir", BROKEN)?;
    machine.crash();
    drop(wires);
    let wires = Wires::new()?;
    let machine = Machine::boot(&root, &wires.name("weir"))?;
    booted(&machine, &root, &wires)?;
    step("weir-dpdk");
    dpdk(&machine, &root)?;
    step("upgrade of weir-dpdk under traffic");
    upgrade_dpdk(&machine, &root, &wires)?;
    step("remove and purge");
    removed(&machine)?;
    println!("package-trial: all steps passed");
    Ok(())
}

fn step(name: &str) {
    println!("package-trial: {name}");
}

/// Fails unless a text has all words.
fn expect(text: &str, words: &[&str]) -> Result<(), String> {
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} is missing: {text}")) }
}

/// A copy of a package with another version, in the machine. The program is the same, in another file.
fn repack(root: &Root, package: &str, version: &str) -> Result<String, String> {
    let folder = root.path(&format!("/root/{package}-{version}"));
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(deb::built(package)?).arg(&folder))?;
    let control = folder.join("DEBIAN/control");
    let text = fs::read_to_string(&control).map_err(|error| format!("{}: {error}", control.display()))?;
    let lines = text.lines().map(|line| match line.starts_with("Version: ") {
        true => format!("Version: {version}\n"),
        false => format!("{line}\n"),
    });
    fs::write(&control, lines.collect::<String>()).map_err(|error| format!("{}: {error}", control.display()))?;
    let file = format!("/root/{package}_{version}.deb");
    run(Command::new("dpkg-deb").args(["--build", "--root-owner-group"]).arg(&folder).arg(root.path(&file)))?;
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(file)
}

/// Installs with apt, which fetches what is needed. Nothing is enabled or started.
fn install(root: &Root) -> Result<(), String> {
    for package in ["weir", "weir-dpdk"] {
        let from = deb::built(package)?;
        let to = root.path(&format!("/root/{package}.deb"));
        fs::copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
        root.run(&format!(
            "apt-get -qq install -y /root/{package}.deb >/root/apt.log 2>&1 || {{ cat /root/apt.log; false; }}"
        ))?;
        expect(&root.run(&format!("{package} --version"))?, &["weir "])?;
    }
    // The machine has no network when it is booted, so nothing else is fetched then.
    let enabled = root.run("find /etc/systemd/system -name '*weir*'")?;
    if enabled.is_empty() { Ok(()) } else { Err(format!("it is enabled: {enabled}")) }
}

/// Starts the unit without and with a configuration.
fn start(machine: &Machine, root: &Root) -> Result<(), String> {
    expect(&machine.ask("systemctl is-enabled weir; systemctl is-active weir"), &["disabled", "inactive"])?;
    machine.refuses("systemctl start weir")?;
    machine.wait_for("journalctl -u weir -o cat --no-pager", "`policy` is missing", WAIT)?;
    let journal = machine.run("journalctl -u weir -o cat --no-pager | tail -n 20")?;
    expect(&journal, &["the key `policy` is missing"])?;
    machine.run("systemctl stop weir; systemctl reset-failed weir 2>/dev/null || true")?;
    root.put("/etc/weir/edge.weir", POLICY)?;
    root.put("/etc/weir/weir.toml", CONFIGURATION)?;
    machine.run("weir config check")?;
    machine.run("systemctl enable --now weir 2>&1")?;
    let status = machine.wait_for("systemctl status weir --no-pager", "Status: \"generation 1", WAIT)?;
    println!("{status}");
    machine.run("weir ctl status")?;
    // Another instance, and one that is configured and does not run.
    let other = CONFIGURATION.replace("\"lower\"", "\"lower2\"").replace("\"upper\"", "\"upper2\"");
    root.put("/etc/weir/other.toml", &other)?;
    root.put("/etc/weir/idle.toml", &other)?;
    machine.run("systemctl enable --now weir@other 2>&1")?;
    Ok(())
}

/// Loads and activates another policy, on trial.
fn policies(machine: &Machine, root: &Root) -> Result<(), String> {
    root.put("/etc/weir/next.weir", &POLICY.replace("  tcp track\n", "  tcp dport 23 drop\n  tcp track\n"))?;
    machine.run("weir ctl load /etc/weir/next.weir")?;
    machine.run("weir ctl activate 2 --confirm 1h")?;
    for suspect in SUSPECTS {
        machine.run(&format!("weir ctl table suspects add {suspect}"))?;
    }
    expect(&machine.run("weir ctl status")?, &["generation 2", "on trial: rolls back to generation 1"])
}

/// The reason of a reload that fails is in the journal, and the old policy stays.
fn reload(machine: &Machine, root: &Root) -> Result<(), String> {
    // The other instance has no trial, during which a reload is refused.
    root.put("/etc/weir/broken.weir", BROKEN)?;
    let other = root.path("/etc/weir/other.toml");
    let text = fs::read_to_string(&other).map_err(|error| error.to_string())?;
    root.put("/etc/weir/other.toml", &text.replace("edge.weir", "broken.weir"))?;
    machine.refuses("systemctl reload weir@other")?;
    // journald reads the output of a process later than the messages of systemd.
    machine.wait_for("journalctl -u weir@other -o cat --no-pager", "dorp", WAIT)?;
    expect(&machine.run("journalctl -u weir@other -o cat --no-pager | tail -n 12")?, &["broken.weir:1", "dorp"])?;
    expect(&machine.run("weir ctl --control /run/weir/other.sock status")?, &["generation 1"])?;
    expect(&machine.ask("systemctl is-active weir@other"), &["active"])?;
    root.put("/etc/weir/other.toml", &text)
}

/// The number of the process of a unit.
fn pid(machine: &Machine, unit: &str) -> String {
    machine.ask(&format!("systemctl show --property=MainPID --value {unit}"))
}

/// A package replaces the program while packets pass: none is lost, none unfiltered, and what is loaded continues.
fn upgrade(machine: &Machine, root: &Root, wires: &Wires) -> Result<(), String> {
    let new = repack(root, "weir", "0.1.0-2")?;
    let before = [pid(machine, "weir"), pid(machine, "weir@other")];
    let traffic = wires.traffic(wires::WEIR)?;
    let said = machine.run(&format!("apt-get -q install -y {new} 2>&1"))?;
    traffic.end()?.check()?;
    no_flow_is_unknown(machine, "weir")?;
    expect(&said, &["weir.service: upgraded from", "weir@other.service: upgraded from"])?;
    if before != [pid(machine, "weir"), pid(machine, "weir@other")] {
        return Err("a process was replaced".to_owned());
    }
    for process in &before {
        let path = machine.ask(&format!("readlink /proc/{process}/exe"));
        (path == "/usr/bin/weir").then_some(()).ok_or_else(|| format!("it runs {path}"))?;
    }
    expect(&machine.run("weir ctl status")?, &["generation 2", "on trial: rolls back to generation 1"])?;
    expect(&machine.run("weir ctl table suspects list")?, &SUSPECTS)?;
    expect(&machine.ask("systemctl is-active weir@idle"), &["inactive"])?;
    machine.run("weir ctl confirm").map(drop)
}

/// The tracker of an instance knew the flow of each packet.
fn no_flow_is_unknown(machine: &Machine, instance: &str) -> Result<(), String> {
    let stats = machine.run(&format!("weir ctl --control /run/weir/{instance}.sock stats"))?;
    if stats.contains("no-state") { Err(stats) } else { Ok(()) }
}

/// An instance that refuses restarts, with the reason.
fn refused_upgrade(machine: &Machine, root: &Root) -> Result<(), String> {
    let new = repack(root, "weir", "0.1.0-3")?;
    root.put("/etc/weir/next.weir", &format!("# edited\n{POLICY}"))?;
    let before = pid(machine, "weir");
    let said = machine.run(&format!("apt-get -q install -y {new} 2>&1"))?;
    expect(&said, &["next.weir has changed since it was loaded", "weir.service: restarts"])?;
    expect(&said, &["weir@other.service: upgraded from"])?;
    if before == pid(machine, "weir") {
        return Err("it did not restart".to_owned());
    }
    expect(&machine.ask("systemctl is-active weir; systemctl is-active weir@idle"), &["active\ninactive"])
}

/// systemd starts Weir again.
fn killed(machine: &Machine) -> Result<(), String> {
    // The policy is kept some seconds after it was confirmed.
    machine.wait_for("ls /var/lib/weir/weir", "confirmed", WAIT)?;
    let before = pid(machine, "weir");
    machine.run(&format!("kill -KILL {before}"))?;
    machine.wait_for("systemctl show --property=NRestarts --value weir", "1", WAIT)?;
    machine.wait_for("systemctl is-active weir", "active", WAIT)?;
    machine.run("journalctl -u weir -o cat --no-pager | tail -n 12")?;
    machine.wait_for("weir ctl status", "generation 1", WAIT).map(drop)
}

/// The last confirmed policy decides, and the status says so.
fn booted(machine: &Machine, root: &Root, wires: &Wires) -> Result<(), String> {
    machine.run("journalctl -b -u weir -o cat --no-pager")?;
    expect(&machine.run("systemctl is-active weir")?, &["active"])?;
    expect(&machine.run("weir ctl status")?, &["STARTED WITH THE LAST CONFIRMED POLICY"])?;
    machine.wait_for("systemctl status weir --no-pager", "Status:", WAIT)?;
    expect(&machine.run("systemctl status weir --no-pager -n 0")?, &["Status: \"the last confirmed policy decides"])?;
    let traffic = wires.traffic(wires::WEIR)?;
    std::thread::sleep(Duration::from_secs(1));
    traffic.end()?.check()?;
    // The corrected policy leaves no bypass at its end.
    root.put("/etc/weir/edge.weir", &POLICY.replace("on-exit forward", "on-exit block"))?;
    machine.run("systemctl reload weir weir@other")?;
    let status = machine.run("weir ctl status")?;
    if status.contains("STARTED WITH") { Err(status) } else { Ok(()) }
}

/// The second program moves packets between ports without a card.
fn dpdk(machine: &Machine, root: &Root) -> Result<(), String> {
    root.put("/etc/weir/plain.weir", "upstream { udp drop; accept }\ndownstream { accept }\n")?;
    machine.run("weir-dpdk --version")?;
    machine.run(&format!("systemd-run --quiet --unit=dpdk --property=Type=exec {DPDK}"))?;
    machine.wait_for("weir ctl --control /run/dpdk.sock status", "generation 1", WAIT)?;
    machine.run("weir ctl --control /run/dpdk.sock stats | head -n 12")?;
    machine.run("systemctl stop dpdk").map(drop)
}

/// The package replaces the second program, as an instance of the service. Its engine has nothing in the kernel that
/// decides meanwhile, so packets are lost, none passes unfiltered, and what an upgrade carries over continues.
fn upgrade_dpdk(machine: &Machine, root: &Root, wires: &Wires) -> Result<(), String> {
    let new = repack(root, "weir-dpdk", "0.1.0-2")?;
    root.put("/etc/weir/ports.weir", &POLICY.replace("on-exit forward", "on-exit block"))?;
    root.put("/etc/weir/ports.toml", PORTS)?;
    machine.run("mkdir -p /etc/systemd/system/weir@ports.service.d")?;
    root.put("/etc/systemd/system/weir@ports.service.d/dpdk.conf", PORTS_UNIT)?;
    machine.run("systemctl daemon-reload; systemctl enable --now weir@ports 2>&1")?;
    let control = "weir ctl --control /run/weir/ports.sock";
    machine.wait_for(&format!("{control} status"), "generation 1", WAIT)?;
    machine.run(&format!("{control} table suspects add 10.9.1.3"))?;
    let before = pid(machine, "weir@ports");
    let traffic = wires.traffic(wires::DPDK)?;
    // A flow is saved within a second after it was answered.
    machine.wait_for(&format!("{control} flows"), "established", WAIT)?;
    let said = machine.run(&format!("apt-get -q install -y {new} 2>&1"))?;
    machine.wait_for(&format!("{control} status"), "generation 1", WAIT)?;
    traffic.end()?.check_restarted()?;
    no_flow_is_unknown(machine, "ports")?;
    expect(&said, &["weir@ports.service: upgraded from"])?;
    if before != pid(machine, "weir@ports") {
        return Err("the process was replaced".to_owned());
    }
    let path = machine.ask(&format!("readlink /proc/{before}/exe"));
    (path == "/usr/bin/weir-dpdk").then_some(()).ok_or_else(|| format!("it runs {path}"))?;
    expect(&machine.run(&format!("{control} table suspects list"))?, &["10.9.1.3"])?;
    machine.run("systemctl disable --now weir@ports 2>&1; rm -r /etc/systemd/system/weir@ports.service.d").map(drop)
}

/// Nothing is left of either package.
fn removed(machine: &Machine) -> Result<(), String> {
    machine.run("apt-get -q remove -y weir 2>&1")?;
    expect(&machine.ask("systemctl is-active weir; systemctl is-active weir@other"), &["inactive\ninactive"])?;
    machine.wait_for("pgrep weir || echo none", "none", WAIT)?;
    expect(&machine.run("ls -d /etc/weir /run/weir /var/lib/weir 2>&1 || true")?, &["/etc/weir\n", "'/run/weir': No"])?;
    machine.run("apt-get -q purge -y weir weir-dpdk 2>&1")?;
    machine.run("rm -r /root/*")?;
    let left = machine.run("find / /run /tmp -xdev -iname '*weir*'; ip -details link | grep -i xdp || true")?;
    let units = machine.run("systemctl list-units --all --no-legend 'weir*'; dpkg -l | grep weir || true")?;
    let empty = [left, units].iter().all(|text| text.is_empty());
    if empty { Ok(()) } else { Err("something is left".to_owned()) }
}
