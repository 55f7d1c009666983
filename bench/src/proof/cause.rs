//! Why less than expected carried the bytes, as far as it can be told, and what to do about it.

use std::collections::BTreeMap;

use checks::env::{Version, is_off};
use checks::{Finding, Status};

use super::ability::{Ability, PEER_MEMORY, Port};
use super::class::Class;
use super::expect::Expected;
use super::gpu::GpuMeans;
use super::judge::Transport;
use super::ucx::{Row, leaves_out};
use crate::plan::Op;

/// UCX names that stand for RDMA in `UCX_TLS`, aliases among them.
const RDMA_NAMES: [&str; 13] =
    ["all", "ib", "rc", "rc_x", "rc_v", "dc", "dc_x", "ud", "ud_x", "ud_v", "gga", "srd", "rc_gda"];
/// UCX names that stand for memory of one host and that NIXL can use.
const SHM_NAMES: [&str; 6] = ["all", "sm", "shm", "cma", "xpmem", "knem"];
/// First UCX that can do without software emulation.
const STRICT_SINCE: Version = Version(1, 21, 0);
/// First UCX that tells processes of two PID namespaces apart.
const NAMESPACES_SINCE: Version = Version(1, 21, 0);
/// Rails that NIXL asks for when nothing else is set.
const RAILS_DEFAULT: usize = 2;

/// What surrounded the transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) initiator: &'a Ability,
    pub(crate) target: &'a Ability,
    /// Given with `--ucx-env`: goes to both engines and wins over their own environment.
    pub(crate) given: &'a BTreeMap<String, String>,
    /// What UCX logged on both sides, as findings.
    pub(crate) logged: &'a [Finding],
    /// The direction that is judged.
    pub(crate) op: Op,
    /// The GPU of the initiator's rank that is judged; `None` for host memory.
    pub(crate) gpu: Option<&'a GpuMeans>,
}

impl Setting<'_> {
    /// The value of a variable on either side, and where it comes from.
    fn variable(&self, name: &str) -> Option<(&str, &'static str)> {
        let places = [
            (self.given, "--ucx-env"),
            (&self.initiator.environment, "the initiator's environment"),
            (&self.target.environment, "the target's environment"),
        ];
        places.into_iter().find_map(|(values, place)| Some((values.get(name)?.as_str(), place)))
    }

    /// The same, where it switches something off.
    fn switched_off(&self, name: &str) -> Option<(&str, &'static str)> {
        self.variable(name).filter(|(value, _)| is_off(value))
    }

    fn logged(&self, id: &str) -> Option<&Finding> {
        self.logged.iter().find(|finding| finding.id == id)
    }

    fn sides(&self) -> [(&'static str, &Ability); 2] {
        [("initiator", self.initiator), ("target", self.target)]
    }
}

/// A cause: what it is, the evidence for it, and the next step.
struct Cause {
    what: String,
    evidence: Vec<String>,
    next: String,
}

/// The finding for a case whose class is below the expectation. `case` is its name.
pub(crate) fn explain(
    case: &str,
    expected: &Expected,
    transport: &Transport,
    setting: &Setting<'_>,
) -> Finding {
    let wanted = expected.class.map_or("anything", Class::name);
    let cause = cause(expected, transport, setting);
    let title = format!("expected {wanted}, but {} carried the bytes: {}", carrier(transport), cause.what);
    Finding::new("transport-below-expected", Status::Fail, title)
        .detail(format!("expected {wanted}: {}", expected.why))
        .evidence([format!("case {case}")])
        .evidence(cause.evidence)
        .evidence(transport.evidence.iter().map(|e| format!("{}, {}: {}", e.side, e.source, e.text)))
        .next_step(cause.next)
}

/// `tcp`, `software emulation over tcp`.
pub(crate) fn wire(transport: &Transport) -> String {
    match (transport.class, transport.over) {
        (Class::Emulated, Some(over)) => format!("software emulation over {over}"),
        (Class::Emulated, None) => "software emulation".to_owned(),
        (class, _) => class.to_string(),
    }
}

/// The same with the devices: `tcp (lo)`.
fn carrier(transport: &Transport) -> String {
    let mut devices: Vec<&str> = Vec::new();
    for device in &transport.devices {
        if !devices.contains(&device.device.as_str()) && devices.len() < 8 {
            devices.push(&device.device);
        }
    }
    let class = wire(transport);
    if devices.is_empty() { class } else { format!("{class} ({})", devices.join(", ")) }
}

fn cause(expected: &Expected, transport: &Transport, setting: &Setting<'_>) -> Cause {
    let wanted = expected.class.unwrap_or(Class::Unknown);
    transport_list(wanted, setting)
        .or_else(|| file_descriptors(wanted, transport, setting))
        .or_else(|| get_without_nvlink(wanted, transport, setting))
        .or_else(|| domain_switched_off(wanted, setting))
        .or_else(|| taken_for_one(wanted, setting))
        .or_else(|| rendezvous_threshold(transport, setting))
        .or_else(|| (wanted == Class::Rdma).then(|| gpu_direct(transport, setting)).flatten())
        .or_else(|| logged_device(setting))
        .or_else(|| (wanted == Class::Rdma).then(|| rdma_devices(setting)).flatten())
        .or_else(|| device_list(wanted, setting))
        .or_else(|| (wanted == Class::Rdma).then(|| provider(setting)).flatten())
        .unwrap_or_else(|| Cause {
            what: "the cause was not found".to_owned(),
            evidence: Vec::new(),
            next: format!(
                "run again with --ucx-env UCX_LOG_LEVEL=info -v and read which devices UCX lists, or accept this wire with --expect {}",
                match transport.class {
                    Class::Shm => "shm",
                    Class::Rdma => "rdma",
                    Class::Tcp => "tcp",
                    _ if transport.over == Some(Class::Tcp) => "tcp",
                    _ => "any",
                }
            ),
        })
}

fn transport_list(wanted: Class, setting: &Setting<'_>) -> Option<Cause> {
    let (value, source) = setting.variable("UCX_TLS")?;
    let names: &[&str] = match wanted {
        Class::Rdma => &RDMA_NAMES,
        Class::Shm => &SHM_NAMES,
        Class::Nvlink | Class::PcieP2p => &["all", "cuda", "cuda_ipc"],
        _ => return None,
    };
    let left_out = leaves_out(value, |name| {
        names.contains(&name) || (wanted == Class::Rdma && Class::of_transport(name) == Some(wanted))
    });
    // One name that UCX knows, and what a reader knows it by.
    let (add, without) = match wanted {
        Class::Rdma => ("rc", "rdma"),
        Class::Shm => ("sm", "shm"),
        _ => ("cuda_ipc", "cuda_ipc"),
    };
    left_out.then(|| Cause {
        what: format!("UCX_TLS={value} leaves {without} out"),
        evidence: vec![format!("UCX_TLS={value}, from {source}")],
        next: format!(
            "take UCX_TLS out or add {add} to it; where this is on purpose, say --expect tcp or --expect any"
        ),
    })
}

/// UCX 1.20 to 1.23 export what `cuMemCreate` made by fabric handles alone.
fn file_descriptors(wanted: Class, transport: &Transport, setting: &Setting<'_>) -> Option<Cause> {
    let here = matches!(wanted, Class::PcieP2p | Class::Nvlink)
        && matches!(transport.class, Class::Emulated | Class::Tcp)
        && setting.gpu.is_some_and(|gpu| gpu.by_file_descriptor);
    here.then(|| Cause {
        what: "UCX does not export memory of cuMemCreate without fabric handles".to_owned(),
        evidence: vec!["the memory can be exported by file descriptor alone".to_owned()],
        next: "allocate the KV cache with cudaMalloc (for PyTorch without expandable segments: measure --alloc malloc), or with fabric handles (--alloc fabric)".to_owned(),
    })
}

/// UCX 1.20 to 1.23 do not read over `cuda_ipc` where they see no NVLink on the GPU, and say so only at debug level. They
/// write over it.
fn get_without_nvlink(wanted: Class, transport: &Transport, setting: &Setting<'_>) -> Option<Cause> {
    const SWITCH: &str = "UCX_CUDA_IPC_ENABLE_GET_ZCOPY";
    let set = setting.variable(SWITCH);
    let switched_on = set.is_some_and(|(value, _)| matches!(value, "on" | "y" | "yes" | "1"));
    let here = matches!(wanted, Class::PcieP2p | Class::Nvlink)
        && matches!(transport.class, Class::Emulated | Class::Tcp)
        && setting.op == Op::Read
        && setting.gpu.is_some_and(|gpu| gpu.links_up.is_none_or(|links| links == 0));
    (here && !switched_on).then(|| Cause {
        what: "UCX does not READ between GPUs without NVLink unless it is told to".to_owned(),
        evidence: vec![match set {
            Some((value, source)) => format!("{SWITCH}={value}, from {source}"),
            None => format!("{SWITCH} is not set, and the initiator's GPU has no NVLink that is up"),
        }],
        next: format!(
            "set {SWITCH}=on for the engines (to try it here: --ucx-env {SWITCH}=on), or let the prefill side WRITE"
        ),
    })
}

/// UCX imports fabric handles of other hosts by default where it can, and has a switch against it.
fn domain_switched_off(wanted: Class, setting: &Setting<'_>) -> Option<Cause> {
    const SWITCH: &str = "UCX_CUDA_IPC_ENABLE_MNNVL";
    let (value, source) = setting.switched_off(SWITCH)?;
    let here = wanted == Class::Nvlink && setting.gpu.is_some_and(|gpu| gpu.by_fabric_handle);
    here.then(|| Cause {
        what: format!("{SWITCH}={value} keeps UCX from NVLink between hosts"),
        evidence: vec![format!("{SWITCH}={value}, from {source}")],
        next: format!("take {SWITCH} out of the environment; where it is on purpose, say --expect rdma"),
    })
}

/// An older UCX takes two processes of one id for the same one, which `cuda_ipc` has no way within. In containers engines
/// often have the same id.
fn taken_for_one(wanted: Class, setting: &Setting<'_>) -> Option<Cause> {
    let [ours, theirs] = setting.sides().map(|(_, ability)| ability);
    let id = ours.processes.first().filter(|id| theirs.processes.first() == Some(id))?;
    let older = |ability: &Ability| {
        let version = ability.ucx_version.as_deref().and_then(Version::read);
        version.filter(|version| *version < NAMESPACES_SINCE)
    };
    let version = older(ours).or_else(|| older(theirs))?;
    matches!(wanted, Class::PcieP2p | Class::Nvlink).then(|| Cause {
        what: format!("UCX {version} takes the two engines for one process, since both have process id {id}"),
        evidence: vec![format!("process id {id} on both sides, each in a namespace of its own")],
        next: "use a NIXL with UCX 1.21 or newer; until then one process more before an engine starts gives it another id"
            .to_owned(),
    })
}

/// A finite threshold makes UCX demand of every lane that it can invalidate registrations (NIXL sets `inf`).
fn rendezvous_threshold(transport: &Transport, setting: &Setting<'_>) -> Option<Cause> {
    let (value, source) = setting.variable("UCX_RNDV_THRESH").filter(|(value, _)| *value != "inf")?;
    (transport.class == Class::Emulated || transport.class == Class::Tcp).then(|| Cause {
        what: format!("UCX_RNDV_THRESH={value} takes away lanes that cannot invalidate registrations"),
        evidence: vec![format!("UCX_RNDV_THRESH={value}, from {source}; NIXL sets inf where nothing is set")],
        next: "take UCX_RNDV_THRESH out of the environment".to_owned(),
    })
}

/// The adapter carried the bytes of GPU memory, and could not reach that memory: UCX copied them through host memory.
fn gpu_direct(transport: &Transport, setting: &Setting<'_>) -> Option<Cause> {
    const SWITCH: &str = "UCX_IB_GPU_DIRECT_RDMA";
    let on_gpu = |ability: &Ability| ability.gpus.iter().flatten().next().is_some();
    let sides: Vec<_> = setting.sides().into_iter().filter(|(_, ability)| on_gpu(ability)).collect();
    if transport.class != Class::Emulated || transport.over != Some(Class::Rdma) || sides.is_empty() {
        return None;
    }
    let what =
        "RDMA adapters cannot reach GPU memory (no GPUDirect RDMA), and UCX copies it through host memory";
    if let Some((value, source)) = setting.switched_off(SWITCH) {
        return Some(Cause {
            what: what.to_owned(),
            evidence: vec![format!("{SWITCH}={value}, from {source}")],
            next: format!("take {SWITCH} out of the environment"),
        });
    }
    let line = |(side, ability): (&str, &Ability)| match &ability.peer_memory {
        Some(sign) => format!("{side}: a peer-memory module is loaded ({sign})"),
        None => format!(
            "{side}: no peer-memory module is loaded: {} are not there",
            PEER_MEMORY.map(|sign| format!("/sys/{sign}")).join(", ")
        ),
    };
    Some(Cause {
        what: what.to_owned(),
        evidence: sides.into_iter().map(line).collect(),
        next: "load nvidia_peermem on the nodes (modprobe nvidia-peermem), or use a driver with open kernel modules, a kernel and a UCX that share GPU memory as dma-buf; `kvwire check node` says what is there".to_owned(),
    })
}

fn logged_device(setting: &Setting<'_>) -> Option<Cause> {
    let finding = setting.logged("ucx-device-missing").or_else(|| setting.logged("ucx-transport-missing"))?;
    Some(Cause {
        what: finding.title.clone(),
        evidence: finding.evidence.clone(),
        next: finding.next_step.clone(),
    })
}

fn rdma_devices(setting: &Setting<'_>) -> Option<Cause> {
    for (side, ability) in setting.sides() {
        if ability.has_rdma() {
            continue;
        }
        if ability.ports.is_empty() {
            return Some(Cause {
                what: format!("the {side} has no RDMA device"),
                evidence: vec![format!("{side}: /sys/class/infiniband has no port")],
                next: "give the container its device (rdma/… resource, DRA claim, hostNetwork), or choose another node".to_owned(),
            });
        }
        let evidence = ability.ports.iter().map(|port| port_line(side, port)).collect();
        let closed = ability.ports.iter().any(|port| port.is_active() && !port.opens);
        return Some(if closed {
            Cause {
                what: format!("the {side} may not open its RDMA device"),
                evidence,
                next: "mount /dev/infiniband into the container and allow the device (resource or device cgroup)".to_owned(),
            }
        } else {
            Cause {
                what: format!("no RDMA port of the {side} is up"),
                evidence,
                next: "look at cable, switch and subnet manager (ibstat), or bring the network interface up"
                    .to_owned(),
            }
        });
    }
    None
}

fn port_line(side: &str, port: &Port) -> String {
    let opens = if port.opens { "can be opened" } else { "cannot be opened" };
    format!("{side}: {} is {}, {opens}", port.name, port.state)
}

fn device_list(wanted: Class, setting: &Setting<'_>) -> Option<Cause> {
    let (value, source) = setting.variable("UCX_NET_DEVICES").filter(|(v, _)| *v != "all")?;
    let usable = |(_, ability): &(_, &Ability)| {
        ability.ports.iter().any(|port| port.is_usable() && value.split(',').any(|name| is_named(port, name)))
    };
    let leaves_out = !setting.sides().iter().any(usable);
    (wanted == Class::Rdma && leaves_out).then(|| Cause {
        what: format!("UCX_NET_DEVICES={value} may leave the RDMA devices out"),
        evidence: vec![format!("UCX_NET_DEVICES={value}, from {source}")],
        next: "name RDMA devices (mlx5_0:1), not network interfaces, or take the variable out".to_owned(),
    })
}

fn provider(setting: &Setting<'_>) -> Option<Cause> {
    setting.sides().iter().all(|(_, ability)| ability.has_rdma()).then(|| Cause {
        what: "both sides have usable RDMA ports, and UCX did not use them: most likely the device's provider library is missing from the image, or its UCX has no RDMA module".to_owned(),
        evidence: setting
            .sides()
            .iter()
            .flat_map(|(side, ability)| ability.ports.iter().take(8).map(|port| port_line(side, port)))
            .collect(),
        next: "install the provider library that fits the libibverbs of this UCX (rdma-core), and see with IBV_SHOW_WARNINGS=1 whether it is loaded".to_owned(),
    })
}

/// Whether an entry of a list of network devices, which may hold interfaces too, is this port or its whole adapter.
fn is_named(port: &Port, entry: &str) -> bool {
    port.name == entry || port.name.split(':').next() == Some(entry)
}

/// Fewer rails than were planned and could be used.
pub(crate) fn rails(
    case: &str,
    transport: &Transport,
    row: Option<&Row>,
    setting: &Setting<'_>,
) -> Option<Finding> {
    if transport.class != Class::Rdma && transport.over != Some(Class::Rdma) {
        return None;
    }
    let mut carried: Vec<String> = Vec::new();
    for device in transport.devices.iter().filter(|d| d.side == "initiator" && d.share_percent.is_some()) {
        carried.push(format!("{} {:.1} %", device.device, device.share_percent.unwrap_or_default()));
    }
    let mut planned: Vec<&str> =
        row.into_iter().flat_map(|row| &row.lanes).map(|lane| lane.device.as_str()).collect();
    planned.sort_unstable();
    planned.dedup();
    let wished = setting.variable("UCX_MAX_RMA_RAILS").and_then(|(value, _)| value.parse().ok());
    let usable = setting.initiator.ports.iter().filter(|port| port.is_usable()).count();
    let list = setting.variable("UCX_NET_DEVICES").filter(|(value, _)| *value != "all");
    let named = list.map_or(usable, |(value, _)| {
        value
            .split(',')
            .filter(|name| setting.initiator.ports.iter().any(|port| is_named(port, name)))
            .count()
    });
    let possible = planned.len().max(usable.min(named).min(wished.unwrap_or(RAILS_DEFAULT)));
    (!carried.is_empty() && carried.len() < possible).then(|| {
        Finding::new(
            "rails-unused",
            Status::Warn,
            format!("{} of {possible} rails carried data", carried.len()),
        )
        .evidence([format!("case {case}: {}", carried.join(", "))])
        .evidence(setting.initiator.ports.iter().take(16).map(|port| port_line("initiator", port)))
        .next_step("compare UCX_NET_DEVICES and UCX_MAX_RMA_RAILS with the adapters near the memory; see that every rail reaches the peer")
    })
}

/// What `--strict` cannot promise on this UCX; `None` when it can.
pub(crate) fn strict_doubt(side: &str, ucx_version: Option<&str>) -> Option<Finding> {
    let what = match ucx_version {
        Some(version) => format!("UCX {version}"),
        None => "an unknown UCX version".to_owned(),
    };
    ucx_version.and_then(Version::read).is_none_or(|version| version < STRICT_SINCE).then(|| {
        Finding::new(
            "strict-not-possible",
            Status::Warn,
            format!("{side}: --strict cannot be promised with {what}: software emulation is turned off from UCX 1.21 on"),
        )
        .next_step("use a NIXL with UCX 1.21 or newer, or read the class of each case instead")
    })
}

/// The finding for a case whose class is not known.
pub(crate) fn unproven(case: &str, transport: &Transport, setting: &Setting<'_>) -> Finding {
    let doubt = transport.doubt.as_deref().unwrap_or("evidence is missing");
    let silenced =
        [("UCX_PROTO_INFO", "y"), ("UCX_LOG_FILE", "stderr")].into_iter().find_map(|(name, needed)| {
            let (value, source) = setting.variable(name).filter(|(value, _)| *value != needed)?;
            Some((
                format!("{name}={value}, from {source}"),
                format!("take {name} out: kvwire sets what it needs"),
            ))
        });
    let (evidence, next) = silenced.map_or_else(
        || {
            let next = "measure longer or with larger blocks; run with -v to see what UCX prints; accept any wire with --expect any";
            (None, next.to_owned())
        },
        |(evidence, next)| (Some(evidence), next),
    );
    Finding::new(
        "transport-unknown",
        Status::Unknown,
        format!("it is not known which wire carried the bytes: {doubt}"),
    )
    .evidence([format!("case {case}")])
    .evidence(evidence)
    .evidence(transport.evidence.iter().map(|e| format!("{}, {}: {}", e.side, e.source, e.text)))
    .next_step(next)
}

/// RDMA ports that are there and cannot be used, where RDMA would have been the better wire.
pub(crate) fn unusable_ports(expected: &Expected, initiator: &Ability, target: &Ability) -> Vec<Finding> {
    let sides = [("initiator", initiator), ("target", target)];
    let unusable = |(side, ability): (&'static str, &Ability)| {
        let none = !ability.ports.is_empty() && !ability.has_rdma() && expected.class == Some(Class::Tcp);
        none.then(|| {
            Finding::new(
                "rdma-unusable",
                Status::Warn,
                format!("{side}: there are RDMA ports, and none can be used"),
            )
            .evidence(ability.ports.iter().take(16).map(|port| port_line(side, port)))
            .next_step("bring a port up (ibstat, ip link) and give the container access to /dev/infiniband; --expect rdma makes this a failure")
        })
    };
    sides.into_iter().filter_map(unusable).collect()
}

/// Two UCX libraries in one process fight over memory hooks.
pub(crate) fn two_copies(side: &str, copies: &[String]) -> Option<Finding> {
    (copies.len() > 1).then(|| {
        Finding::new(
            "ucx-two-copies",
            Status::Fail,
            format!("{side}: two UCX libraries are loaded in one process"),
        )
        .evidence(copies.iter().cloned())
        .next_step("take the other UCX (HPC-X, a system UCX) out of LD_LIBRARY_PATH and of preloads")
    })
}

#[cfg(test)]
mod tests;
