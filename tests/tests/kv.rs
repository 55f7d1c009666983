//! KV-shaped transfers: a model's blocks as the engines lay them out, moved, checked and reported.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kvwire_tests::{
    CONTROL, DATA, Ended, Etcd, Hosts, Kvwire, Nixl, Side, bare_pair, kvwire_command, pair, repository,
    wait_until, with_result,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A model with everything small: full, windowed and attention-free layers, keys and values for four heads.
struct Model(TempDir);

impl Model {
    fn with(fields: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = json!({
            "architectures": ["TinyForCausalLM"], "_name_or_path": "example/tiny",
            "num_hidden_layers": 3, "num_key_value_heads": 4, "head_dim": 32,
        });
        for (key, value) in fields.as_object().expect("fields") {
            config[key] = value.clone();
        }
        std::fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
        Self(folder)
    }

    fn plain() -> Self {
        Self::with(&json!({}))
    }

    fn hybrid() -> Self {
        Self::with(&json!({
            "num_hidden_layers": 4, "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention", "linear_attention", "full_attention"],
        }))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn kv(model: &Model) -> Kvwire {
    let model = model.path().to_str().expect("a path");
    pair()
        .args(["--model", model, "--no-descriptor-sweep"])
        .env("KVWIRE_CASE_TIME", "50ms")
        .env("KVWIRE_WARMUP", "3")
        .env("KVWIRE_SAMPLES", "20")
}

fn assert_all_pass(ended: &Ended) {
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.statuses().iter().all(|status| *status == "pass"), "{ended}");
    for case in ended.cases().iter().filter(|case| case["kv"].is_object()) {
        assert!(case["verification"]["verified_bytes"].as_u64() > Some(0), "{case}");
        for part in ["prep", "post", "wire", "total"] {
            assert_eq!(case[part]["count"], case["transfers"], "{part} of {case}");
        }
        assert!(case["lists_ns"].as_u64() > Some(0), "{case}");
        assert!(case["lists"]["count"].as_u64() > Some(0), "{case}");
        assert!(case["notified"]["count"].as_u64() > Some(0), "{case}");
    }
}

/// Bytes of a descriptor and their number in each case.
fn descriptors(ended: &Ended) -> Vec<(u64, u64)> {
    let of = |case: &Value| {
        (case["block_bytes"].as_u64().unwrap(), case["descriptors"]["requested"].as_u64().unwrap())
    };
    ended.cases().iter().map(of).collect()
}

const ALL_LAYOUTS: &str = "vllm-split,vllm-packed,vllm-cross-layer,sglang,trtllm-staged";

#[test]
fn every_layout_moves_checked_blocks_both_ways_on_every_covered_nixl() {
    let model = Model::plain();
    for nixl in Nixl::covered() {
        let ended = kv(&model)
            .nixl(&nixl)
            .args(["--tokens", "200", "--block-tokens", "16", "--layout", ALL_LAYOUTS, "--op", "read,write"])
            .run();
        assert_all_pass(&ended);
        // 13 blocks of 16 tokens; 3 layers; 4 heads of 32 numbers of 2 bytes, keys and values apart or together.
        let (half, whole) = ((4096, 78), (8192, 39));
        let (cross, staged) = ((24_576, 13), (307_200 / 2, 1));
        let expected = [half, half, whole, whole, cross, cross, half, half];
        assert_eq!(descriptors(&ended)[..8], expected, "{ended}");
        assert_eq!(descriptors(&ended)[8..], [(staged.0 * 2, 1); 2], "{ended}");
        assert!(ended.stdout.contains("KV transfer time for a 200-token prompt"), "{ended}");
        for case in ended.cases() {
            let bytes = case["block_bytes"].as_u64().unwrap() * case["batch"].as_u64().unwrap();
            assert_eq!(case["payload_bytes"].as_u64().unwrap(), case["transfers"].as_u64().unwrap() * bytes);
        }
    }
}

#[test]
fn an_engine_goes_its_own_way_unless_told_otherwise() {
    let ended =
        kv(&Model::plain()).nixl(&Nixl::Newest).args(["--tokens", "64", "--layout", ALL_LAYOUTS]).run();
    assert_all_pass(&ended);
    let ops: Vec<&str> = ended.cases().iter().map(|case| case["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["READ", "READ", "READ", "WRITE", "WRITE"]);
    let layouts: Vec<&str> =
        ended.cases().iter().map(|case| case["kv"]["layout"].as_str().unwrap()).collect();
    assert!(layouts.iter().all(|layout| layout.contains('@')), "{layouts:?}");
}

#[test]
fn sides_of_different_size_exchange_slices_both_ways() {
    for (prefill, decode, sources) in [("1", "4", 1), ("4", "1", 4)] {
        let ended = kv(&Model::plain())
            .nixl(&Nixl::Newest)
            .args(["--tokens", "100", "--block-tokens", "16", "--prefill-tp", prefill, "--decode-tp", decode])
            .args(["--layout", "vllm-split,vllm-packed,sglang", "--op", "read,write"])
            .run();
        assert_all_pass(&ended);
        assert!(ended.cases().iter().all(|case| case["shape"] == "slice"), "{ended}");
        assert_eq!(ended.cases()[0]["kv"]["prefill_ranks_per_decode_rank"], sources);
        // One head of 32 numbers: a block of 16 tokens, or a token for SGLang.
        assert_eq!(descriptors(&ended)[0], (1024, 42), "{ended}");
        assert_eq!(descriptors(&ended)[4], (64, 42 * 16), "{ended}");
    }
}

#[test]
fn windows_and_attention_free_layers_move_what_they_keep() {
    let ended =
        kv(&Model::hybrid()).nixl(&Nixl::Newest).args(["--tokens", "320", "--block-tokens", "16"]).run();
    assert_all_pass(&ended);
    assert_eq!(descriptors(&ended), [(4096, 2 * (4 + 20 + 20))], "{ended}");
}

#[test]
fn fragmentation_decides_what_nixl_can_merge() {
    let model = Model::plain();
    let posted = |share: &str, more: &[&str]| {
        let run = kv(&model).nixl(&Nixl::Newest).args(["--tokens", "1k", "--fragmentation", share]);
        let ended = more.iter().fold(run, |run, arg| run.args([*arg])).run();
        assert_all_pass(&ended);
        let counts = &ended.cases()[0]["descriptors"];
        assert_eq!(counts["requested"], 6 * 64, "{ended}");
        counts["posted"].as_u64().unwrap()
    };
    assert_eq!(posted("0", &[]), 6, "one run in each region");
    assert_eq!(posted("0", &["--no-merge"]), 6 * 64);
    let half = posted("0.5", &[]);
    assert!((6 * 25..=6 * 33).contains(&half), "{half}");
    assert!(posted("1", &[]) > 6 * 56);
}

#[test]
fn prompts_of_different_length_are_in_flight_at_once() {
    let ended = kv(&Model::plain())
        .nixl(&Nixl::Newest)
        .args(["--tokens", "64,512,200", "--requests-in-flight", "3", "--op", "read,write"])
        .run();
    assert_all_pass(&ended);
    for case in ended.cases() {
        assert_eq!(case["depth"], 3);
        assert_eq!(case["kv"]["prompts"], json!([64, 512, 200]));
        // 3 layers, keys and values, 4,096 bytes a block; 4, 32 and 13 blocks.
        let bytes = [4, 32, 13].map(|blocks| blocks * 6 * 4096);
        let payload = case["payload_bytes"].as_u64().unwrap();
        let transfers = case["transfers"].as_u64().unwrap();
        assert!(payload > transfers * bytes[0] && payload < transfers * bytes[1], "{case}");
        assert!(case["verification"]["verified_bytes"].as_u64().unwrap() >= bytes.iter().sum(), "{case}");
    }
}

#[test]
fn an_open_loop_times_from_the_schedule() {
    let ended = kv(&Model::plain())
        .nixl(&Nixl::Newest)
        .args(["--tokens", "64", "--rate", "1000", "--samples", "10", "--case-time", "5s"])
        .run();
    assert_all_pass(&ended);
    let case = &ended.cases()[0];
    assert_eq!((&case["scheduled"]["count"], &case["transfers"]), (&json!(10), &json!(10)), "{case}");
    assert!(case["scheduled"]["max"].as_u64() >= case["total"]["min"].as_u64(), "{case}");
    // Ten transfers, one every millisecond, span nine.
    assert!(case["wall_ns"].as_u64() >= Some(9_000_000), "{case}");
    let beyond = kv(&Model::plain())
        .nixl(&Nixl::Newest)
        .args(["--tokens", "8k", "--rate", "1000000", "--samples", "1000000", "--case-time", "20ms"])
        .run();
    assert_eq!(beyond.code, 0, "{beyond}");
    assert!(beyond.cases()[0]["unserved"].as_u64() > Some(0), "{beyond}");
    assert!(beyond.title("rate-not-sustained").contains("--rate"), "{beyond}");
}

#[test]
fn all_kinds_go_together_in_one_run_and_uniform_blocks_stay_as_they_are() {
    let ended = kv(&Model::plain())
        .nixl(&Nixl::Newest)
        .args(["--workload", "uniform,paged,staged", "--sizes", "4KiB", "--tokens", "64", "--layout", "vllm"])
        .run();
    assert_all_pass(&ended);
    let shapes: Vec<&str> = ended.cases().iter().map(|case| case["shape"].as_str().unwrap()).collect();
    assert_eq!(shapes, ["uniform", "uniform", "paged", "staged"]);
    let uniform = &ended.cases()[0];
    assert_eq!(uniform["name"], "READ 4 KiB x1");
    assert!(uniform["notify"].is_null() && uniform["prep"].is_null() && uniform["kv"].is_null(), "{uniform}");
    assert!(ended.result()["verdict"]["scope"].as_str().unwrap().contains("KV blocks of tiny"), "{ended}");
}

#[test]
fn the_cost_of_a_descriptor_is_measured_and_told() {
    let model = Model::plain();
    let ended = pair()
        .nixl(&Nixl::Newest)
        .args(["--model", model.path().to_str().unwrap(), "--tokens", "256", "--op", "read,write"])
        .args(["--case-time", "20ms", "--warmup", "1"])
        .run();
    assert_all_pass(&ended);
    let sweep: Vec<&Value> = ended.cases().iter().filter(|case| case["shape"] == "sweep").collect();
    assert_eq!(sweep.len(), 10, "five sizes, both ways: {ended}");
    let bytes = |case: &&Value| case["block_bytes"].as_u64().unwrap() * case["batch"].as_u64().unwrap();
    assert!(sweep.iter().all(|case| bytes(case) == 32 << 20), "{ended}");
    let costs = ended.result()["descriptor_costs"].as_array().unwrap();
    assert_eq!(costs.len(), 2, "{ended}");
    for cost in costs {
        assert!(cost["ns"].is_f64() && cost["ns_within"].as_f64() > Some(0.0), "{cost}");
        assert_eq!(cost["cases"], 5);
    }
    assert!(ended.stdout.contains("a descriptor costs"), "{ended}");
}

/// Posts of one process before a fault starts: cold, warm-up and the first timed transfers are over by then.
const LATER: &str = "@after=6";

fn spoiled(fault: &str, op: &str) -> Ended {
    let model = Model::plain();
    pair()
        .fake(&format!("{fault}{LATER}"))
        .args(["--model", model.path().to_str().unwrap(), "--no-descriptor-sweep", "--tokens", "256"])
        .args(["--op", op, "--warmup", "0", "--samples", "20", "--case-time", "5s"])
        .run()
}

#[test]
fn a_block_in_the_wrong_place_is_named_by_layer_part_and_block() {
    for op in ["read", "write"] {
        let ended = spoiled("swap", op);
        assert_eq!(ended.code, 1, "{ended}");
        let case = &ended.cases()[0];
        let reason = case["reason"].as_str().unwrap();
        let mismatch = &case["verification"]["mismatch"];
        assert_eq!(mismatch["kind"]["looks_like"], "elsewhere", "{ended}");
        let (place, belongs_to) = (&mismatch["place"], &mismatch["belongs_to"]);
        for at in [place, belongs_to] {
            assert_eq!((&at["layer"], &at["part"]), (&json!(0), &json!("K")), "{ended}");
        }
        for words in [
            format!("wrong data in layer 0, K, block {}", place["block"]),
            format!("layer 0, K, block {} of the prefill side", belongs_to["block"]),
        ] {
            assert!(reason.contains(&words), "`{words}`: {ended}");
            assert!(ended.stdout.contains(&place["block"].to_string()), "{ended}");
        }
        assert!(case["bandwidth_bytes_per_s"].is_null(), "{ended}");
    }
}

#[test]
fn lost_stale_and_turned_data_of_a_block_is_caught() {
    for op in ["read", "write"] {
        for (fault, words) in
            [("drop", "never written"), ("short", "never written"), ("corrupt=12345", "one bit")]
        {
            let ended = spoiled(fault, op);
            assert_eq!(ended.code, 1, "{fault}: {ended}");
            let reason = ended.cases()[0]["reason"].as_str().unwrap();
            // Placements overlap and come again, so a lost transfer may leave what an earlier one brought there.
            let earlier = ["old data", "wrong place", "the mark of transfer"];
            let lost = fault != "corrupt=12345" && earlier.iter().any(|words| reason.contains(words));
            let known = reason.contains(words) || lost;
            assert!(known && reason.contains("layer "), "{fault} {op}: {reason}");
        }
    }
}

fn refused(run: Kvwire) -> Ended {
    let ended = run.args(["--verbose"]).run();
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stdout.is_empty(), "{ended}");
    assert!(!ended.stderr.contains("engine: process"), "something was started: {ended}");
    ended
}

#[test]
fn a_wrong_value_names_its_flag_and_starts_nothing() {
    for (args, words) in [
        (&["--model", "llama-3.1-80b"][..], "did you mean llama-3.1-8b?"),
        (&["--model", "/no/such/config.json"], "--model"),
        (&["--model", "/dev/null"], "not a config.json"),
        (&["--model", "llama-3.1-8b", "--prefill-tp", "3"], "--prefill-tp"),
        (&["--model", "llama-3.1-8b", "--decode-tp", "0"], "--decode-tp"),
        (&["--model", "llama-3.1-8b", "--pp", "33"], "--pp"),
        (&["--model", "llama-3.1-8b", "--block-tokens", "0"], "--block-tokens"),
        (&["--model", "llama-3.1-8b", "--tokens", "0"], "--tokens"),
        (&["--model", "llama-3.1-8b", "--tokens", "8q"], "--tokens"),
        (&["--model", "llama-3.1-8b", "--layout", "tgi"], "vllm-split"),
        (&["--model", "llama-3.1-8b", "--kv-dtype", "fp3"], "--kv-dtype"),
        (&["--model", "llama-3.1-8b", "--fragmentation", "2"], "--fragmentation"),
        (&["--model", "llama-3.1-8b", "--placements", "0"], "--placements"),
        (&["--model", "llama-3.1-8b", "--requests-in-flight", "0"], "--requests-in-flight"),
        (&["--model", "llama-3.1-8b", "--rate", "0"], "--rate"),
        (&["--model", "llama-3.1-8b", "--workload", "slice"], "--workload"),
        (&["--model", "llama-3.1-8b", "--workload", "uniform"], "--model"),
        (&["--model", "llama-3.1-8b", "--tokens", "100m"], "--tokens"),
        (&["--model", "llama-3.1-8b", "--tokens", "8k", "--max-memory", "1GiB"], "has 4000 tokens"),
        (&["--model", "llama-3.1-8b", "--tokens", "8k", "--pool", "512MiB"], "--pool"),
        (&["--workload", "paged"], "--model"),
        (&["--tokens", "8k"], "--tokens"),
        (&["--layout", "vllm"], "--layout"),
        (&["--rate", "5"], "--rate"),
    ] {
        let run = args.iter().fold(bare_pair().fake("misspelt-on-purpose"), |run, arg| run.args([*arg]));
        let ended = refused(run);
        assert!(ended.stderr.contains(words), "{args:?} must say `{words}`: {ended}");
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_the_longest_that_does() {
    let model = Model::plain();
    let limit = |tokens: &str| {
        let path = model.path().to_str().unwrap();
        bare_pair()
            .fake("")
            .args(["--model", path, "--no-descriptor-sweep", "--samples", "1", "--warmup", "0"])
            .args(["--tokens", tokens, "--max-memory", "256MiB"])
    };
    let ended = refused(limit("1m"));
    let longest =
        ended.stderr.split("longest prompt that fits has ").nth(1).and_then(|rest| rest.split(' ').next());
    let longest = longest.unwrap_or_else(|| panic!("{ended}"));
    let fits = limit(longest).run();
    assert_eq!(fits.code, 0, "{fits}");
}

/// A command of a documentation page, its lines joined, as words.
fn documented(page: &str, begin: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs").join(page)).expect("a page");
    let joined = text.replace("\\\n", " ");
    let line = joined.lines().map(str::trim).find(|line| line.starts_with(begin));
    line.unwrap_or_else(|| panic!("`{begin}` in {page}")).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn netns_the_command_pair_beside_nixlbench_runs_as_it_is_documented() {
    let target = documented("workloads.md", "kvwire target");
    let initiator = documented("workloads.md", "kvwire initiator");
    assert_eq!(target[2..4], initiator[2..4], "both name one rendezvous");
    let hosts = Hosts::new();
    let etcd = Etcd::start(&hosts);
    // UCX takes an interface only once the kernel has noticed that its cable is up.
    let is_up = |side: Side, device: &str| {
        let show = Command::new("ip").args(["-n", &hosts.of(side), "-o", "link", "show", device]).output();
        String::from_utf8_lossy(&show.expect("the ip command").stdout).contains("state UP")
    };
    wait_until("the cables are up", Duration::from_secs(10), || {
        [Side::Target, Side::Initiator].into_iter().all(|side| is_up(side, DATA) && is_up(side, CONTROL))
    });
    let place = target[3].replace("etcd://HOST:2379", &format!("etcd://{}", etcd.address()));
    let with = |side: Side, words: &[String]| {
        let run = with_result(&words[1]).nixl(&Nixl::Newest).args(["--allow-same-host"]);
        let run = words[2..].iter().fold(run, |run, word| match word.as_str() {
            word if word.starts_with("etcd://") => run.args([&place]),
            // A thousand transfers of 64 MiB are for a machine of their own.
            "1000" => run.args(["20"]),
            word => run.args([word]),
        });
        run.on(&hosts.of(side))
    };
    let serving = with(Side::Target, &target).start();
    let measured = with(Side::Initiator, &initiator).run();
    assert_eq!(measured.code, 0, "{measured}");
    assert_eq!(serving.end().code, 0);
    let nixlbench = documented("workloads.md", "nixlbench").join(" ");
    let cases = measured.cases();
    let sizes: Vec<u64> = cases.iter().map(|case| case["block_bytes"].as_u64().unwrap()).collect();
    for (flag, value) in [
        ("--start_block_size", sizes[0].to_string()),
        ("--max_block_size", sizes[sizes.len() - 1].to_string()),
        ("--start_batch_size", cases[0]["batch"].to_string()),
        ("--max_batch_size", cases[0]["batch"].to_string()),
        ("--op_type", cases[0]["op"].as_str().unwrap().to_owned()),
        ("--warmup_iter", measured.result()["plan"]["warmup"].to_string()),
    ] {
        assert!(nixlbench.contains(&format!("{flag} {value} ")), "{flag} {value}: {nixlbench}");
    }
    // Doubled from size to size, as nixlbench does.
    assert!(sizes.windows(2).all(|pair| pair[1] == 2 * pair[0]), "{sizes:?}");
    assert!(cases.iter().all(|case| case["notify"]["count"].as_u64() > Some(0)), "{measured}");
}

#[test]
fn plan_prints_bytes_and_descriptors_without_nixl() {
    let plan = |args: &[&str]| {
        let run = kvwire_command("plan").env("PATH", "/nowhere");
        args.iter().fold(run, |run, arg| run.args([*arg])).run()
    };
    let ended = plan(&["--model", "llama-3.1-70b", "--prefill-tp", "8", "--decode-tp", "8", "--json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["bytes_per_token"], 327_680);
    let split = report["layouts"].as_array().unwrap().iter().find(|row| row["tokens"] == 32_768);
    let split = split.unwrap();
    assert_eq!(split["layout"], "vllm-split@00bd5131");
    assert_eq!(split["descriptors_per_rank"], 327_680);
    assert_eq!(split["descriptor_bytes"], 4096);
    assert!(report["model"]["source"].as_str().unwrap().contains("meta-llama"), "{ended}");

    let text = plan(&["--model", "deepseek-r1", "--tokens", "8k", "--decode-tp", "8", "--prefill-tp", "8"]);
    for words in ["latent attention of 512 + 64", "70,272 bytes a token", "31,232", "4,392", "--mtp"] {
        assert!(text.stdout.contains(words), "`{words}`: {text}");
    }
    let list = plan(&["--list-models"]);
    for name in
        ["llama-3.1-405b", "qwen3-235b", "deepseek-v3", "gpt-oss-20b", "kimi-k2", "glm-4.5", "mixtral-8x7b"]
    {
        assert!(list.stdout.contains(name), "{name}: {list}");
    }
    let none = plan(&[]);
    assert_eq!(none.code, 2, "{none}");
    let unknown = Model::with(&json!({"num_key_value_heads": null}));
    let refused = plan(&["--model", unknown.path().to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(
        refused.stderr.contains("num_key_value_heads") && refused.stderr.contains("TinyForCausalLM"),
        "{refused}"
    );
}
