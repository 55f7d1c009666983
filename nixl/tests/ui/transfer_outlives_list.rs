//! A transfer needs both of its lists.

use nixl::{Agent, DescList, Op, RemoteDescList, Transfer, TransferOptions};

fn local(agent: &Agent, local: DescList<'_>, remote: &RemoteDescList<'_>) -> nixl::Result<()> {
    let options = TransferOptions::default();
    let mut transfer = agent.make_transfer(Op::Read, &local, &[0], remote, &[0], &options)?;
    drop(local);
    transfer.post().map(drop)
}

fn remote(agent: &Agent, local: &DescList<'_>, remote: RemoteDescList<'_>) -> nixl::Result<()> {
    let options = TransferOptions::default();
    let mut transfer = agent.make_transfer(Op::Read, local, &[0], &remote, &[0], &options)?;
    drop(remote);
    transfer.post().map(drop)
}

fn leak<'a>(agent: &'a Agent, local: DescList<'a>, remote: &'a RemoteDescList<'a>) -> nixl::Result<Transfer<'a>> {
    agent.make_transfer(Op::Read, &local, &[0], remote, &[0], &TransferOptions::default())
}

fn main() {}
