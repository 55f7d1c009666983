//! Debian's podman in namespaces of its own: pods as a node would run them, without a registry and without a trace.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::live::Guarded;
use crate::repository;

/// Where podman keeps its state, in the /run of the namespaces.
const RUN_ROOT: &str = "/run/kvwire-podman";
/// The network that all pods are on.
const NETWORK: &str = "kvwire";
/// The image that holds a pod's namespaces.
const PAUSE: &str = "localhost/pause:1";
/// Mounts control groups that podman understands, in a mount namespace and a machine that may be a container itself. They are
/// of version 1 where the machine has them: version 2 holds devices back by a program in the kernel, for which crun wants a
/// right (SYS_RESOURCE) that a machine in a cloud may lack.
pub const CONTROL_GROUPS: &str = r#"
set -e
mount --make-rprivate /
umount -R /sys/fs/cgroup
if grep -q ':devices:' /proc/1/cgroup; then
    mount -t tmpfs tmpfs /sys/fs/cgroup
    for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
    done
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
mount -t tmpfs tmpfs /run
"#;
/// Then says that the namespaces are set up.
const READY: &str = r"
ip link set lo up
echo ready
exec sleep infinity
";
/// Limits as they are, since raising one takes that right as well; nothing is written outside of the folder.
const CONFIGURATION: &str = r#"
[containers]
default_ulimits = []
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
network_backend = "netavark"
infra_image = "localhost/pause:1"
[network]
network_config_dir = "NETWORKS"
"#;

/// A podman of its own. Dropping it ends every container.
#[derive(Debug)]
pub struct Podman {
    // The first process of the namespaces: with it everything in them ends.
    _holder: Guarded,
    process: String,
    folder: tempfile::TempDir,
}

impl Podman {
    /// Enters new namespaces and makes a network for pods there.
    ///
    /// # Panics
    /// Not root, or podman is not installed (`make setup-tests` installs it).
    pub fn start() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "pods need root: run `make test` as root, or leave these tests out: cargo nextest run -E 'not test(/netns_/)'"
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        let networks = folder.path().join("networks");
        fs::create_dir(&networks).expect("a folder");
        let configuration = CONFIGURATION.replace("NETWORKS", &networks.display().to_string());
        fs::write(folder.path().join("containers.conf"), configuration).expect("a configuration");
        let mut holder = Command::new("unshare")
            .args([
                "--net",
                "--mount",
                "--pid",
                "--ipc",
                "--uts",
                "--cgroup",
                "--fork",
                "--mount-proc",
                "--kill-child",
            ])
            .args(["bash", "-c", &format!("{CONTROL_GROUPS}{READY}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the namespaces answer");
        assert_eq!(line, "ready\n", "the namespaces could not be set up");
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        let process = fs::read_to_string(children).expect("the first process").trim().to_owned();
        let podman = Self { _holder: Guarded(holder), process, folder };
        podman.root_of("pause", &["/bin/sleep"]);
        podman.import("pause", PAUSE, &["ENTRYPOINT [\"/bin/sleep\",\"infinity\"]"]);
        podman.podman(&["network", "create", "--subnet=10.89.77.0/24", NETWORK]);
        podman
    }

    /// A folder for files of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The words of a shell that call this podman.
    pub fn shell(&self) -> String {
        let mut words = format!("CONTAINERS_CONF={} ", self.file("containers.conf").display());
        for word in self.words() {
            write!(words, "{word} ").expect("text");
        }
        words
    }

    fn words(&self) -> Vec<String> {
        let store = self.file("store").display().to_string();
        ["nsenter", "--target", &self.process, "--all", "podman", "--root", &store, "--runroot", RUN_ROOT]
            .map(str::to_owned)
            .to_vec()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["--log-level", "error"]).args(arguments);
        command.env("CONTAINERS_CONF", self.file("containers.conf")).stdin(Stdio::null());
        command
    }

    /// Calls podman, which may fail.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn call(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("podman runs")
    }

    /// Calls podman and gives what it printed.
    ///
    /// # Panics
    /// It fails.
    pub fn podman(&self, arguments: &[&str]) -> String {
        let output = self.call(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "podman {arguments:?}: {out}{err}");
        out.into_owned()
    }

    /// Makes a folder of programs of this Debian with the libraries that they load.
    ///
    /// # Panics
    /// They cannot be copied.
    pub fn root_of(&self, name: &str, programs: &[&str]) {
        let root = self.file(name);
        for program in programs {
            let libraries = Command::new("ldd").arg(program).output().expect("ldd runs").stdout;
            let libraries = String::from_utf8_lossy(&libraries).into_owned();
            let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
            for file in libraries.chain([*program]) {
                let to = root.join(&file[1..]);
                fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
                fs::copy(file, to).unwrap_or_else(|e| panic!("{file}: {e}"));
            }
        }
        for folder in ["tmp", "data", "proc", "sys", "dev", "etc"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        // A volume takes its rights from the folder below it; those of the kubelet are open to whoever the pod runs as.
        fs::set_permissions(root.join("data"), fs::Permissions::from_mode(0o777)).expect("rights");
    }

    /// Makes an image of a folder.
    ///
    /// # Panics
    /// podman refuses.
    pub fn import(&self, folder: &str, image: &str, changes: &[&str]) {
        let mut tar = Command::new("tar")
            .arg("-C")
            .arg(self.file(folder))
            .args(["--owner=0", "--group=0", "-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .expect("tar runs");
        let mut import = self.command(&["import"]);
        for change in changes {
            import.args(["--change", change]);
        }
        let output = import
            .args(["-", image])
            .stdin(tar.stdout.take().expect("a pipe"))
            .output()
            .expect("podman runs");
        assert!(tar.wait().is_ok_and(|status| status.success()), "tar {folder}");
        assert!(output.status.success(), "{image}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Builds `deploy/Containerfile` with images of this machine in place of what a registry and the network would give:
    /// the program of this build, a NIXL that has been fetched, and this Debian's own files.
    ///
    /// # Panics
    /// A step fails.
    pub fn build(&self, program: &Path, nixl: &Path, image: &str) {
        let copy = |from: &Path, to: PathBuf| {
            fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            let copied = Command::new("cp").arg("-a").arg(from).arg(&to).status();
            assert!(copied.is_ok_and(|status| status.success()), "{}", from.display());
        };
        let stripped = self.file("program/kvwire");
        fs::create_dir_all(self.file("program")).expect("a folder");
        let strip = Command::new("strip").arg("-o").arg(&stripped).arg(program).status();
        assert!(strip.is_ok_and(|status| status.success()), "strip {}", program.display());
        for entry in fs::read_dir(nixl).expect("a NIXL").map(|entry| entry.expect("an entry")) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".libs") || name.ends_with(".dist-info") {
                copy(&entry.path(), self.file("runtime/nixl").join(name));
            }
        }
        // The files are this machine's own, seen through volumes.
        for folder in ["usr", "etc", "in", "proc", "sys", "dev", "tmp"] {
            fs::create_dir_all(self.file("debian").join(folder)).expect("a folder");
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), self.file("debian").join(link))
                .expect("a link");
        }
        let images = [("program", "PROGRAM"), ("runtime", "NIXL"), ("debian", "LIBRARIES")];
        let mut arguments = vec!["build".to_owned(), format!("--tag={image}"), "--pull=never".to_owned()];
        for (folder, argument) in images {
            self.import(folder, &format!("localhost/{folder}:1"), &[]);
            arguments.push(format!("--build-arg={argument}=localhost/{folder}:1"));
        }
        arguments.extend(
            ["--network=none", "--layers=false", "--volume=/usr:/usr:ro", "--volume=/etc:/etc:ro"]
                .map(str::to_owned),
        );
        arguments.push(format!("--file={}", repository().join("deploy/Containerfile").display()));
        // A context with no more than what the steps copy.
        copy(&repository().join("deploy/root"), self.file("context/deploy/root"));
        arguments.push(self.file("context").display().to_string());
        self.podman(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Starts a pod and what belongs to it, with this address.
    ///
    /// # Panics
    /// podman refuses.
    pub fn play(&self, objects: &[&Value], address: Option<&str>) {
        // JSON is YAML, and each document one line.
        let text = objects.iter().map(|object| format!("---\n{object}\n")).collect::<String>();
        let mut file = tempfile::NamedTempFile::new_in(self.folder.path()).expect("a file");
        file.write_all(text.as_bytes()).expect("a file");
        let address = address.map(|address| format!("--ip={address}"));
        let network = format!("--network={NETWORK}");
        let mut arguments = vec!["play", "kube", &network];
        arguments.extend(address.as_deref());
        let path = file.path().display().to_string();
        arguments.push(&path);
        self.podman(&arguments);
    }

    /// Gives pods a Secret, as podman wants it.
    ///
    /// # Panics
    /// podman refuses.
    pub fn secret(&self, name: &str, data: &Value) {
        let path = self.file(&format!("{name}.json"));
        fs::write(&path, data.to_string()).expect("a file");
        self.podman(&["secret", "create", name, &path.display().to_string()]);
    }
}
