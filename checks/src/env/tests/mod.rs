//! Tests of the static check: what people write in, what is found in it.

mod active_test;
mod catalogue;
mod cross_rules;
mod fuzz;
mod hostile;
mod kustomize;
mod manifests;
mod processes;
mod rules;
mod shapes;
mod spellings;
mod traps;

use std::path::PathBuf;

use super::{Options, Report, WorkerView, check};
use crate::Finding;

/// The report about one text on standard input.
fn report(text: &str) -> Report {
    check(&[PathBuf::from("-")], &mut text.as_bytes(), &Options::default())
}

fn worker<'a>(report: &'a Report, name: &str) -> &'a WorkerView {
    report.workers.iter().find(|w| w.name == name).unwrap_or_else(|| panic!("{name} in {:?}", report.workers))
}

/// The value that a worker's process sees.
fn value<'a>(report: &'a Report, worker_name: &str, name: &str) -> Option<&'a str> {
    worker(report, worker_name).env.iter().find(|s| s.name == name).map(|s| s.value.as_str())
}

fn found<'a>(report: &'a Report, id: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|f| f.id == id)
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// A whole graph: both sides with RDMA, each with these lines in its `env`.
fn graph(prefill: &str, decode: &str) -> String {
    let side = |name: &str, env: &str| {
        let env: String = env.lines().map(|l| format!("            {l}\n")).collect();
        format!(
            "    {name}:\n      subComponentType: {name}\n      resources: {{limits: {{gpu: \"1\", custom: {{rdma/ib: \"1\"}}}}}}\n      extraPodSpec:\n        mainContainer:\n          image: vllm-runtime:1.3.0\n          securityContext: {{capabilities: {{add: [IPC_LOCK]}}}}\n          command: [python3, -m, dynamo.vllm]\n          args: [--kv-transfer-config, '{{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}}']\n          env:\n{env}"
        )
    };
    format!(
        "kind: DynamoGraphDeployment\nmetadata: {{name: g}}\nspec:\n  services:\n{}{}",
        side("prefill", prefill),
        side("decode", decode)
    )
}

/// A whole graph with the same variables on both sides: `NAME=value` separated by blanks that are doubled.
fn both(variables: &[(&str, &str)]) -> String {
    let env: String = variables.iter().map(|(n, v)| format!("- {{name: {n}, value: {v:?}}}\n")).collect();
    graph(&env, &env)
}
