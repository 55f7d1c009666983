//! Whatever a server says, the client neither panics nor keeps what nobody asked for.

use proptest::prelude::*;

use super::super::damage::damaged;
use super::*;

/// Headers that a server could send, to be damaged byte by byte.
const HEADERS: [&str; 10] = [
    r#"{"say":"created","id":1}"#,
    r#"{"say":"exists","id":1}"#,
    r#"{"say":"found","id":2}"#,
    r#"{"say":"missing","id":3}"#,
    r#"{"say":"failed","id":1,"error":{"error":"full","what":"x"}}"#,
    r#"{"say":"pong","n":18446744073709551615}"#,
    r#"{"say":"put","watch":1,"key":"target/presence","rev":3}"#,
    r#"{"say":"deleted","watch":1,"key":"target/presence","why":"expired"}"#,
    r#"{"say":"synced","watch":1}"#,
    r#"{"say":"closing","reason":"x"}"#,
];

#[test]
fn a_listing_without_end_ends_its_watch() {
    let queue = Arc::new(Queue::new());
    let mut slot = WatchSlot {
        prefix: String::new(),
        queue: Arc::clone(&queue),
        view: View::default(),
        listing: Some(Listing::default()),
    };
    let taken = (0..u64::MAX).take_while(|n| slot.put(format!("key/{n}"), Bytes::new(), *n)).count();
    assert_eq!(taken, LARGEST.0);
    assert!(queue.is_closed());
}

proptest! {
    #[test]
    fn a_server_may_say_anything(
        frames in prop::collection::vec((damaged(&HEADERS), prop::collection::vec(any::<u8>(), 0..50)), 0..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut state = State::new(Instant::now(), Duration::from_secs(1));
            let queue = Arc::new(Queue::new());
            let slot = WatchSlot {
                prefix: String::new(),
                queue,
                view: View::default(),
                listing: Some(Listing::default()),
            };
            state.watches.insert(1, slot);
            for (header, value) in frames {
                let Ok(response) = serde_json::from_slice::<Response>(&header) else { continue };
                state.take(response, Bytes::from(value), Duration::from_secs(1));
                prop_assert!(state.watches.len() <= 1 && state.pending.is_empty());
                // A watch that is dropped is told to the server, once.
                prop_assert!(state.unsent.len() <= 1);
            }
            Ok(())
        })?;
    }
}
