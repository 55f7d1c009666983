//! Rules and failures, over the fake NIXL: every status, every bound, and what stays when a transfer never ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where something fails"
)]

mod common;

use std::ffi::{CString, c_char};
use std::iter;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use common::{agent, fill, memory, pattern, receive, run, ucx, word};
use nixl::{
    Agent, AgentConfig, Error, HostMemory, MemoryKind, Op, RemoteRegion, State, Status, Transfer,
    TransferOptions,
};
use nixl_sys::Library;

/// The fake's own account of what lives; its layout is that of the fake's `Counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    agents: u64,
    registrations: u64,
    handles: u64,
    released_in_flight: u64,
}

impl Counters {
    fn since(self, before: Self) -> Self {
        Self {
            agents: self.agents - before.agents,
            registrations: self.registrations - before.registrations,
            handles: self.handles - before.handles,
            released_in_flight: self.released_in_flight - before.released_in_flight,
        }
    }
}

/// The fake, for one test at a time: script and counters belong to the whole process.
struct Fake {
    library: Arc<Library>,
    control: &'static libloading::Library,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());
static LOADED: OnceLock<(Arc<Library>, libloading::Library)> = OnceLock::new();

fn fake(script: &str) -> Fake {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (library, control) = LOADED.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let path: PathBuf = program.parent().unwrap().join("libfake_nixl_capi.so");
        let library = Arc::new(Library::open(&path).unwrap());
        // SAFETY: the same library is loaded already.
        (library, unsafe { libloading::Library::new(&path) }.unwrap())
    });
    let fake = Fake { library: Arc::clone(library), control, _turn: turn };
    fake.script(script);
    fake
}

impl Fake {
    fn script(&self, text: &str) {
        let text = CString::new(text).unwrap();
        // SAFETY: this is the function's type.
        unsafe {
            let set =
                self.control.get::<unsafe extern "C" fn(*const c_char)>(b"fake_nixl_set_script").unwrap();
            set(text.as_ptr());
        }
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: this is the function's type.
        unsafe {
            let read =
                self.control.get::<unsafe extern "C" fn(*mut Counters)>(b"fake_nixl_counters").unwrap();
            read(&raw mut counters);
        }
        counters
    }
}

/// Two agents that know each other, with memory of `BYTES` each, and `act` on them.
const BYTES: usize = 4096;

struct Setting<'s> {
    initiator: &'s Agent,
    target: &'s Agent,
    ours: &'s nixl::Registration<'s>,
    remote: &'s nixl::Remote<'s>,
    region: RemoteRegion,
    local_memory: &'s HostMemory,
    remote_memory: &'s HostMemory,
}

fn with_pair(fake: &Fake, act: impl FnOnce(&Setting<'_>)) {
    let (initiator, target) = (agent(&fake.library, "initiator"), agent(&fake.library, "target"));
    let (local_memory, remote_memory) = (memory(BYTES), memory(BYTES));
    let (backend, target_backend) = (ucx(&initiator), ucx(&target));
    let ours = initiator.register(&backend, &local_memory).unwrap();
    let theirs = target.register(&target_backend, &remote_memory).unwrap();
    let remote = initiator.load_remote(&target.local_metadata().unwrap()).unwrap();
    act(&Setting {
        initiator: &initiator,
        target: &target,
        ours: &ours,
        remote: &remote,
        region: theirs.region(),
        local_memory: &local_memory,
        remote_memory: &remote_memory,
    });
}

impl Setting<'_> {
    /// One transfer of the whole memory in `count` equal descriptors.
    fn whole(&self, op: Op, count: usize, options: &TransferOptions, act: impl FnOnce(&mut Transfer<'_>)) {
        let len = BYTES / count;
        let ranges = || (0..count).map(|at| (at * len, len));
        let local = self.ours.describe(ranges()).unwrap();
        let remote = self.remote.describe(&self.region, ranges()).unwrap();
        let indices: Vec<i32> = (0..i32::try_from(count).unwrap()).collect();
        let mut transfer =
            self.initiator.make_transfer(op, &local, &indices, &remote, &indices, options).unwrap();
        act(&mut transfer);
    }
}

#[test]
fn bytes_go_both_ways_and_everything_is_freed() {
    let fake = fake("");
    let before = fake.counters();
    with_pair(&fake, |pair| {
        fill(pair.local_memory, 1);
        pair.whole(Op::Write, 4, &TransferOptions::default(), |transfer| run(transfer).unwrap());
        assert_eq!(word(pair.remote_memory, 511), pattern(1, 511));
        fill(pair.remote_memory, 2);
        pair.whole(Op::Read, 4, &TransferOptions::default(), |transfer| {
            run(transfer).unwrap();
            run(transfer).unwrap();
        });
        assert_eq!(word(pair.local_memory, 511), pattern(2, 511));
        assert_eq!((pair.initiator.quarantined(), pair.target.quarantined()), (0, 0));
    });
    assert_eq!(fake.counters().since(before), Counters::default());
}

#[test]
fn indices_pick_and_permute_descriptors() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        fill(pair.local_memory, 1);
        let ranges = || (0..4).map(|at| (at * 8, 8));
        let local = pair.ours.describe(ranges()).unwrap();
        let remote = pair.remote.describe(&pair.region, ranges()).unwrap();
        assert_eq!((local.len(), remote.len()), (4, 4));
        let options = TransferOptions::default();
        let mut transfer =
            pair.initiator.make_transfer(Op::Write, &local, &[3, 0], &remote, &[1, 2], &options).unwrap();
        run(&mut transfer).unwrap();
        let got: Vec<u64> = (0..4).map(|at| word(pair.remote_memory, at)).collect();
        assert_eq!(got, [0, pattern(1, 3), pattern(1, 0), 0]);
    });
}

#[test]
fn telemetry_counts_descriptors_after_merging() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        for (skip_merge, descriptors) in [(false, 1), (true, 8)] {
            let options = TransferOptions { skip_merge, notify: None };
            pair.whole(Op::Write, 8, &options, |transfer| {
                transfer.post().unwrap();
                assert_eq!(transfer.telemetry().unwrap(), None, "in progress");
                while transfer.poll().unwrap() == State::InProgress {}
                let telemetry = transfer.telemetry().unwrap().unwrap();
                assert_eq!((telemetry.total_bytes, telemetry.descriptors), (BYTES as u64, descriptors));
                assert_eq!(transfer.estimate().unwrap().margin_us, 0);
            });
        }
    });
}

#[test]
fn notifications_are_binary_and_in_order() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        let message = vec![0, 255, b'k', 0];
        let options = TransferOptions { skip_merge: false, notify: Some(message.clone()) };
        pair.whole(Op::Write, 1, &options, |transfer| run(transfer).unwrap());
        pair.initiator.notify(pair.remote, b"").unwrap();
        pair.initiator.notify(pair.remote, b"last").unwrap();
        let from = |message: &[u8]| ("initiator".to_owned(), message.to_vec());
        assert_eq!(receive(pair.target, 3), [from(&message), from(b""), from(b"last")]);
    });
}

#[test]
fn a_notification_handler_may_ask_for_more_notifications() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        pair.initiator.notify(pair.remote, b"one").unwrap();
        let mut seen = Vec::new();
        let deadline = std::time::Instant::now() + common::DEADLINE;
        while seen.is_empty() {
            assert!(std::time::Instant::now() < deadline, "no notification");
            pair.target
                .notifications(|_, message| {
                    pair.target.notifications(|_, _| {}).unwrap();
                    seen.push(message.to_vec());
                })
                .unwrap();
        }
        assert_eq!(seen, [b"one"]);
    });
}

#[test]
fn descriptors_outside_their_memory_are_refused() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        for (offset, len) in [
            (0, 0),
            (BYTES, 1),
            (BYTES - 1, 2),
            (0, BYTES + 1),
            (usize::MAX, 1),
            (1, usize::MAX),
            (usize::MAX, usize::MAX),
        ] {
            let outside = |error: Error| matches!(error, Error::OutOfBounds { offset: at, len: of, .. } if (at, of) == (offset, len));
            let ranges = || [(0, 8), (offset, len)];
            assert!(outside(pair.ours.describe(ranges()).unwrap_err()), "{offset} {len}");
            assert!(outside(pair.remote.describe(&pair.region, ranges()).unwrap_err()), "{offset} {len}");
        }
        assert!(pair.ours.describe([(BYTES - 8, 8)]).is_ok());
    });
}

#[test]
fn a_region_that_wraps_around_memory_is_refused() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        let region = RemoteRegion { addr: u64::MAX - 4, len: 8, ..pair.region };
        assert!(matches!(
            pair.remote.describe(&region, [(0, 8)]),
            Err(Error::ImpossibleRegion { addr, len: 8 }) if addr == region.addr
        ));
        let unknown = RemoteRegion { addr: pair.region.addr + 8, ..pair.region };
        let error = pair.remote.describe(&unknown, [(0, BYTES)]).unwrap_err();
        assert_eq!(error.status(), Some(Status::NotFound), "NIXL knows what the peer registered");
    });
}

#[test]
fn empty_lists_and_mixed_kinds_are_refused() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        assert!(matches!(pair.ours.describe(iter::empty()), Err(Error::Empty { .. })));
        assert!(matches!(pair.remote.describe(&pair.region, iter::empty()), Err(Error::Empty { .. })));
        let vram = RemoteRegion { kind: MemoryKind::Vram, ..pair.region };
        let mixed = [(&pair.region, 0, 8), (&vram, 0, 8)];
        assert!(matches!(pair.remote.describe_many(mixed), Err(Error::MixedKinds)));
    });
}

#[test]
fn bad_pairs_are_refused_before_nixl_sees_them() {
    let fake = fake("make=-77");
    with_pair(&fake, |pair| {
        let local = pair.ours.describe([(0, 8), (8, 16)]).unwrap();
        let remote = pair.remote.describe(&pair.region, [(0, 8)]).unwrap();
        let make = |ours: &[i32], theirs: &[i32]| {
            let options = TransferOptions::default();
            pair.initiator.make_transfer(Op::Read, &local, ours, &remote, theirs, &options).unwrap_err()
        };
        assert!(matches!(make(&[2], &[0]), Error::IndexOutOfRange { index: 2, len: 2 }));
        assert!(matches!(make(&[0], &[-1]), Error::IndexOutOfRange { index: -1, len: 1 }));
        assert!(matches!(make(&[0, 1], &[0]), Error::UnpairedIndices { local: 2, remote: 1 }));
        assert!(matches!(make(&[], &[]), Error::Empty { .. }));
        assert!(matches!(make(&[1], &[0]), Error::LengthMismatch { pair: 0, local: 16, remote: 8 }));
        assert_eq!(make(&[0], &[0]).status(), Some(Status::Unknown(-77)), "good pairs reach NIXL");
    });
}

#[test]
fn what_belongs_to_another_agent_is_refused() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        let backend_memory = memory(64);
        let other = agent(&fake.library, "other");
        let backend = ucx(&other);
        let foreign = |error: Error| matches!(error, Error::ForeignAgent { .. });
        assert!(foreign(pair.initiator.register(&backend, &backend_memory).unwrap_err()));
        assert!(foreign(other.notify(pair.remote, b"x").unwrap_err()));
        let local = pair.ours.describe([(0, 8)]).unwrap();
        let remote = pair.remote.describe(&pair.region, [(0, 8)]).unwrap();
        let options = TransferOptions::default();
        assert!(foreign(other.make_transfer(Op::Read, &local, &[0], &remote, &[0], &options).unwrap_err()));
        assert!(foreign(other.describe([(pair.ours, 0, 8)]).unwrap_err()));
    });
}

#[test]
fn a_list_may_span_registrations() {
    let fake = fake("");
    let before = fake.counters();
    with_pair(&fake, |pair| {
        let third = agent(&fake.library, "third");
        let backend = ucx(&third);
        let (one, two) = (memory(BYTES), memory(BYTES));
        fill(&one, 6);
        fill(&two, 7);
        let (first, second) =
            (third.register(&backend, &one).unwrap(), third.register(&backend, &two).unwrap());
        let peer = third.load_remote(&pair.target.local_metadata().unwrap()).unwrap();
        let local = third.describe([(&second, 8, 8), (&first, 0, 8), (&second, 16, 8)]).unwrap();
        let remote = peer.describe(&pair.region, [(0, 8), (8, 8), (16, 8)]).unwrap();
        let options = TransferOptions::default();
        let mut transfer =
            third.make_transfer(Op::Write, &local, &[0, 1, 2], &remote, &[0, 1, 2], &options).unwrap();
        run(&mut transfer).unwrap();
        let got: Vec<u64> = (0..3).map(|at| word(pair.remote_memory, at)).collect();
        assert_eq!(got, [pattern(7, 1), pattern(6, 0), pattern(7, 2)]);
    });
    assert_eq!(fake.counters().since(before), Counters::default());
}

#[test]
fn every_call_passes_nixls_code_on() {
    let code = |outcome: nixl::Result<()>, wanted: &str, wanted_code: i32| match outcome {
        Err(Error::Call { call, code, .. }) => assert_eq!((call, code), (wanted, wanted_code)),
        other => panic!("{wanted}: {other:?}"),
    };
    let fake = fake("create_agent=-4");
    code(Agent::new(&fake.library, "a", &AgentConfig::default()).map(drop), "create_configured_agent", -4);
    fake.script("");
    with_pair(&fake, |pair| {
        let other = agent(&fake.library, "other");
        fake.script("create_backend=-2");
        code(other.create_backend("UCX", &Default::default()).map(drop), "create_backend", -2);
        fake.script("register=-2");
        let backend = other.create_backend("POSIX", &Default::default()).unwrap();
        code(other.register(&backend, &memory(8)).map(drop), "register_mem", -2);
        fake.script("load_remote=-6");
        code(other.load_remote(b"x").map(drop), "load_remote_md", -6);
        fake.script("prep=-6");
        code(pair.ours.describe([(0, 8)]).map(drop), "prep_xfer_dlist", -6);
        fake.script("get_notifs=-2");
        code(pair.target.notifications(|_, _| {}).map(drop), "get_notifs", -2);
        fake.script("");
        code(other.load_remote(b"not metadata").map(drop), "load_remote_md", -2);
        code(other.plugin("NOPE").map(drop), "get_plugin_params", -2);
        pair.whole(Op::Write, 1, &TransferOptions::default(), |transfer| {
            code(transfer.poll().map(drop), "get_xfer_status", -2);
            assert!(!transfer.is_in_flight(), "it was never posted");
        });
        assert_eq!(pair.initiator.quarantined(), 0);
    });
}

#[test]
fn a_stalled_transfer_and_all_it_needs_stay_for_good() {
    let fake = fake("stall");
    let before = fake.counters();
    let weak = {
        let (initiator, target) = (agent(&fake.library, "stalling"), agent(&fake.library, "waiting"));
        let (local_memory, remote_memory) = (memory(BYTES), memory(BYTES));
        let (backend, target_backend) = (ucx(&initiator), ucx(&target));
        let ours = initiator.register(&backend, &local_memory).unwrap();
        let theirs = target.register(&target_backend, &remote_memory).unwrap();
        let remote = initiator.load_remote(&target.local_metadata().unwrap()).unwrap();
        let local = ours.describe([(0, BYTES)]).unwrap();
        let there = remote.describe(&theirs.region(), [(0, BYTES)]).unwrap();
        let options = TransferOptions::default();
        let mut transfer = initiator.make_transfer(Op::Write, &local, &[0], &there, &[0], &options).unwrap();
        assert_eq!(transfer.post().unwrap(), State::InProgress);
        assert_eq!(transfer.poll().unwrap(), State::InProgress);
        drop(transfer);
        assert_eq!(initiator.quarantined(), 1);
        assert_eq!(target.quarantined(), 0);
        Arc::downgrade(&local_memory)
    };
    let left = fake.counters().since(before);
    assert_eq!((left.agents, left.registrations, left.released_in_flight), (1, 1, 0));
    assert!(weak.upgrade().is_some(), "the local memory was freed under NIXL");
}

#[test]
fn a_forgotten_transfer_keeps_what_it_uses() {
    let fake = fake("stall");
    let before = fake.counters();
    let weak = {
        let initiator = agent(&fake.library, "forgetful");
        let target = agent(&fake.library, "remembered");
        let (local_memory, remote_memory) = (memory(BYTES), memory(BYTES));
        let (backend, target_backend) = (ucx(&initiator), ucx(&target));
        let ours = initiator.register(&backend, &local_memory).unwrap();
        let theirs = target.register(&target_backend, &remote_memory).unwrap();
        let remote = initiator.load_remote(&target.local_metadata().unwrap()).unwrap();
        let local = ours.describe([(0, BYTES)]).unwrap();
        let there = remote.describe(&theirs.region(), [(0, BYTES)]).unwrap();
        let options = TransferOptions::default();
        let mut transfer = initiator.make_transfer(Op::Write, &local, &[0], &there, &[0], &options).unwrap();
        transfer.post().unwrap();
        std::mem::forget(transfer);
        Arc::downgrade(&local_memory)
    };
    let left = fake.counters().since(before);
    assert_eq!((left.agents, left.registrations), (1, 1));
    assert!(weak.upgrade().is_some(), "the local memory was freed under NIXL");
}

#[test]
fn a_failed_post_or_poll_counts_as_in_flight_until_it_succeeds() {
    for (script, call) in [("post=-2", "post_xfer_req"), ("poll=-2", "get_xfer_status")] {
        let fake = fake(script);
        with_pair(&fake, |pair| {
            pair.whole(Op::Write, 1, &TransferOptions::default(), |transfer| {
                let error = run(transfer).unwrap_err();
                assert!(
                    matches!(error, Error::Call { call: failed, code: -2, .. } if failed == call),
                    "{error}"
                );
                assert!(error.to_string().contains("peer `target`"), "{error}");
                assert!(transfer.is_in_flight());
                fake.script("");
                run(transfer).unwrap();
                assert!(!transfer.is_in_flight());
            });
            assert_eq!(pair.initiator.quarantined(), 0);
        });
    }
}

#[test]
fn faults_change_exactly_the_bytes_they_name() {
    let words = BYTES / 8;
    let deliver = |script: &str, count: usize| -> Vec<u64> {
        let fake = fake(script);
        let mut got = Vec::new();
        with_pair(&fake, |pair| {
            pair.whole(Op::Write, count, &TransferOptions { skip_merge: true, notify: None }, |transfer| {
                for seed in [1, 2] {
                    fill(pair.local_memory, seed);
                    run(transfer).unwrap();
                }
            });
            got = (0..words).map(|at| word(pair.remote_memory, at)).collect();
        });
        got
    };
    let good: Vec<u64> = (0..words).map(|at| pattern(2, at)).collect();
    assert_eq!(deliver("", 4), good);
    assert_eq!(deliver("drop", 4), vec![0; words]);
    assert_eq!(deliver("stale", 4), (0..words).map(|at| pattern(1, at)).collect::<Vec<_>>());
    let mut short = good.clone();
    short[words * 3 / 4..]
        .copy_from_slice(&(words * 3 / 4..words).map(|at| pattern(1, at)).collect::<Vec<_>>());
    assert_eq!(deliver("short@after=1", 4), short);
    let mut corrupt = good.clone();
    corrupt[2] ^= 1 << 8;
    assert_eq!(deliver("corrupt=17", 4), corrupt);
    let mut swapped = good.clone();
    swapped.rotate_left(words / 4);
    swapped[words / 4..].copy_from_slice(&good[words / 4..]);
    swapped[words / 4..words / 2].copy_from_slice(&good[..words / 4]);
    assert_eq!(deliver("swap", 4), swapped);
    let mut halves = good.clone();
    halves.rotate_left(words / 2);
    assert_eq!(deliver("swap", 1), halves);
}

#[test]
fn plugins_and_backends_say_what_they_are() {
    let fake = fake("");
    let agent = agent(&fake.library, "asking");
    assert_eq!(agent.plugins().unwrap(), ["UCX", "POSIX"]);
    let plugin = agent.plugin("UCX").unwrap();
    assert_eq!(plugin.memory, [MemoryKind::Dram]);
    assert_eq!(plugin.params.get("num_workers").map(String::as_str), Some("1"));
    assert_eq!(plugin.params.len(), 3);
    let backend = agent.create_backend("UCX", &plugin.params).unwrap();
    assert_eq!((backend.name(), backend.info().unwrap()), ("UCX", plugin));
    fake.script("no_ucx");
    assert_eq!(agent.plugins().unwrap(), ["POSIX"]);
}

#[test]
fn a_peer_loaded_twice_is_known_until_both_are_gone() {
    let fake = fake("");
    with_pair(&fake, |pair| {
        let again = pair.initiator.load_remote(&pair.target.local_metadata().unwrap()).unwrap();
        assert_eq!(again.name(), "target");
        drop(again);
        pair.remote.connect().unwrap();
        pair.whole(Op::Write, 1, &TransferOptions::default(), |transfer| run(transfer).unwrap());
    });
}

#[test]
fn names_with_a_zero_byte_are_refused() {
    let fake = fake("");
    let config = AgentConfig::default();
    assert!(matches!(Agent::new(&fake.library, "a\0b", &config), Err(Error::ZeroByte { .. })));
    let agent = agent(&fake.library, "whole");
    assert!(matches!(agent.create_backend("U\0", &Default::default()), Err(Error::ZeroByte { .. })));
    let params = [("key".to_owned(), "v\0".to_owned())].into();
    assert!(matches!(agent.create_backend("UCX", &params), Err(Error::ZeroByte { .. })));
}

#[test]
fn a_region_travels_as_plain_data() {
    let region = RemoteRegion { addr: 4096, len: 8, device: 1, kind: MemoryKind::Vram };
    let text = serde_json::to_string(&region).unwrap();
    assert_eq!(text, r#"{"addr":4096,"len":8,"device":1,"kind":"vram"}"#);
    assert_eq!(serde_json::from_str::<RemoteRegion>(&text).unwrap(), region);
}

#[test]
fn an_agent_moves_to_another_thread_when_nothing_is_borrowed() {
    let fake = fake("");
    let agent = agent(&fake.library, "travelling");
    let name = std::thread::scope(|scope| scope.spawn(move || ucx(&agent).name().to_owned()).join().unwrap());
    assert_eq!(name, "UCX");
}
