//! `kvwire target`, `initiator` and `run` on one host: roles, addresses, and what both sides keep.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Kvwire, Nixl, kvwire_command, with_result};

fn target(url: &str) -> Kvwire {
    with_result("target").nixl(&Nixl::Newest).args(["--rendezvous", url, "--allow-same-host"])
}

fn initiator(url: &str) -> Kvwire {
    with_result("initiator").nixl(&Nixl::Newest).args(["--rendezvous", url, "--allow-same-host"]).args([
        "--sizes",
        "4KiB,64KiB",
        "--case-time",
        "50ms",
    ])
}

/// The join address that a target prints.
fn assert_trusted(ended: &Ended) {
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.statuses(), ["pass"; 4], "{ended}");
}

fn assert_same_result(target: &Ended, initiator: &Ended) {
    assert_trusted(target);
    assert_trusted(initiator);
    assert_eq!(target.cases(), initiator.cases());
    for key in ["verdict", "plan", "nodes", "rendezvous", "registration"] {
        assert_eq!(target.result()[key], initiator.result()[key], "{key}");
    }
    assert_eq!(target.result()["run"]["id"], initiator.result()["run"]["id"]);
    assert_eq!(initiator.result()["run"]["recorded_by"], "initiator");
    assert_eq!(target.result()["run"]["recorded_by"], "target");
}

#[test]
fn the_printed_line_is_all_that_the_other_side_needs() {
    let mut target = target("tcp://127.0.0.1:0").start();
    let address = target.join_address();
    let initiator = initiator(&address).run();
    let target = target.end();
    assert_same_result(&target, &initiator);
    let rendezvous = &initiator.result()["rendezvous"];
    assert!(rendezvous["place"].as_str().unwrap().contains("127.0.0.1"), "{rendezvous}");
    assert_eq!(rendezvous["initiator"]["interface"], "lo", "{rendezvous}");
    assert_eq!(rendezvous["target"]["interface"], "lo", "{rendezvous}");
    assert!(
        !initiator.stderr.contains("reconnecting") && !target.stderr.contains("turned"),
        "{initiator}{target}"
    );
}

#[test]
fn beyond_loopback_a_token_is_made_printed_once_and_kept_out_of_results() {
    let mut target = target("tcp://0.0.0.0:0").args(["--advertise", "127.0.0.1"]).start();
    let address = target.join_address();
    let token = address.strip_prefix("tcp://").unwrap().split_once('@').expect("a token").0.to_owned();
    assert!(token.len() >= 16, "{address}");
    let wrong = initiator(&address.replace(&token, "0123456789abcdef0123456789abcdef")).run();
    assert_eq!(wrong.code, 3, "{wrong}");
    assert!(wrong.title("join-failed").contains("wrong token"), "{wrong}");
    let initiator = initiator(&address).run();
    let target = target.end();
    assert_same_result(&target, &initiator);
    for ended in [&target, &initiator] {
        assert!(!ended.result().to_string().contains(&token), "{ended}");
        assert!(!ended.stdout.contains(&token), "{ended}");
    }
}

#[test]
fn a_token_from_the_environment_is_not_printed() {
    let token = "from-the-environment-1234";
    let mut target =
        target("tcp://0.0.0.0:0").args(["--advertise", "127.0.0.1"]).env("KVWIRE_TOKEN", token).start();
    let address = target.join_address();
    let without = initiator(&address).run();
    assert_eq!(without.code, 3, "{without}");
    assert!(without.title("join-failed").contains("token"), "{without}");
    let initiator = initiator(&address).env("KVWIRE_TOKEN", token).run();
    let target = target.end();
    assert_same_result(&target, &initiator);
    assert!(!format!("{target}{initiator}").contains(token));
}

#[test]
fn an_engine_does_not_know_the_token() {
    let token = "from-the-environment-1234";
    let mut live = target("tcp://127.0.0.1:0").args(["--verbose"]).env("KVWIRE_TOKEN", token).start();
    let address = live.join_address();
    let mut initiator = initiator(&address).env("KVWIRE_TOKEN", token).args(["--verbose"]).start();
    let engine = initiator.engine("initiator");
    let environment = std::fs::read(format!("/proc/{engine}/environ")).unwrap();
    assert!(!environment.windows(token.len()).any(|w| w == token.as_bytes()));
    assert_same_result(&live.end(), &initiator.end());
}

#[test]
fn start_order_does_not_matter_and_ipv6_works() {
    // The port is free a moment before: another process of this machine may take it, then the target says so.
    let port = std::net::TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap().port();
    let url = format!("tcp://[::1]:{port}/early");
    let mut first = initiator(&url).start();
    first.await_line("waiting for the rendezvous");
    let target = target(&url).run();
    assert_same_result(&target, &first.end());
}

#[test]
fn one_host_twice_is_refused_unless_it_is_accepted() {
    let run = |initiator: Kvwire| {
        let mut target =
            with_result("target").nixl(&Nixl::Newest).args(["--rendezvous", "tcp://127.0.0.1:0"]).start();
        let address = target.join_address();
        let initiator = initiator.nixl(&Nixl::Newest).args(["--rendezvous", &address]).run();
        let target = target.end();
        assert_eq!((initiator.code, target.code), (3, 3), "{initiator}{target}");
        let words = initiator.words();
        assert!(words.contains("both sides run on one host"), "{initiator}");
        assert!(words.contains("--allow-same-host on both sides"), "{initiator}");
        assert!(target.stdout.contains("--allow-same-host"), "{target}");
        initiator
    };
    assert!(run(with_result("initiator")).title("same-host").contains("one host"));
    // The one that accepts it hears from the other, which does not.
    run(with_result("initiator").args(["--allow-same-host"]));
}

#[test]
fn a_role_that_is_held_is_refused_naming_its_holder() {
    let mut target_live = target("tcp://127.0.0.1:0/taken").start();
    let address = target_live.join_address();
    // It waits for its measurement with a long case, so that the second one comes while it runs.
    let mut first = with_result("initiator")
        .nixl(&Nixl::Newest)
        .args(["--rendezvous", &address, "--allow-same-host", "--sizes", "4KiB", "--op", "read", "--verbose"])
        .args(["--samples", "100000000", "--case-time", "2s"])
        .start();
    first.await_line("initiator engine: timed loop");
    let second = initiator(&address).run();
    assert_eq!(second.code, 3, "{second}");
    let title = second.title("role-taken");
    assert!(title.contains("initiator") && title.contains(&format!("process {}", first.pid())), "{title}");
    let (first, target) = (first.end(), target_live.end());
    assert_eq!((first.code, target.code), (0, 0), "the pair that ran is not disturbed: {first}{target}");
}

#[test]
fn another_run_cannot_be_joined_by_accident() {
    let mut live = target("tcp://127.0.0.1:0/mine").args(["--join-timeout", "20s"]).start();
    let address = live.join_address();
    let foreign = initiator(&address.replace("/mine", "/theirs")).run();
    assert_eq!(foreign.code, 3, "{foreign}");
    assert!(foreign.title("join-failed").contains("another run"), "{foreign}");
    let nameless = initiator(address.strip_suffix("/mine").unwrap()).run();
    assert_eq!(nameless.code, 2, "{nameless}");
    assert!(nameless.stderr.contains("--run-id"), "{nameless}");
    let initiator = initiator(&address).run();
    assert_same_result(&live.end(), &initiator);
}

#[test]
fn roles_come_from_the_index_that_a_launcher_gives() {
    for variable in ["JOB_COMPLETION_INDEX", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK"] {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let side = |index: &str| {
            with_result("run")
                .nixl(&Nixl::Newest)
                .args(["--rendezvous", &format!("tcp://127.0.0.1:{port}"), "--allow-same-host"])
                .args(["--sizes", "4KiB,64KiB", "--case-time", "20ms"])
                .env("KVWIRE_TOKEN", "a-token-for-both-sides")
                .env(variable, index)
        };
        let initiator = side("1").start();
        let target = side("0").run();
        assert_same_result(&target, &initiator.end());
    }
    let nobody = kvwire_command("run").args(["--rendezvous", "tcp://127.0.0.1:1"]).run();
    assert_eq!(nobody.code, 2, "{nobody}");
    assert!(nobody.stderr.contains("--index"), "{nobody}");
    let third = kvwire_command("run").args(["--rendezvous", "tcp://127.0.0.1:1", "--index", "2"]).run();
    assert_eq!(third.code, 2, "{third}");
}

#[test]
fn a_target_that_is_kept_serves_one_run_after_another() {
    let mut live = target("tcp://127.0.0.1:0/kept").args(["--keep"]).start();
    let address = live.join_address();
    for _ in 0..2 {
        assert_trusted(&initiator(&address).run());
    }
    live.signal(live.pid(), rustix::process::Signal::TERM);
    let ended = live.end();
    assert_eq!(ended.stdout.matches("TRUSTED  all 4 cases").count(), 2, "{ended}");
    assert_eq!(ended.code, 3, "interrupted while it waited: {ended}");
}

#[test]
fn nobody_comes_and_the_wait_ends() {
    let alone = target("tcp://127.0.0.1:0").args(["--join-timeout", "1s"]).run();
    assert_eq!(alone.code, 3, "{alone}");
    assert!(alone.stdout.starts_with("INCONCLUSIVE") && alone.stdout.contains("no initiator"), "{alone}");
    let alone = initiator("tcp://127.0.0.1:1/none").args(["--join-timeout", "1s"]).run();
    assert_eq!(alone.code, 3, "{alone}");
    assert!(alone.title("join-failed").contains("refused the connection"), "{alone}");
    assert_eq!(alone.statuses(), ["not_run"; 4], "{alone}");
}

#[test]
fn addresses_that_make_no_sense_are_usage_errors() {
    for url in ["host:1", "http://host:1", "tcp://host", "etcd://user:secret@host:2379", "tcp://[::1]:0:0"] {
        let ended = kvwire_command("initiator").args(["--rendezvous", url]).run();
        assert_eq!(ended.code, 2, "{url}: {ended}");
        assert!(ended.stderr.contains("--rendezvous") && !ended.stderr.contains("secret@"), "{url}: {ended}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", taken.local_addr().unwrap());
    let ended = kvwire_command("target").args(["--rendezvous", &url]).run();
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("cannot listen"), "{ended}");
}
