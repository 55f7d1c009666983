//! Whatever a member says is answered or refused, and the server holds no more than its limits.

use proptest::prelude::*;

use super::super::damage::damaged;
use super::*;

const LIMITS: ServerLimits = ServerLimits {
    max_connections: 2,
    max_runs: 2,
    max_members: 2,
    max_watches: 3,
    max_keys: 8,
    max_bytes: 512,
    max_value: 128,
};

/// Headers that a member could send, to be damaged byte by byte.
const HEADERS: [&str; 7] = [
    r#"{"ask":"put","id":1,"key":"target/msg/0000000000"}"#,
    r#"{"ask":"get","id":2,"key":"target/presence"}"#,
    r#"{"ask":"delete","id":3,"key":"target/presence"}"#,
    r#"{"ask":"watch","id":4,"watch":4,"prefix":"target/"}"#,
    r#"{"ask":"unwatch","watch":4}"#,
    r#"{"ask":"ping","n":18446744073709551615}"#,
    r#"{"ask":"leave","id":5}"#,
];

proptest! {
    #[test]
    fn a_member_may_say_anything(
        frames in prop::collection::vec((damaged(&HEADERS), prop::collection::vec(any::<u8>(), 0..200)), 0..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let hub = Hub::start(LIMITS);
            let grant = hub.grant(&"r".parse().unwrap(), TTL.1, Keep::Renewed).unwrap();
            let queue = Arc::new(Answers::new());
            let mut member = Member { hub: &hub, grant, queue: &queue, watches: Vec::new() };
            for (header, value) in frames {
                let Ok(request) = serde_json::from_slice::<Request>(&header) else { continue };
                member.handle(request, Bytes::from(value));
                prop_assert!(member.watches.len() <= LIMITS.max_watches);
                let (keys, bytes) = hub.size();
                prop_assert!(keys <= LIMITS.max_keys && bytes <= LIMITS.max_bytes, "{keys} keys, {bytes} bytes");
            }
            Ok(())
        })?;
    }
}
