//! The floor under a large request: NIXL's C functions alone, between two processes, nothing around them.
//!
//! `bare_request LIBRARY DESCRIPTORS BYTES ROUNDS` starts itself again as the owner of the remote memory, prepares lists
//! of twice as many descriptors on both sides, and then makes and moves requests of `DESCRIPTORS` scattered ones. It
//! prints the median times in nanoseconds: preparing the lists, making a request, and moving it. It is what kvwire's own
//! cost is compared with, so it has no error handling beyond stopping.

#![expect(clippy::print_stdout, reason = "the numbers are this program's result")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a measuring aid for developers stops where something fails"
)]

use std::ffi::{CStr, c_char};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use nixl_sys::*;

mod bare;

use bare::{agent, number, ok, register};

/// A NIXL transfer reports progress for ever when its peer is gone; this ends the loop.
const DEADLINE: Duration = Duration::from_secs(60);
/// The pool holds so many times the descriptors of a request, as kvwire's does.
const SPREAD: usize = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, descriptors, bytes, rounds, rest @ ..] = arguments.as_slice() else {
        panic!("usage: bare_request LIBRARY DESCRIPTORS BYTES ROUNDS");
    };
    let (descriptors, bytes, rounds) = (number(descriptors), number(bytes), number(rounds));
    let nixl = Library::open(Path::new(path)).expect("the library loads");
    let pool = memory(SPREAD * descriptors * bytes);
    if rest.is_empty() {
        // SAFETY: the memory stays, and this is the only thread that calls NIXL.
        unsafe { initiate(&nixl, pool, descriptors, bytes, rounds, path) };
    } else {
        // SAFETY: as above.
        unsafe { own(&nixl, pool) };
    }
    // The destructors of some installations crash, and the numbers are out.
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// Memory with huge pages, as kvwire takes, never given back.
fn memory(bytes: usize) -> &'static [u8] {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: without a wanted address the kernel chooses unused pages, which nobody unmaps.
    unsafe {
        let start = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED, "no memory");
        libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        std::ptr::write_bytes(start.cast::<u8>(), 1, bytes);
        std::slice::from_raw_parts(start.cast(), bytes)
    }
}

/// Registers the remote memory, tells where it is, and stays until its input ends.
///
/// # Safety
/// The pool must outlive the process's use of NIXL, and no other thread may call it.
unsafe fn own(nixl: &Library, pool: &[u8]) {
    // SAFETY: handles are used as their makers say.
    let metadata = unsafe {
        let agent = agent(nixl, c"bare-target", true);
        register(nixl, agent, pool);
        let (mut blob, mut len) = (null_mut(), 0);
        ok((nixl.get_local_md)(agent, &raw mut blob, &raw mut len));
        std::slice::from_raw_parts(blob.cast::<u8>(), len)
    };
    let mut out = std::io::stdout().lock();
    out.write_all(&(pool.as_ptr().addr() as u64).to_le_bytes()).expect("a pipe");
    out.write_all(&(metadata.len() as u64).to_le_bytes()).expect("a pipe");
    out.write_all(metadata).and_then(|()| out.flush()).expect("a pipe");
    // The end of the pipe is the end of the run.
    let _ = std::io::stdin().lock().read(&mut [0; 1]);
}

/// Makes and moves the requests.
///
/// # Safety
/// As [`own`].
unsafe fn initiate(nixl: &Library, pool: &[u8], descriptors: usize, bytes: usize, rounds: usize, path: &str) {
    let mut target = Command::new("/proc/self/exe")
        .args([path, &descriptors.to_string(), &bytes.to_string(), "0", "own"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    let mut pipe = target.stdout.take().expect("a pipe");
    let (there, length) = (word(&mut pipe), word(&mut pipe));
    let mut metadata = vec![0; length];
    pipe.read_exact(&mut metadata).expect("metadata");
    let all = SPREAD * descriptors;
    let (mut prepare, mut make, mut wire) = (Vec::new(), Vec::new(), Vec::new());
    // SAFETY: all handles are live and belong together, memory and indices outlive the calls that use them.
    unsafe {
        let agent = agent(nixl, c"bare-initiator", false);
        register(nixl, agent, pool);
        let mut name = null_mut();
        ok((nixl.load_remote_md)(agent, metadata.as_ptr().cast(), length, &raw mut name));
        let mut lists = (null_mut(), null_mut());
        for round in 0..rounds {
            if round > 0 {
                ok((nixl.release_xfer_dlist_handle)(agent, lists.0));
                ok((nixl.release_xfer_dlist_handle)(agent, lists.1));
            }
            let begin = Instant::now();
            let local = list(nixl, agent, c"", pool.as_ptr().addr(), all, bytes);
            let remote = list(nixl, agent, CStr::from_ptr(name), there, all, bytes);
            prepare.push(begin.elapsed());
            lists = (local, remote);
        }
        let mut chance = 42_u64;
        for round in 0..=rounds {
            let (ours, theirs) =
                (scattered(all, descriptors, &mut chance), scattered(all, descriptors, &mut chance));
            let mut request = null_mut();
            let begin = Instant::now();
            ok((nixl.make_xfer_req)(
                agent,
                NIXL_CAPI_XFER_OP_READ,
                lists.0,
                ours.as_ptr(),
                descriptors,
                lists.1,
                theirs.as_ptr(),
                descriptors,
                &raw mut request,
                null_mut(),
            ));
            let made = Instant::now();
            let mut code = (nixl.post_xfer_req)(agent, request, null_mut());
            while code == NIXL_CAPI_IN_PROG {
                code = (nixl.get_xfer_status)(agent, request);
                assert!(made.elapsed() < DEADLINE, "a transfer did not end");
            }
            ok(code);
            let done = Instant::now();
            ok((nixl.release_xfer_req)(agent, request));
            // The first transfer connects.
            if round > 0 {
                make.push(made - begin + done.elapsed());
                wire.push(done - made);
            }
        }
    }
    println!("prepare {} make {} move {}", median(&mut prepare), median(&mut make), median(&mut wire));
    drop(target.stdin.take());
    let _ = target.wait();
}

fn word(pipe: &mut impl Read) -> usize {
    let mut bytes = [0; 8];
    pipe.read_exact(&mut bytes).expect("a word");
    u64::from_le_bytes(bytes) as usize
}

/// `count` different numbers below `all`, in no order.
fn scattered(all: usize, count: usize, chance: &mut u64) -> Vec<i32> {
    let mut numbers: Vec<i32> = (0..all as i32).collect();
    for last in (1..all).rev() {
        *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(last, ((*chance >> 33) % (last as u64 + 1)) as usize);
    }
    numbers.truncate(count);
    numbers
}

fn median(times: &mut [Duration]) -> u128 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos()
}

/// Prepares `count` neighbouring descriptors from `start` on.
unsafe fn list(
    nixl: &Library,
    agent: nixl_capi_agent_t,
    owner: &CStr,
    start: usize,
    count: usize,
    bytes: usize,
) -> nixl_capi_xfer_dlist_handle_t {
    let (mut list, mut handle) = (null_mut(), null_mut());
    let owner: *const c_char = owner.as_ptr();
    // SAFETY: the owner is a C string and all handles are live.
    unsafe {
        ok((nixl.create_xfer_dlist)(NIXL_CAPI_MEM_DRAM, &raw mut list));
        for at in 0..count {
            ok((nixl.xfer_dlist_add_desc)(list, start + at * bytes, bytes, 0));
        }
        ok((nixl.prep_xfer_dlist)(agent, owner, list, &raw mut handle, null_mut()));
        (nixl.destroy_xfer_dlist)(list);
    }
    handle
}
