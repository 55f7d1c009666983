//! `docs/faults.md`: the table of faults as a page.

use std::fmt::Write as _;

use crate::scene::Meet;
use crate::table::{Comes, Ends, Row, table};

const HEAD: &str = "# Faults

What kvwire does when something goes wrong between two hosts. Each row is played by `make test` with real processes in
two network namespaces, and with a real etcd where etcd serves the rendezvous; this page is written from the table that
the test checks (`tests/tests/netns/table.rs`).

**In time.** After a fault both sides end within the lease time plus 5 s. The lease time is half of `--peer-timeout`
(10 s by default, so that both have ended when it is over): a silent peer or rendezvous is lost after it. What is left to
do then (end the engine, write the result, tell the other side, say goodbye) has one deadline of 5 s. A process that ends
by itself or is killed while its supervisor lives is noticed at once, one that is stopped (SIGSTOP) within two seconds.
The rows below are played with a lease time of 2 s, and a side that takes longer than 7 s fails the test.

Two things have deadlines of their own. A library call that hangs is ended after a time that follows from `--case-time`
and `--transfer-timeout`. And nothing can hurry the operating system: a process that a driver holds in the kernel, or a
result file on a file system that does not answer.

**Honest.** Losing the peer or the control plane says nothing about the wire: the verdict is *inconclusive* and the exit
code 3. A transfer that stalls or fails while the control plane stands is *not trusted*, 1. See
[exit codes](exit-codes.md).

**Kept.** With `--output`, each side has a file from the moment when it knows what is to be measured: the initiator once
the two have met, the target once it has been told the plan. It is written anew after every case, in one step, and says
that the run has not ended until it has. So cases that were finished are kept on both sides, also by a side that is
killed. A target that is lost before it knows the plan has no file, and says why on standard output.

**Nothing left.** No engine outlives its supervisor. Every key in etcd is gone two lease times after the end at most,
however the process ended.

In the tables, *PHASE* is what the run was doing when it was hit, and … stands for the names of hosts, processes and
cases. A dash: that side is not there, or was killed. Warm-up and timed loop are hit while NIXL moves data over TCP;
registration and verification are over too soon for that, and are held by a NIXL that is made to hang. In the hello, what
the initiator says is held back on its way, and so is its goodbye. In the join, a side that is alone waits on, for
`--join-timeout` at most, and the run is made once the cable and the other side are there.
";

const TAIL: &str = "
## The wire alone

The control plane meets at etcd and stands, and the cable that carries the data is pulled in the timed loop: the transfer
stalls, and both sides end with exit code 1 after `--transfer-timeout`:

    NOT TRUSTED  initiator engine, timed loop: … did not complete within …

## Strangers

| who | what happens |
|---|---|
| garbage, a giant frame, half a frame, or silence at the target's port | it is turned away with a line on standard error; the run is not disturbed |
| the same from whatever listens where the initiator expects the target | exit code 3: it `is not a kvwire rendezvous`, `did not answer`, or the join time is over |
| a wrong token | exit code 3, `wrong token`, at once; the target waits on |
| a peer with the token that says nothing, garbage, half a message or a giant one instead of its hello | exit code 3: `did not say hello`, `sent something unreadable`, or `cannot be read`; after the lease time at most |
| a kvwire of another major version | exit code 3 on both sides: `kvwire … here and kvwire … there do not understand each other` |
| metadata that NIXL rejects | exit code 1 on both sides: `initiator engine, connection: NIXL … failed` |
";

/// The page.
pub(crate) fn page() -> String {
    let rows = table();
    let mut page = HEAD.to_owned();
    for (title, meet) in [
        ("The target serves the rendezvous (tcp://)", Meet::Tcp),
        ("etcd serves the rendezvous (etcd://)", Meet::Etcd),
    ] {
        let _ = write!(page, "\n## {title}\n\n| fault | phases | target | initiator |\n|---|---|---|---|\n");
        for row in rows.iter().filter(|row| row.meet == meet) {
            let _ = writeln!(page, "{}", line(row));
        }
    }
    page + TAIL
}

fn line(row: &Row) -> String {
    let phases: Vec<&str> = row.phases.iter().map(|phase| phase.name()).collect();
    let [target, initiator] = match &row.comes {
        Comes::Nothing => ["the run goes on".to_owned(), "the run goes on".to_owned()],
        Comes::End { target, initiator } => [cell(target), cell(initiator)],
    };
    format!("| {} | {} | {target} | {initiator} |", row.fault.name(), phases.join(", "))
}

fn of_any_phase(text: &str) -> String {
    text.replace("{run}", "PHASE").replace("{engine}", "PHASE")
}

fn cell(ends: &Ends) -> String {
    match ends {
        Ends::Says(text) if text == "…" => "3: it has lost its peer or its place".to_owned(),
        Ends::Says(text) => format!("3: `{}`", of_any_phase(text)),
        Ends::Either(one, other) => format!("3: `{}` or `{}`", of_any_phase(one), of_any_phase(other)),
        Ends::Killed | Ends::Absent => "-".to_owned(),
    }
}

#[test]
fn the_page_of_faults_is_the_table() {
    let path = kvwire_tests::repository().join("docs/faults.md");
    let page = page();
    if std::env::var_os("KVWIRE_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/faults.md is not what the table says; run `make docs`");
}
