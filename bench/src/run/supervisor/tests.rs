//! The deadline of a side that cannot go on, on a clock that jumps.

use std::sync::Arc;

use checks::{Finding, Status};
use coordinator::{Lost, MemoryHub, Options, Role, ServerLimits, Store, StoreError};

use super::*;
use crate::verdict::Outcome;

const LEASE: Duration = Duration::from_secs(5);

/// A target whose peer is there for ever and, after its hello, neither says nor reads anything.
async fn facing_a_mute_peer() -> (Supervisor, Arc<dyn Store>) {
    let hub = MemoryHub::new(ServerLimits::default());
    let (run, options) = ("r".parse().unwrap(), Options { lease_ttl: LEASE, ..Options::default() });
    let mute: Arc<dyn Store> = Arc::new(hub.join(&run, &options).unwrap());
    for (key, value) in [
        ("initiator/presence", r#"{"session":1,"who":"mute"}"#),
        ("initiator/msg/0000000000", "{\"ack\":0}\nhello"),
    ] {
        mute.put_if_absent(key, Bytes::from(value)).await.unwrap();
    }
    let own = Arc::new(hub.join(&run, &options).unwrap());
    let (session, peer) = Session::join(own, Role::Target, "us", Bytes::new(), &options).await.unwrap();
    let peer = Peer { who: peer.who, serves_rendezvous: false, lease: LEASE, patience: LEASE + LEASE_MARGIN };
    (Supervisor::new(session, Interrupts::new("target").unwrap(), peer), mute)
}

fn failed() -> Message {
    let finding = Box::new(Finding::new("x", Status::Fail, "x"));
    Message::Failed { finding, outcome: Outcome::Inconclusive }
}

#[tokio::test(start_paused = true)]
async fn who_is_interrupted_has_ended_five_seconds_after_the_lease_whatever_the_peer_does() {
    let (mut supervisor, _mute) = facing_a_mute_peer().await;
    let begin = Instant::now();
    supervisor.stopping(&Stop::Interrupted { whose: "target", signal: "SIGTERM" });
    assert!(supervisor.last_word(&failed()).await.is_none());
    assert!(supervisor.peer_trouble().await.is_none());
    supervisor.part(None).await;
    let took = begin.elapsed();
    assert!(took > LEASE && took <= LEASE + WIND_UP, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_has_lost_its_peer_has_ended_five_seconds_later() {
    let (mut supervisor, _mute) = facing_a_mute_peer().await;
    let begin = Instant::now();
    let reason = StoreError::Lost(Lost::Left);
    supervisor.stopping(&Stop::Peer(PeerError::ControlPlane { reason }));
    assert!(supervisor.last_word(&failed()).await.is_none());
    supervisor.part(None).await;
    let took = begin.elapsed();
    assert!(took <= WIND_UP, "{took:?}");
}
