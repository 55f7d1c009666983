//! Two sides meet: they take their roles, say hello, and check each other before anything is measured.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use checks::{Finding, Node, Status};
use coordinator::{JoinError, PeerError, Role, Session, Store};
use tokio::time::timeout;

use super::message::{Hello, PROTOCOL};
use super::rendezvous::Rendezvous;
use super::stop::{LOOK_AT_PEER, Stop};
use super::supervisor::{FAREWELL_TIME, Interrupts, LEASE_MARGIN, Peer as PeerFacts, Supervisor};
use crate::engine::Phase;

/// Longest hello that is looked at, in bytes. A node with a hundred devices says a tenth of it.
const MAX_HELLO: usize = 1 << 20;

/// Both sides, once they have met.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) supervisor: Supervisor,
    pub(crate) own: Hello,
    pub(crate) peer: Hello,
    /// Differences that a reader should know.
    pub(crate) findings: Vec<Finding>,
}

/// Two sides that did not meet: why, and how far they had come.
#[derive(Debug)]
pub(crate) struct Missed {
    pub(crate) stop: Stop,
    pub(crate) at: Phase,
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
) -> Result<Met, Missed> {
    let (at, claimed) = (Cell::new(Phase::Join), Cell::new(false));
    let meeting = Meeting { rendezvous, role, at, store: OnceCell::new(), claimed };
    let signals = interrupts.clone();
    let met = tokio::select! {
        met = meeting.meet(node, same_host_is_fine, signals) => met,
        stop = interrupts.wait() => Err(stop),
    };
    match met {
        Ok(met) => Ok(met),
        Err(stop) => {
            meeting.leave(&stop).await;
            Err(Missed { stop, at: meeting.at.get() })
        }
    }
}

/// Two sides on their way to each other.
struct Meeting<'a> {
    rendezvous: &'a Rendezvous,
    role: Role,
    at: Cell<Phase>,
    store: OnceCell<Arc<dyn Store>>,
    /// The role is ours; until then its goodbye is another process's to say.
    claimed: Cell<bool>,
}

impl Meeting<'_> {
    async fn meet(&self, node: &Node, same_host_is_fine: bool, interrupts: Interrupts) -> Result<Met, Stop> {
        let rendezvous = self.rendezvous;
        let store = rendezvous.join().await.map_err(|e| refused("join-failed", e.to_string()))?;
        let store = self.store.get_or_init(|| store);
        let mut own = Hello {
            protocol: PROTOCOL,
            node: node.clone(),
            route: rendezvous.route().await,
            place: store.place(),
        };
        let hello = serde_json::to_vec(&own).map_err(|e| Stop::Confused(e.to_string()))?;
        let options = &rendezvous.options;
        let claim =
            Session::claim(Arc::clone(store), self.role, &identity(node), Bytes::from(hello), options)
                .await
                .map_err(|e| self.missed(e, None))?;
        self.claimed.set(true);
        let who = claim.peer().await.map_err(|e| self.missed(e, None))?;
        self.at.set(Phase::Hello);
        let who = format!("{} {who}", self.role.peer());
        let (session, peer) = claim.hello().await.map_err(|e| self.missed(e, Some(&who)))?;
        let peer = read_hello(&peer.hello, &who)?;
        let findings = match compare(&own.node, &peer, same_host_is_fine) {
            Ok(findings) => findings,
            Err(stop) => {
                // The other side comes to the same end by itself, unless it was told to accept what this one was not.
                let Finding { title, next_step, .. } = stop.finding("hello");
                let reason = format!("{title}; {next_step}");
                let _ = timeout(FAREWELL_TIME, session.leave(&reason)).await;
                return Err(stop);
            }
        };
        own.route = own.route.or_else(|| rendezvous.end_of_peer());
        // In two pods of one host both sides may have the number 1.
        let same_process = own.node.same_host(&peer.node)
            && own.node.namespaces.pid == peer.node.namespaces.pid
            && own.node.pid == peer.node.pid;
        let lease = options.lease_ttl;
        // A peer's death is known once its lease has run out, which an error of the wire may be ahead of.
        let patience = if same_process { Duration::from_secs(1) } else { lease + LEASE_MARGIN };
        let facts = PeerFacts { who, serves_rendezvous: rendezvous.served_by_peer(), lease, patience };
        Ok(Met { supervisor: Supervisor::new(session, interrupts, facts), own, peer, findings })
    }

    /// Why the peer was not met; `who` it is, where it was seen.
    fn missed(&self, error: JoinError, who: Option<&str>) -> Stop {
        let title = error.to_string();
        let error = match error {
            JoinError::RoleTaken { .. } => return refused("role-taken", title),
            JoinError::NoPeer { .. } => return refused("peer-missing", title),
            JoinError::NoHello { .. } => return refused("peer-silent", format!("{title} (hello)")),
            JoinError::OtherVersion { .. } => return refused("version-refused", title),
            JoinError::Peer(error) => error,
            JoinError::Store(reason) => PeerError::ControlPlane { reason },
        };
        if self.rendezvous.served_by_peer() && matches!(error, PeerError::ControlPlane { .. }) {
            let who = who.map_or_else(|| format!("the {}", self.role.peer()), str::to_owned);
            return Stop::ServingPeer { who, error };
        }
        Stop::Peer(error)
    }

    /// Gives up the place in the run at once, so that whoever waits for this side knows.
    async fn leave(&self, stop: &Stop) {
        let Some(store) = self.store.get() else { return };
        let reason = match stop {
            Stop::Interrupted { signal, .. } => format!("interrupted by {signal}"),
            _ => "it could not go on".to_owned(),
        };
        let leaving = async {
            if self.claimed.get() {
                Session::give_up(store.as_ref(), self.role, &reason).await
            } else {
                store.leave().await
            }
        };
        // Ignored: the lease runs out by itself.
        let _ = timeout(FAREWELL_TIME, leaving).await;
    }
}

fn read_hello(hello: &[u8], who: &str) -> Result<Hello, Stop> {
    let unreadable = |why: String| {
        refused(
            "version-refused",
            format!(
                "the hello of the {who} cannot be read ({why}): run the same kvwire version on both sides"
            ),
        )
    };
    if hello.len() > MAX_HELLO {
        return Err(unreadable(format!("it has {} bytes", hello.len())));
    }
    serde_json::from_slice(hello).map_err(|e| unreadable(e.to_string()))
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
        "peer-silent" => LOOK_AT_PEER,
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
