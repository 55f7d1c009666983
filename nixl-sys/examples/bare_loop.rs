//! The floor under every measurement: post and poll of one request by NIXL's C functions alone, nothing around them.
//!
//! `bare_loop LIBRARY SIZE_BYTES ITERATIONS` prints the mean time of one transfer between two agents of this process.
//! It is what the safe API's own cost is compared with, so it has no error handling beyond stopping.

#![expect(clippy::print_stdout, reason = "the number is this program's result")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a measuring aid for developers stops where something fails"
)]

use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use nixl_sys::*;

mod bare;

use bare::{agent, number, ok, register};

/// A NIXL transfer reports progress for ever when its peer is gone; this ends the loop.
const DEADLINE: Duration = Duration::from_secs(60);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("usage: bare_loop LIBRARY SIZE_BYTES ITERATIONS");
    let (path, size, iterations) = (next(), number(&next()), number(&next()));
    let nixl = Library::open(Path::new(&path)).expect("the library loads");
    let (here, there) = (vec![0_u8; size], vec![0_u8; size]);
    // SAFETY: both buffers outlive the agents' transfers, every handle is used as its maker says, and this is the only
    // thread that calls NIXL.
    let elapsed = unsafe {
        let initiator = agent(&nixl, c"bare-initiator", true);
        let target = agent(&nixl, c"bare-target", true);
        register(&nixl, initiator, &here);
        register(&nixl, target, &there);
        let (mut blob, mut len, mut name) = (null_mut(), 0, null_mut());
        ok((nixl.get_local_md)(target, &raw mut blob, &raw mut len));
        ok((nixl.load_remote_md)(initiator, blob, len, &raw mut name));
        let local = prepare(&nixl, initiator, c"".as_ptr(), &here);
        let remote = prepare(&nixl, initiator, name, &there);
        let (indices, mut request) = ([0], null_mut());
        ok((nixl.make_xfer_req)(
            initiator,
            NIXL_CAPI_XFER_OP_WRITE,
            local,
            indices.as_ptr(),
            1,
            remote,
            indices.as_ptr(),
            1,
            &raw mut request,
            null_mut(),
        ));
        // The first transfer connects, and is not part of the loop.
        transfer_all(&nixl, initiator, request, 1);
        transfer_all(&nixl, initiator, request, iterations)
    };
    println!("{:.1} ns per transfer", elapsed.as_nanos() as f64 / iterations as f64);
    // The destructors of some installations crash, and the number is out.
    std::mem::forget((here, there));
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

unsafe fn transfer_all(
    nixl: &Library,
    agent: nixl_capi_agent_t,
    request: nixl_capi_xfer_req_t,
    iterations: usize,
) -> Duration {
    let (post, status) = (nixl.post_xfer_req, nixl.get_xfer_status);
    let start = Instant::now();
    for _ in 0..iterations {
        // SAFETY: the caller gives live handles that belong together.
        let mut code = unsafe { post(agent, request, null_mut()) };
        let mut polls = 0_u32;
        while code == NIXL_CAPI_IN_PROG {
            // SAFETY: as above.
            code = unsafe { status(agent, request) };
            polls = polls.wrapping_add(1);
            // The clock is read seldom enough not to be part of what is measured.
            assert!(!polls.is_multiple_of(1 << 20) || start.elapsed() < DEADLINE, "a transfer did not end");
        }
        ok(code);
    }
    start.elapsed()
}

unsafe fn prepare(
    nixl: &Library,
    agent: nixl_capi_agent_t,
    owner: *const std::ffi::c_char,
    memory: &[u8],
) -> nixl_capi_xfer_dlist_handle_t {
    let (mut list, mut handle) = (null_mut(), null_mut());
    // SAFETY: the owner is a C string and all handles are live.
    unsafe {
        ok((nixl.create_xfer_dlist)(NIXL_CAPI_MEM_DRAM, &raw mut list));
        ok((nixl.xfer_dlist_add_desc)(list, memory.as_ptr().addr(), memory.len(), 0));
        ok((nixl.prep_xfer_dlist)(agent, owner, list, &raw mut handle, null_mut()));
    }
    handle
}
