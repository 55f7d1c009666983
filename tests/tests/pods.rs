//! The pods of the overlays without a fabric, run for real by podman: from the manifests to what `kvwire collect` brings home.
//!
//! What is a cluster's part and podman does not know is played here: the Job's controller (pods from the template, with their
//! index, the Job's id as a label, and the Job's end by its failure policy), names of pods and Services (host aliases), and
//! `kubectl`'s answers, which are podman's own words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use kvwire_tests::manifests::{Given, of_kind, pod_of, rendered, text};
use kvwire_tests::{Ended, Live, Nixl, Podman, kvwire, kvwire_command};
use serde_json::{Value, json};

const IMAGE: &str = "localhost/kvwire:test";
/// What the component etcd names; its content is Debian's etcd.
const ETCD_IMAGE: &str = "registry.k8s.io/etcd:3.5.21-0";

/// `kubectl get` and `kubectl logs`, answered by podman. A container counts as ended when podman says so; a Job as ended when
/// both have, for each index fails on its own.
const KUBECTL: &str = r#"#!/bin/bash
# Arguments: what kvwire gives to kubectl. Set above: PODMAN, FOLDER.
state() { $PODMAN inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$1-kvwire" 2>/dev/null; }
case "$1 $2" in
"get job")
    read -r first a < <(state "$3-0"); read -r second b < <(state "$3-1")
    conditions=
    if [ "$first $second" = "exited exited" ]; then
        conditions='{"type":"Complete","status":"True"}'
        [ "$a$b" = 00 ] || conditions='{"type":"Failed","status":"True","reason":"FailedIndexes"}'
    fi
    echo "{\"status\":{\"conditions\":[$conditions]}}" ;;
"get pods")
    job=${3##*=} items=
    for index in 0 1; do
        pod=$job-$index
        read -r status code < <(state "$pod") || continue
        message=$(sed 's/["\\]/\\&/g' "$FOLDER/$pod.message")
        inner='"waiting":{}'
        [ "$status" = running ] && inner='"running":{}'
        [ "$status" = exited ] && inner="\"terminated\":{\"exitCode\":$code,\"message\":\"$message\"}"
        items="$items${items:+,}{\"metadata\":{\"name\":\"$pod\",\"annotations\":{\"batch.kubernetes.io/job-completion-index\":\"$index\"}},
            \"status\":{\"containerStatuses\":[{\"name\":\"kvwire\",\"state\":{$inner}}]}}"
    done
    echo "{\"items\":[$items]}" ;;
"logs --follow") exec $PODMAN logs --follow "$3-kvwire" 2>&1 ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
"#;

/// One Job in the making.
struct Job<'a> {
    podman: &'a Podman,
    name: &'static str,
    objects: Vec<Value>,
    /// Address of the target's pod.
    target: &'static str,
    /// Other names that the cluster's DNS would know.
    names: Vec<(&'a str, &'a str)>,
}

impl<'a> Job<'a> {
    fn new(podman: &'a Podman, name: &'static str, target: &'static str, flags: &[&str]) -> Self {
        let mut all = vec!["--job", name, "--image", IMAGE, "--same-node"];
        all.extend(["--plan", "KVWIRE_SIZES=4KiB,64KiB", "--plan", "KVWIRE_CASE_TIME=100ms"]);
        all.extend(flags);
        Self { podman, name, objects: rendered(&all), target, names: Vec::new() }
    }

    /// Starts a pod as the Job's controller would.
    fn start(&self, index: usize) {
        let job = of_kind(&self.objects, "Job")[0];
        let log = self.podman.file(&format!("{}-{index}.message", self.name));
        fs::write(&log, "").unwrap();
        // As the kubelet does: whoever the container runs as may write it.
        fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
        let own = format!("{0}-0.{0}", self.name);
        let mut names = self.names.clone();
        names.push((self.target, own.as_str()));
        let given = Given {
            index,
            job: &format!("00000000-0000-4000-8000-{:0>12}", self.target.replace('.', "")),
            names: &names,
            termination_log: &log.display().to_string(),
        };
        let pod = pod_of(job, &given);
        let maps = of_kind(&self.objects, "ConfigMap");
        self.podman.play(&[maps[0], &pod], (index == 0).then_some(self.target));
    }

    /// Makes the Secret that the manifests hold known to podman.
    fn secrets(&self) {
        for secret in of_kind(&self.objects, "Secret") {
            self.podman.secret(text(secret, "/metadata/name"), &secret["data"]);
        }
    }

    /// `kvwire collect`, running.
    fn collect(&self, folder: &Path) -> Live {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", stub(self.podman, self.name).display());
        kvwire_command("collect")
            .args(["--job", self.name, "--folder", folder.to_str().unwrap(), "--timeout", "80s"])
            .env("PATH", &path)
            .start()
    }

    /// Both pods and what came of them.
    fn run(&self) -> (Ended, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        self.secrets();
        self.start(0);
        self.start(1);
        (self.collect(folder.path()).end(), folder)
    }

    fn message(&self, index: usize) -> String {
        fs::read_to_string(self.podman.file(&format!("{}-{index}.message", self.name))).unwrap()
    }
}

/// A folder with the program `kubectl`.
fn stub(podman: &Podman, name: &str) -> PathBuf {
    let folder = podman.file(&format!("bin-{name}"));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("kubectl");
    let words = podman.shell();
    let (variable, words) = words.split_once(' ').unwrap();
    let head = format!("export {variable}\nPODMAN='{words}' FOLDER='{}'\n", podman.file("").display());
    let text = KUBECTL.replacen("# Arguments", &format!("{head}# Arguments"), 1);
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn assert_trusted(job: &Job<'_>) {
    let (ended, folder) = job.run();
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stdout.starts_with("TRUSTED"), "{ended}");
    assert!(ended.stdout.contains("tcp"), "{ended}");
    assert!(ended.stderr.contains("initiator | case 1 of 4: READ 4 KiB"), "{ended}");
    assert!(ended.stderr.contains("Job complete"), "{ended}");
    for index in [0, 1] {
        let message = job.message(index);
        assert!(message.starts_with("trusted: all 4 cases ran"), "{message}{ended}");
        assert!(message.contains("(exit code 0)") && message.lines().count() == 1, "{message}");
    }
    let result: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join(format!("{}.json", job.name))).unwrap())
            .unwrap();
    assert_eq!(result["verdict"]["outcome"], "trusted");
    let hosts = [&result["nodes"]["initiator"]["hostname"], &result["nodes"]["target"]["hostname"]];
    assert_eq!(hosts, [&json!(format!("{}-1", job.name)), &json!(format!("{}-0", job.name))]);
    let page = fs::read_to_string(folder.path().join(format!("{}.html", job.name))).unwrap();
    assert!(page.contains("</html>") && page.contains("trusted"), "a page");
}

/// The two sides do not have the same token: the initiator is turned away, and nobody is trusted.
fn assert_wrong_token_fails(job: &Job<'_>) {
    job.secrets();
    job.start(0);
    let secret = text(of_kind(&job.objects, "Secret")[0], "/metadata/name").to_owned();
    job.podman.podman(&["secret", "rm", &secret]);
    job.podman.secret(&secret, &json!({ "token": "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmc=" }));
    job.start(1);
    let folder = tempfile::tempdir().unwrap();
    let ended = job.collect(folder.path()).end();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stderr.contains("Job failed: FailedIndexes"), "{ended}");
    assert!(ended.stdout.starts_with("INCONCLUSIVE") && ended.stdout.contains("wrong token"), "{ended}");
    assert!(
        job.message(1).starts_with("inconclusive: ") && job.message(1).contains("wrong token"),
        "{}",
        job.message(1)
    );
    assert!(job.message(0).contains("no initiator joined within"), "{}", job.message(0));
}

/// The target is killed while it serves: the initiator says who was lost, and when.
fn assert_killed_target_fails(job: &Job<'_>) {
    job.secrets();
    job.start(0);
    job.start(1);
    let folder = tempfile::tempdir().unwrap();
    let mut collecting = job.collect(folder.path());
    collecting.await_line("initiator | case 2 of");
    job.podman.podman(&["kill", "--signal=KILL", &format!("{}-0-kvwire", job.name)]);
    let ended = collecting.end();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stderr.contains("Job failed: FailedIndexes"), "{ended}");
    assert!(ended.stdout.starts_with("INCONCLUSIVE  lost target on kvwire-killed-0"), "{ended}");
    assert_eq!(job.message(0), "", "who was killed says nothing");
    assert!(job.message(1).starts_with("inconclusive: lost target on kvwire-killed-0"), "{}", job.message(1));
    assert!(ended.stderr.contains("exit code 137"), "{ended}");
}

#[test]
fn alone_netns_two_pods_and_an_etcd_end_as_the_manifests_say() {
    let podman = Podman::start();
    let nixl = Nixl::Newest.library();
    podman.build(&kvwire(), nixl.parent().and_then(Path::parent).unwrap(), IMAGE);
    thread::scope(|scope| {
        scope.spawn(|| assert_trusted(&Job::new(&podman, "kvwire-tcp", "10.89.77.10", &[])));
        scope.spawn(|| {
            let wait = ["--plan", "KVWIRE_JOIN_TIMEOUT=8s"];
            assert_wrong_token_fails(&Job::new(&podman, "kvwire-token", "10.89.77.11", &wait));
        });
    });
    podman.root_of("etcd", &["/usr/bin/etcd"]);
    podman.import("etcd", ETCD_IMAGE, &["ENV PATH=/usr/bin"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut job = Job::new(&podman, "kvwire-etcd-run", "10.89.77.12", &["--etcd"]);
            let etcd = of_kind(&job.objects, "Deployment")[0];
            let mut pod = etcd["spec"]["template"].clone();
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!("kvwire-etcd-pod");
            podman.play(&[&pod], Some("10.89.77.20"));
            job.names.push(("10.89.77.20", "kvwire-etcd-etcd-run"));
            assert_trusted(&job);
        });
        scope.spawn(|| {
            let long = ["--plan", "KVWIRE_CASE_TIME=20s", "--plan", "KVWIRE_PEER_TIMEOUT=4s"];
            assert_killed_target_fails(&Job::new(&podman, "kvwire-killed", "10.89.77.13", &long));
        });
    });
}
