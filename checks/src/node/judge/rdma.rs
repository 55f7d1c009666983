//! RDMA devices: are they usable from here, and are their ports up, fast and addressable.

use super::{Subject, names};
use crate::finding::{Finding, Status};
use crate::node::device::{Port, RdmaDevice, Verbs};
use crate::node::evidence::Entry;
use crate::node::report::{PORT, USABLE};

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    let mut findings = vec![usable(subject)];
    if subject.devices.is_empty() {
        let none = |id: &str| Finding::new(id, Status::Skipped, "no RDMA device here");
        findings.extend(
            [PORT, "rdma-rate", "rdma-lid", "rdma-pkey", "rdma-pcie", "rdma-fabrics", "roce-congestion"]
                .map(none),
        );
        return findings;
    }
    findings.extend([
        ports(subject),
        rate(subject),
        lid(subject),
        pkey(subject),
        pcie(subject),
        fabrics(subject),
        congestion(subject),
    ]);
    if subject.devices.iter().any(RdmaDevice::is_efa) {
        findings.push(efa(subject));
    }
    findings
}

/// Ports of all devices with their names, as UCX_NET_DEVICES takes them.
fn all_ports<'a>(subject: &'a Subject<'_>) -> impl Iterator<Item = (String, &'a RdmaDevice, &'a Port)> {
    subject.devices.iter().flat_map(|device| {
        device.ports.iter().map(move |port| (format!("{}:{}", device.name, port.number), device, port))
    })
}

fn usable(subject: &Subject<'_>) -> Finding {
    let finding = |status, title: String| Finding::new(USABLE, status, title);
    if subject.devices.is_empty() {
        return match subject.evidence.get("/sys/class/infiniband") {
            Some(Entry::Denied) => finding(Status::Unknown, "RDMA devices may not be listed by this user".to_owned()),
            None => finding(Status::Unknown, "RDMA devices were not looked for".to_owned()),
            _ => finding(Status::Skipped, "this node or container shows no RDMA device".to_owned()).next_step(
                "where the node has one: ask for it in the pod (rdma/… or nvidia.com/… resource, or a claim)",
            ),
        };
    }
    let evidence = subject.devices.iter().map(|device| {
        let name = &device.name;
        let (node, words) = match &device.verbs {
            Verbs::Unlisted => return format!("{name}: no uverbs device (is ib_uverbs loaded on the node?)"),
            Verbs::NoNode(node) => (node, "not here"),
            Verbs::NotSeen(node) => (node, "may not be looked at by this user"),
            Verbs::Node(node, access) => (node, access.words()),
        };
        format!("{name}: /dev/infiniband/{node} is {words}{}", opened(subject, name))
    });
    let evidence: Vec<String> = evidence.collect();
    let (good, bad): (Vec<&RdmaDevice>, Vec<&RdmaDevice>) = subject
        .devices
        .iter()
        .partition(|device| device.is_usable() && refused(subject, &device.name).is_none());
    let unseen = bad.iter().any(|device| matches!(device.verbs, Verbs::NotSeen(_)));
    let (status, title) = match (good.is_empty(), bad.is_empty()) {
        (_, true) => (Status::Ok, format!("usable from here: {}", names(good))),
        (true, _) if unseen => {
            (Status::Unknown, format!("it could not be told whether {} can be used", names(bad)))
        }
        (true, _) => (Status::Fail, format!("listed but not usable from here: {}", names(bad))),
        (false, _) => {
            (Status::Warn, format!("usable: {}; listed but not usable: {}", names(good), names(bad)))
        }
    };
    let finding = finding(status, title).evidence(evidence);
    if status == Status::Ok {
        return finding;
    }
    finding
        .detail("sysfs lists the devices of the node; a process needs the uverbs node of a device to use it")
        .next_step("give the pod the device through its device plugin (rdma/… resource) or a claim, or run as a user who may open /dev/infiniband/uverbs*")
}

/// What opening the device through libibverbs said, where that was tried.
fn opened(subject: &Subject<'_>, name: &str) -> String {
    match subject.evidence.text(&format!("probe:verbs/{name}/open")) {
        Some("ok") => ", opened through libibverbs".to_owned(),
        Some(error) => format!(", libibverbs cannot open it: {error}"),
        None => String::new(),
    }
}

/// The kernel's refusal to open a device; a missing user-space provider is another matter (libraries-rdma).
fn refused<'a>(subject: &'a Subject<'_>, name: &str) -> Option<&'a str> {
    let text = subject.evidence.text(&format!("probe:verbs/{name}/open"))?;
    (text != "ok").then_some(text)
}

fn ports(subject: &Subject<'_>) -> Finding {
    let lines = all_ports(subject).map(|(name, _, port)| {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "not readable".to_owned());
        format!(
            "{name}: {}, {}, {}, {}",
            word(&port.state),
            word(&port.physical),
            word(&port.rate),
            word(&port.link_layer)
        )
    });
    let lines: Vec<String> = lines.collect();
    let states: Vec<Option<bool>> =
        all_ports(subject).map(|(_, _, port)| port.state.as_ref().map(|_| port.is_active())).collect();
    let named = |wanted: bool| {
        let chosen = all_ports(subject).filter(|(_, _, port)| port.is_active() == wanted);
        chosen.map(|(name, _, _)| name).collect::<Vec<_>>().join(", ")
    };
    let (status, title) = if states.iter().all(Option::is_none) {
        (Status::Unknown, "the state of no port could be read".to_owned())
    } else if states.iter().all(|state| *state == Some(true)) {
        (Status::Ok, format!("active: {}", named(true)))
    } else if states.contains(&Some(true)) {
        (Status::Warn, format!("active: {}; not active: {}", named(true), named(false)))
    } else {
        (Status::Fail, format!("no port is active: {}", named(false)))
    };
    let finding = Finding::new(PORT, status, title).evidence(lines);
    match status {
        Status::Warn => finding.next_step(format!("leave the ports that are down out: UCX_NET_DEVICES={}", net_devices(subject))),
        Status::Fail => finding.next_step(
            "look at the cable and switch port; on InfiniBand see that a subnet manager runs; on RoCE bring the network interface up (ip link set DEV up)",
        ),
        _ => finding,
    }
}

/// A ready value of UCX_NET_DEVICES: the active ports with the highest rate.
fn net_devices(subject: &Subject<'_>) -> String {
    let rate = |port: &Port| port.gigabits().unwrap_or_default();
    let active = || all_ports(subject).filter(|(_, device, port)| port.is_active() && device.is_usable());
    let best = active().map(|(_, _, port)| rate(port)).fold(0.0, f64::max);
    active().filter(|(_, _, port)| rate(port) >= best).map(|(name, _, _)| name).collect::<Vec<_>>().join(",")
}

fn rate(subject: &Subject<'_>) -> Finding {
    let id = "rdma-rate";
    let rates: Vec<(String, Option<f64>, String)> = all_ports(subject)
        .filter(|(_, _, port)| port.is_active())
        .map(|(name, _, port)| (name, port.gigabits(), port.rate.clone().unwrap_or_default()))
        .collect();
    if rates.is_empty() {
        return Finding::new(id, Status::Skipped, "no active port has a rate");
    }
    let lines = rates.iter().map(|(name, _, text)| format!("{name}: {text}"));
    let known: Vec<f64> = rates.iter().filter_map(|(_, rate, _)| *rate).collect();
    let most = known.iter().copied().fold(0.0, f64::max);
    if known.len() < rates.len() {
        return Finding::new(id, Status::Unknown, "the rate of an active port could not be read")
            .evidence(lines);
    }
    if known.iter().all(|rate| *rate >= most) {
        return Finding::new(id, Status::Ok, format!("every active port runs at {most} Gb/s"))
            .evidence(lines);
    }
    Finding::new(id, Status::Warn, format!("active ports run at different rates, up to {most} Gb/s"))
        .detail("a link that came up slower than its neighbours, or a management port beside the fast ones")
        .evidence(lines)
        .next_step(format!("bind the fast ports only: UCX_NET_DEVICES={}", net_devices(subject)))
}

fn lid(subject: &Subject<'_>) -> Finding {
    let id = "rdma-lid";
    let ports: Vec<_> =
        all_ports(subject).filter(|(_, _, port)| port.is_infiniband() && port.is_active()).collect();
    if ports.is_empty() {
        return Finding::new(id, Status::Skipped, "no active InfiniBand port, so no LID");
    }
    let lines = ports.iter().map(|(name, _, port)| match port.lid {
        Some(lid) => format!("{name}: LID {lid:#x}"),
        None => format!("{name}: LID not readable"),
    });
    let lines: Vec<String> = lines.collect();
    let missing: Vec<&str> =
        ports.iter().filter(|(_, _, port)| port.lid == Some(0)).map(|(name, _, _)| name.as_str()).collect();
    if !missing.is_empty() {
        return Finding::new(id, Status::Warn, format!("no LID on {}", missing.join(", ")))
            .detail("the subnet manager gave the port no address, or it is a bonded or virtual port that must be addressed globally")
            .evidence(lines)
            .next_step("see that a subnet manager runs; on a virtual function or bond set UCX_IB_IS_GLOBAL=y");
    }
    if ports.iter().any(|(_, _, port)| port.lid.is_none()) {
        return Finding::new(id, Status::Unknown, "a LID could not be read").evidence(lines);
    }
    Finding::new(id, Status::Ok, "every active InfiniBand port has a LID").evidence(lines)
}

fn pkey(subject: &Subject<'_>) -> Finding {
    let id = "rdma-pkey";
    const FULL_MEMBER: u16 = 0x8000;
    let ports: Vec<_> = all_ports(subject)
        .filter(|(_, device, port)| port.is_active() && !device.is_efa())
        .map(|(name, _, port)| (name, port.pkeys.clone()))
        .collect();
    if ports.is_empty() {
        return Finding::new(id, Status::Skipped, "no active port that has partition keys");
    }
    let lines = ports.iter().map(|(name, keys)| {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:#06x}")).collect();
        format!("{name}: {}", if keys.is_empty() { "none".to_owned() } else { keys.join(", ") })
    });
    let lines: Vec<String> = lines.collect();
    let without = |bad: fn(&Vec<u16>) -> bool| {
        ports
            .iter()
            .filter(|(_, keys)| bad(keys))
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let empty = without(Vec::is_empty);
    if !empty.is_empty() {
        return Finding::new(id, Status::Unknown, format!("no partition key could be read on {empty}"))
            .evidence(lines);
    }
    let limited = without(|keys| keys.iter().all(|key| key & FULL_MEMBER == 0));
    if !limited.is_empty() {
        return Finding::new(id, Status::Warn, format!("only limited partition membership on {limited}"))
            .detail("two limited members of a partition cannot talk to each other")
            .evidence(lines)
            .next_step("ask the fabric's administrator for full membership (0x8000 set in the key), or name another key in UCX_IB_PKEY");
    }
    Finding::new(id, Status::Ok, "every active port is a full member of a partition").evidence(lines)
}

fn pcie(subject: &Subject<'_>) -> Finding {
    let id = "rdma-pcie";
    let mut lines = Vec::new();
    let mut slow = Vec::new();
    let mut unknown = 0;
    for device in &subject.devices {
        let Some(pci) = &device.pci else {
            lines.push(format!("{}: no PCI device (software device, or hidden)", device.name));
            continue;
        };
        let read = |name: &str| pci.attribute(subject.evidence, name);
        let (speed, width) = (read("current_link_speed"), read("current_link_width"));
        let (best_speed, best_width) = (read("max_link_speed"), read("max_link_width"));
        let (Some(speed), Some(width), Some(best_speed), Some(best_width)) =
            (speed, width, best_speed, best_width)
        else {
            lines.push(format!("{}: PCIe link not readable", device.name));
            unknown += 1;
            continue;
        };
        let numa = pci.numa(subject.evidence).map_or_else(|| "not known".to_owned(), |node| node.to_string());
        lines.push(format!(
            "{} ({}): {speed} x{width}, possible {best_speed} x{best_width}, NUMA node {numa}",
            device.name,
            pci.address()
        ));
        let less = |now: &str, best: &str| match (leading(now), leading(best)) {
            (Some(now), Some(best)) => now < best,
            _ => false,
        };
        // A virtual function reports no link of its own (width 0).
        if width != "0" && (less(speed, best_speed) || less(width, best_width)) {
            slow.push(device.name.as_str());
        }
    }
    let finding = if !slow.is_empty() {
        Finding::new(id, Status::Warn, format!("PCIe link below what the card can do: {}", slow.join(", ")))
            .next_step("reseat the card or move it to a slot with more lanes; look for a power-saving setting that lowers the link speed")
    } else if unknown > 0 {
        Finding::new(id, Status::Unknown, "the PCIe link of a device could not be read")
    } else if subject.devices.iter().all(|device| device.pci.is_none()) {
        Finding::new(id, Status::Skipped, "no RDMA device here is a PCI device")
    } else {
        Finding::new(id, Status::Ok, "every PCIe link runs at the card's full width and speed")
    };
    finding.evidence(lines)
}

/// The number that a text begins with: `32.0 GT/s PCIe`.
fn leading(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn fabrics(subject: &Subject<'_>) -> Finding {
    let id = "rdma-fabrics";
    let mut fabrics: Vec<(u64, Vec<String>)> = Vec::new();
    let mut addresses = Vec::new();
    for (name, _, port) in all_ports(subject).filter(|(_, _, port)| port.is_active() && port.is_infiniband())
    {
        let Some(gid) = port.gids.first() else { continue };
        addresses.push(format!("{name}: UCX takes {gid}"));
        addresses.extend(port.gids.iter().skip(1).map(|gid| format!("{name}: also {gid}")));
        let prefix = gid.subnet_prefix();
        match fabrics.iter_mut().find(|(known, _)| *known == prefix) {
            Some((_, ports)) => ports.push(name),
            None => fabrics.push((prefix, vec![name])),
        }
    }
    let layers: Vec<&str> = {
        let mut layers: Vec<&str> = all_ports(subject)
            .filter(|(_, _, port)| port.is_active())
            .filter_map(|(_, _, port)| port.link_layer.as_deref())
            .collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    };
    let lines =
        fabrics.iter().map(|(prefix, ports)| format!("subnet prefix {prefix:016x}: {}", ports.join(", ")));
    let lines: Vec<String> = lines.chain(addresses).collect();
    if fabrics.len() > 1 || layers.len() > 1 {
        let what = if fabrics.len() > 1 {
            "InfiniBand ports of different subnets"
        } else {
            "both InfiniBand and Ethernet ports"
        };
        let chosen = subject.evidence.variable("UCX_NET_DEVICES");
        let (status, next) = match chosen {
            Some(value) if value != "all" => (Status::Ok, String::new()),
            _ => (
                Status::Warn,
                format!(
                    "name the ports of the fabric that both sides share, for example UCX_NET_DEVICES={}",
                    net_devices(subject)
                ),
            ),
        };
        let title = match chosen {
            Some(value) => format!("{what} are active; UCX_NET_DEVICES={value}"),
            None => format!(
                "{what} are active and UCX_NET_DEVICES is not set: UCX may pair ports that cannot reach each other"
            ),
        };
        return Finding::new(id, status, title).evidence(lines).next_step(next);
    }
    if layers.is_empty() {
        return Finding::new(id, Status::Skipped, "no active port");
    }
    Finding::new(id, Status::Ok, "all active ports are of one fabric").evidence(lines)
}

/// Counters of a lossy or congested RoCE fabric, since the counters were last cleared.
fn congestion(subject: &Subject<'_>) -> Finding {
    const LOSS: [&str; 6] = [
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "retry_exceeded_err",
        "roce_adp_retrans",
    ];
    const MARKS: [&str; 3] = ["np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets"];
    let id = "roce-congestion";
    let ports: Vec<_> = all_ports(subject).filter(|(_, _, port)| port.is_roce()).collect();
    if ports.is_empty() {
        return Finding::new(id, Status::Skipped, "no RoCE port");
    }
    let (mut lines, mut lossy, mut seen) = (Vec::new(), Vec::new(), 0);
    for (name, device, port) in &ports {
        let at = format!("/sys/class/infiniband/{}/ports/{}/hw_counters", device.name, port.number);
        let value = |counter: &str| {
            subject.evidence.number(&format!("{at}/{counter}")).map(|n| (counter.to_owned(), n))
        };
        let values: Vec<(String, i64)> =
            LOSS.iter().chain(&MARKS).filter_map(|counter| value(counter)).collect();
        seen += values.len();
        if values.is_empty() {
            lines.push(format!("{name}: no such counters are readable"));
            continue;
        }
        if values.iter().any(|(counter, n)| *n > 0 && LOSS.contains(&counter.as_str())) {
            lossy.push(name.as_str());
        }
        let text: Vec<String> = values.iter().map(|(counter, n)| format!("{counter} {n}")).collect();
        lines.push(format!("{name}: {}", text.join(", ")));
    }
    for (path, entry) in subject.evidence.below("/sys/class/net").filter(|(path, _)| path.contains("/ecn/")) {
        if let Entry::Text(text) = entry {
            lines.push(format!("{path}: {}", text.trim()));
        }
    }
    for (path, entry) in subject.evidence.below("/sys/class/infiniband") {
        if let (true, Entry::Text(text)) = (path.ends_with("/traffic_class"), entry) {
            lines.push(format!("{path}: {}", text.trim()));
        }
    }
    let mut discards = Vec::new();
    let mut flow_control = Vec::new();
    for (path, entry) in subject.evidence.below("probe:ethtool") {
        let Entry::Text(text) = entry else { continue };
        let interface = path.rsplit('/').next().unwrap_or_default();
        let counted = |line: &&str| line.rsplit(' ').next() != Some("0");
        let nonzero: Vec<&str> = text.lines().filter(counted).collect();
        if nonzero.iter().any(|line| line.contains("discard")) {
            discards.push(interface);
        }
        let told = if nonzero.is_empty() { "all zero".to_owned() } else { nonzero.join(", ") };
        flow_control.push(format!("{interface}: priority flow control (PFC): {told}"));
    }
    if flow_control.is_empty() {
        flow_control.push("no counter of priority flow control (PFC) could be read; with ethtool: `ethtool -S DEV` (rx_prio*_pause)".to_owned());
    }
    lines.extend(flow_control);
    if seen == 0 {
        return Finding::new(id, Status::Unknown, "no congestion or loss counter could be read")
            .evidence(lines);
    }
    if lossy.is_empty() && !discards.is_empty() {
        let title = format!("packets were discarded for want of room on {}", discards.join(", "));
        return Finding::new(id, Status::Warn, title)
            .detail("flow control did not stop the sender in time: no priority is lossless, or its buffer is too small")
            .evidence(lines)
            .next_step("read the counters again after a run; when they rise, have the network's PFC settings looked at");
    }
    if lossy.is_empty() {
        return Finding::new(id, Status::Ok, "no retransmission was counted on a RoCE port").evidence(lines);
    }
    Finding::new(id, Status::Warn, format!("retransmissions were counted on {}", lossy.join(", ")))
        .detail("counted since the driver was loaded; whether they rise during a transfer is what matters")
        .evidence(lines)
        .next_step("read the counters again after a run; when they rise, have the network's PFC and ECN settings looked at")
}

fn efa(subject: &Subject<'_>) -> Finding {
    Finding::new(
        "efa-ucx",
        Status::Warn,
        format!("Amazon EFA: {}", names(subject.devices.iter().filter(|device| device.is_efa()))),
    )
    .detail("UCX uses EFA only from 1.19 on, and writes and reads without emulation from 1.20 on; engines default to the UCX backend")
    .next_step("measure with `kvwire run` and look at the transport that carried the bytes; the libfabric backend is the other way")
}
