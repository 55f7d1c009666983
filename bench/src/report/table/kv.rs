//! What a person wants to know first of a KV cache: how long a prompt takes, and whether descriptors or the wire
//! decide it.

use super::super::model::{CaseResult, CaseStatus, DescriptorCost, KvCase, ResultFile};
use super::text::{Paint, Tone, push_wrapped};
use crate::measure::units::{ByteSize, count, gigabytes_per_s, time};
use crate::workload::TokenCount;

/// One line for each prompt that was moved, above the tables.
pub(super) fn push_headlines(out: &mut String, result: &ResultFile, paint: Paint, width: usize) {
    let lines: Vec<(String, String)> =
        result.cases.iter().filter_map(|case| headline(case, result)).collect();
    for (head, rest) in &lines {
        out.push_str(&paint.text(Tone::Heading, head));
        out.push_str("  ");
        let indent = head.chars().count() + 2;
        push_wrapped(out, rest, indent.min(width / 2), width);
    }
    if !lines.is_empty() {
        out.push('\n');
    }
}

fn headline(case: &CaseResult, result: &ResultFile) -> Option<(String, String)> {
    let (kv, total) = (case.kv.as_ref()?, case.total.as_ref()?);
    if case.status != CaseStatus::Pass {
        return None;
    }
    let head = format!("KV transfer time for {}: {}", prompts(kv), time(total.p50));
    let mut rest =
        vec![format!("{} {}", case.op, case.shape), kv.model.clone(), kv.layout.clone(), kv.kv_dtype.clone()];
    if kv.prefill_tp > 1 || kv.decode_tp > 1 {
        rest.push(format!("TP {} to {}", kv.prefill_tp, kv.decode_tp));
    }
    if kv.prefill_ranks_per_decode_rank > 1 {
        rest.push(format!("the share of one of {} prefill ranks", kv.prefill_ranks_per_decode_rank));
    }
    let ranks = case.parts.iter().map(|part| part.rank).max().unwrap_or(0) + 1;
    let together = if ranks > 1 { format!(" over all {ranks} ranks") } else { String::new() };
    rest.extend(case.bandwidth_bytes_per_s.map(|rate| format!("{} GB/s{together}", gigabytes_per_s(rate))));
    rest.push(match descriptor_share(case, result) {
        Some(share) => format!("{:.0} % spent on descriptors", share * 100.0),
        None => {
            let prep = case.prep.as_ref().map_or(0.0, |prep| prep.mean);
            format!("{:.0} % spent on making the request", (prep / total.mean.max(1.0) * 100.0).min(100.0))
        }
    });
    Some((head, rest.join(", ")))
}

/// `an 8k-token prompt`, or all lengths that are in flight.
fn prompts(kv: &KvCase) -> String {
    let lengths: Vec<String> = kv.prompts.iter().map(|tokens| TokenCount(*tokens).to_string()).collect();
    match lengths.as_slice() {
        [one] => {
            let vowel = one.starts_with('8') || ["11", "18", "11k", "18k"].contains(&one.as_str());
            format!("{} {one}-token prompt", if vowel { "an" } else { "a" })
        }
        [first, ..] if lengths.iter().all(|length| length == first) => {
            format!("each of {} {first}-token prompts in flight", lengths.len())
        }
        some => format!("prompts of {} tokens in flight", some.join(", ")),
    }
}

fn cost_of<'a>(case: &CaseResult, result: &'a ResultFile) -> Option<&'a DescriptorCost> {
    // Of both directions at once, the dearer one.
    let costs = result.descriptor_costs.iter().filter(|cost| case.op.directions().contains(&cost.op));
    costs.max_by(|a, b| a.ns.total_cmp(&b.ns))
}

/// The part of a transfer's time that its descriptors take, from 0 to 1.
fn descriptor_share(case: &CaseResult, result: &ResultFile) -> Option<f64> {
    let cost = cost_of(case, result)?;
    let posted = case.descriptors.posted.unwrap_or(case.descriptors.requested);
    let total = case.total.as_ref()?.mean;
    (total > 0.0).then(|| (cost.ns * posted as f64 / total).clamp(0.0, 1.0))
}

/// What a descriptor costs, and what that means for each prompt.
pub(super) fn notes(result: &ResultFile) -> Vec<String> {
    let costs = result.descriptor_costs.iter().map(cost_note);
    let passed = result.cases.iter().filter(|case| case.status == CaseStatus::Pass);
    costs.chain(passed.filter_map(|case| bound_note(case, result))).collect()
}

fn cost_note(cost: &DescriptorCost) -> String {
    let mut note = format!(
        "{}: a descriptor costs {} (+- {}, 95 %)",
        cost.op,
        signed_time(cost.ns),
        time(cost.ns_within.round() as u64)
    );
    match cost.crossover_bytes {
        Some(bytes) => note += &format!("; the wire takes over at descriptors of {}", size(bytes)),
        None => note += "; no size was found at which the wire takes over",
    }
    note
}

/// Whether descriptors or the wire decide a prompt's time, and what would help.
fn bound_note(case: &CaseResult, result: &ResultFile) -> Option<String> {
    let kv = case.kv.as_ref()?;
    let cost = cost_of(case, result)?;
    // Where no crossover was found, either the descriptors cost nothing or the wire did not show beside them.
    let crossover = cost.crossover_bytes.unwrap_or(if cost.ns > 0.0 { f64::INFINITY } else { 0.0 });
    let posted = case.descriptors.posted.unwrap_or(case.descriptors.requested).max(1);
    // What NIXL merged is one descriptor on the wire.
    let each = case.block_bytes as f64 * case.descriptors.requested as f64 / posted as f64;
    if each >= crossover {
        return Some(format!(
            "{} is bound by the wire: its descriptors of {} are large enough",
            case.name,
            size(each)
        ));
    }
    let mut help = Vec::new();
    if case.shape == "paged" || case.shape == "slice" {
        help.push("larger blocks (--block-tokens)");
    }
    if case.shape == "paged" && !kv.layout.contains("cross-layer") {
        help.push("a cross-layer layout");
    }
    if kv.fragmentation_permille > 0 {
        help.push("fewer fragments (--fragmentation)");
    }
    let help = if help.is_empty() { "a longer prompt".to_owned() } else { help.join(", ") };
    Some(format!(
        "{} is bound by descriptors: {} of {} each; what would help: {help}",
        case.name,
        count(posted),
        size(each)
    ))
}

fn signed_time(ns: f64) -> String {
    let text = time(ns.abs().round() as u64);
    if ns < 0.0 { format!("-{text}") } else { text }
}

/// A size that is computed and not exact, to three digits.
fn size(bytes: f64) -> String {
    match bytes {
        b if b < 1024.0 => format!("{} B", b.round()),
        b if b < 10_240.0 => format!("{:.2} KiB", b / 1024.0),
        b if b < 1_048_576.0 => format!("{:.0} KiB", b / 1024.0),
        b if b < 1e15 => format!("{:.1} MiB", b / 1_048_576.0),
        _ => ByteSize(u64::MAX).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Op;
    use crate::report::model::example;

    fn result(block_bytes: u64, batch: u64, crossover: Option<f64>) -> ResultFile {
        let mut result = example::passed();
        let mut case = example::case(Op::Read, "", block_bytes, 1_000, 40_000_000);
        case.name = "READ paged llama-3.1-70b 8k vllm-split@00bd5131 b16 tp8:8".to_owned();
        case.shape = "paged".to_owned();
        case.descriptors.requested = batch;
        case.descriptors.posted = Some(batch);
        case.kv = Some(KvCase {
            model: "llama-3.1-70b".to_owned(),
            layout: "vllm-split@00bd5131".to_owned(),
            kv_dtype: "bf16".to_owned(),
            prefill_tp: 8,
            decode_tp: 8,
            prefill_ranks_per_decode_rank: 1,
            block_tokens: 16,
            prompts: vec![8192],
            fragmentation_permille: 1000,
            placements: 8,
            prepared_descriptors: 2 * batch,
        });
        result.cases = vec![case];
        result.descriptor_costs = vec![DescriptorCost {
            op: Op::Read,
            ns: 250.0,
            ns_within: 12.0,
            wire_bytes_per_s: crossover.map(|bytes| bytes * 1e9 / 250.0),
            crossover_bytes: crossover,
            cases: 5,
        }];
        result
    }

    fn headlines(result: &ResultFile) -> String {
        let mut out = String::new();
        push_headlines(&mut out, result, Paint::new(false), 400);
        out
    }

    #[test]
    fn the_time_of_a_prompt_stands_first_with_its_rate_and_the_share_of_descriptors() {
        let text = headlines(&result(4096, 81_920, Some(12_500.0)));
        assert!(text.starts_with("KV transfer time for an 8k-token prompt: 4"), "{text}");
        assert!(text.contains("GB/s") && text.contains("TP 8 to 8"), "{text}");
        assert!(text.contains("% spent on descriptors"), "{text}");
        let mut without = result(4096, 81_920, None);
        without.descriptor_costs.clear();
        assert!(headlines(&without).contains("% spent on making the request"));
        without.cases[0].status = CaseStatus::Fail;
        assert_eq!(headlines(&without), "", "a failed case has no figures");
    }

    #[test]
    fn small_descriptors_are_named_as_the_limit_with_what_would_help() {
        let bound = notes(&result(4096, 81_920, Some(12_500.0))).join("\n");
        for words in [
            "READ: a descriptor costs 250 ns (+- 12 ns, 95 %)",
            "12 KiB",
            "bound by descriptors",
            "--block-tokens",
            "cross-layer",
            "fewer fragments",
        ] {
            assert!(bound.contains(words), "`{words}` in {bound}");
        }
        let free = notes(&result(1 << 20, 320, Some(12_500.0))).join("\n");
        assert!(free.contains("bound by the wire"), "{free}");
        let none = notes(&result(4096, 81_920, None)).join("\n");
        assert!(none.contains("no size was found") && none.contains("bound by descriptors"), "{none}");
        let mut nothing = result(4096, 81_920, None);
        nothing.descriptor_costs[0].ns = -3.0;
        assert!(notes(&nothing).join("\n").contains("bound by the wire"));
        let mut both = result(4096, 81_920, Some(12_500.0));
        both.cases[0].op = Op::Both;
        assert!(notes(&both).join("\n").contains("bound by descriptors"));
    }

    #[test]
    fn prompts_in_flight_are_told() {
        let mut result = result(4096, 81_920, None);
        let kv = result.cases[0].kv.as_mut().unwrap();
        kv.prompts = vec![1024, 8192];
        assert!(headlines(&result).contains("prompts of 1k, 8k tokens in flight"));
        result.cases[0].kv.as_mut().unwrap().prompts = vec![1024, 1024];
        assert!(headlines(&result).contains("each of 2 1k-token prompts in flight"));
    }
}
