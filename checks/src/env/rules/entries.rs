//! Entries of environment lists that are not what they seem to be; placeholders and templates.

use super::super::environment::{Content, Oddity};
use super::super::secret;
use super::super::worker::Worker;
use super::{Findings, Scene, entry, finding};
use crate::Status;

pub(super) fn check(_scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    for (name, span, oddity) in &worker.env.oddities {
        let found = match oddity {
            Oddity::NotText(written) => {
                let shown = secret::value(name, written);
                finding(
                    "env-not-text",
                    Status::Fail,
                    format!("{name}: {shown} is not a text, and Kubernetes refuses it"),
                )
                .fix(entry(name, &shown))
            }
            Oddity::StrayKey(key) => {
                let key = secret::text(key);
                let title = format!("{name}: `{key}` is a key of its own here: the value ends before it");
                let value = worker.env.text(name).map_or(String::new(), |v| secret::value(name, v));
                finding("env-stray-key", Status::Fail, title).fix(entry(name, &format!("{value},{key}")))
            }
            Oddity::Twice => {
                let value = worker.env.text(name).map_or(String::new(), |v| secret::value(name, v));
                let title = format!("{name} stands twice in one list, with different values");
                finding("env-twice", Status::Warn, title).fix(entry(name, &value))
            }
            Oddity::ShellSyntax if is_transport(name) && name != "KV_TRANSFER_CONFIG" => {
                let value = worker.env.text(name).map_or(String::new(), |v| secret::value(name, v));
                let fix = entry(name, &value.replace("${", "$(").replace('}', ")"));
                finding("env-not-expanded", Status::Fail, format!("{name}: ${{…}} is not replaced in env"))
                    .fix(fix)
            }
            // In a part the name may be set by what is not here.
            Oddity::Undefined(missing)
                if (is_transport(name) || name == "LD_LIBRARY_PATH") && worker.partial.is_none() =>
            {
                let missing = secret::text(missing);
                let title =
                    format!("{name}: $({missing}) is not set earlier in the list and stays as it is written");
                finding("env-not-expanded", Status::Warn, title)
                    .fix(format!("- name: {missing}\n  value: \"…\""))
            }
            Oddity::ShellSyntax | Oddity::Undefined(_) => continue,
        };
        out.add(found, *span, Some(worker));
    }
    placeholders(worker, out);
    for setting in worker.env.settings().iter().filter(|s| is_transport(&s.name)) {
        if let Content::Unknown(why) = &setting.content
            && !why.starts_with("from status.")
            && !why.starts_with("from metadata.")
        {
            let title = format!("{} is set, and its value is not in the input: {why}", setting.name);
            out.about(finding("value-unknown", Status::Unknown, title), setting, &setting.name, worker);
        }
    }
}

fn placeholders(worker: &Worker, out: &mut Findings<'_>) {
    if let Some(image) = &worker.image {
        let name = image.text.rsplit('/').next().unwrap_or("").split([':', '@']).next().unwrap_or("");
        let base = matches!(name, "ubuntu" | "debian" | "busybox" | "alpine" | "centos" | "python");
        if is_placeholder(&image.text) {
            let title = format!("the image is a placeholder: {}", image.text);
            out.add(finding("placeholder", Status::Warn, title), image.span, Some(worker));
        } else if base {
            let title = format!("the image {} serves no model: a stand-in for the real one", image.text);
            out.add(finding("placeholder", Status::Unknown, title), image.span, Some(worker));
        }
    }
    for setting in worker.env.settings() {
        if let Some(text) = setting.text()
            && is_placeholder(text)
        {
            let status = if is_transport(&setting.name) { Status::Fail } else { Status::Warn };
            let title = format!("{} is a placeholder: {}", setting.name, setting.shown());
            out.about(finding("placeholder", status, title), setting, "", worker);
        }
    }
    for (claim, template) in &worker.pod.pod_claims {
        if is_placeholder(template) {
            let title = format!("the claim {} has a placeholder for its template: {template}", claim.text);
            out.add(finding("placeholder", Status::Warn, title), claim.span, Some(worker));
        }
    }
}

/// `<your-registry>`, `YOUR-MODEL`, `your-claim`.
fn is_placeholder(text: &str) -> bool {
    let angle = text.find('<').is_some_and(|at| {
        let rest = &text[at + 1..];
        rest.find('>').is_some_and(|end| {
            end > 0 && rest[..end].chars().all(|c| c.is_alphanumeric() || " _-./".contains(c))
        })
    });
    angle
        || text.contains("YOUR-")
        || text.contains("YOUR_")
        || text.starts_with("your-")
        || text.contains("/your-")
}

/// Variables that decide the wire.
fn is_transport(name: &str) -> bool {
    ["UCX_", "NIXL_", "VLLM_NIXL_", "SGLANG_DISAGG", "TRTLLM_NIXL", "MC_", "FI_", "NCCL_"]
        .iter()
        .any(|p| name.starts_with(p))
        || name == "KV_TRANSFER_CONFIG"
}
