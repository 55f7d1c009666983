//! RoCE addresses: which GID UCX takes, and whether the one that the user named is a good one.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::device::{Gid, Port};

const ID: &str = "roce-gid";

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    let ports: Vec<(String, &Port)> = subject
        .devices
        .iter()
        .flat_map(|device| {
            device.ports.iter().map(move |port| (format!("{}:{}", device.name, port.number), port))
        })
        .filter(|(_, port)| port.is_roce())
        .collect();
    if ports.is_empty() {
        return vec![Finding::new(ID, Status::Skipped, "no RoCE port")];
    }
    let mut findings = vec![chosen(&ports)];
    if let Some(value) = subject.evidence.variable("UCX_IB_GID_INDEX").filter(|value| *value != "auto") {
        findings.push(named(&ports, value));
    }
    findings
}

/// What UCX would take by itself.
fn chosen(ports: &[(String, &Port)]) -> Finding {
    let mut lines = Vec::new();
    let (mut none, mut poor) = (Vec::new(), Vec::new());
    for (name, port) in ports {
        match port.gid_of_ucx() {
            None => none.push(name.as_str()),
            Some(gid) => {
                lines.push(format!("{name}: UCX takes {gid}"));
                if problem(gid).is_some() {
                    poor.push(name.as_str());
                }
            }
        }
        let rest =
            port.gids.iter().filter(|gid| Some(gid.index) != port.gid_of_ucx().map(|taken| taken.index));
        lines.extend(rest.map(|gid| format!("{name}: also {gid}")));
    }
    if !none.is_empty() {
        return Finding::new(ID, Status::Fail, format!("no address (GID) on {}", none.join(", ")))
            .detail("a RoCE port gets its GIDs from the IP addresses of its network interface; in a container the interface may be in another network namespace")
            .evidence(lines)
            .next_step("give the port's network interface an IP address, and move it into the pod's network namespace (RDMA CNI, or host networking)");
    }
    if !poor.is_empty() {
        return Finding::new(
            ID,
            Status::Warn,
            format!("only a link-local or RoCE v1 address on {}", poor.join(", ")),
        )
        .detail("such an address is not routed: it works only within one layer-2 network")
        .evidence(lines)
        .next_step("give the port's network interface a routable IP address");
    }
    Finding::new(ID, Status::Ok, "every RoCE port has a routable RoCE v2 address").evidence(lines)
}

/// What is wrong with a GID for traffic between two hosts.
fn problem(gid: &Gid) -> Option<&'static str> {
    if gid.is_link_local() {
        Some("link-local")
    } else if gid.kind.is_some() && !gid.is_v2() {
        Some("RoCE v1")
    } else {
        None
    }
}

/// What the user's UCX_IB_GID_INDEX means on each port.
fn named(ports: &[(String, &Port)], value: &str) -> Finding {
    let id = "roce-gid-index";
    let Ok(index) = value.parse::<u32>() else {
        return Finding::new(id, Status::Fail, format!("UCX_IB_GID_INDEX={value} is no index"))
            .next_step("leave UCX_IB_GID_INDEX unset: UCX takes the right one by itself");
    };
    let mut bad = Vec::new();
    let mut lines = Vec::new();
    for (name, port) in ports {
        let why = match port.gids.iter().find(|gid| gid.index == index) {
            None => Some("empty"),
            Some(gid) => problem(gid),
        };
        if let Some(why) = why {
            let better = port.gid_of_ucx().map_or("none".to_owned(), ToString::to_string);
            bad.push(name.as_str());
            lines.push(format!("{name}: index {index} is {why}; UCX by itself takes {better}"));
        }
    }
    if bad.is_empty() {
        return Finding::new(
            id,
            Status::Ok,
            format!("UCX_IB_GID_INDEX={index} is a routable RoCE v2 address on every port"),
        );
    }
    Finding::new(
        id,
        Status::Fail,
        format!("UCX_IB_GID_INDEX={index} is no usable address on {}", bad.join(", ")),
    )
    .evidence(lines)
    .next_step(
        "unset UCX_IB_GID_INDEX: UCX takes the right one on each port, and indexes differ between hosts",
    )
}
