//! `weir check`: checks a policy and reports its cost.
//!
//! The cost is in the policy's certificate: the size of its tables, the instructions that the verifier checks, and the
//! cost of a packet on this machine. The user knows it before the policy runs on a network.

mod certificate;

use crate::cli::CheckOptions;
use crate::costs;
use certificate::{
    Certificate, ChainCost, Invalid, LimitsCost, ObserveCost, Report, Seconds, SlotCost, TableCost, describe,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::slot::SlotImage;
use weir_abi::{Family, Layout};
use weir_command::failure::{Failure, messages};
use weir_command::options::EngineName;
use weir_command::report;
use weir_engine::cpu::Cpu;
use weir_engine::kernels::Kernels;
use weir_engine::measure;
use weir_engine::traffic;
use weir_loading::{Policy, PolicyFile, Text};
use weir_planning::card::{self, CardReport};
use weir_policy::checked::{LimitKeys, Limits, Table, TableId, TableKind};
use weir_policy::ir::{Direction, LimitEach, LimiterKind, Log, RuleSlot, SlotContents};
use weir_policy::pass::choose_layouts::CostModel;
use weir_tables::Image;

/// Packets of a measurement: too many for branch predictors to learn, few enough for the cache.
const PACKETS: usize = 4096;
/// Repetitions of a measurement. Their median is reported.
const REPEATS: usize = 51;
/// Frames that are timed in the kernel, and repetitions for each.
const BPF_FRAMES: usize = 64;
const BPF_REPEATS: u32 = 2000;

/// Runs the command.
///
/// # Errors
/// The policy is invalid or cannot be read.
pub fn run(options: &CheckOptions) -> Result<(), Failure> {
    let checked = check(options);
    let Err(failure) = checked else { return Ok(()) };
    if !options.json {
        return Err(failure);
    }
    let policy = options.policy.display().to_string();
    let failed = failure.to_json();
    report::print_json(&Invalid { policy, valid: false, failed, warnings: vec![], notices: vec![] })?;
    Err(failure.reported())
}

fn check(options: &CheckOptions) -> Result<(), Failure> {
    let model = options.costs.as_deref().map_or_else(|| Ok(CostModel::default()), costs::read)?;
    let mut policy = PolicyFile::open(&options.policy)?.check(&model)?;
    report::say_warnings(&policy);
    let wanted = wanted_chains(&policy, options)?;
    let chains = chains(&policy);
    let card = options.card.as_deref().map(|name| card(&policy, options, name)).transpose()?;
    policy.keep_chains(&wanted);
    let certificate = Certificate { card, ..certify(&policy, options, chains, &wanted)? };
    let text = policy.text().expect("it was read as text");
    let report = Report {
        policy: options.policy.display().to_string(),
        valid: true,
        errors: vec![],
        warnings: messages(&text.checked.warnings, &text.sources),
        notices: text.notices.clone(),
        certificate: Some(certificate),
    };
    if options.json { report::print_json(&report) } else { report::print(&describe(&report)) }
}

/// What a card can take.
fn card(policy: &Policy, options: &CheckOptions, name: &str) -> Result<CardReport, Failure> {
    let profile = card::profile(name)?;
    let chain = policy.chain(options.posture.first().map(String::as_str), Direction::Upstream)?;
    let split = card::split_of(policy, chain, &profile, &|_| true);
    Ok(card::report(&policy.program, &profile, &split))
}

/// Builds, compiles, loads and measures the policy.
fn certify(
    policy: &Policy,
    options: &CheckOptions,
    chains: Vec<ChainCost>,
    wanted: &[usize],
) -> Result<Certificate, Failure> {
    let text = policy.text().expect("it was read as text");
    let mut seconds = Seconds::from(text.timing);
    let start = Instant::now();
    let images = policy.images()?;
    seconds.build = start.elapsed().as_secs_f64();
    let plan = &text.lowered.plan;
    let table = |(id, table): (u16, &Table)| {
        let (slot, index) = plan.image_of(TableId(id));
        let (slot, planned, image) = (&policy.program.slots[slot], &plan.images[slot], &images[slot]);
        let mut fused_with = slot.tables().to_vec();
        fused_with.remove(index);
        TableCost {
            name: table.name.clone(),
            family: family(table.family),
            kind: match table.kind {
                TableKind::Set => "set",
                TableKind::Labels => "labels",
            },
            entries: table.facts.entries,
            labels: table.facts.labels.len(),
            layout: Layout::name(slot.layout),
            layout_reason: planned.reason.to_string(),
            fused_with,
            bytes: image.as_bytes().len() as u64,
        }
    };
    let tables: Vec<TableCost> = (0..).zip(&text.checked.tables).map(table).collect();
    let mut certificate = Certificate {
        rules: policy.program.rules.len(),
        on_exit: policy.program.on_exit.name(),
        costs: options.costs.as_ref().map(|path| path.display().to_string()),
        table_bytes: images.iter().map(|image| image.as_bytes().len() as u64).sum(),
        tables,
        limits: limits(policy, text, &images),
        slots: policy.program.rule_slots.iter().map(slot_cost).collect(),
        observe: policy.program.observe.as_ref().map(ObserveCost::of),
        chains,
        compiled: vec![],
        kernels: None,
        not_measured: vec![],
        seconds,
        card: None,
    };
    for &engine in &options.engine {
        policy.refuse_unsupported(&[engine.into()])?;
    }
    let unsupported = policy.unsupported();
    if let Some(first) = unsupported.first() {
        let at = first.rule.map(|rule| format!(" ({})", policy.program.rule(rule).at)).unwrap_or_default();
        let what = first.feature.name();
        certificate.not_measured.push(format!("code: `{what}`{at} is not yet supported by the engines"));
    } else if !options.quick {
        certificate.compiled = wanted.iter().map(|&index| certificate.chains[index].name.clone()).collect();
        measure(policy, options, wanted, &mut certificate)?;
    }
    Ok(certificate)
}

/// Measures the engines of `--engine`, which must support the policy. Without the option, measures all that support it.
fn measure(
    policy: &Policy,
    options: &CheckOptions,
    wanted: &[usize],
    certificate: &mut Certificate,
) -> Result<(), Failure> {
    type Measure = fn(&Policy, &[usize], &mut Certificate) -> Result<(), Failure>;
    let engines: [(EngineName, &str, Measure); 3] = [
        (EngineName::Native, "native", measure_native),
        (EngineName::Xdp, "bpf", measure_bpf),
        (EngineName::P4, "p4", measure_p4),
    ];
    for (engine, code, measure) in engines {
        let is_required = options.engine.contains(&engine);
        // P4 needs DPDK, which few machines have. So it is measured only on demand.
        if !is_required && (engine == EngineName::P4 || !options.engine.is_empty()) {
            continue;
        }
        match measure(policy, wanted, certificate) {
            Err(failure) if is_required => return Err(failure),
            Err(failure) => certificate.not_measured.push(format!("{code}: {}", failure.message())),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn slot_cost(slot: &RuleSlot) -> SlotCost {
    SlotCost { name: slot.name.clone(), size: slot.size, bytes: size_of::<SlotImage>() as u64 }
}

fn limits(policy: &Policy, text: &Text, images: &[Arc<Image>]) -> Vec<LimitsCost> {
    let entries = policy.limit_entries();
    let cost = |list: &Limits| {
        let (of, table) = match list.keys {
            LimitKeys::Prefixes { nested: false } => ("prefixes", None),
            LimitKeys::Prefixes { nested: true } => ("nested", None),
            LimitKeys::Labels(table) => ("labels", Some(text.checked.tables[usize::from(table.0)].name.clone())),
        };
        let limiters = policy.program.limiters.iter().zip(&entries);
        let own = limiters.filter(|(limiter, _)| {
            let is_listed = !matches!(limiter.kind, LimiterKind::Rate(_) | LimiterKind::Each(_));
            is_listed && limiter.name == list.name
        });
        let buckets: Vec<usize> = own.map(|(_, entries)| entries.entries.len()).collect();
        let counts = match list.log {
            Log::Off => 0,
            Log::Exceeded => 1,
            Log::All => 2,
        };
        let slots = policy.program.slots.iter().zip(images);
        let own_images = slots.filter(|(slot, _)| slot.contents == SlotContents::Limits(list.name.clone()));
        LimitsCost {
            name: list.name.clone(),
            of,
            table,
            ipv4: list.facts.v4.entries,
            ipv6: list.facts.v6.entries,
            labels: list.facts.labels,
            rates: list.facts.rates,
            default: list.default.map(|limit| limit.to_string()),
            log: list.log.name(),
            limiters: buckets.len(),
            bytes: own_images.map(|(_, image)| image.as_bytes().len() as u64).sum(),
            bucket_bytes: buckets.iter().map(|&buckets| 8 * buckets as u64).sum(),
            count_bytes: buckets.iter().map(|&buckets| counts * 8 * buckets as u64).sum(),
        }
    };
    let addresses = policy.program.limiters.iter().filter_map(|limiter| match limiter.kind {
        LimiterKind::Each(each) => Some(table_of_addresses(&each)),
        LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => None,
    });
    text.checked.limits.iter().map(cost).chain(addresses).collect()
}

fn table_of_addresses(each: &LimitEach) -> LimitsCost {
    LimitsCost {
        name: format!("each {}/{}", each.key.name(), each.length),
        of: "addresses",
        table: None,
        ipv4: 0,
        ipv6: 0,
        labels: 0,
        rates: 1,
        default: Some(each.limit.to_string()),
        log: Log::Off.name(),
        limiters: 1,
        bytes: 0,
        bucket_bytes: 8 * each.words() as u64,
        count_bytes: 0,
    }
}

/// Indices of the chains to compile. All chains are checked, but compiling each one takes clang some time.
fn wanted_chains(policy: &Policy, options: &CheckOptions) -> Result<Vec<usize>, Failure> {
    let chains = &policy.program.chains;
    for posture in &options.posture {
        policy.chain(Some(posture), Direction::Upstream)?;
    }
    let is_wanted = |posture: Option<&String>| {
        let all = options.all_postures || !options.engine.is_empty();
        all || match posture {
            None => options.posture.is_empty(),
            Some(name) => options.posture.contains(name),
        }
    };
    let wanted = chains.iter().enumerate().filter(|(_, chain)| is_wanted(chain.posture.as_ref()));
    Ok(wanted.map(|(index, _)| index).collect())
}

fn chains(policy: &Policy) -> Vec<ChainCost> {
    let chain = |chain: &weir_policy::ir::Chain| ChainCost {
        name: card::chain_name(chain),
        rules: chain.tree.nodes.len(),
        cycles_per_packet: None,
        cycles_per_packet_min: None,
        cycles_per_packet_max: None,
        bpf_ns_per_packet: None,
        p4_cycles_per_packet: None,
        bpf_parts: None,
        verifier_instructions: None,
        bpf_instructions: None,
    };
    policy.program.chains.iter().map(chain).collect()
}

fn measure_native(policy: &Policy, wanted: &[usize], certificate: &mut Certificate) -> Result<(), Failure> {
    let start = Instant::now();
    policy.artifact()?;
    certificate.seconds.emit = start.elapsed().as_secs_f64();
    let compiled = policy.compile_native(Cpu::Native)?;
    certificate.kernels = Some(Kernels::of_this_machine().to_string());
    let start = Instant::now();
    let mut filter = compiled.filter(policy.bind(None)?)?;
    let seconds = &mut certificate.seconds;
    seconds.clang_native = compiled.took.as_secs_f64();
    seconds.load_native = start.elapsed().as_secs_f64();
    seconds.native_without_clang =
        seconds.parse + seconds.lists + seconds.check + seconds.build + seconds.emit + seconds.load_native;
    let frames = traffic::random_packets(PACKETS, 1);
    for (index, &chain) in wanted.iter().enumerate() {
        let chain = &mut certificate.chains[chain];
        let cost = measure::measure(&mut filter, index, &frames, REPEATS)?.cycles_per_packet;
        chain.cycles_per_packet = Some(cost.median);
        chain.cycles_per_packet_min = Some(cost.min);
        chain.cycles_per_packet_max = Some(cost.max);
    }
    Ok(())
}

fn measure_p4(policy: &Policy, wanted: &[usize], certificate: &mut Certificate) -> Result<(), Failure> {
    let mut filter = policy.p4(None)?;
    let frames = traffic::random_packets(PACKETS, 1);
    for (index, &chain) in wanted.iter().enumerate() {
        let cost = measure::measure(&mut filter, index, &frames, REPEATS)?.cycles_per_packet;
        certificate.chains[chain].p4_cycles_per_packet = Some(cost.median);
    }
    Ok(())
}

fn measure_bpf(policy: &Policy, wanted: &[usize], certificate: &mut Certificate) -> Result<(), Failure> {
    let data = policy.bind_kernel_replay()?;
    let (mut filter, clang_took) = policy.in_kernel(&data, |compiled| Ok((compiled.filter()?, compiled.took)))?;
    certificate.seconds.clang_bpf = clang_took.as_secs_f64();
    certificate.seconds.load_bpf = filter.load_took().as_secs_f64();
    let frames = traffic::random_packets(BPF_FRAMES, 1);
    for (index, &chain) in wanted.iter().enumerate() {
        let chain = &mut certificate.chains[chain];
        let cost = &filter.verifier_costs()[index];
        chain.bpf_parts = Some(cost.parts);
        chain.verifier_instructions = Some(cost.verified_insns);
        chain.bpf_instructions = Some(cost.insns);
        let mut took = Duration::ZERO;
        for burst in frames.bursts() {
            for frame in 0..burst.len() {
                took += filter.time_frame(index, &burst, frame, BPF_REPEATS)?;
            }
        }
        chain.bpf_ns_per_packet = Some(took.as_secs_f64() * 1e9 / BPF_FRAMES as f64);
    }
    Ok(())
}

fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}
