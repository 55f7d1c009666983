//! What this process may use: locked memory, shared memory, CPU time, and the namespaces that it is in.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::evidence::{Entry, Evidence};

/// Below this UCX does not use POSIX shared memory (its default `UCX_POSIX_SHM_MIN_SIZE`).
const SHM_MIN_BYTES: u64 = 16 << 20;
/// Below this an inference engine and UCX are likely to run into each other.
const SHM_GOOD_BYTES: u64 = 1 << 30;

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    vec![
        locked(subject),
        capabilities(subject.evidence),
        shm(subject.evidence),
        cpu(subject.evidence),
        namespaces(subject.evidence),
    ]
}

/// How much memory this process may lock, as UCX counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memlock {
    /// The limit is unlimited.
    Unlimited,
    /// The process has CAP_IPC_LOCK, so that the limit does not count.
    Capability,
    /// At most so many bytes.
    Bytes(u64),
    /// `/proc/self/limits` could not be read.
    Unknown,
}

impl Memlock {
    pub(super) fn words(self) -> String {
        match self {
            Self::Unlimited => "unlimited".to_owned(),
            Self::Capability => "unlimited (CAP_IPC_LOCK)".to_owned(),
            Self::Bytes(bytes) => format!("{} KiB", bytes / 1024),
            Self::Unknown => "not known".to_owned(),
        }
    }
}

pub(super) fn memlock(evidence: &Evidence) -> Memlock {
    const IPC_LOCK: u64 = 1 << 14;
    let soft = evidence
        .field("/proc/self/limits", "Max locked memory")
        .and_then(|limits| limits.split_whitespace().next().map(str::to_owned));
    if soft.as_deref() == Some("unlimited") {
        return Memlock::Unlimited;
    }
    let capabilities =
        evidence.field("/proc/self/status", "CapEff").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    if capabilities.is_some_and(|bits| bits & IPC_LOCK != 0) {
        return Memlock::Capability;
    }
    soft.and_then(|limit| limit.parse().ok()).map_or(Memlock::Unknown, Memlock::Bytes)
}

fn locked(subject: &Subject<'_>) -> Finding {
    let id = "memlock";
    let memlock = memlock(subject.evidence);
    let line = |path: &str, key: &str| {
        subject.evidence.field(path, key).map(|value| format!("{path}: {key} {value}"))
    };
    let lines: Vec<String> =
        [line("/proc/self/limits", "Max locked memory"), line("/proc/self/status", "CapEff")]
            .into_iter()
            .flatten()
            .collect();
    let finding = |status, title: &str| Finding::new(id, status, title).evidence(lines.clone());
    match memlock {
        Memlock::Unlimited => finding(Status::Ok, "this process may lock any amount of memory"),
        Memlock::Capability => finding(Status::Ok, "this process has CAP_IPC_LOCK: it may lock any amount of memory"),
        Memlock::Unknown => finding(Status::Unknown, "the limit of locked memory could not be read"),
        Memlock::Bytes(bytes) if subject.devices.is_empty() => finding(
            Status::Skipped,
            &format!("{} KiB may be locked; no RDMA device here needs more", bytes / 1024),
        ),
        Memlock::Bytes(bytes) => finding(Status::Fail, &format!("only {} KiB of memory may be locked: RDMA cannot register a KV cache", bytes / 1024))
            .next_step("add the capability IPC_LOCK to the container's securityContext (or start it with an unlimited memlock limit, `ulimit -l unlimited`)"),
    }
}

/// Capabilities that change what a transfer can do, with their numbers (`linux/capability.h`).
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (14, "CAP_IPC_LOCK", "lock any amount of memory"),
    (19, "CAP_SYS_PTRACE", "copy from other processes' memory where Yama forbids it"),
    (21, "CAP_SYS_ADMIN", "read the whole PCI configuration"),
    (24, "CAP_SYS_RESOURCE", "raise its own limits (ulimit -l)"),
];

fn capabilities(evidence: &Evidence) -> Finding {
    let id = "capabilities";
    let mask =
        evidence.field("/proc/self/status", "CapEff").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    let Some(mask) = mask else {
        return Finding::new(id, Status::Unknown, "the capabilities of this process could not be read");
    };
    let (has, lacks): (Vec<_>, Vec<_>) = CAPABILITIES.iter().partition(|(bit, ..)| mask >> bit & 1 == 1);
    let names = has.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ");
    let title = if has.is_empty() {
        "this process has none of the capabilities that matter here".to_owned()
    } else {
        format!("this process has {names}")
    };
    let mut lines = vec![format!("CapEff {mask:016x}")];
    lines.extend(has.iter().map(|(_, name, what)| format!("{name}: may {what}")));
    lines.extend(lacks.iter().map(|(_, name, what)| format!("no {name}: may not {what}")));
    let scope = evidence.text("/proc/sys/kernel/yama/ptrace_scope");
    lines.extend(scope.map(|scope| format!("kernel.yama.ptrace_scope {scope}")));
    Finding::new(id, Status::Ok, title).evidence(lines)
}

fn shm_bytes(evidence: &Evidence, key: &str) -> Option<u64> {
    let kib: u64 = evidence.field("probe:shm", key)?.parse().ok()?;
    kib.checked_mul(1024)
}

pub(super) fn shm_words(evidence: &Evidence) -> String {
    shm_bytes(evidence, "total_kib").map_or("not known".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
}

fn shm(evidence: &Evidence) -> Finding {
    let id = "shm-size";
    let (Some(total), Some(available)) =
        (shm_bytes(evidence, "total_kib"), shm_bytes(evidence, "available_kib"))
    else {
        return Finding::new(id, Status::Unknown, "the size of /dev/shm could not be read");
    };
    let fix = "mount an emptyDir with `medium: Memory` and a sizeLimit at /dev/shm (with docker: --shm-size)";
    let lines = vec![format!("/dev/shm: {} MiB, {} MiB of them free", total >> 20, available >> 20)];
    if total < SHM_MIN_BYTES || available < SHM_MIN_BYTES {
        let what = if total < SHM_MIN_BYTES { "is smaller" } else { "has less room left" };
        return Finding::new(
            id,
            Status::Fail,
            format!("/dev/shm {what} than the 16 MiB that UCX needs for shared memory"),
        )
        .evidence(lines)
        .next_step(fix);
    }
    if total < SHM_GOOD_BYTES {
        return Finding::new(id, Status::Warn, format!("/dev/shm has only {} MiB", total >> 20))
            .detail("UCX and the inference engine share it; when it is full, processes die with SIGBUS")
            .evidence(lines)
            .next_step(fix);
    }
    Finding::new(id, Status::Ok, format!("/dev/shm has {} MiB", total >> 20)).evidence(lines)
}

/// The tightest CPU quota of this control group and those above it, in CPUs; `None` without a limit. The outer `None`
/// means that nothing was readable.
fn quota(evidence: &Evidence) -> Option<Option<f64>> {
    let limit = |text: &str| {
        let mut words = text.split_whitespace();
        let quota: f64 = words.next()?.parse().ok()?;
        let period: f64 = words.next()?.parse().ok()?;
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    let mut seen = false;
    let mut tightest: Option<f64> = None;
    for (path, entry) in evidence.below("/sys/fs/cgroup").filter(|(path, _)| path.ends_with("/cpu.max")) {
        let _ = path;
        if let Entry::Text(text) = entry {
            seen = true;
            tightest = [tightest, limit(text)].into_iter().flatten().reduce(f64::min);
        }
    }
    if let Some(quota) = evidence.number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") {
        seen = true;
        let period = evidence.number("/sys/fs/cgroup/cpu/cpu.cfs_period_us").unwrap_or(100_000);
        tightest = [tightest, limit(&format!("{quota} {period}"))].into_iter().flatten().reduce(f64::min);
    }
    seen.then_some(tightest)
}

pub(super) fn cpu_words(evidence: &Evidence) -> String {
    match quota(evidence) {
        None => "not known".to_owned(),
        Some(None) => "none".to_owned(),
        Some(Some(cpus)) => format!("{cpus:.1} CPUs"),
    }
}

fn cpu(evidence: &Evidence) -> Finding {
    let id = "cpu-limit";
    // An engine polls on one core, and its progress thread on another.
    const CPUS_MIN: f64 = 2.0;
    let mut throttled = 0;
    let mut lines = Vec::new();
    for (path, entry) in evidence.below("/sys/fs/cgroup").filter(|(path, _)| path.ends_with("/cpu.stat")) {
        let Entry::Text(text) = entry else { continue };
        let value = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        let count: u64 = value.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
        if count > 0 {
            lines.push(format!("{path}: nr_throttled {count}"));
        }
        throttled += count;
    }
    let Some(limit) = quota(evidence) else {
        return Finding::new(
            id,
            Status::Unknown,
            "the CPU limit of this process's control group could not be read",
        )
        .evidence(lines);
    };
    let fix = "raise the CPU limit of the container or leave it out; requests alone do not throttle";
    match limit {
        None => Finding::new(id, Status::Ok, "no CPU limit").evidence(lines),
        Some(cpus) if throttled > 0 => Finding::new(
            id,
            Status::Warn,
            format!("limited to {cpus:.1} CPUs, and was throttled {throttled} times"),
        )
        .evidence(lines)
        .next_step(fix),
        Some(cpus) if cpus < CPUS_MIN => Finding::new(
            id,
            Status::Warn,
            format!(
                "limited to {cpus:.1} CPUs: a transfer polls on one and NIXL's progress thread on another"
            ),
        )
        .next_step(fix),
        Some(cpus) => Finding::new(id, Status::Ok, format!("limited to {cpus:.1} CPUs, never throttled"))
            .evidence(lines),
    }
}

fn namespaces(evidence: &Evidence) -> Finding {
    let id = "namespaces";
    let of = |kind: &str| match evidence.get(&format!("/proc/self/ns/{kind}")) {
        Some(Entry::Link(link)) => Some(link.clone()),
        _ => None,
    };
    let links: Vec<String> = ["net", "pid", "ipc", "mnt", "user"].into_iter().filter_map(of).collect();
    if links.is_empty() {
        return Finding::new(id, Status::Unknown, "/proc/self/ns could not be read");
    }
    Finding::new(id, Status::Ok, "namespaces of this process")
        .detail("two processes use shared memory only with ipc in common, and cross-memory attach or NVLink handles only with pid in common")
        .evidence(links)
}
