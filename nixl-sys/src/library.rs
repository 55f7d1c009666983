//! Opens NIXL at run time.

use std::ffi::{CStr, OsStr, c_void};
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library as OsLibrary, RTLD_LOCAL, RTLD_NOW};

use crate::cuda_runtime::{self, CudaRuntime};
use crate::error::{LoadError, OLDEST_SUPPORTED};
use crate::maps;
use crate::search::{Candidate, Origin, SearchOptions};
use crate::table::{Functions, Symbols};
use crate::version::wheel_version;

/// An opened NIXL: its functions, and the file that they came from. It stays loaded until the process ends, because
/// UCX owns threads and exit handlers that must not lose their code.
#[derive(Debug)]
pub struct Library {
    functions: Functions,
    path: PathBuf,
}

/// A loaded NIXL and how it was found.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The library.
    pub library: Arc<Library>,
    /// The path it was opened by.
    pub path: PathBuf,
    /// The same without symbolic links.
    pub realpath: PathBuf,
    /// Why that place was looked at.
    pub origin: Origin,
    /// The wheel's version; `None` for a library that did not come with a wheel.
    pub version: Option<String>,
    /// Every place of the search, in order, also those after the one taken.
    pub searched: Vec<Candidate>,
    /// The CUDA runtime that the wheel's UCX needs for GPU memory; `None` for a NIXL that is not from a wheel.
    pub cuda_runtime: Option<CudaRuntime>,
}

/// Finds NIXL and opens it: the first candidate that exists is taken, and a failure to open that one is an error.
///
/// # Errors
/// [`LoadError::NotFound`] with every place searched; otherwise as [`Library::open`].
pub fn open(options: &SearchOptions) -> Result<Loaded, LoadError> {
    let searched = options.candidates();
    if let Some(found) = searched.iter().find(|candidate| candidate.exists) {
        let (path, origin) = (found.path.clone(), found.origin);
        // Before NIXL, as in an engine: UCX looks for it when a backend is made.
        let cuda_runtime = cuda_runtime::open_for(&path, &options.site_folders(), &options.root);
        let library = Library::open(&path)?;
        return Ok(Loaded { cuda_runtime, ..loaded(library, path, origin, searched) });
    }
    let by_name = searched.iter().filter(|candidate| candidate.origin == Origin::Loader);
    for candidate in by_name {
        // A bare name that the dynamic loader does not find is one more place without NIXL, not an error of its own.
        if let Ok(handle) = dlopen(&candidate.path) {
            let library = Library::from_handle(handle, &candidate.path)?;
            let path = library.path.clone();
            return Ok(loaded(library, path, Origin::Loader, searched));
        }
    }
    Err(LoadError::NotFound { searched })
}

fn loaded(library: Library, path: PathBuf, origin: Origin, searched: Vec<Candidate>) -> Loaded {
    let realpath = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let version = wheel_version(&path).or_else(|| wheel_version(&realpath));
    Loaded { library: Arc::new(library), path, realpath, origin, version, searched, cuda_runtime: None }
}

impl Library {
    /// Opens one library by its path, for this process' own use only: its symbols become visible to nothing else.
    ///
    /// # Errors
    /// [`LoadError::SecondCopy`] when another NIXL is mapped in this process already, [`LoadError::NotALibrary`]
    /// when the dynamic loader refuses the file, [`LoadError::MissingSymbol`] when a required function is absent, and
    /// [`LoadError::Stub`] for NIXL's stand-in.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        // Before dlopen: the other copy's plugins may already be bound, and loading alone can disturb them.
        refuse_second_copy(path)?;
        let handle = dlopen(path)
            .map_err(|error| LoadError::NotALibrary { path: path.to_path_buf(), dlerror: text(&error) })?;
        Self::from_handle(handle, path)
    }

    fn from_handle(handle: OsLibrary, path: &Path) -> Result<Self, LoadError> {
        // SAFETY: the file answers to the names of NIXL's C API, whose signatures the header states.
        let functions = unsafe { Functions::resolve(&Opened(&handle)) };
        // Never closed, on no path: the library's initialisers have run and may have started threads.
        std::mem::forget(handle);
        let functions = functions.map_err(|symbol| LoadError::MissingSymbol {
            path: path.to_path_buf(),
            symbol: symbol.to_str().unwrap_or("nixl_capi"),
            since: OLDEST_SUPPORTED,
        })?;
        let path = defined_in(functions.create_configured_agent as *const c_void)
            .filter(|_| !path.is_absolute())
            .unwrap_or_else(|| path.to_path_buf());
        // SAFETY: is_stub takes nothing and only returns a constant.
        if functions.is_stub.is_some_and(|is_stub| unsafe { is_stub() }) {
            return Err(LoadError::Stub { path });
        }
        refuse_second_copy(&path)?;
        Ok(Self { functions, path })
    }

    /// The file that the functions came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for Library {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

struct Opened<'a>(&'a OsLibrary);

impl Symbols for Opened<'_> {
    unsafe fn get<T: Copy>(&self, name: &'static CStr) -> Option<T> {
        // SAFETY: the caller gives the symbol's own type.
        unsafe { self.0.get::<T>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
    }
}

fn dlopen(path: &Path) -> Result<OsLibrary, libloading::Error> {
    // LOCAL, because UCX brings its own rdma-core, and a library in the global scope would be bound to others.
    // SAFETY: loading runs the library's initialisers; NIXL's only prepare its own state.
    unsafe { OsLibrary::open(Some(path.as_os_str() as &OsStr), RTLD_NOW | RTLD_LOCAL) }
}

fn refuse_second_copy(wanted: &Path) -> Result<(), LoadError> {
    if !wanted.is_absolute() {
        return Ok(());
    }
    let mapped = maps::mapped_files().map_err(LoadError::Maps)?;
    match maps::other_nixl(wanted, &mapped) {
        Some(loaded) => Err(LoadError::SecondCopy { loaded, wanted: wanted.to_path_buf() }),
        None => Ok(()),
    }
}

/// The file that the code at an address was loaded from.
fn defined_in(address: *const c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr only looks the address up, and `info` is a zeroed structure of its type.
    let info = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so the name is a C string that lives as long as the library, which is for ever.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    fs::canonicalize(name.to_str().ok()?).ok()
}

/// The dynamic loader's sentence, without the wrapping that libloading adds.
fn text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
