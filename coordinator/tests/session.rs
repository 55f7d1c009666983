//! Two roles that find each other, talk, and learn how the other one ended.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at whatever it did not expect"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{JoinError, Options, Peer, PeerError, Role, Session, Store, Why};
use support::{LIMIT, Place, within};

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn join(store: Arc<dyn Store>, role: Role, options: &Options) -> Result<(Session, Peer), JoinError> {
    let hello = bytes(&format!("{{\"role\":\"{role}\"}}"));
    within("joining", Session::join(store, role, "on host h", hello, options)).await
}

/// Both roles of a fresh run, each with a store of its own.
async fn pair(place: &Place) -> (Session, Session) {
    let options = place.options();
    let (a, b) = (place.join("r").await, place.join("r").await);
    let (target, initiator) =
        tokio::join!(join(a, Role::Target, &options), join(b, Role::Initiator, &options));
    let ((target, of_target), (initiator, of_initiator)) = (target.unwrap(), initiator.unwrap());
    assert_eq!(of_target, Peer { who: "on host h".into(), hello: bytes("{\"role\":\"initiator\"}") });
    assert_eq!(of_initiator, Peer { who: "on host h".into(), hello: bytes("{\"role\":\"target\"}") });
    (target, initiator)
}

async fn messages_come_whole_and_in_order_both_ways(place: Place) {
    let (target, initiator) = pair(&place).await;
    for n in 0..50 {
        initiator.send(bytes(&format!("ask {n}"))).await.unwrap();
        assert_eq!(within("ask", target.recv()).await.unwrap(), format!("ask {n}"));
        target.send(bytes(&format!("answer {n}"))).await.unwrap();
        assert_eq!(within("answer", initiator.recv()).await.unwrap(), format!("answer {n}"));
    }
    // One way only, far beyond the window, large ones among them.
    let (target, initiator) = (Arc::new(target), initiator);
    let reader = Arc::clone(&target);
    let reading = tokio::spawn(async move {
        for n in 0..100_usize {
            let message = within("a message", reader.recv()).await.unwrap();
            let size = if n % 40 == 7 { 5 << 20 } else { n };
            assert_eq!(message.len(), size, "message {n}");
            assert!(message.iter().all(|b| usize::from(*b) == n % 251));
        }
    });
    for n in 0..100_usize {
        let size = if n % 40 == 7 { 5 << 20 } else { n };
        let message = vec![u8::try_from(n % 251).unwrap(); size];
        within("sending", initiator.send(message.into())).await.unwrap();
    }
    reading.await.unwrap();
}

async fn a_read_mailbox_is_emptied(place: Place) {
    let (target, initiator) = pair(&place).await;
    for n in 0..100 {
        initiator.send(bytes(&n.to_string())).await.unwrap();
        target.recv().await.unwrap();
        target.send(bytes("ok")).await.unwrap();
        initiator.recv().await.unwrap();
    }
    // Whatever was said is acknowledged and goes; what stays is bounded by the window.
    let left = within("the mailbox to empty", async {
        let observer = place.join("r").await;
        let mut keys = Vec::new();
        for role in ["target", "initiator"] {
            for n in 0..90 {
                let key = format!("{role}/msg/{n:010}");
                if observer.get(&key).await.unwrap().is_some() {
                    keys.push(key);
                }
            }
        }
        keys
    });
    assert_eq!(left.await, Vec::<String>::new());
}

async fn a_sender_is_held_back_by_a_reader_that_is_gone(place: Place) {
    let options = place.options();
    let (a, b) = (place.join("r").await, place.join("r").await);
    let mut target = tokio::spawn({
        let options = options.clone();
        async move { join(a, Role::Target, &options).await }
    });
    // A peer that says hello and then never reads: put by hand.
    let presence = bytes("{\"session\":1,\"who\":\"mute\"}");
    b.put_if_absent("initiator/presence", presence).await.unwrap();
    b.put_if_absent("initiator/msg/0000000000", bytes("{\"ack\":0}\nhello")).await.unwrap();
    let (target, peer) = within("joining", &mut target).await.unwrap().unwrap();
    assert_eq!(peer.who, "mute");
    let sent = async {
        let mut sent = 0;
        loop {
            match target.send(bytes("x")).await {
                Ok(()) => sent += 1,
                Err(e) => return (sent, e),
            }
        }
    };
    let (sent, (count, error)) = tokio::join!(
        async {
            // The window is 32 with the hello; the sender then waits until the peer is gone.
            let key = "target/msg/0000000031";
            let mut watch = b.watch(key).await.unwrap();
            within("the last message of the window", watch.next()).await.unwrap();
            let beyond = b.get("target/msg/0000000032").await.unwrap();
            drop(b);
            beyond
        },
        within("the end of sending", sent)
    );
    assert_eq!((sent, count), (None, 31));
    assert!(error.to_string().contains("lost initiator mute"), "{error}");
}

async fn a_taken_role_is_refused_by_name(place: Place) {
    let options = place.options();
    let (target, initiator) = pair(&place).await;
    let error = join(place.join("r").await, Role::Target, &options).await.unwrap_err();
    assert!(
        matches!(&error, JoinError::RoleTaken { role: Role::Target, holder, .. } if holder == "on host h")
    );
    assert!(error.to_string().contains("held by the target on host h"), "{error}");
    // The two who were there first are not disturbed.
    initiator.send(bytes("still here")).await.unwrap();
    assert_eq!(within("the message", target.recv()).await.unwrap(), "still here");
}

async fn a_restarted_process_may_wait_for_its_own_old_place(place: Place) {
    let options = Options { role_wait: LIMIT, ..place.options() };
    let dead = place.join("r").await;
    dead.put_if_absent("target/presence", bytes("{\"session\":1,\"who\":\"old\"}")).await.unwrap();
    drop(dead);
    let (a, b) = (place.join("r").await, place.join("r").await);
    let (target, initiator) = tokio::join!(join(a, Role::Target, &options), async {
        // The initiator comes once the new target is there.
        let mut watch = b.watch("target/msg").await.unwrap();
        within("the new target", watch.next()).await.unwrap();
        join(b, Role::Initiator, &options).await
    });
    assert_eq!(initiator.unwrap().1.who, "on host h");
    drop(target.unwrap());
}

async fn nobody_comes(place: Place) {
    let options = Options { join_timeout: Duration::from_millis(100), ..place.options() };
    let store = place.join("r").await;
    let error = join(Arc::clone(&store), Role::Target, &options).await.unwrap_err();
    assert!(matches!(error, JoinError::NoPeer { role: Role::Initiator, .. }), "{error}");
    // And the place is free again at once.
    assert_eq!(place.join("r").await.get("target/presence").await, Ok(None));
}

async fn a_dead_peer_is_named_after_its_last_messages(place: Place) {
    let (target, initiator) = pair(&place).await;
    initiator.send(bytes("last words")).await.unwrap();
    drop(initiator);
    let lost = PeerError::Lost { who: "initiator on host h".into(), why: place.told(Why::Expired) };
    // Known even to who does not read, and told in order to who does.
    assert_eq!(within("the end", target.ended()).await, lost);
    assert_eq!(within("the message", target.recv()).await.unwrap(), "last words");
    assert_eq!(within("the end", target.recv()).await, Err(lost.clone()));
    assert_eq!(within("the end", target.recv()).await, Err(lost));
    within("leaving", target.leave("peer lost")).await.unwrap();
}

async fn a_goodbye_comes_with_its_reason_after_the_messages(place: Place) {
    let (target, initiator) = pair(&place).await;
    initiator.send(Bytes::from(vec![7; 3 << 20])).await.unwrap();
    initiator.send(bytes("done")).await.unwrap();
    within("leaving", initiator.leave("all cases ran\nreally")).await.unwrap();
    assert_eq!(within("the large message", target.recv()).await.unwrap().len(), 3 << 20);
    assert_eq!(within("the message", target.recv()).await.unwrap(), "done");
    let left = PeerError::Left { who: "initiator on host h".into(), reason: "all cases ran really".into() };
    assert_eq!(within("the end", target.recv()).await, Err(left));
    within("leaving", target.leave("me too")).await.unwrap();
}

async fn both_may_leave_at_once(place: Place) {
    let (target, initiator) = pair(&place).await;
    let both = async { tokio::join!(target.leave("a"), initiator.leave("b")) };
    let (a, b) = within("leaving", both).await;
    a.unwrap();
    b.unwrap();
}

async fn another_session_version_is_named(place: Place) {
    let store = place.join("r").await;
    store.put_if_absent("initiator/presence", bytes("{\"session\":9,\"who\":\"newer\"}")).await.unwrap();
    let error = join(place.join("r").await, Role::Target, &place.options()).await.unwrap_err();
    assert!(matches!(&error, JoinError::OtherVersion { theirs: 9, ours: 1, .. }), "{error}");
}

async fn nonsense_from_the_peer_ends_the_session(place: Place) {
    let options = Options { peer_patience: Duration::from_millis(300), ..place.options() };
    let store = place.join("r").await;
    store.put_if_absent("initiator/presence", bytes("{\"session\":1,\"who\":\"odd\"}")).await.unwrap();
    store.put_if_absent("initiator/msg/0000000000", bytes("no head")).await.unwrap();
    let error = join(place.join("r").await, Role::Target, &options).await.unwrap_err();
    assert!(matches!(&error, JoinError::Peer(PeerError::Protocol { .. })), "{error}");
}

async fn a_peer_that_does_not_say_hello_is_not_waited_for_for_ever(place: Place) {
    let options = Options { peer_patience: Duration::from_millis(300), ..place.options() };
    let mute = place.join("r").await;
    mute.put_if_absent("initiator/presence", bytes("{\"session\":1,\"who\":\"mute\"}")).await.unwrap();
    let error = join(place.join("r").await, Role::Target, &options).await.unwrap_err();
    assert!(matches!(&error, JoinError::NoHello { .. }), "{error}");
    assert!(error.to_string().contains("initiator mute is there and did not say hello"), "{error}");
}

/// One module per kind of store, one test per rule.
macro_rules! over_every_store {
    ($($rule:ident)*) => {
        mod memory { $(#[tokio::test] async fn $rule() { super::$rule(super::Place::memory()).await; })* }
        mod tcp { $(#[tokio::test] async fn $rule() { super::$rule(super::Place::tcp().await).await; })* }
        mod etcd { $(#[tokio::test] async fn $rule() { super::$rule(super::Place::etcd().await).await; })* }
    };
}

over_every_store! {
    messages_come_whole_and_in_order_both_ways
    a_read_mailbox_is_emptied
    a_sender_is_held_back_by_a_reader_that_is_gone
    a_taken_role_is_refused_by_name
    a_restarted_process_may_wait_for_its_own_old_place
    nobody_comes
    a_dead_peer_is_named_after_its_last_messages
    a_goodbye_comes_with_its_reason_after_the_messages
    both_may_leave_at_once
    another_session_version_is_named
    nonsense_from_the_peer_ends_the_session
    a_peer_that_does_not_say_hello_is_not_waited_for_for_ever
}

#[tokio::test]
async fn a_lost_server_is_the_control_plane_and_not_the_peer() {
    let place = Place::tcp().await;
    let (target, initiator) = pair(&place).await;
    let Place::Tcp { server, .. } = place else { panic!("tcp") };
    server.close("the host shuts down").await;
    for session in [target, initiator] {
        let error = within("the end", session.recv()).await.unwrap_err();
        assert!(matches!(error, PeerError::ControlPlane { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("served by the test") && text.contains("the host shuts down"), "{text}");
    }
}

#[tokio::test]
async fn the_serving_process_takes_part_without_a_connection() {
    let place = Place::tcp().await;
    let Place::Tcp { server, .. } = &place else { panic!("tcp") };
    let options = place.options();
    let local = server.local(&support::run_id("r"), &options).unwrap();
    let (target, initiator) = tokio::join!(
        join(Arc::new(local), Role::Target, &options),
        join(place.join("r").await, Role::Initiator, &options)
    );
    let ((target, _), (initiator, _)) = (target.unwrap(), initiator.unwrap());
    target.send(bytes("x")).await.unwrap();
    assert_eq!(within("the message", initiator.recv()).await.unwrap(), "x");
    within("leaving", target.leave("done")).await.unwrap();
    assert!(matches!(within("the end", initiator.recv()).await, Err(PeerError::Left { .. })));
}
