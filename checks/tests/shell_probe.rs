//! The shell script for pods without kvwire reads what kvwire itself reads, under every shell there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use checks::Status;
use checks::env::{Options, PodProcesses, check, process_script};
use checks::node::{Evidence, NodeReport, gather, gather_tree, judge, script};

/// Shells to try, with their first arguments. busybox is what small images have, and is never left out.
fn shells() -> Vec<Vec<&'static str>> {
    let all = [vec!["dash"], vec!["bash", "--posix"], vec!["busybox", "sh"]];
    let works = |words: &Vec<&str>| {
        let output = Command::new(words[0]).args(&words[1..]).args(["-c", "true"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found: Vec<_> = all.into_iter().filter(works).collect();
    assert!(found.iter().any(|words| words[0] == "busybox"), "busybox is missing; run: scripts/need busybox");
    found
}

fn shell(words: &[&str], root: Option<&Path>) -> Evidence {
    run(words, &script(), root)
}

/// Runs a script. Of busybox's own tools alone where the shell is busybox: nothing else is on its PATH.
fn run(words: &[&str], script: &str, root: Option<&Path>) -> Evidence {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["-c", script]);
    let tools = (words[0] == "busybox").then(applets);
    if let Some(tools) = &tools {
        command.env("PATH", tools.path());
    }
    if let Some(root) = root {
        command.env("KVWIRE_ROOT", root);
    }
    let output = command.output().unwrap();
    assert!(output.stderr.is_empty(), "{words:?} complains: {}", String::from_utf8_lossy(&output.stderr));
    Evidence::from_capture(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// A folder in which every tool is busybox.
fn applets() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let busybox = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|path| path.join("busybox"))
        .find(|path| path.is_file())
        .unwrap();
    let listed = Command::new(&busybox).arg("--list").output().unwrap();
    for name in String::from_utf8(listed.stdout).unwrap().lines() {
        symlink(&busybox, folder.path().join(name)).unwrap();
    }
    folder
}

fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    path.canonicalize().unwrap()
}

/// A tree with everything that needs more than a plain file: PCI paths, links, GIDs, control groups, wheels.
fn built() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let pci = "sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
    write(&format!("{pci}/class"), "0x020700\n");
    write(&format!("{pci}/numa_node"), "1\n");
    fs::write(root.join(pci).join("config"), (0..=255).cycle().take(4096).collect::<Vec<u8>>()).unwrap();
    write(&format!("{pci}/../0000:19:00.0/vendor"), "0x10de\n");
    write("sys/devices/pci0000:16/0000:16:01.0/0000:19:00.0/vendor", "0x10de\n");
    write("sys/devices/pci0000:16/0000:16:01.0/0000:19:00.0/class", "0x030200\n");
    write("sys/devices/pci0000:16/0000:16:01.0/class", "0x060400\n");
    write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
    write("sys/class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    write("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "RoCE v2\n");
    write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("sys/class/infiniband/mlx5_0/fw_ver", "no newline at its end");
    fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
    for (link, target) in [
        ("sys/class/infiniband/mlx5_0/device", "../../../devices/pci0000:16/0000:16:01.0/0000:17:00.0"),
        ("sys/bus/pci/devices/0000:19:00.0", "../../../devices/pci0000:16/0000:16:01.0/0000:19:00.0"),
        ("sys/bus/pci/devices/0000:17:00.0", "../../../devices/pci0000:16/0000:16:01.0/0000:17:00.0"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    fs::create_dir_all(root.join("proc/self/ns")).unwrap();
    symlink("net:[4026531840]", root.join("proc/self/ns/net")).unwrap();
    write("proc/self/cgroup", "0::/kubepods/pod1/box\n");
    write("sys/fs/cgroup/kubepods/pod1/cpu.max", "200000 100000\n");
    write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu\n\nprocessor\t: 1\n");
    write("proc/self/limits", &"a line\n".repeat(500));
    write("dev/infiniband/uverbs0", "not a device\n");
    write("usr/local/lib/python3.12/dist-packages/.nixl_cu12.mesonpy.libs/libnixl_capi.so", "");
    write("usr/lib/x86_64-linux-gnu/libucp.so.0.0.0", "");
    symlink("libucp.so.0.0.0", root.join("usr/lib/x86_64-linux-gnu/libucp.so.0")).unwrap();
    write("etc/libibverbs.d/a b.driver", "driver 'quoted' $x `y`\n");
    folder
}

#[test]
fn the_same_tree_gives_the_same_evidence() {
    let built = built();
    for root in [fixture("rxe-active"), fixture("rxe-down"), built.path().canonicalize().unwrap()] {
        let ours = gather_tree(&root, "shell");
        for words in shells() {
            let theirs = shell(&words, Some(&root));
            for ((path, entry), (other_path, other)) in ours.entries().zip(theirs.entries()) {
                assert_eq!((path, entry), (other_path, other), "{words:?} in {}", root.display());
            }
            assert_eq!(ours, theirs, "{words:?} in {}", root.display());
        }
    }
}

#[test]
fn what_the_built_tree_is_about_is_in_the_evidence() {
    let built = built();
    let evidence = gather_tree(built.path(), "test");
    let device = evidence.real("/sys/class/infiniband/mlx5_0/device");
    assert_eq!(device, Some("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"));
    assert_eq!(evidence.text("/sys/devices/pci0000:16/0000:16:01.0/class"), Some("0x060400"));
    assert!(
        evidence.get("/sys/class/infiniband/mlx5_0/ports/1/gids/1").is_none(),
        "a GID of zeros is left out"
    );
    assert!(evidence.real("/sys/bus/pci/devices/0000:17:00.0").is_none(), "a network card is no GPU");
    assert!(evidence.real("/sys/bus/pci/devices/0000:19:00.0").is_some());
    assert_eq!(evidence.text("/sys/fs/cgroup/kubepods/pod1/cpu.max"), Some("200000 100000"));
    assert_eq!(evidence.text("/proc/cpuinfo").map(|text| text.lines().count()), Some(2));
}

#[test]
fn this_machine_gives_the_same_findings_both_ways() {
    let statuses = |report: &NodeReport| -> Vec<(String, Status)> {
        report.findings.iter().map(|finding| (finding.id.clone(), finding.status)).collect()
    };
    let ours = statuses(&judge(&gather("test"), "local host"));
    for words in shells() {
        assert_eq!(statuses(&judge(&shell(&words, None), "local host")), ours, "{words:?}");
    }
}

#[test]
fn soft_roce_is_judged_as_it_is() {
    let judged = |name: &str| judge(&gather_tree(&fixture(name), "test"), "local host");
    let status = |report: &NodeReport, id: &str| report.finding(id).map(|finding| finding.status);
    let active = judged("rxe-active");
    // The fixture has no /dev: what sysfs lists is not usable from there.
    assert_eq!(status(&active, "rdma-usable"), Some(Status::Fail));
    assert_eq!(status(&active, "rdma-port"), Some(Status::Ok));
    assert_eq!(status(&active, "roce-gid"), Some(Status::Ok));
    assert_eq!(status(&active, "rdma-pcie"), Some(Status::Skipped));
    let taken = active.finding("roce-gid").unwrap().evidence.join("\n");
    assert!(taken.contains("rxe0:1: UCX takes index 1: ::ffff:10.77.0.1 (RoCE v2, va)"), "{taken}");
    let down = judged("rxe-down");
    assert_eq!(status(&down, "rdma-port"), Some(Status::Fail));
    assert_eq!(status(&down, "ib-link"), Some(Status::Warn));
}

/// A pod in which a shell started an engine, beside a process that has nothing to do with it.
fn pod() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (id, command, environment) in [
        (1, "sh\0-c\0export UCX_TLS=rc; vllm serve m\0", "A=1\0TEXT=two\nlines\0EMPTY=\0"),
        (20, "sleep\0inf\0", "UCX_TLS=tcp\0"),
        (103, "/usr/bin/python3\0/opt/bin/vllm\0serve\0m\0", "A=1\0UCX_TLS=rc\0LAST=without an end"),
        (1030, "", "KERNEL=thread\0"),
    ] {
        let process = folder.path().join(format!("proc/{id}"));
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("cmdline"), command).unwrap();
        fs::write(process.join("environ"), environment).unwrap();
    }
    folder
}

#[test]
fn every_shell_reads_the_same_environments_out_of_a_pod() {
    let pod = pod();
    for words in shells() {
        let evidence = run(&words, &process_script(), Some(pod.path()));
        let paths: Vec<&str> = evidence.entries().map(|(path, _)| path).collect();
        let expected = ["/proc/1/cmdline", "/proc/1/environ", "/proc/103/cmdline", "/proc/103/environ"];
        assert_eq!(paths, expected, "{words:?}");
        let options =
            Options { pods: vec![PodProcesses::new("decode-0", None, &evidence)], ..Options::default() };
        let report = check(&[], &mut std::io::empty(), &options);
        let worker = &report.workers[0];
        let seen: Vec<(&str, &str)> =
            worker.env.iter().map(|setting| (setting.name.as_str(), setting.value.as_str())).collect();
        assert_eq!(seen, [("UCX_TLS", "rc")], "{words:?}");
        let read = report.findings.iter().find(|finding| finding.id == "process-environment").unwrap();
        assert!(read.title.contains("process 103 (python3 vllm serve)"), "{words:?}: {read:?}");
    }
}

#[test]
fn the_scripts_only_read() {
    let scripts = script() + &process_script();
    for line in scripts.lines() {
        let writes = line.replace("2>/dev/null", "").replace(">/dev/null 2>&1", "").replace("2>&1", "");
        assert!(!writes.contains('>') || writes.contains("<inactive>"), "a redirection to a file: {line}");
        for word in ["rm ", "mv ", "cp ", "tee ", "dd ", "mount", "mkdir", "touch", "chmod", "kill"] {
            assert!(
                !line.split([';', '|', '&']).any(|part| part.trim_start().starts_with(word)),
                "{word}: {line}"
            );
        }
    }
}
