//! What every store must do, run over all of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at whatever it did not expect"
)]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use coordinator::blob::{MAX_BLOB, delete_blob, get_blob, put_blob};
use coordinator::{Event, Lost, Put, Store, StoreError, Why};
use support::{Place, deleted, next, within};

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn put(key: &str, value: &'static str) -> Event {
    Event::Put { key: key.into(), value: bytes(value) }
}

/// Something that does not compress or repeat, different for each seed.
fn noise(len: usize, seed: u64) -> Bytes {
    let mut x = seed | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

async fn what_is_put_is_there_until_it_is_deleted(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    assert_eq!(b.get("x/y").await, Ok(None));
    assert_eq!(a.put_if_absent("x/y", bytes("1")).await, Ok(Put::Created));
    assert_eq!(a.put_if_absent("x/empty", Bytes::new()).await, Ok(Put::Created));
    assert_eq!(b.get("x/y").await, Ok(Some(bytes("1"))));
    assert_eq!(b.get("x/empty").await, Ok(Some(Bytes::new())));
    a.delete("x/y").await.unwrap();
    assert_eq!(b.get("x/y").await, Ok(None));
    assert_eq!(b.put_if_absent("x/y", bytes("2")).await, Ok(Put::Created));
}

async fn a_key_is_put_once_and_a_repeat_is_recognised(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    assert_eq!(a.put_if_absent("k", bytes("1")).await, Ok(Put::Created));
    assert_eq!(a.put_if_absent("k", bytes("1")).await, Ok(Put::Created));
    assert_eq!(a.put_if_absent("k", bytes("2")).await, Ok(Put::Exists(bytes("1"))));
    assert_eq!(b.put_if_absent("k", bytes("1")).await, Ok(Put::Exists(bytes("1"))));
}

async fn of_many_that_race_for_a_key_one_wins(place: Place) {
    for round in 0..5 {
        let key = format!("role/{round}");
        let mut racers = Vec::new();
        for n in 0..8_u8 {
            let store = if round == 0 || n < 4 { place.join("r").await } else { continue };
            let key = key.clone();
            racers.push(tokio::spawn(async move {
                let value = Bytes::from(vec![n]);
                (store.put_if_absent(&key, value.clone()).await.unwrap(), value, store)
            }));
        }
        let mut results = Vec::new();
        for racer in racers {
            results.push(racer.await.unwrap());
        }
        let winners: Vec<_> = results.iter().filter(|(put, ..)| *put == Put::Created).collect();
        assert_eq!(winners.len(), 1);
        let winner = winners[0].1.clone();
        for (put, own, _) in &results {
            assert!(*own == winner || *put == Put::Exists(winner.clone()));
        }
        for (.., store) in &results {
            store.leave().await.unwrap();
        }
    }
}

async fn a_watch_tells_what_is_there_then_every_change_in_order(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    a.put_if_absent("w/z", bytes("1")).await.unwrap();
    a.put_if_absent("w/a", bytes("2")).await.unwrap();
    a.put_if_absent("elsewhere", bytes("3")).await.unwrap();
    let mut watch = b.watch("w/").await.unwrap();
    assert_eq!(next(&mut watch).await, put("w/z", "1"));
    assert_eq!(next(&mut watch).await, put("w/a", "2"));
    a.put_if_absent("w/b", bytes("4")).await.unwrap();
    a.put_if_absent("wx", bytes("5")).await.unwrap();
    a.delete("w/a").await.unwrap();
    b.put_if_absent("w/a", bytes("6")).await.unwrap();
    assert_eq!(next(&mut watch).await, put("w/b", "4"));
    assert_eq!(next(&mut watch).await, Event::Deleted { key: "w/a".into(), why: place.told(Why::Removed) });
    assert_eq!(next(&mut watch).await, put("w/a", "6"));
    for n in 0..200 {
        a.put_if_absent(&format!("w/n{n}"), Bytes::new()).await.unwrap();
    }
    for n in 0..200 {
        assert_eq!(next(&mut watch).await.key(), format!("w/n{n}"));
    }
}

async fn only_the_owner_deletes(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    a.put_if_absent("k", bytes("1")).await.unwrap();
    assert_eq!(b.delete("k").await, Err(StoreError::NotOwner { key: "k".into() }));
    assert_eq!(a.get("k").await, Ok(Some(bytes("1"))));
    assert_eq!(b.delete("not-there").await, Ok(()));
}

async fn who_leaves_takes_all_its_keys_along_at_once(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    let mut own = a.watch("").await.unwrap();
    let mut watch = b.watch("").await.unwrap();
    a.put_if_absent("one", bytes("1")).await.unwrap();
    a.put_if_absent("two", bytes("2")).await.unwrap();
    b.put_if_absent("three", bytes("3")).await.unwrap();
    a.leave().await.unwrap();
    assert_eq!(b.get("one").await, Ok(None));
    assert_eq!(b.get("two").await, Ok(None));
    assert_eq!(b.get("three").await, Ok(Some(bytes("3"))));
    assert_eq!(deleted(&mut watch, "one").await, place.told(Why::Left));
    // And the one who left has an end everywhere, not a silence.
    assert_eq!(within("lost()", a.lost()).await, Lost::Left);
    assert_eq!(a.get("three").await, Err(StoreError::Lost(Lost::Left)));
    assert_eq!(a.put_if_absent("x", bytes("1")).await, Err(StoreError::Lost(Lost::Left)));
    let end = within("the end of the watch", async {
        loop {
            if let Err(end) = own.next().await {
                return end;
            }
        }
    });
    assert_eq!(end.await, StoreError::Lost(Lost::Left));
    assert_eq!(a.leave().await, Ok(()));
}

async fn who_dies_is_noticed_when_its_lease_runs_out(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    a.put_if_absent("role", bytes("a")).await.unwrap();
    let mut watch = b.watch("").await.unwrap();
    assert_eq!(next(&mut watch).await, put("role", "a"));
    drop(a);
    // Still there: the process may be on its way back.
    assert_eq!(b.put_if_absent("role", bytes("b")).await, Ok(Put::Exists(bytes("a"))));
    assert_eq!(deleted(&mut watch, "role").await, place.told(Why::Expired));
    assert_eq!(b.put_if_absent("role", bytes("b")).await, Ok(Put::Created));
}

async fn who_lives_keeps_its_keys_over_many_lease_times(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    a.put_if_absent("alive", bytes("1")).await.unwrap();
    let mut watch = b.watch("").await.unwrap();
    assert_eq!(next(&mut watch).await, put("alive", "1"));
    // Each death takes one lease time to be noticed; in all of it nothing else may be deleted.
    for n in 0..3 {
        let key = format!("dead-{n}");
        let dying = place.join("r").await;
        dying.put_if_absent(&key, Bytes::new()).await.unwrap();
        drop(dying);
        assert_eq!(next(&mut watch).await.key(), key);
        assert_eq!(next(&mut watch).await, Event::Deleted { key, why: place.told(Why::Expired) });
    }
    assert_eq!(b.get("alive").await, Ok(Some(bytes("1"))));
}

async fn two_runs_do_not_see_each_other(place: Place) {
    // One id is a prefix of the other, which a careless prefix scan would mix up.
    let (a, b) = (place.join("run").await, place.join("run2").await);
    let mut watch = a.watch("").await.unwrap();
    assert_eq!(b.put_if_absent("role", bytes("b")).await, Ok(Put::Created));
    assert_eq!(a.get("role").await, Ok(None));
    assert_eq!(a.put_if_absent("role", bytes("a")).await, Ok(Put::Created));
    assert_eq!(next(&mut watch).await, put("role", "a"));
    b.leave().await.unwrap();
    a.put_if_absent("last", bytes("1")).await.unwrap();
    assert_eq!(next(&mut watch).await, put("last", "1"));
}

async fn a_dead_run_is_invisible_to_a_new_one(place: Place) {
    let dead = place.join("old").await;
    for n in 0..20 {
        dead.put_if_absent(&format!("msg/{n}"), bytes("stale")).await.unwrap();
    }
    drop(dead);
    let new = place.join("new").await;
    let mut watch = new.watch("").await.unwrap();
    assert_eq!(new.get("msg/0").await, Ok(None));
    assert_eq!(new.put_if_absent("msg/0", bytes("fresh")).await, Ok(Put::Created));
    assert_eq!(next(&mut watch).await, put("msg/0", "fresh"));
}

async fn large_values_travel_as_blobs(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    let data = noise(20 << 20, 7);
    let error = a.put_if_absent("big", data.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { size, .. } if size == 20 << 20), "{error}");
    assert_eq!(get_blob(b.as_ref(), "meta").await, Ok(None));
    put_blob(a.as_ref(), "meta", &data).await.unwrap();
    assert!(get_blob(b.as_ref(), "meta").await.unwrap().unwrap() == data);
    // The same again is the same; something else under the name is refused.
    put_blob(a.as_ref(), "meta", &data).await.unwrap();
    assert!(matches!(put_blob(b.as_ref(), "meta", &noise(3 << 20, 9)).await, Err(StoreError::Blob { .. })));
    delete_blob(a.as_ref(), "meta").await.unwrap();
    assert_eq!(b.get("meta/0").await, Ok(None));
    for len in [0, 1, a.max_value(), a.max_value() + 1] {
        let (name, data) = (format!("len-{len}"), noise(len, 3));
        put_blob(a.as_ref(), &name, &data).await.unwrap();
        assert!(get_blob(b.as_ref(), &name).await.unwrap().unwrap() == data);
    }
}

async fn a_damaged_blob_is_refused(place: Place) {
    let (a, b) = (place.join("r").await, place.join("r").await);
    let detail = async |name: &str| match get_blob(b.as_ref(), name).await {
        Err(StoreError::Blob { detail, .. }) => detail,
        other => panic!("{name}: {other:?}"),
    };
    let data = noise(a.max_value() + 10, 1);
    put_blob(a.as_ref(), "m", &data).await.unwrap();
    a.delete("m/1").await.unwrap();
    assert!(detail("m").await.contains("missing"));
    a.put_if_absent("m/1", noise(9, 2)).await.unwrap();
    assert!(detail("m").await.contains("length"));
    a.delete("m/1").await.unwrap();
    a.put_if_absent("m/1", noise(10, 2)).await.unwrap();
    assert!(detail("m").await.contains("checksum"));
    a.put_if_absent("junk", bytes("{}")).await.unwrap();
    assert!(detail("junk").await.contains("parse"));
    a.put_if_absent("huge", bytes(r#"{"len":99999999999,"chunk":1048576,"sha256":""}"#)).await.unwrap();
    assert!(detail("huge").await.contains("impossible"));
    let above = Bytes::from(vec![0; MAX_BLOB + 1]);
    assert!(matches!(put_blob(a.as_ref(), "n", &above).await, Err(StoreError::TooLarge { .. })));
}

async fn bad_keys_are_refused(place: Place) {
    let a: Arc<dyn Store> = place.join("r").await;
    for key in ["", "/x", "x/", "x//y", "x y", "../ü"] {
        for result in [
            a.put_if_absent(key, Bytes::new()).await.map(|_| ()),
            a.get(key).await.map(|_| ()),
            a.delete(key).await,
        ] {
            assert!(matches!(result, Err(StoreError::BadKey { .. })), "{key}");
        }
    }
    assert!(matches!(a.watch("a b").await, Err(StoreError::BadKey { .. })));
}

/// One module per kind of store, one test per rule.
macro_rules! conformance {
    ($($rule:ident)*) => {
        mod memory { $(#[tokio::test] async fn $rule() { super::$rule(super::Place::memory()).await; })* }
        mod tcp { $(#[tokio::test] async fn $rule() { super::$rule(super::Place::tcp().await).await; })* }
        mod etcd { $(#[tokio::test] async fn $rule() { super::$rule(super::Place::etcd().await).await; })* }
    };
}

conformance! {
    what_is_put_is_there_until_it_is_deleted
    a_key_is_put_once_and_a_repeat_is_recognised
    of_many_that_race_for_a_key_one_wins
    a_watch_tells_what_is_there_then_every_change_in_order
    only_the_owner_deletes
    who_leaves_takes_all_its_keys_along_at_once
    who_dies_is_noticed_when_its_lease_runs_out
    who_lives_keeps_its_keys_over_many_lease_times
    two_runs_do_not_see_each_other
    a_dead_run_is_invisible_to_a_new_one
    large_values_travel_as_blobs
    a_damaged_blob_is_refused
    bad_keys_are_refused
}
