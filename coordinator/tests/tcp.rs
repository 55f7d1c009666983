//! What is special to TCP: strangers, tokens, bad networks, limits.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at whatever it did not expect"
)]

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use coordinator::{
    BindError, ConnectError, Event, Lost, Notice, Observer, Options, Put, ServerLimits, ServerOptions, Store,
    StoreError, TcpEndpoint, TcpServer, TcpStore, Token, Why,
};
use support::proxy::{Proxy, Wire};
use support::{LIMIT, deleted, loopback, next, run_id, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

fn token(text: &str) -> Token {
    text.parse().unwrap()
}

const TOKEN: &str = "correct-horse-battery";

fn to(addr: SocketAddr, secret: Option<&str>) -> TcpEndpoint {
    TcpEndpoint { host: addr.ip().to_string(), port: addr.port(), token: secret.map(token), run: None }
}

fn options() -> Options {
    Options {
        lease_ttl: Duration::from_millis(600),
        join_timeout: LIMIT,
        connect_timeout: Duration::from_millis(500),
        ..Options::default()
    }
}

async fn connect(endpoint: &TcpEndpoint, run: &str) -> Result<TcpStore, ConnectError> {
    within("connecting", TcpStore::connect(endpoint, &run_id(run), &options())).await
}

/// Notices, kept to be looked at.
fn recorder() -> (Observer, Arc<Mutex<Vec<String>>>) {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&notices);
    (Observer::new(move |notice: &Notice| kept.lock().unwrap().push(format!("{notice:?}"))), notices)
}

async fn serve(options: ServerOptions) -> (TcpServer, SocketAddr) {
    let (server, addrs) = TcpServer::bind(&[loopback()], options).await.unwrap();
    (server, addrs[0])
}

async fn seen(notices: &Mutex<Vec<String>>, part: &str) {
    within(part, async {
        while !notices.lock().unwrap().iter().any(|n| n.contains(part)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_wrong_token_is_told_on_both_sides_and_shown_on_neither() {
    let (observer, notices) = recorder();
    let (_server, addr) =
        serve(ServerOptions { token: Some(token(TOKEN)), observer, ..ServerOptions::default() }).await;
    let error = connect(&to(addr, Some("wrong-horse-battery")), "r").await.unwrap_err();
    assert!(matches!(error, ConnectError::WrongToken { .. }), "{error}");
    assert!(error.to_string().contains("KVWIRE_TOKEN"));
    seen(&notices, "token is not this run's token").await;
    let error = connect(&to(addr, None), "r").await.unwrap_err();
    assert!(matches!(error, ConnectError::TokenNeeded { .. }), "{error}");
    let said = format!("{:?} {error:?} {error}", notices.lock().unwrap());
    assert!(!said.contains("horse"));
    connect(&to(addr, Some(TOKEN)), "r").await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_know_the_token_is_not_believed() {
    let (_server, addr) = serve(ServerOptions::default()).await;
    let error = connect(&to(addr, Some(TOKEN)), "r").await.unwrap_err();
    assert!(matches!(error, ConnectError::ServerUnproven { .. }), "{error}");
    connect(&to(addr, None), "r").await.unwrap();
}

/// A server that answers every frame with the given ones, whatever it was sent.
async fn impostor(frames: Vec<String>) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for json in &frames {
                let len = u32::try_from(json.len()).unwrap();
                let mut frame = (len + 4).to_be_bytes().to_vec();
                frame.extend(len.to_be_bytes());
                frame.extend(json.as_bytes());
                stream.write_all(&frame).await.unwrap();
            }
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    });
    addr
}

fn challenge(version: u32) -> String {
    let nonce = "ab".repeat(32);
    format!(
        r#"{{"say":"challenge","magic":"kvwire-rendezvous","version":{version},"nonce":"{nonce}","token":true}}"#
    )
}

#[tokio::test]
async fn a_server_with_a_made_up_proof_is_not_believed() {
    let proof = "cd".repeat(32);
    let welcome = format!(
        r#"{{"say":"welcome","proof":"{proof}","lease":1,"secret":"00","ttl_ms":1000,"max_value":1000,"host":"x"}}"#
    );
    let addr = impostor(vec![challenge(1), welcome]).await;
    let error = connect(&to(addr, Some(TOKEN)), "r").await.unwrap_err();
    assert!(matches!(error, ConnectError::ServerUnproven { detail: "its proof is wrong", .. }), "{error}");
}

#[tokio::test]
async fn another_protocol_version_is_named_by_either_side() {
    let addr = impostor(vec![challenge(9)]).await;
    let error = connect(&to(addr, Some(TOKEN)), "r").await.unwrap_err();
    assert_eq!(error, ConnectError::Version { addr: addr.to_string(), ours: 1, theirs: 9 });

    let (observer, notices) = recorder();
    let (_server, addr) = serve(ServerOptions { observer, ..ServerOptions::default() }).await;
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let hello = br#"{"magic":"kvwire-rendezvous","version":9,"nonce":"","token":false}"#;
    let len = u32::try_from(hello.len()).unwrap();
    stream.write_all(&[&(len + 4).to_be_bytes()[..], &len.to_be_bytes(), hello].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    within("the refusal", stream.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains("\"code\":\"version\"") && answer.contains("\"version\":1"), "{answer}");
    seen(&notices, "protocol 9").await;
}

#[tokio::test]
async fn what_is_no_kvwire_server_is_quoted_or_timed_out() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    });
    let error = connect(&to(addr, None), "r").await.unwrap_err();
    assert!(matches!(error, ConnectError::NotKvwire { .. }));
    assert!(error.to_string().contains("SSH-2.0-OpenSSH_9.2.."), "{error}");

    let silent = TcpListener::bind(loopback()).await.unwrap();
    let mut options = options();
    options.join_timeout = Duration::from_millis(50);
    options.connect_timeout = Duration::from_millis(50);
    let endpoint = to(silent.local_addr().unwrap(), None);
    let error = within("giving up", TcpStore::connect(&endpoint, &run_id("r"), &options)).await.unwrap_err();
    assert!(error.to_string().contains("may not be a kvwire rendezvous"), "{error}");
}

#[tokio::test]
async fn the_client_waits_for_a_server_that_comes_later_and_says_so() {
    let held = TcpListener::bind(loopback()).await.unwrap();
    let addr = held.local_addr().unwrap();
    drop(held);
    let (observer, notices) = recorder();
    let options = Options { observer, ..options() };
    let endpoint = to(addr, Some(TOKEN));
    let joining = tokio::spawn(async move { TcpStore::connect(&endpoint, &run_id("r"), &options).await });
    seen(&notices, "Refused").await;
    let serving = ServerOptions { token: Some(token(TOKEN)), ..ServerOptions::default() };
    let (_server, _) = TcpServer::bind(&[addr], serving).await.unwrap();
    within("joining", joining).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_up_a_minute_later_is_joined_under_the_default_deadlines() {
    let held = TcpListener::bind(loopback()).await.unwrap();
    let addr = held.local_addr().unwrap();
    drop(held);
    let endpoint = to(addr, Some(TOKEN));
    let begin = tokio::time::Instant::now();
    let joining =
        tokio::spawn(async move { TcpStore::connect(&endpoint, &run_id("r"), &Options::default()).await });
    // The clock is paused: it jumps to the next deadline whenever everybody waits for one.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!joining.is_finished(), "{:?}", joining.await);
    // From here on real bytes travel in real time.
    tokio::time::resume();
    let serving = ServerOptions { token: Some(token(TOKEN)), ..ServerOptions::default() };
    let (_server, _) = TcpServer::bind(&[addr], serving).await.unwrap();
    within("joining", joining).await.unwrap().unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(60));
}

#[tokio::test]
async fn nobody_listens_and_no_such_name_end_with_the_reason() {
    let held = TcpListener::bind(loopback()).await.unwrap();
    let addr = held.local_addr().unwrap();
    drop(held);
    let options = Options { join_timeout: Duration::from_millis(100), ..options() };
    let error =
        within("giving up", TcpStore::connect(&to(addr, None), &run_id("r"), &options)).await.unwrap_err();
    assert!(
        matches!(&error, ConnectError::Deadline { last, .. } if matches!(**last, ConnectError::Refused { .. })),
        "{error}"
    );
    let nowhere = TcpEndpoint { host: "no-such-host.invalid".into(), port: 1, token: None, run: None };
    let error = within("giving up", TcpStore::connect(&nowhere, &run_id("r"), &options)).await.unwrap_err();
    assert!(
        matches!(&error, ConnectError::Deadline { last, .. } if matches!(**last, ConnectError::Resolve { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    // `localhost` has one or two addresses; the server is on the IPv4 one only.
    let (_server, addr) = serve(ServerOptions::default()).await;
    let endpoint = TcpEndpoint { host: "localhost".into(), port: addr.port(), token: None, run: None };
    connect(&endpoint, "r").await.unwrap();
}

#[tokio::test]
async fn without_a_token_only_loopback_is_served() {
    for addr in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = TcpServer::bind(&[addr.parse().unwrap()], ServerOptions::default()).await.unwrap_err();
        assert!(matches!(error, BindError::TokenNeeded { .. }), "{error}");
        assert!(error.to_string().contains("KVWIRE_TOKEN"));
    }
    TcpServer::bind(&["[::ffff:127.0.0.1]:0".parse().unwrap()], ServerOptions::default()).await.unwrap();
}

#[tokio::test]
async fn a_server_of_one_run_refuses_another() {
    let (_server, addr) =
        serve(ServerOptions { run: Some(run_id("mine")), ..ServerOptions::default() }).await;
    let error = connect(&to(addr, None), "yours").await.unwrap_err();
    assert!(matches!(&error, ConnectError::OtherRun { detail, .. } if detail.contains("mine")), "{error}");
    connect(&to(addr, None), "mine").await.unwrap();
}

#[tokio::test]
async fn a_silent_stranger_holds_its_place_for_the_handshake_time_only() {
    let limits = ServerLimits { max_connections: 1, ..ServerLimits::default() };
    let handshake_timeout = Duration::from_millis(200);
    let (observer, notices) = recorder();
    let (_server, addr) =
        serve(ServerOptions { limits, handshake_timeout, observer, ..ServerOptions::default() }).await;
    let _stranger = TcpStream::connect(addr).await.unwrap();
    // Full at first, which waiting cures.
    let (client, waiting) = recorder();
    let options = Options { observer: client, ..options() };
    within("joining", TcpStore::connect(&to(addr, None), &run_id("r"), &options)).await.unwrap();
    assert!(waiting.lock().unwrap().iter().any(|n| n.contains("at most 1 connections")));
    seen(&notices, "no handshake within 200 ms").await;
}

#[tokio::test]
async fn limits_are_errors_for_who_reaches_them() {
    let limits = ServerLimits {
        max_keys: 3,
        max_bytes: 100,
        max_value: 60,
        max_watches: 2,
        max_members: 2,
        ..ServerLimits::default()
    };
    let (_server, addr) = serve(ServerOptions { limits, ..ServerOptions::default() }).await;
    let (a, b) = (connect(&to(addr, None), "r").await.unwrap(), connect(&to(addr, None), "r").await.unwrap());
    let value = |len| Bytes::from(vec![0; len]);
    assert!(matches!(a.put_if_absent("a", value(61)).await, Err(StoreError::TooLarge { limit: 60, .. })));
    a.put_if_absent("a", value(60)).await.unwrap();
    assert!(matches!(b.put_if_absent("b", value(41)).await, Err(StoreError::Full { .. })));
    b.put_if_absent("b", value(40)).await.unwrap();
    b.put_if_absent("c", value(0)).await.unwrap();
    assert!(matches!(b.put_if_absent("d", value(0)).await, Err(StoreError::Full { .. })));
    let _one = a.watch("").await.unwrap();
    let two = a.watch("").await.unwrap();
    assert!(matches!(a.watch("").await, Err(StoreError::Full { .. })));
    drop(two);
    a.watch("").await.unwrap();
    // A third member is told why it has to wait.
    let options = Options { join_timeout: Duration::from_millis(60), ..options() };
    let error =
        within("giving up", TcpStore::connect(&to(addr, None), &run_id("r"), &options)).await.unwrap_err();
    assert!(error.to_string().contains("members"), "{error}");
}

#[tokio::test]
async fn a_frame_above_the_limit_ends_the_connection_that_sent_it() {
    let (_server, addr) = serve(ServerOptions::default()).await;
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(&[0xff; 64]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    within("the end of the connection", stream.read_to_end(&mut answer)).await.unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("malformed"));
    connect(&to(addr, None), "r").await.unwrap();
}

#[tokio::test]
async fn a_cut_connection_is_made_again_within_the_lease_and_nothing_is_lost() {
    let (server, addr) = serve(ServerOptions { token: Some(token(TOKEN)), ..ServerOptions::default() }).await;
    let proxy = Proxy::start(addr).await;
    let (observer, notices) = recorder();
    let options = Options { observer, lease_ttl: Duration::from_secs(5), ..options() };
    let store = within("joining", TcpStore::connect(&to(proxy.addr, Some(TOKEN)), &run_id("r"), &options))
        .await
        .unwrap();
    let other = server.local(&run_id("r"), &options).unwrap();
    store.put_if_absent("mine", Bytes::new()).await.unwrap();
    other.put_if_absent("stays", Bytes::new()).await.unwrap();
    other.put_if_absent("goes", Bytes::new()).await.unwrap();
    let mut watch = store.watch("").await.unwrap();
    for key in ["mine", "stays", "goes"] {
        assert_eq!(next(&mut watch).await.key(), key);
    }
    proxy.set(Wire::Down);
    seen(&notices, "Reconnecting").await;
    // An operation begun meanwhile waits; changes meanwhile are told as a difference.
    let during = store.put_if_absent("during", Bytes::new());
    let meanwhile = async {
        other.delete("goes").await.unwrap();
        other.put_if_absent("new", Bytes::new()).await.unwrap();
        proxy.set(Wire::Up);
    };
    let (during, ()) = within("the operation", async { tokio::join!(during, meanwhile) }).await;
    assert_eq!(during, Ok(Put::Created));
    assert_eq!(next(&mut watch).await, Event::Deleted { key: "goes".into(), why: Why::Unknown });
    assert_eq!(next(&mut watch).await.key(), "new");
    assert_eq!(next(&mut watch).await.key(), "during");
    assert_eq!(other.get("mine").await, Ok(Some(Bytes::new())));
    seen(&notices, "Reconnected").await;
}

#[tokio::test]
async fn who_is_cut_off_for_the_lease_time_is_lost_on_both_sides() {
    for wire in [Wire::Down, Wire::Stalled] {
        let (server, addr) = serve(ServerOptions::default()).await;
        let proxy = Proxy::start(addr).await;
        let store = connect(&to(proxy.addr, None), "r").await.unwrap();
        let other = server.local(&run_id("r"), &options()).unwrap();
        store.put_if_absent("mine", Bytes::new()).await.unwrap();
        let mut watch = other.watch("").await.unwrap();
        let mut own = store.watch("").await.unwrap();
        assert_eq!(next(&mut own).await.key(), "mine");
        proxy.set(wire);
        assert_eq!(deleted(&mut watch, "mine").await, Why::Expired);
        let lost = within("lost()", store.lost()).await;
        assert!(matches!(lost, Lost::Unreachable { .. } | Lost::LeaseExpired { .. }), "{lost}");
        assert_eq!(within("the watch's end", own.next()).await, Err(StoreError::Lost(lost.clone())));
        assert_eq!(store.get("mine").await, Err(StoreError::Lost(lost)));
    }
}

#[tokio::test]
async fn a_dropped_server_is_noticed() {
    let (server, addr) = serve(ServerOptions { host: "node-7".into(), ..ServerOptions::default() }).await;
    let store = connect(&to(addr, None), "r").await.unwrap();
    drop(server);
    let lost = within("lost()", store.lost()).await;
    assert!(matches!(lost, Lost::Unreachable { .. }), "{lost}");
    assert!(lost.to_string().contains("served by node-7") && lost.to_string().contains("refused"), "{lost}");
}

#[tokio::test]
async fn debug_of_what_holds_a_token_shows_nothing_of_it() {
    let serving = ServerOptions { token: Some(token(TOKEN)), ..ServerOptions::default() };
    let shown = format!("{serving:?}");
    let (server, addr) = serve(serving).await;
    let endpoint = to(addr, Some(TOKEN));
    let store = connect(&endpoint, "r").await.unwrap();
    let shown = format!(
        "{shown} {server:?} {endpoint:?} {endpoint} {store:?} {} {}",
        store.place(),
        endpoint.authority()
    );
    assert!(!shown.contains("horse"), "{shown}");
}
