//! Reads the files of [`WANTED`] on this machine, without any tool and without root.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::evidence::{Access, Entry, Evidence, FILE_MAX, LINES_MAX};
use super::wanted::{How, IN_WHEEL, OF_PCI_DEVICE, SITE_PACKAGES, VARIABLES, WANTED};

/// Names looked at in one directory.
const NAMES_MAX: usize = 8192;
/// A PCI device's configuration space.
const CONFIG_MAX: usize = 4096;
/// What an unused entry of a GID table holds.
const ZERO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

/// Reads this machine: files, environment, and the size of `/dev/shm`. `version` is kvwire's.
pub(super) fn machine(version: &str) -> Evidence {
    let mut evidence = tree(Path::new("/"), &format!("kvwire {version}"));
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if VARIABLES.iter().any(|prefix| name.starts_with(prefix)) {
            let value = value.to_string_lossy();
            let line = value.lines().next().unwrap_or_default();
            evidence.add(format!("env:{name}"), Entry::Text(format!("{line}\n")));
        }
    }
    if let Ok(shm) = rustix::fs::statvfs("/dev/shm") {
        let kib = |blocks: u64| blocks.saturating_mul(shm.f_frsize) / 1024;
        let text = format!("total_kib {}\navailable_kib {}\n", kib(shm.f_blocks), kib(shm.f_bavail));
        evidence.add("probe:shm", Entry::Text(text));
    }
    evidence
}

/// Reads the files of a machine whose root directory is `root`.
pub(super) fn tree(root: &Path, gathered_by: &str) -> Evidence {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let mut reader = Reader { root, evidence: Evidence::new(gathered_by) };
    for (how, pattern) in WANTED {
        reader.wanted(*how, pattern);
    }
    reader.cgroups();
    reader.wheels();
    reader.evidence
}

struct Reader {
    root: PathBuf,
    evidence: Evidence,
}

impl Reader {
    fn wanted(&mut self, how: How, pattern: &str) {
        if pattern.contains(['*', '?']) {
            for path in self.matches(pattern) {
                self.read(how, &path);
            }
        } else {
            self.read(how, pattern);
        }
    }

    fn on_disk(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The path as the machine itself would name it.
    fn named(&self, on_disk: &Path) -> String {
        let inside = on_disk.strip_prefix(&self.root).unwrap_or(on_disk);
        format!("/{}", inside.to_string_lossy().trim_start_matches('/'))
    }

    fn read(&mut self, how: How, path: &str) {
        match how {
            How::Text => self.text(path, false),
            How::Paragraph => self.text(path, true),
            How::Names => {
                let entry = match fs::read_dir(self.on_disk(path)) {
                    Ok(found) => Entry::Names(visible(found)),
                    Err(e) => unreadable(&e),
                };
                self.evidence.add(path, entry);
            }
            How::Link => {
                let entry = match fs::read_link(self.on_disk(path)) {
                    Ok(target) => Entry::Link(target.to_string_lossy().into_owned()),
                    Err(e) => unreadable(&e),
                };
                self.evidence.add(path, entry);
            }
            How::Real => {
                if let Ok(real) = self.on_disk(path).canonicalize() {
                    self.evidence.add(path, Entry::Real(self.named(&real)));
                }
            }
            How::Node => self.node(path),
            How::Gids => self.gids(path),
            How::PciPath => self.pci_path(path),
            How::GpuPath => {
                if is_nvidia_gpu(&self.on_disk(path)) {
                    self.pci_path(path);
                }
            }
        }
    }

    fn text(&mut self, path: &str, paragraph: bool) {
        let entry = match File::open(self.on_disk(path)) {
            Ok(file) => Entry::Text(bounded_text(file, paragraph)),
            Err(e) => unreadable(&e),
        };
        self.evidence.add(path, entry);
    }

    fn node(&mut self, path: &str) {
        let on_disk = self.on_disk(path);
        let entry = match fs::metadata(&on_disk) {
            Ok(about) => {
                let may = |what| rustix::fs::access(&on_disk, what).is_ok();
                Entry::Node(Access {
                    character: about.file_type().is_char_device(),
                    read: may(rustix::fs::Access::READ_OK),
                    write: may(rustix::fs::Access::WRITE_OK),
                })
            }
            Err(e) => unreadable(&e),
        };
        self.evidence.add(path, entry);
    }

    /// Most of a GID table is zeros: an mlx5 port has 256 entries, rxe 1024.
    fn gids(&mut self, port: &str) {
        for path in self.matches(&format!("{port}/gids/*")) {
            let Ok(file) = File::open(self.on_disk(&path)) else { continue };
            let gid = bounded_text(file, false);
            if gid.trim().is_empty() || gid.trim() == ZERO_GID {
                continue;
            }
            let index = path.rsplit('/').next().unwrap_or_default();
            let attribute = |kind: &str| format!("{port}/gid_attrs/{kind}/{index}");
            let (kind, device) = (attribute("types"), attribute("ndevs"));
            self.evidence.add(path, Entry::Text(gid));
            self.text(&kind, false);
            self.text(&device, false);
        }
    }

    /// The device's place in the PCI tree, and what each bridge above it says of itself.
    fn pci_path(&mut self, path: &str) {
        let Ok(real) = self.on_disk(path).canonicalize() else { return };
        let device = self.named(&real);
        self.evidence.add(path, Entry::Real(device.clone()));
        let mut at = device.as_str();
        while is_pci_address(at.rsplit('/').next().unwrap_or_default()) {
            let class = format!("{at}/class");
            if self.evidence.get(&class).is_some() {
                break;
            }
            for name in OF_PCI_DEVICE {
                self.text(&format!("{at}/{name}"), false);
            }
            self.config(&format!("{at}/config"));
            at = at.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }

    fn config(&mut self, path: &str) {
        let mut bytes = Vec::new();
        let read = File::open(self.on_disk(path))
            .and_then(|file| file.take(CONFIG_MAX as u64).read_to_end(&mut bytes));
        let entry = match read {
            Ok(_) => Entry::Bytes(bytes),
            Err(e) => unreadable(&e),
        };
        self.evidence.add(path, entry);
    }

    /// The limits of this process's control group and of those above it: the tightest counts.
    fn cgroups(&mut self) {
        let path = self.evidence.field("/proc/self/cgroup", "0::").unwrap_or_default().to_owned();
        if path.contains("..") {
            return;
        }
        let mut at = path.as_str();
        while at.len() > 1 {
            self.text(&format!("/sys/fs/cgroup{at}/cpu.max"), false);
            self.text(&format!("/sys/fs/cgroup{at}/cpu.stat"), false);
            at = at.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }

    fn wheels(&mut self) {
        let environment = std::env::var("VIRTUAL_ENV").ok().filter(|v| v.starts_with('/'));
        let environment = environment.map(|v| format!("{v}/lib/python3*/site-packages"));
        for folder in SITE_PACKAGES.iter().copied().chain(environment.as_deref()) {
            for name in IN_WHEEL {
                self.wanted(How::Real, &format!("{folder}/{name}"));
            }
        }
    }

    /// Every path that fits the pattern, sorted.
    fn matches(&self, pattern: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let wild = part.contains(['*', '?']);
            found = found
                .into_iter()
                .flat_map(|above| {
                    let names = if wild {
                        let listed = fs::read_dir(self.on_disk(&above)).map(all).unwrap_or_default();
                        listed.into_iter().filter(|name| fits(part, name)).collect()
                    } else {
                        vec![part.to_owned()]
                    };
                    names.into_iter().map(move |name| format!("{above}/{name}"))
                })
                .collect();
        }
        found.retain(|path| fs::symlink_metadata(self.on_disk(path)).is_ok());
        found
    }
}

/// Names that a shell's `*` would give: those that do not begin with a dot.
fn visible(found: fs::ReadDir) -> Vec<String> {
    all(found).into_iter().filter(|name| !name.starts_with('.')).collect()
}

fn all(found: fs::ReadDir) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| Some(entry.ok()?.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = found.filter_map(name).take(NAMES_MAX).collect();
    names.sort();
    names
}

/// As a shell matches a name: `*` any characters, `?` one, and a dot in front only by a dot.
fn fits(pattern: &str, name: &str) -> bool {
    fn rest(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some(b'*'), _) => rest(&pattern[1..], name) || (!name.is_empty() && rest(pattern, &name[1..])),
            (Some(b'?'), Some(_)) => rest(&pattern[1..], &name[1..]),
            (Some(p), Some(n)) if p == n => rest(&pattern[1..], &name[1..]),
            _ => false,
        }
    }
    (!name.starts_with('.') || pattern.starts_with('.')) && rest(pattern.as_bytes(), name.as_bytes())
}

fn unreadable(error: &std::io::Error) -> Entry {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Entry::Missing,
        _ => Entry::Denied,
    }
}

/// A file's text within the limits. A file that opens and then refuses to be read (sysfs does that for the
/// attributes of an unused GID) has no text.
fn bounded_text(file: File, paragraph: bool) -> String {
    let mut bytes = Vec::new();
    // An error after some bytes leaves those bytes, which is what a reader of a changing file gets anyway.
    let _ = file.take(FILE_MAX as u64).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().take_while(|line| !paragraph || !line.trim().is_empty()).take(LINES_MAX);
    lines.fold(String::new(), |text, line| text + line + "\n")
}

fn is_nvidia_gpu(device: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(device.join(name)).unwrap_or_default();
    read("vendor").trim() == "0x10de" && read("class").starts_with("0x03")
}

/// `0000:18:00.0`.
pub(super) fn is_pci_address(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let widths = [4, 2, 2, 1];
    name.is_ascii()
        && widths.iter().all(|width| {
            parts.next().is_some_and(|p| p.len() == *width && p.bytes().all(|b| b.is_ascii_hexdigit()))
        })
        && parts.next().is_none()
        && OsStr::new(name).len() == 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("uverbs*", "uverbs0", true),
            ("uverbs*", "rdma_cm", false),
            ("*", ".hidden", false),
            (".nixl_cu*.libs", ".nixl_cu12.libs", true),
            ("lib*-rdmav*.so", "libmlx5-rdmav34.so", true),
            ("?", "12", false),
            ("?", "7", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn only_whole_pci_addresses_are_pci_addresses() {
        assert!(is_pci_address("0000:18:00.0"));
        for name in ["pci0000:16", "0000:18:00", "0000:18:00.0.1", "net", "0000:zz:00.0"] {
            assert!(!is_pci_address(name), "{name}");
        }
    }

    #[test]
    fn a_file_larger_than_the_limit_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        fs::write(folder.path().join("proc/self/limits"), "x\n".repeat(100_000)).unwrap();
        let evidence = tree(folder.path(), "test");
        assert_eq!(evidence.text("/proc/self/limits").unwrap().lines().count(), LINES_MAX);
    }

    #[test]
    fn the_configuration_of_a_shared_bridge_is_read_once_for_both_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let bridge = folder.path().join("sys/devices/pci0000:16/0000:16:01.0");
        for device in ["0000:17:00.0", "0000:17:00.1"] {
            fs::create_dir_all(bridge.join(device)).unwrap();
            fs::write(bridge.join(device).join("class"), "0x020700\n").unwrap();
            let class = folder.path().join("sys/class/infiniband").join(device.replace([':', '.'], "_"));
            fs::create_dir_all(&class).unwrap();
            std::os::unix::fs::symlink(bridge.join(device), class.join("device")).unwrap();
        }
        fs::write(bridge.join("class"), "0x060400\n").unwrap();
        let evidence = tree(folder.path(), "test");
        let path = "/sys/devices/pci0000:16/0000:16:01.0";
        assert_eq!(evidence.text(&format!("{path}/class")), Some("0x060400"));
        assert_eq!(evidence.text(&format!("{path}/0000:17:00.1/class")), Some("0x020700"));
        assert_eq!(
            evidence.real("/sys/class/infiniband/0000_17_00_0/device"),
            Some("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0")
        );
    }
}
