//! A transfer needs its agent.

use nixl::{Agent, DescList, Op, RemoteDescList, TransferOptions};

fn early(agent: Agent, local: &DescList<'_>, remote: &RemoteDescList<'_>) -> nixl::Result<()> {
    let options = TransferOptions::default();
    let mut transfer = agent.make_transfer(Op::Read, local, &[0], remote, &[0], &options)?;
    drop(agent);
    transfer.post().map(drop)
}

fn main() {}
