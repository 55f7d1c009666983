//! Two sides meet: they take their roles, say hello, and check each other before anything is measured.

use std::time::Duration;

use bytes::Bytes;
use checks::{Finding, Node, Status};
use coordinator::{JoinError, Role, Session};
use tokio::time::timeout;

use super::message::{Hello, PROTOCOL};
use super::rendezvous::Rendezvous;
use super::stop::Stop;
use super::supervisor::{FAREWELL_TIME, Interrupts, Supervisor};

/// From the end of a lease to the word of it.
const LEASE_MARGIN: Duration = Duration::from_secs(1);

/// Both sides, once they have met.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) supervisor: Supervisor,
    pub(crate) own: Hello,
    pub(crate) peer: Hello,
    /// Differences that a reader should know.
    pub(crate) findings: Vec<Finding>,
}

/// Joins the run in `role` and waits for the peer. `same_host_is_fine` accepts both on one host.
///
/// # Errors
/// The rendezvous or the peer did not come, the role is taken, or the two do not fit together.
pub(crate) async fn join(
    rendezvous: &Rendezvous,
    role: Role,
    node: &Node,
    same_host_is_fine: bool,
    mut interrupts: Interrupts,
) -> Result<Met, Stop> {
    tokio::select! {
        met = meet(rendezvous, role, node) => {
            let (session, own, peer, who) = met?;
            let findings = match compare(&own.node, &peer, same_host_is_fine) {
                Ok(findings) => findings,
                Err(stop) => {
                    // The other side comes to the same end by itself, once it has read the hello.
                    let _ = timeout(FAREWELL_TIME, session.leave("the two sides do not fit together")).await;
                    return Err(stop);
                }
            };
            let served_by_peer = rendezvous.served_by_peer();
            let same_process = own.node.same_host(&peer.node) && own.node.pid == peer.node.pid;
            // A peer's death is known once its lease has run out, which an error of the wire may be ahead of.
            let patience = if same_process { Duration::from_secs(1) } else { rendezvous.options.lease_ttl + LEASE_MARGIN };
            let supervisor = Supervisor::new(session, interrupts, who, served_by_peer, patience);
            Ok(Met { supervisor, own, peer, findings })
        }
        stop = interrupts.wait() => Err(stop),
    }
}

async fn meet(
    rendezvous: &Rendezvous,
    role: Role,
    node: &Node,
) -> Result<(Session, Hello, Hello, String), Stop> {
    let store = rendezvous.join().await.map_err(|e| refused("join-failed", e.to_string()))?;
    let own = Hello {
        protocol: PROTOCOL,
        node: node.clone(),
        route: rendezvous.route().await,
        place: store.place(),
    };
    let hello = serde_json::to_vec(&own).map_err(|e| Stop::Confused(e.to_string()))?;
    let who = identity(node);
    let (session, peer) =
        Session::join(store, role, &who, Bytes::from(hello), &rendezvous.options).await.map_err(|e| {
            let id = match e {
                JoinError::RoleTaken { .. } => "role-taken",
                JoinError::NoPeer { .. } => "peer-missing",
                _ => "join-failed",
            };
            refused(id, e.to_string())
        })?;
    let hello = serde_json::from_slice(&peer.hello).map_err(|e| {
        refused(
            "version-refused",
            format!(
                "the hello of the {} {} cannot be read ({e}): run the same kvwire version on both sides",
                role.peer(),
                peer.who
            ),
        )
    })?;
    Ok((session, own, hello, format!("{} {}", role.peer(), peer.who)))
}

/// How a process names itself to others, who know its role.
pub(crate) fn identity(node: &Node) -> String {
    format!("on {} (process {})", node.hostname, node.pid)
}

fn refused(id: &str, title: String) -> Stop {
    let next = match id {
        "peer-missing" => {
            "start kvwire on the other host, see that it names the same rendezvous and run, and that its port is open"
        }
        "role-taken" => "start one target and one initiator per run, or give each pair its own --run-id",
        "version-refused" => "run the same kvwire version on both sides",
        _ => "see that the address is right, that its port is open, and that the other side runs",
    };
    Stop::Refused(Box::new(Finding::new(id, Status::Fail, title).next_step(next)))
}

/// What the two hellos say together.
fn compare(own: &Node, peer: &Hello, same_host_is_fine: bool) -> Result<Vec<Finding>, Stop> {
    let theirs = &peer.node;
    let both =
        |what: fn(&Node) -> String| [format!("here: {}", what(own)), format!("there: {}", what(theirs))];
    let major = |version: &str| version.split('.').next().unwrap_or_default().to_owned();
    if peer.protocol != PROTOCOL || major(&own.kvwire) != major(&theirs.kvwire) {
        return Err(refused(
            "version-refused",
            format!(
                "kvwire {} here and kvwire {} there do not understand each other",
                own.kvwire, theirs.kvwire
            ),
        ));
    }
    let mut findings = Vec::new();
    if own.same_host(theirs) && !same_host_is_fine {
        let finding = Finding::new(
            "same-host",
            Status::Fail,
            format!("both sides run on one host ({}): nothing would be said about the network", own.hostname),
        );
        let fix = "run the two sides on two hosts, or accept one with --allow-same-host on both sides";
        return Err(Stop::Refused(Box::new(finding.next_step(fix))));
    }
    if own.kvwire != theirs.kvwire {
        findings.push(
            Finding::new("kvwire-differs", Status::Warn, "the two sides run different kvwire versions")
                .evidence(both(|n| n.kvwire.clone()))
                .next_step("run the same kvwire version on both sides"),
        );
    }
    if own.fabric.rdma_devices.is_empty() != theirs.fabric.rdma_devices.is_empty() {
        findings.push(
            Finding::new(
                "fabric-differs",
                Status::Warn,
                "only one side has RDMA devices, so RDMA cannot carry the bytes",
            )
            .evidence(both(|n| format!("{}: {}", n.hostname, list(&n.fabric.rdma_devices))))
            .next_step("make the RDMA devices visible on the other side (device plugin, /dev/infiniband)"),
        );
    }
    Ok(findings)
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no RDMA device".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node: Node) -> Hello {
        Hello { protocol: PROTOCOL, node, route: None, place: String::new() }
    }

    fn node(version: &str, boot: &str) -> Node {
        Node { kvwire: version.to_owned(), boot_id: Some(boot.to_owned()), ..Node::default() }
    }

    fn refusal(own: &Node, peer: &Hello) -> Option<String> {
        match compare(own, peer, false) {
            Err(Stop::Refused(finding)) => Some(finding.id),
            _ => None,
        }
    }

    #[test]
    fn one_host_is_refused_unless_accepted() {
        let own = node("0.1.0", "a");
        assert_eq!(refusal(&own, &hello(own.clone())).as_deref(), Some("same-host"));
        assert!(compare(&own, &hello(own.clone()), true).is_ok_and(|f| f.is_empty()));
        assert_eq!(refusal(&own, &hello(node("0.1.0", "b"))), None);
    }

    #[test]
    fn two_majors_and_two_protocols_refuse_each_other() {
        let own = node("0.1.0", "a");
        assert_eq!(refusal(&own, &hello(node("1.0.0", "b"))).as_deref(), Some("version-refused"));
        let other = Hello { protocol: PROTOCOL + 1, ..hello(node("0.1.0", "b")) };
        assert_eq!(refusal(&own, &other).as_deref(), Some("version-refused"));
    }

    #[test]
    fn differences_that_matter_show_both_values() {
        let own = node("0.1.0", "a");
        let mut theirs = node("0.1.1", "b");
        theirs.fabric.rdma_devices = vec!["mlx5_0".to_owned()];
        let findings = compare(&own, &hello(theirs), false).unwrap();
        let ids: Vec<&str> = findings.iter().map(|f| f.id.as_str()).collect();
        assert_eq!(ids, ["kvwire-differs", "fabric-differs"]);
        assert_eq!(findings[0].evidence, ["here: 0.1.0", "there: 0.1.1"]);
        assert!(findings[1].evidence[1].contains("mlx5_0"));
    }
}
