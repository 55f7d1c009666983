//! Input that is broken or made to break the reader: a finding each, in bounded time and memory.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::super::{Options, Report, check};
use super::{both, found, report};
use crate::Status;

fn status(report: &Report, id: &str) -> Option<Status> {
    found(report, id).map(|f| f.status)
}

#[test]
fn alias_bombs_are_refused_before_they_expand() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert_eq!(status(&report(&text), "yaml-limits"), Some(Status::Fail));
    assert_eq!(status(&report("a: &a [*a]\n"), "file-not-yaml"), Some(Status::Fail));
}

#[test]
fn variables_that_grow_by_each_other_stay_within_the_limits() {
    let env: String = (1..6_000)
        .map(|i| format!("- {{name: UCX_X{i}, value: '$(UCX_X{})$(UCX_X{})x'}}\n", i - 1, i - 1))
        .collect();
    let report = report(&super::graph(&env, ""));
    assert_eq!(status(&report, "yaml-limits"), Some(Status::Fail));
    let longest = report.workers.iter().flat_map(|w| &w.env).map(|s| s.value.len()).max();
    assert!(longest.is_some_and(|l| l <= 1_100), "{longest:?}");
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(50_000)] {
        let report = report(&text);
        let refused = status(&report, "yaml-limits").or_else(|| status(&report, "file-not-yaml"));
        assert_eq!(refused, Some(Status::Fail));
    }
}

#[test]
fn files_that_are_too_large_binary_or_not_utf8_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("large.yaml", "# comment\n".repeat(1 << 20).as_bytes());
    write("binary.yaml", b"\x7fELF\0\0\0");
    write("latin.yaml", b"a: b\nname: caf\xe9\n");
    let report = check(&[folder.path().to_owned()], &mut std::io::empty(), &Options::default());
    assert_eq!(status(&report, "file-too-large"), Some(Status::Fail));
    let not_text: Vec<&str> =
        report.findings.iter().filter(|f| f.id == "file-not-text").map(|f| f.title.as_str()).collect();
    assert_eq!(not_text.len(), 2);
    assert!(not_text.iter().any(|t| t.contains("line 2")), "{not_text:?}");
}

#[test]
fn links_in_a_circle_end_and_what_does_not_exist_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    fs::write(folder.path().join("a.yaml"), both(&[])).unwrap();
    let paths = [folder.path().to_owned(), folder.path().join("loop"), PathBuf::from("/nowhere.yaml")];
    let report = check(&paths, &mut std::io::empty(), &Options::default());
    assert_eq!(report.files, 1);
    assert_eq!(report.findings.iter().filter(|f| f.id == "file-unreadable").count(), 2);
}

#[test]
fn kustomizations_in_a_circle_end() {
    let folder = tempfile::tempdir().unwrap();
    for (name, other) in [("a", "b"), ("b", "a")] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("kustomization.yaml"), format!("resources: [../{other}]\n"))
            .unwrap();
    }
    let paths = [folder.path().join("a")];
    let report = check(&paths, &mut std::io::empty(), &Options::default());
    assert_eq!(status(&report, "kustomize-unresolved"), Some(Status::Unknown));
}

#[test]
fn a_chart_template_is_named_as_one_and_what_precedes_it_is_kept() {
    let text = format!("{}---\n{{{{- if .Values.x }}}}\nkind: Pod\n{{{{- end }}}}\n", both(&[]));
    let report = report(&text);
    assert_eq!(status(&report, "template"), Some(Status::Unknown));
    assert_eq!(report.workers.len(), 2);
}

#[test]
fn an_empty_input_judges_nothing() {
    for text in ["", "# nothing\n", "---\n---\n", "just a text"] {
        let report = report(text);
        assert_eq!(status(&report, "no-workers"), Some(Status::Unknown), "{text:?}");
        assert_eq!(report.judged(), 0);
    }
}

#[test]
fn a_credential_is_in_no_part_of_the_report() {
    let secrets =
        ["hf_abcdefghijklmnopqrst", "hunter2-very-private", "c2VjcmV0LWRhdGE=", "AKIAABCDEFGHIJKLMNOP"];
    let env = "- {name: HF_TOKEN, value: hf_abcdefghijklmnopqrst}\n- name: DB_PASSWORD\n  value: hunter2-very-private\n- {name: UCX_TLS, value: AKIAABCDEFGHIJKLMNOP}\n- {name: NIXL_ETCD_ENDPOINTS, value: 'http://u:hunter2-very-private@e:2379'}\n- {name: DB_PASSWORD, value: hunter2-very-private, stray: x}\n";
    let text = format!(
        "kind: Secret\nmetadata: {{name: s}}\ndata:\n  token: c2VjcmV0LWRhdGE=\n  token: c2VjcmV0LWRhdGE=\n---\n{}",
        graph_with(env)
    );
    let report = report(&text);
    let json = serde_json::to_string(&report).unwrap();
    let lines: String = report.lines.iter().map(|(_, _, text)| text.as_str()).collect();
    assert!(found(&report, "duplicate-key").is_some() && found(&report, "env-stray-key").is_some());
    for secret in secrets {
        assert!(!json.contains(secret), "{secret} in {json}");
        assert!(!lines.contains(secret), "{secret} in {lines}");
    }
}

fn graph_with(env: &str) -> String {
    super::graph(env, env)
}

#[test]
fn a_secret_is_never_resolved_even_when_it_is_in_the_input() {
    let env = "- {name: UCX_TLS, valueFrom: {secretKeyRef: {name: s, key: tls}}}\n";
    let text = format!(
        "kind: Secret\nmetadata: {{name: s}}\nstringData: {{tls: tcp-only-value}}\n---\n{}",
        graph_with(env)
    );
    let json = serde_json::to_string(&report(&text)).unwrap();
    assert!(!json.contains("tcp-only-value"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_the_check_panic(text in "[ -~\n\t]{0,400}") {
        report(&text);
    }

    #[test]
    fn no_mutation_of_a_manifest_makes_the_check_panic(
        edits in prop::collection::vec((0_usize..2_000, "[ -~\n]{0,3}", 0_usize..8), 1..6)
    ) {
        let mut text = both(&[("UCX_TLS", "rc,cuda_copy"), ("UCX_NET_DEVICES", "mlx5_0:1")]);
        for (at, insert, remove) in edits {
            let at = at.min(text.len());
            let end = (at + remove).min(text.len());
            text.replace_range(at..end, &insert);
        }
        let report = report(&text);
        prop_assert!(serde_json::to_string(&report).is_ok());
    }

    #[test]
    fn no_value_and_no_script_makes_the_check_panic(value in "\\PC{0,40}", script in "[a-z $(){}'\"`\\\\;&|=\n<-]{0,120}") {
        let text = both(&[("UCX_TLS", &value), ("UCX_NET_DEVICES", &value), ("UCX_RNDV_THRESH", &value)])
            .replace("command: [python3, -m, dynamo.vllm]", &format!("command: [bash, -c, {script:?}]"));
        report(&text);
    }
}
