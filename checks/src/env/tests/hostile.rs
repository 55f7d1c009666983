//! Input that is broken or made to break the reader: a finding each, in bounded time and memory.

use std::fs;
use std::path::PathBuf;

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
fn merge_keys_and_documents_are_bombs_as_well() {
    let map: String = (0..2_000).map(|i| format!("k{i}: 1, ")).collect();
    let merged: String = (0..2_000).map(|i| format!("m{i}: {{<<: [*b, *b, *b, *b]}}\n")).collect();
    assert_eq!(status(&report(&format!("b: &b {{{map}}}\n{merged}")), "yaml-limits"), Some(Status::Fail));
    let list = vec!["x"; 1_000].join(", ");
    let document = format!("a: &a [{list}]\nb: [{}]\n---\n", vec!["*a"; 300].join(", "));
    assert_eq!(status(&report(&document.repeat(20)), "yaml-limits"), Some(Status::Fail));
}

#[test]
fn a_file_of_the_same_key_is_told_once_it_is_clear() {
    let report = report(&"a: 1\n".repeat(20_000));
    assert_eq!(report.findings.iter().filter(|f| f.id == "duplicate-key").count(), 101);
}

#[test]
fn many_workers_are_judged_in_a_time_that_grows_with_them() {
    // Each beside each would be four hundred million comparisons.
    let pod = |i: usize| {
        format!(
            "- {{kind: Pod, metadata: {{name: p{i}}}, spec: {{containers: [{{name: c, image: vllm/vllm-openai}}]}}}}\n"
        )
    };
    let text: String = (0..20_000).map(pod).collect();
    let report = report(&format!("kind: List\nitems:\n{text}"));
    assert_eq!(report.workers.len(), 20_000);
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
fn kustomizations_that_take_each_other_in_again_and_again_end() {
    let folder = tempfile::tempdir().unwrap();
    for level in 0..12 {
        fs::create_dir(folder.path().join(format!("k{level}"))).unwrap();
        let inner = vec![format!("../k{}", level + 1); 8].join(", ");
        let text = if level == 11 { "resources: []\n".to_owned() } else { format!("resources: [{inner}]\n") };
        fs::write(folder.path().join(format!("k{level}/kustomization.yaml")), text).unwrap();
    }
    let report = check(&[folder.path().join("k0")], &mut std::io::empty(), &Options::default());
    let finding = found(&report, "kustomize-unresolved").expect("a finding");
    assert!(finding.title.contains("more steps than the limit"), "{}", finding.title);
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
    let lines: String = report.lines.values().map(String::as_str).collect();
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
fn a_secret_that_cannot_be_read_is_not_shown_either() {
    for text in [
        "kind: Secret\nmetadata: {name: s}\ndata: {token: c2VjcmV0LWRhdGE\n",
        "kind: Pod\n---\nkind: Secret\nstringData: {token: *ahf_abcdefghijklmnopqrst}\n",
        "kind: Secret\nstringData:\n  token: plain-words-only\n   more: [\n",
    ] {
        let report = report(text);
        assert!(found(&report, "file-not-yaml").is_some(), "{text}");
        assert!(report.lines.values().all(|line| line.contains("not shown")), "{:?}", report.lines);
    }
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
