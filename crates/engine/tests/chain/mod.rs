//! A chain written by hand in C, for user space and for BPF, in the form of the compiler's output.
//!
//! Rule 0 drops frames whose first byte is 0xff. Rule 1 diverts frames shorter than the number of entries in the header
//! of table 0. Everything else is accepted with the reason `1 + link`, or `ip-options` if the capture truncated it.
#![allow(dead_code)]

use serde_json::json;
use weir_abi::{ABI_VERSION, Layout, Target};
use weir_engine::{Artifact, ProgramShape, Source, TableSlot};

const RULES: &str = "
WEIR_INLINE uint32_t judge(const struct env *env, const struct frame *frame)
{
	const uint8_t *first = frame_at(frame, 0, 1);
	uint32_t entries = *(const uint32_t *)table_at(WEIR_TABLE(env, 0), 8);

	if (first && *first == 0xff) {
		count(env, REASON_RULE + 0, frame->len);
		return rule_verdict(ACTION_DROP, 0, sample(env, 0, 1ull << 31));
	}
	if (frame->len < entries) {
		count(env, REASON_RULE + 1, frame->len);
		return rule_verdict(ACTION_DIVERT, 1, 0);
	}
	if (frame->cap < frame->len)
		return decide(env, ACTION_ACCEPT, REASON_IP_OPTIONS, frame->len);
	return decide(env, ACTION_ACCEPT, (enum reason)(REASON_NOT_IP + frame->link), frame->len);
}
";

const NATIVE: &str = "
const uint32_t weir_abi_version = WEIR_ABI_VERSION;

void weir_upstream(const struct weir_burst *burst)
{
	const struct env env = {.counters = burst->counters, .tables = burst->tables};

	for (uint32_t i = 0; i < burst->count; i++) {
		const struct frame frame = burst_frame(burst, i);

		burst->verdicts[i] = judge(&env, &frame);
	}
}

void weir_downstream(const struct weir_burst *burst)
{
	for (uint32_t i = 0; i < burst->count; i++)
		burst->verdicts[i] = (uint32_t)(burst->times.now_ns & 1);
}
";

const BPF: &str = "
WEIR_INLINE uint32_t upstream_frame(const struct env *env, const struct frame *frame, struct packet *packet)
{
	(void)packet;
	return judge(env, frame);
}

WEIR_CHAIN(upstream)

WEIR_INLINE uint32_t downstream_frame(const struct env *env, const struct frame *frame, struct packet *packet)
{
	(void)packet;
	(void)env;
	(void)frame;
	return ACTION_ACCEPT;
}

WEIR_CHAIN(downstream)
";

const HEADERS: &str = "#include \"core/env.h\"\n#include \"core/verdict.h\"\n";

/// The chain's C for user space.
pub fn native_c() -> String {
    format!("{HEADERS}{RULES}{NATIVE}")
}

/// The chain's C for BPF.
pub fn bpf_c() -> String {
    format!("{HEADERS}#include \"kernel/hook.h\"\nWEIR_TABLE_STORAGE(0);\n{RULES}{BPF}")
}

/// The complete artifact.
pub fn artifact() -> Artifact {
    Artifact {
        name: "hand written".to_owned(),
        abi_version: ABI_VERSION,
        shape: ProgramShape {
            chains: vec!["upstream".to_owned(), "downstream".to_owned()],
            rules: 2,
            tables: vec![TableSlot { name: "short".to_owned(), layout: Layout::ExactSet }],
            ..ProgramShape::default()
        },
        sources: vec![
            Source { target: Target::Native, text: native_c() },
            Source { target: Target::Bpf, text: bpf_c() },
        ],
        report: json!({"rules": ["hand.weir:1", "hand.weir:2"]}),
    }
}
