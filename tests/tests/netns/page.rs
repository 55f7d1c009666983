//! `docs/faults.md`: the table of faults as a page.

use std::fmt::Write as _;

use crate::scene::Meet;
use crate::table::{Ends, Row, table};

const HEAD: &str = "# Faults

What kvwire does when something goes wrong between two hosts. Each row is played by `make test` with real processes in
two network namespaces, and with a real etcd where etcd serves the rendezvous; this page is written from the table that
the test checks (`tests/tests/netns/table.rs`).

**In time.** Once a run goes on, both sides end within the lease time plus 5 s: a silent peer or rendezvous is lost
after the lease time, which is half of `--peer-timeout` (10 s by default). A process that ends by itself or is killed
while its supervisor lives is noticed at once, one that is stopped (SIGSTOP) within two seconds. A library call that hangs
is ended at its own deadline, which follows from `--case-time` and `--transfer-timeout`.

**Honest.** Losing the peer or the control plane says nothing about the wire: the verdict is *inconclusive* and the exit
code 3. A transfer that stalls or fails while the control plane stands is *not trusted*, 1. See
[exit codes](exit-codes.md).

**Kept.** Cases that were finished stay in the result of both sides: the initiator writes its file after every case and
tells the target. A target that is lost before it knows what is to be measured has no result, and says why on standard
output. Only a target that is killed leaves no file.

**Nothing left.** No engine outlives its supervisor. Every key in etcd is gone two lease times after the end at most,
however the process ended.

In the tables, *PHASE* is what the run was doing when it was hit, and … stands for the names of hosts, processes and
cases. A dash: that side is not there, or was killed.
";

const TAIL: &str = "
## The wire alone

The control plane meets at etcd and stands, and the cable that carries the data is pulled in the timed loop: the transfer
stalls, and both sides end with exit code 1 after `--transfer-timeout`:

    NOT TRUSTED  initiator engine, timed loop: … did not complete within …

## etcd away for less than the lease time

etcd does not answer, or is restarted with or without its data: the transfers that run are not disturbed, and the run is
trusted. Each side reconnects, and where etcd has lost its data registers again.

## Strangers

| who | what happens |
|---|---|
| garbage, a giant frame, half a frame, or silence at the target's port | it is turned away with a line on standard error; the run is not disturbed |
| the same from whatever listens where the initiator expects the target | exit code 3: it `is not a kvwire rendezvous`, `did not answer`, or the join time is over |
| a wrong token | exit code 3, `wrong token`, at once; the target waits on |
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
    format!(
        "| {} | {} | {} | {} |",
        row.fault.name(),
        phases.join(", "),
        cell(row.target.as_ref()),
        cell(row.initiator.as_ref())
    )
}

fn cell(ends: Option<&Ends>) -> String {
    match ends {
        Some(ends) if ends.code == 3 => {
            let says = ends.says.replace("{run}", "PHASE").replace("{engine}", "PHASE");
            if says == "…" {
                "3: it has lost its peer or its place".to_owned()
            } else {
                format!("3: `{says}`")
            }
        }
        _ => "-".to_owned(),
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
