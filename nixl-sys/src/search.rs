//! Where a NIXL library may stand, and in which order the places are tried.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::version::newest_first;

/// File names of the C API, the one with a major version first: NIXL 1.x has none so far.
pub(crate) const LIBRARY_NAMES: [&str; 2] = ["libnixl_capi.so.0", "libnixl_capi.so"];

/// Folders of the wheels' libraries that are looked for by name, the older CUDA first.
const WHEEL_FOLDERS: [&str; 2] = [".nixl_cu12.mesonpy.libs", ".nixl_cu13.mesonpy.libs"];

/// Stands for "any wheel folder" in the list of places where there was none.
const ANY_WHEEL_FOLDER: &str = ".nixl*.mesonpy.libs";

/// The environment variable that names a library.
pub const NIXL_LIB_VARIABLE: &str = "KVWIRE_NIXL_LIB";

/// Why a place was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Named by the caller (`--nixl-lib`).
    Explicit,
    /// Named by `KVWIRE_NIXL_LIB`.
    Variable,
    /// The `.nixl` folder that the project's own setup fills.
    Setup,
    /// A wheel in the active virtual environment.
    VirtualEnv,
    /// A wheel in the user's site-packages.
    UserSite,
    /// A wheel that belongs to the `python3` on the path.
    PathPython,
    /// A wheel in the system's Python.
    SystemSite,
    /// An installation under a known prefix.
    Prefix,
    /// Left to the dynamic loader's own search.
    Loader,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Explicit => "--nixl-lib",
            Self::Variable => NIXL_LIB_VARIABLE,
            Self::Setup => "project setup",
            Self::VirtualEnv => "virtual environment",
            Self::UserSite => "user site-packages",
            Self::PathPython => "python3 on PATH",
            Self::SystemSite => "system site-packages",
            Self::Prefix => "system installation",
            Self::Loader => "dynamic loader",
        })
    }
}

/// One place where the library may be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Why this place was looked at.
    pub origin: Origin,
    /// The file; a bare name for [`Origin::Loader`]. Holds a `*` where no folder matched.
    pub path: PathBuf,
    /// Whether the file is there. Always false for a bare name, which only the dynamic loader can judge.
    pub exists: bool,
}

impl Candidate {
    fn new(origin: Origin, path: PathBuf) -> Self {
        let exists = path.is_absolute() && path.is_file();
        Self { origin, path, exists }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = if self.exists { ", found" } else { "" };
        write!(f, "{} ({}{found})", self.path.display(), self.origin)
    }
}

/// What a search depends on. Tests fill it by hand; the program takes [`SearchOptions::from_process`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SearchOptions {
    /// The library, or a folder that holds it or a wheel's library folder. Nothing else is searched then.
    pub explicit: Option<PathBuf>,
    /// The same, from `KVWIRE_NIXL_LIB`. Used where `explicit` is absent.
    pub variable: Option<PathBuf>,
    /// `VIRTUAL_ENV`.
    pub virtual_env: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The current directory.
    pub current_dir: Option<PathBuf>,
    /// The running program.
    pub executable: Option<PathBuf>,
    /// The root of the file system: `/` outside tests. Applies to system folders only.
    pub root: PathBuf,
    /// Whether the last resort, the dynamic loader's own search by bare name, is tried.
    pub by_name: bool,
}

impl SearchOptions {
    /// The search as this process sees the machine. `explicit` is what the user typed, if anything.
    #[must_use]
    pub fn from_process(explicit: Option<PathBuf>) -> Self {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            explicit,
            variable: variable(NIXL_LIB_VARIABLE).map(PathBuf::from),
            virtual_env: variable("VIRTUAL_ENV").map(PathBuf::from),
            home: variable("HOME").map(PathBuf::from),
            path: variable("PATH").map(|list| env::split_paths(&list).collect()).unwrap_or_default(),
            current_dir: env::current_dir().ok(),
            executable: env::current_exe().ok(),
            root: PathBuf::from("/"),
            by_name: true,
        }
    }

    /// Every place that may hold the library, in the order in which they are tried.
    ///
    /// A library named by the user is the only candidate: when it is missing, falling back to another one would
    /// measure something that was not asked for.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let named = self
            .explicit
            .as_ref()
            .map(|path| (Origin::Explicit, path))
            .or(self.variable.as_ref().map(|path| (Origin::Variable, path)));
        if let Some((origin, path)) = named {
            return vec![Candidate::new(origin, self.named(path))];
        }
        let mut found = self.setup();
        for (origin, site) in self.sites() {
            found.extend(wheels(origin, &site));
        }
        found.extend(self.prefixes());
        if self.by_name {
            found.extend(LIBRARY_NAMES.map(|name| Candidate::new(Origin::Loader, PathBuf::from(name))));
        }
        found
    }

    /// The file that a user meant by a path: itself, or the library inside the folder.
    fn named(&self, path: &Path) -> PathBuf {
        // dlopen searches elsewhere when a name has no slash, so what the user typed is made absolute here.
        let path = self.current_dir.as_deref().unwrap_or(Path::new("/")).join(path);
        if !path.is_dir() {
            return path;
        }
        in_folder(&path)
            .or_else(|| wheel_folders(&path).iter().find_map(|folder| in_folder(folder)))
            .unwrap_or_else(|| path.join(LIBRARY_NAMES[1]))
    }

    /// `.nixl/<version>/.nixl_cu12.mesonpy.libs/libnixl_capi.so`, newest version first.
    fn setup(&self) -> Vec<Candidate> {
        let mut folders: Vec<PathBuf> = Vec::new();
        let ancestors = self.executable.iter().flat_map(|program| program.ancestors().skip(1));
        for folder in self.current_dir.iter().map(PathBuf::as_path).chain(ancestors) {
            let folder = folder.join(".nixl");
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        let found: Vec<Candidate> = folders
            .iter()
            .flat_map(|folder| newest_first(children(folder)))
            .flat_map(|version| wheel_folders(&version))
            .filter_map(|folder| in_folder(&folder))
            .map(|library| Candidate::new(Origin::Setup, library))
            .collect();
        if !found.is_empty() {
            return found;
        }
        let pattern = |folder: PathBuf| folder.join("*").join(ANY_WHEEL_FOLDER).join(LIBRARY_NAMES[1]);
        folders.into_iter().take(1).map(|folder| Candidate::new(Origin::Setup, pattern(folder))).collect()
    }

    /// Python's package folders, each once, without starting Python.
    fn sites(&self) -> Vec<(Origin, PathBuf)> {
        let mut sites: Vec<(Origin, PathBuf)> = Vec::new();
        let mut add = |origin, prefix: &Path| {
            for site in site_packages(prefix) {
                if !sites.iter().any(|(_, known)| *known == site) {
                    sites.push((origin, site));
                }
            }
        };
        if let Some(prefix) = &self.virtual_env {
            add(Origin::VirtualEnv, prefix);
        }
        add(Origin::VirtualEnv, &self.root.join("opt/venv"));
        if let Some(home) = &self.home {
            add(Origin::UserSite, &home.join(".local"));
        }
        for prefix in self.python_prefixes() {
            add(Origin::PathPython, &prefix);
        }
        add(Origin::SystemSite, &self.root.join("usr/local"));
        add(Origin::SystemSite, &self.root.join("usr"));
        sites
    }

    /// Python's package folders alone.
    pub(crate) fn site_folders(&self) -> Vec<PathBuf> {
        self.sites().into_iter().map(|(_, site)| site).filter(|site| site.is_dir()).collect()
    }

    /// Prefixes of the first `python3` on the path: the one it is called by, and the one its links lead to.
    fn python_prefixes(&self) -> Vec<PathBuf> {
        let Some(python) = self.path.iter().map(|folder| folder.join("python3")).find(|file| file.is_file())
        else {
            return Vec::new();
        };
        let real = fs::canonicalize(&python).ok();
        [Some(python), real]
            .into_iter()
            .flatten()
            .filter_map(|file| Some(file.parent()?.parent()?.to_path_buf()))
            .collect()
    }

    /// Installations from packages and from source.
    fn prefixes(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        for prefix in ["opt/nvidia/nvda_nixl", "usr/local/nixl"] {
            let prefix = self.root.join(prefix);
            let libraries: Vec<PathBuf> = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"]
                .iter()
                .filter_map(|folder| in_folder(&prefix.join(folder)))
                .collect();
            if libraries.is_empty() {
                let pattern = prefix.join("lib*").join(LIBRARY_NAMES[1]);
                found.push(Candidate::new(Origin::Prefix, pattern));
            }
            found.extend(libraries.into_iter().map(|path| Candidate::new(Origin::Prefix, path)));
        }
        found
    }
}

/// The candidates of one package folder: its wheels, or one line that says that there are none.
fn wheels(origin: Origin, site: &Path) -> Vec<Candidate> {
    let found: Vec<Candidate> = wheel_folders(site)
        .iter()
        .filter_map(|folder| in_folder(folder))
        .map(|library| Candidate::new(origin, library))
        .collect();
    if found.is_empty() {
        return vec![Candidate::new(origin, site.join(ANY_WHEEL_FOLDER).join(LIBRARY_NAMES[1]))];
    }
    found
}

/// The library folders of NIXL's wheels inside a package folder, in order of preference.
fn wheel_folders(site: &Path) -> Vec<PathBuf> {
    let preference = |path: &PathBuf| {
        let known = WHEEL_FOLDERS.iter().position(|name| path.ends_with(name));
        (known.unwrap_or(WHEEL_FOLDERS.len()), path.clone())
    };
    let mut folders: Vec<PathBuf> = children(site)
        .into_iter()
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(".nixl") && name.ends_with(".mesonpy.libs"))
        })
        .collect();
    folders.sort_by_key(preference);
    folders
}

/// The package folders under a prefix such as `/usr`; a pattern where there is no Python.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    let mut sites = Vec::new();
    for python in newest_first(children(&prefix.join("lib"))) {
        let is_python =
            python.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python3"));
        if is_python {
            sites.extend(
                ["site-packages", "dist-packages"]
                    .iter()
                    .map(|name| python.join(name))
                    .filter(|site| site.is_dir()),
            );
        }
    }
    if sites.is_empty() {
        sites.push(prefix.join("lib/python3*/*-packages"));
    }
    sites
}

fn in_folder(folder: &Path) -> Option<PathBuf> {
    LIBRARY_NAMES.iter().map(|name| folder.join(name)).find(|file| file.is_file())
}

/// The entries of a folder in a stable order; none where it cannot be read.
fn children(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}
