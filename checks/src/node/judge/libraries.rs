//! Libraries on disk: which NIXL, which UCX, more than one of them, and the user-space parts of RDMA drivers.

use std::collections::BTreeSet;

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::evidence::{Entry, Evidence};

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = vec![nixl(subject), ucx(subject), providers(subject)];
    findings.extend(efa_crash(subject));
    findings
}

/// Real paths of what was found at paths that `wanted` picks: one library under several names is one.
pub(super) fn real(evidence: &Evidence, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let found = evidence.entries().filter_map(|(path, entry)| match entry {
        Entry::Real(real) if wanted(path) => Some(real.clone()),
        _ => None,
    });
    found.collect()
}

fn nixl(subject: &Subject<'_>) -> Finding {
    let id = "libraries-nixl";
    let copies = real(subject.evidence, |path| path.ends_with("/libnixl_capi.so"));
    match copies.len() {
        0 => Finding::new(id, Status::Skipped, "no NIXL in the usual places of this image")
            .next_step("kvwire check nixl searches further and says where"),
        1 => Finding::new(id, Status::Ok, "one NIXL is installed").evidence(copies),
        n => Finding::new(id, Status::Warn, format!("{n} copies of NIXL are installed"))
            .detail("a process may load the core of one and the plugins of another")
            .evidence(copies)
            .next_step("remove all but one, or name one for every process (--nixl-lib, NIXL_PLUGIN_DIR)"),
    }
}

fn ucx(subject: &Subject<'_>) -> Finding {
    let id = "libraries-ucx";
    let copies =
        real(subject.evidence, |path| path.rsplit('/').next().is_some_and(|name| name.starts_with("libucp")));
    let on_path = subject.evidence.variable("LD_LIBRARY_PATH").unwrap_or_default();
    let forced: Vec<&str> =
        on_path.split(':').filter(|folder| folder.contains("ucx") || folder.contains("hpcx")).collect();
    let mut lines: Vec<String> = copies.iter().cloned().collect();
    lines.extend(forced.iter().map(|folder| format!("LD_LIBRARY_PATH has {folder}")));
    match copies.len() {
        0 => Finding::new(id, Status::Skipped, "no UCX in the usual places of this image"),
        1 => Finding::new(id, Status::Ok, "one UCX is installed").evidence(lines),
        n => Finding::new(id, Status::Warn, format!("{n} copies of UCX are installed"))
            .detail("two copies in one process crash or hang it; NIXL's wheel brings its own")
            .evidence(lines)
            .next_step(
                "see with `kvwire check nixl` which one NIXL binds; keep other copies off LD_LIBRARY_PATH",
            ),
    }
}

/// The library that serves a kernel driver in user space, as rdma-core names them.
fn provider(driver: &str) -> &str {
    match driver {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "efa" => "efa",
        "bnxt_en" | "bnxt_re" => "bnxt_re",
        "ice" | "irdma" => "irdma",
        "cxgb4" => "cxgb4",
        "hns3" => "hns",
        other => other,
    }
}

fn providers(subject: &Subject<'_>) -> Finding {
    let id = "libraries-rdma";
    if subject.devices.is_empty() {
        return Finding::new(id, Status::Skipped, "no RDMA device here needs a provider library");
    }
    let evidence = subject.evidence;
    let files = real(evidence, |path| path.contains("-rdmav"));
    let wheel = !real(evidence, |path| path.contains("nixl_cu") && path.contains("/libibverbs-")).is_empty();
    let mut lines: Vec<String> = files.iter().cloned().collect();
    let mut missing = Vec::new();
    let mut private = Vec::new();
    for device in &subject.devices {
        let name = match &device.driver {
            Some(driver) => provider(driver),
            None if device.name.starts_with("rxe") => "rxe",
            None => continue,
        };
        let has = files.iter().any(|file| file.contains(&format!("/lib{name}-rdmav")))
            || evidence.text(&format!("probe:verbs/{}/open", device.name)) == Some("ok");
        if !has {
            missing.push(format!("{} ({name})", device.name));
        }
        // The wheel's own libibverbs is served by the wheel's own mlx5 library, and by no other provider.
        if wheel && name != "mlx5" {
            private.push(format!("{} ({name})", device.name));
        }
    }
    if wheel {
        lines.push("NIXL's wheel brings its own libibverbs".to_owned());
    }
    lines.extend(real(evidence, |path| path.ends_with("/libefa.so.1")));
    if !private.is_empty() {
        return Finding::new(id, Status::Warn, format!("NIXL's wheel cannot serve {}", private.join(", ")))
            .detail("its private libibverbs has a provider for mlx5 only: UCX passes such a device over and takes TCP without a word")
            .evidence(lines)
            .next_step("use a NIXL built against the system's libibverbs, or a provider library linked to the wheel's (RDMAV_DRIVERS)");
    }
    if missing.is_empty() {
        Finding::new(id, Status::Ok, "every RDMA device has its provider library").evidence(lines)
    } else if wheel {
        Finding::new(id, Status::Ok, "no provider library in the image; NIXL's wheel brings its own for mlx5")
            .evidence(lines)
    } else {
        Finding::new(id, Status::Warn, format!("no provider library was found for {}", missing.join(", ")))
            .evidence(lines)
            .next_step("install rdma-core's providers in the image (Debian: ibverbs-providers)")
    }
}

/// Where libefa is installed, a process that loaded the wheel's UCX crashes as it exits.
fn efa_crash(subject: &Subject<'_>) -> Option<Finding> {
    let efa = real(subject.evidence, |path| path.ends_with("/libefa.so.1"));
    let module =
        real(subject.evidence, |path| path.contains("nixl_cu") && path.contains("/libuct_ib_efa.so"));
    if efa.is_empty() || module.is_empty() {
        return None;
    }
    let lines = efa.iter().chain(&module).cloned().collect::<Vec<_>>();
    if subject
        .evidence
        .variable("UCX_MODULES")
        .is_some_and(|value| value.starts_with('^') && value.contains("efa"))
    {
        return Some(
            Finding::new("libefa-crash", Status::Ok, "UCX_MODULES keeps UCX's EFA module out")
                .evidence(lines),
        );
    }
    Some(
        Finding::new("libefa-crash", Status::Warn, "a process that loads this NIXL may crash (SIGSEGV) as it exits")
            .detail("the wheel's EFA module pulls in the system's libefa and libnl beside the wheel's own; transfers are right, the exit code is 139. kvwire's own engines leave without that step")
            .evidence(lines)
            .next_step("where there is no EFA: set UCX_MODULES=^efa for the engine, or leave libefa.so.1 out of the image"),
    )
}
