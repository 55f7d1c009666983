//! Verified bytes through a real NIXL and its UCX backend, between two agents of this process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where something fails"
)]

mod common;

use std::path::PathBuf;
use std::sync::OnceLock;

use common::{agent, fill, memory, pattern, receive, run, ucx, word};
use nixl::{MemoryKind, Op, TransferOptions};
use nixl_sys::{Loaded, NIXL_LIB_VARIABLE, SearchOptions};

fn real() -> &'static Loaded {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    LOADED.get_or_init(|| {
        let named = std::env::var_os(NIXL_LIB_VARIABLE).map(PathBuf::from);
        let named = named.unwrap_or_else(|| {
            panic!("{NIXL_LIB_VARIABLE} must name a real libnixl_capi.so for this test; `make test` sets it")
        });
        nixl_sys::open(&SearchOptions::from_process(Some(named))).unwrap()
    })
}

#[test]
fn scattered_blocks_arrive_in_both_directions_with_their_notification() {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 64;
    let library = &real().library;
    let (initiator, target) = (agent(library, "real-decode"), agent(library, "real-prefill"));
    let (backend, target_backend) = (ucx(&initiator), ucx(&target));
    let (here, there) = (memory(BLOCK * BLOCKS), memory(BLOCK * BLOCKS));
    let (ours, theirs) =
        (initiator.register(&backend, &here).unwrap(), target.register(&target_backend, &there).unwrap());
    let remote = initiator.load_remote(&target.local_metadata().unwrap()).unwrap();
    assert_eq!(remote.name(), "real-prefill");

    let blocks = || (0..BLOCKS).map(|at| (at * BLOCK, BLOCK));
    let local_list = ours.describe(blocks()).unwrap();
    let remote_list = remote.describe(&theirs.region(), blocks()).unwrap();
    // Block i goes to the mirrored place, and every fourth one stays where it is.
    let picked: Vec<i32> = (0..64).filter(|at| at % 4 != 0).collect();
    let mirrored: Vec<i32> = picked.iter().map(|at| 63 - at).collect();
    let words = BLOCK / 8;

    for (op, seed) in [(Op::Write, 1), (Op::Read, 2)] {
        let (source, sink) = if op == Op::Write { (&here, &there) } else { (&there, &here) };
        fill(source, seed);
        fill(sink, 9);
        let message = [b"\0done"[..].to_vec(), vec![seed as u8]].concat();
        let options = TransferOptions { skip_merge: op == Op::Read, notify: Some(message.clone()) };
        let mut transfer =
            initiator.make_transfer(op, &local_list, &picked, &remote_list, &mirrored, &options).unwrap();
        run(&mut transfer).unwrap();
        assert_eq!(receive(&target, 1), [("real-decode".to_owned(), message)]);

        let (from, to) = if op == Op::Write { (&picked, &mirrored) } else { (&mirrored, &picked) };
        for (from, to) in from.iter().zip(to) {
            for at in 0..words {
                let (from, to) = (*from as usize * words + at, *to as usize * words + at);
                assert_eq!(word(sink, to), pattern(seed, from), "{op:?} word {to}");
            }
        }
        let untouched = (0..BLOCKS).filter(|block| !to.contains(&(*block as i32)));
        for block in untouched {
            assert_eq!(word(sink, block * words), pattern(9, block * words), "{op:?} block {block}");
        }
        let telemetry = transfer.telemetry().unwrap().unwrap();
        assert_eq!(telemetry.total_bytes, (picked.len() * BLOCK) as u64);
    }
    assert_eq!((initiator.quarantined(), target.quarantined()), (0, 0));
}

#[test]
fn the_library_says_what_it_is() {
    let loaded = real();
    let agent = agent(&loaded.library, "real-asking");
    assert!(agent.plugins().unwrap().iter().any(|name| name == "UCX"));
    assert!(agent.plugin("UCX").unwrap().memory.contains(&MemoryKind::Dram));
    let backend = ucx(&agent);
    assert!(backend.info().unwrap().memory.contains(&MemoryKind::Dram));
    let mapped = nixl_sys::maps::ucx_libraries().unwrap();
    let version = mapped.version.expect("UCX is mapped once its backend exists");
    assert!(version.starts_with("1."), "{version}");
    assert!(mapped.paths.iter().any(|path| path.to_string_lossy().contains("libucp")));
    assert!(mapped.nixl.contains(&loaded.realpath));
    // A wheel knows its version; another installation has none to tell.
    let is_wheel = loaded.realpath.to_string_lossy().contains(".mesonpy.libs");
    assert_eq!(loaded.version.is_some(), is_wheel);
}

#[test]
fn a_peers_memory_outside_what_it_registered_is_refused() {
    let library = &real().library;
    let (initiator, target) = (agent(library, "real-curious"), agent(library, "real-guarded"));
    let (_backend, target_backend) = (ucx(&initiator), ucx(&target));
    let there = memory(4096);
    let theirs = target.register(&target_backend, &there).unwrap();
    let remote = initiator.load_remote(&target.local_metadata().unwrap()).unwrap();
    let mut wrong = theirs.region();
    wrong.addr += wrong.len;
    assert!(remote.describe(&wrong, [(0, 8)]).unwrap_err().status().is_some());
    assert!(initiator.load_remote(b"not metadata").unwrap_err().status().is_some());
}
