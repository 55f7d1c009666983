//! The HTML report in a real browser: nothing complains, nothing sticks out, nothing is only a picture.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::path::{Path, PathBuf};

use kvwire_tests::{Browser, Nixl, kvwire_command, pair};
use serde_json::{Value, json};

/// A real result, then one like it in which things went wrong, with long words as they come from outside.
fn results(folder: &Path) -> [PathBuf; 2] {
    let ended = pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB..1MiB", "--repeat", "5", "--samples", "1500", "--case-time", "30ms"])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    let good = ended.result().clone();
    let mut bad = good.clone();
    bad["run"]["id"] = json!("another-run-with-a-rather-long-name-as-jobs-have-them-0123456789");
    bad["verdict"]["outcome"] = json!("not_trusted");
    bad["verdict"]["summary"] = json!("READ 4 KiB x1: 534 bytes of 65536 were never written");
    bad["verdict"]["first_fix"] = json!("find the device or link that carried the bytes");
    bad["nodes"]["target"]["hostname"] =
        json!("a-host-name-of-sixty-three-characters-without-any-blank-in-it-xyz");
    bad["cases"][0]["status"] = json!("fail");
    bad["cases"][0]["reason"] = json!("534 bytes of 65536 were never written");
    bad["cases"][0]["bandwidth_bytes_per_s"] = Value::Null;
    bad["findings"] = json!([{
        "id": "data-mismatch", "status": "fail", "title": "READ 4 KiB x1: 534 bytes of 65536 were never written",
        "evidence": ["UCX  WARN  ".to_owned() + &"a_line_without_blanks".repeat(20)], "next_step": "run again with --verbose"
    }]);
    let write = |name: &str, result: &Value| {
        let path = folder.join(name);
        fs::write(&path, result.to_string()).unwrap();
        path
    };
    [write("good.json", &good), write("bad.json", &bad)]
}

/// A real result of two ranks in both directions, in which one of them is then slow, in doubt, and on GPUs.
fn ranks(folder: &Path) -> PathBuf {
    let ended = pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB,1MiB", "--ranks", "2", "--bidirectional", "--samples", "1500"])
        .args(["--case-time", "200ms"])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    let mut result = ended.result().clone();
    for case in result["cases"].as_array_mut().unwrap() {
        let part = &mut case["parts"][3];
        part["bandwidth_bytes_per_s"] = json!(part["bandwidth_bytes_per_s"].as_f64().unwrap() / 4.0);
        part["transport"]["doubt"] =
            json!("counters cannot tell: there is other traffic, or too little payload");
        part["transport"]["meets_expectation"] = json!(false);
        part["gpu"] = json!("GPU-66616b65-0000-0000-0000-000000000001");
        part["target_gpu"] = json!("MIG-66616b65-0000-0000-0000-000000000003");
    }
    let path = folder.join("ranks.json");
    fs::write(&path, result.to_string()).unwrap();
    path
}

fn page(folder: &Path, name: &str, results: &[&PathBuf]) -> PathBuf {
    let file = folder.join(name);
    let run = results.iter().fold(kvwire_command("report"), |run, path| run.args([path.to_str().unwrap()]));
    let ended = run.args(["--format", "html", "-o", file.to_str().unwrap()]).run();
    assert_eq!(ended.code, 0, "{ended}");
    file
}

/// Where the pictures are kept for a person to look at: KVWIRE_TEST_PICTURES, else nowhere.
fn keep(name: &str, base64: &str) {
    if let Some(folder) = std::env::var_os("KVWIRE_TEST_PICTURES") {
        fs::write(PathBuf::from(folder).join(name), base64).unwrap();
    }
}

#[test]
fn the_report_fits_phones_and_screens_and_complains_about_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [good, bad] = results(folder.path());
    let pages = [
        ("one", page(folder.path(), "one.html", &[&good])),
        ("two", page(folder.path(), "two.html", &[&good, &bad])),
        ("ranks", page(folder.path(), "ranks.html", &[&ranks(folder.path())])),
    ];
    let mut browser = Browser::start();
    for (name, file) in &pages {
        for width in [380, 1400] {
            for dark in [false, true] {
                browser.open(file, width, dark);
                // Those of the ranks are looked at open: there the wide tables are.
                browser.value("document.querySelectorAll('.ranks details').forEach(e => e.open = true)");
                let wide = browser.value("document.documentElement.scrollWidth");
                assert!(wide.as_u64().unwrap() <= u64::from(width), "{name} at {width} px is {wide} px wide");
                let sticking_out = browser.value(
                    "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && \
                     e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)).join('\\n')",
                );
                assert_eq!(sticking_out, "", "{name} at {width} px");
                let colour = browser.value("getComputedStyle(document.body).backgroundColor");
                assert_eq!(colour == "rgb(21, 23, 26)", dark, "{colour}");
                assert_eq!(browser.complaints(), Vec::<String>::new(), "{name} at {width} px");
                let outside: Vec<String> = browser
                    .requests()
                    .into_iter()
                    .filter(|url| !url.starts_with("file://") && url != "data:,")
                    .collect();
                assert_eq!(outside, Vec::<String>::new(), "{name} at {width} px");
                let picture = browser.picture();
                assert!(picture.len() > 10_000, "an empty picture");
                keep(&format!("{name}-{width}-{}.b64", if dark { "dark" } else { "light" }), &picture);
            }
        }
        let printed = browser.print();
        assert!(printed.len() > 10_000, "an empty print");
        keep(&format!("{name}.pdf.b64"), &printed);
    }
}

#[test]
fn every_figure_of_the_charts_stands_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let [good, bad] = results(folder.path());
    let file = page(folder.path(), "page.html", &[&good, &bad]);
    let mut browser = Browser::start();
    browser.open(&file, 1400, false);
    // Text of pictures does not count.
    let text = browser.value(
        "(() => { document.querySelectorAll('svg').forEach(e => e.remove()); return document.body.textContent })()",
    );
    let text = text.as_str().unwrap();
    for path in [good, bad] {
        let result: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        for case in result["cases"].as_array().unwrap() {
            assert!(text.contains(case["name"].as_str().unwrap()), "{}", case["name"]);
            if let Some(bandwidth) = case["bandwidth_bytes_per_s"].as_f64() {
                let shown = format!("{:.3}", bandwidth / 1e9);
                assert!(bandwidth < 1e7 || text.contains(&shown), "{shown} of {}", case["name"]);
            }
            let p50 = case["total"]["p50"].as_f64().unwrap() / 1e3;
            let shown = if p50 < 9.995 {
                format!("{p50:.2}")
            } else if p50 < 99.95 {
                format!("{p50:.1}")
            } else {
                format!("{p50:.0}")
            };
            assert!(text.contains(&shown), "{shown} of {}", case["name"]);
        }
        for part in [
            "/verdict/summary",
            "/verdict/scope",
            "/expectation/why",
            "/run/id",
            "/nodes/initiator/hostname",
            "/nodes/target/kernel",
        ] {
            let value = result.pointer(part).unwrap().as_str().unwrap();
            assert!(text.contains(value), "{part}: {value}");
        }
        for finding in result["findings"].as_array().unwrap() {
            let evidence = finding["evidence"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(text.contains(finding["title"].as_str().unwrap()), "{finding}");
            assert!(evidence.iter().all(|line| text.contains(line.as_str().unwrap())), "{finding}");
        }
    }
}

#[test]
fn each_rank_stands_as_text_and_the_slowest_without_opening_anything() {
    let folder = tempfile::tempdir().unwrap();
    let path = ranks(folder.path());
    let file = page(folder.path(), "page.html", &[&path]);
    let result: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut browser = Browser::start();
    browser.open(&file, 1400, false);
    let summaries = browser.value(
        "[...document.querySelectorAll('.ranks summary')].filter(e => e.getClientRects().length).map(e => e.textContent)",
    );
    let rows = browser.value(
        "[...document.querySelectorAll('.ranks tbody tr')].map(e => [...e.children].map(e => e.textContent).join(' | '))",
    );
    let text = browser.value("document.querySelector('.ranks').textContent");
    let (text, cases) = (text.as_str().unwrap(), result["cases"].as_array().unwrap());
    assert_eq!(summaries.as_array().unwrap().len(), cases.len(), "{summaries}");
    let mut rows = rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap());
    for (case, summary) in cases.iter().zip(summaries.as_array().unwrap()) {
        let parts = case["parts"].as_array().unwrap();
        let rate = |part: &Value| part["bandwidth_bytes_per_s"].as_f64().unwrap();
        let slowest = parts.iter().min_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap();
        let words = format!("slowest rank {} {} with", slowest["rank"], slowest["op"].as_str().unwrap());
        assert!(summary.as_str().unwrap().contains(&words), "{words}: {summary}");
        for part in parts {
            let row = rows.next().unwrap();
            let begin = format!(
                "{} to {} | {} | ok | ",
                part["rank"],
                part["target_rank"],
                part["op"].as_str().unwrap()
            );
            assert!(row.starts_with(&begin), "{begin}: {row}");
            let class = part["transport"]["class"].as_str().unwrap();
            let gpu = part["target_gpu"].as_str().unwrap_or("host memory");
            assert!(row.contains(class) && row.ends_with(gpu), "{row}");
            if let Some(doubt) = part["transport"]["doubt"].as_str() {
                assert!(
                    row.contains("less than expected") && text.contains(&format!("in doubt: {doubt}")),
                    "{row}"
                );
            }
        }
    }
    assert!(rows.next().is_none());
}
