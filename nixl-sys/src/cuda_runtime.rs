//! The CUDA runtime library (`libcudart`), which a wheel's UCX needs and the wheel does not bring.
//!
//! UCX's hooks for GPU memory (`libucm_cuda.so`) are linked against it. Without it UCX 1.20 to 1.23 load their CUDA
//! transports all the same, see no GPU memory allocated, and take it for host memory unless it lies where UCX once had some of
//! its own: NIXL then refuses to register it. An inference engine has the library in its process before NIXL is loaded,
//! because PyTorch loads it.

use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Folders of a Python package folder in which NVIDIA's wheels put it.
const IN_SITE: [&str; 3] = ["nvidia/cuda_runtime/lib", "nvidia/cu12/lib", "nvidia/cu13/lib"];
/// Folders of a CUDA toolkit, from the root of the file system.
const IN_SYSTEM: [&str; 4] = [
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
    "usr/local/cuda/targets/sbsa-linux/lib",
    "usr/lib64",
];

/// What came of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaRuntime {
    /// The name that UCX needs, for example `libcudart.so.12`.
    pub name: String,
    /// Where it was opened from; a bare name where the dynamic loader knew it. `None` when it was not found.
    pub opened: Option<PathBuf>,
    /// The places that were tried, in order.
    pub searched: Vec<PathBuf>,
}

impl fmt::Display for CudaRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.opened {
            Some(path) => write!(f, "{}", path.display()),
            None => {
                let places: Vec<String> =
                    self.searched.iter().map(|place| place.display().to_string()).collect();
                write!(f, "{} was not found; searched: {}", self.name, places.join(", "))
            }
        }
    }
}

/// Opens the runtime that the wheel of this NIXL library was built for, so that UCX finds it in the process. `None` for
/// a NIXL that is not from a wheel: its UCX is the system's, and finds what it needs by itself.
///
/// `sites` are Python's package folders besides the wheel's own. Call it before the library is opened.
pub(crate) fn open_for(library: &Path, sites: &[PathBuf], root: &Path) -> Option<CudaRuntime> {
    let name = name_for(library)?;
    let searched = places(library, &name, sites, root);
    let opened = searched.iter().find(|place| opens(place)).cloned();
    Some(CudaRuntime { name, opened, searched })
}

/// `libcudart.so.12` for `…/.nixl_cu12.mesonpy.libs/libnixl_capi.so`.
fn name_for(library: &Path) -> Option<String> {
    let folder = library.parent()?.file_name()?.to_str()?;
    let major = folder.strip_prefix(".nixl_cu")?.strip_suffix(".mesonpy.libs")?;
    (!major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| format!("libcudart.so.{major}"))
}

/// By name first: a library that is in the process already, or that the loader is told to find, is the user's choice.
fn places(library: &Path, name: &str, sites: &[PathBuf], root: &Path) -> Vec<PathBuf> {
    let own_site = library.parent().and_then(Path::parent).map(Path::to_path_buf);
    let mut all_sites: Vec<PathBuf> = own_site.into_iter().collect();
    for site in sites {
        if !all_sites.contains(site) {
            all_sites.push(site.clone());
        }
    }
    let in_sites = all_sites.iter().flat_map(|site| IN_SITE.map(|folder| site.join(folder).join(name)));
    let in_system = IN_SYSTEM.map(|folder| root.join(folder).join(name));
    // Where the wheel's own libraries are, UCX finds it by itself: an image may have put it there.
    let beside_ucx = beside_ucx(library).map(|folder| folder.join(name));
    std::iter::once(PathBuf::from(name)).chain(beside_ucx).chain(in_sites).chain(in_system).collect()
}

/// `…/nixl_cu12.libs` for `…/.nixl_cu12.mesonpy.libs/libnixl_capi.so`.
fn beside_ucx(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    let package = folder.file_name()?.to_str()?.strip_prefix('.')?.strip_suffix(".mesonpy.libs")?;
    Some(folder.parent()?.join(format!("{package}.libs")))
}

fn opens(place: &Path) -> bool {
    if place.is_absolute() && !place.is_file() {
        return false;
    }
    // SAFETY: the runtime's initialisers only prepare its own state; it calls the driver when it is first used.
    let opened = unsafe { Library::open(Some(place), RTLD_NOW | RTLD_LOCAL) };
    // Never closed: UCX binds to it.
    opened.map(std::mem::forget).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_that_of_the_wheel_s_cuda() {
        let name = |folder: &str| name_for(&Path::new("/site").join(folder).join("libnixl_capi.so"));
        assert_eq!(name(".nixl_cu12.mesonpy.libs").as_deref(), Some("libcudart.so.12"));
        assert_eq!(name(".nixl_cu13.mesonpy.libs").as_deref(), Some("libcudart.so.13"));
        for other in [".nixl.mesonpy.libs", ".nixl_cu.mesonpy.libs", ".nixl_cu1x.mesonpy.libs", "lib64"] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn the_loader_is_asked_first_then_python_s_packages_then_the_toolkit() {
        let site = PathBuf::from("/venv/site-packages");
        let library = site.join(".nixl_cu12.mesonpy.libs/libnixl_capi.so");
        let places = places(&library, "libcudart.so.12", &[site.clone(), "/usr/dist".into()], Path::new("/"));
        assert_eq!(places[0], Path::new("libcudart.so.12"));
        assert_eq!(places[1], site.join("nixl_cu12.libs/libcudart.so.12"));
        assert_eq!(places[2], site.join("nvidia/cuda_runtime/lib/libcudart.so.12"));
        let at = |part: &str| places.iter().position(|place| place.starts_with(part)).unwrap();
        assert!(at("/venv") < at("/usr/dist") && at("/usr/dist") < at("/usr/local/cuda"), "{places:?}");
        assert_eq!(places.iter().filter(|place| place.starts_with("/venv")).count(), IN_SITE.len() + 1);
    }

    #[test]
    fn a_runtime_that_is_nowhere_is_told_with_the_places() {
        let empty = tempfile::tempdir().unwrap();
        let library = empty.path().join(".nixl_cu99.mesonpy.libs/libnixl_capi.so");
        let found = open_for(&library, &[], empty.path()).unwrap();
        assert_eq!(found.opened, None);
        let text = found.to_string();
        assert!(text.contains("libcudart.so.99 was not found") && text.contains("nvidia/cu13/lib"), "{text}");
    }
}
