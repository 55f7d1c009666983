//! Peers that know the way and the token, and then do not say a hello that makes sense.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::blob::put_blob;
use coordinator::{Endpoint, EtcdCredentials, Options, Store, open};
use kvwire_tests::{Ended, with_result};
use serde_json::Value;

/// Half of it is the lease time.
const PEER_TIMEOUT: &str = "2s";
/// The lease time and 5 s.
const DEADLINE: Duration = Duration::from_secs(6);
/// The one line before a message's body.
const HEAD: &[u8] = b"{\"ack\":0}\n";

/// What the peer says in place of an initiator.
#[derive(Debug, Clone, Copy)]
enum Says {
    Nothing,
    /// A hello that is no hello.
    Garbage,
    /// A message that is no message.
    Headless,
    /// The beginning of a large message whose rest does not come.
    Half,
    /// A hello of two mebibytes.
    Giant,
    /// What a kvwire of another major version would say.
    AnotherMajor,
}

impl Says {
    async fn say(self, store: &dyn Store) {
        let put = async |key: &str, value: &[u8]| {
            store.put_if_absent(key, Bytes::copy_from_slice(value)).await.unwrap();
        };
        put("initiator/presence", br#"{"session":1,"who":"on another host (process 7)"}"#).await;
        let (message, body) = ("initiator/msg/0000000000", "blob/initiator/0000000000");
        let in_blob = b"{\"ack\":0,\"blob\":true}\n";
        match self {
            Self::Nothing => {}
            Self::Garbage => put(message, &[HEAD, b"GET / HTTP/1.1\r\n"].concat()).await,
            Self::Headless => put(message, &[0xff; 64]).await,
            Self::Half => {
                put(body, br#"{"len":2097152,"chunk":1048576,"sha256":""}"#).await;
                put(message, in_blob).await;
            }
            Self::Giant => {
                put_blob(store, body, &Bytes::from(vec![b'x'; 2 << 20])).await.unwrap();
                put(message, in_blob).await;
            }
            Self::AnotherMajor => {
                let theirs = store.get("target/msg/0000000000").await.unwrap().unwrap();
                let begin = theirs.iter().position(|byte| *byte == b'\n').unwrap() + 1;
                let mut hello: Value = serde_json::from_slice(&theirs[begin..]).unwrap();
                hello["node"]["kvwire"] = "9.0.0".into();
                put(message, &[HEAD, hello.to_string().as_bytes()].concat()).await;
            }
        }
    }
}

/// A target that meets such a peer, to its end.
fn met_by(says: Says) -> Ended {
    let mut target = with_result("target")
        .fake("")
        .args(["--rendezvous", "tcp://127.0.0.1:0", "--peer-timeout", PEER_TIMEOUT])
        .start();
    let line = target.await_line("on the other host:");
    let address: Endpoint = line.split_once("--rendezvous ").unwrap().1.trim().parse().unwrap();
    let stand_in = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let Endpoint::Tcp(tcp) = &address else { panic!("{address}") };
            let run = tcp.run.clone().unwrap();
            let credentials = EtcdCredentials::default();
            let store: Arc<dyn Store> =
                open(&address, &run, &credentials, &Options::default()).await.unwrap();
            says.say(store.as_ref()).await;
            // It stays there until the target has ended.
            store.lost().await;
        });
    });
    let ended = target.end();
    stand_in.join().unwrap();
    ended
}

#[test]
fn a_peer_without_a_hello_that_makes_sense_ends_the_run_in_time() {
    let peers = [
        (Says::Nothing, "initiator on another host (process 7) is there and did not say hello"),
        (Says::Garbage, "the hello of the initiator on another host (process 7) cannot be read"),
        (Says::Headless, "initiator on another host (process 7) sent something unreadable"),
        (Says::Half, "initiator on another host (process 7) sent something unreadable"),
        (Says::Giant, "cannot be read (it has 2097152 bytes)"),
        (Says::AnotherMajor, "and kvwire 9.0.0 there do not understand each other"),
    ];
    std::thread::scope(|scope| {
        for (says, text) in peers {
            scope.spawn(move || {
                let ended = met_by(says);
                assert_eq!(ended.code, 3, "{says:?}: {ended}");
                let printed = ended.words();
                assert!(printed.starts_with("INCONCLUSIVE") && printed.contains(text), "{says:?}: {ended}");
                assert!(ended.took < DEADLINE, "{says:?}: {ended}");
            });
        }
    });
}
