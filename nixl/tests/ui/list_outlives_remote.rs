//! A remote descriptor list needs its peer.

use nixl::{Remote, RemoteRegion};

fn early(remote: Remote<'_>, region: &RemoteRegion) -> nixl::Result<()> {
    let list = remote.describe(region, [(0, 8)])?;
    drop(remote);
    drop(list);
    Ok(())
}

fn main() {}
