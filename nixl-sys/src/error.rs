//! Why no NIXL library could be loaded.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::search::Candidate;

/// The oldest NIXL whose C API has every function that kvwire requires.
pub const OLDEST_SUPPORTED: &str = "0.10.1";

/// Why no NIXL library could be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No candidate exists.
    #[error("NIXL was not found; searched, in this order:{}", Listed(.searched))]
    NotFound {
        /// Every place looked at, in order.
        searched: Vec<Candidate>,
    },
    /// The file exists and the dynamic loader refused it.
    #[error("`{}` is not a library that this system can load: {dlerror}", .path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// The dynamic loader's own words.
        dlerror: String,
    },
    /// The file is a library without a function that is needed.
    #[error(
        "`{}` has no function `{symbol}`: it is not NIXL's C API, or older than NIXL {since}",
        .path.display()
    )]
    MissingSymbol {
        /// The file.
        path: PathBuf,
        /// The first required function that is missing.
        symbol: &'static str,
        /// The oldest NIXL known to have it.
        since: &'static str,
    },
    /// The file is the stand-in that NIXL builds where the real library is absent.
    #[error("`{}` is NIXL's stub library, which moves nothing", .path.display())]
    Stub {
        /// The file.
        path: PathBuf,
    },
    /// Another NIXL is already mapped in this process; two of them share plugins and fail in obscure ways.
    #[error(
        "another NIXL is already loaded in this process: `{}` (wanted `{}`)",
        .loaded.display(),
        .wanted.display()
    )]
    SecondCopy {
        /// The one that is mapped.
        loaded: PathBuf,
        /// The one that was to be loaded.
        wanted: PathBuf,
    },
    /// The process' own mappings could not be read.
    #[error("cannot read /proc/self/maps: {0}")]
    Maps(#[source] std::io::Error),
}

/// One candidate a line.
struct Listed<'a>(&'a [Candidate]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(" nothing");
        }
        self.0.iter().try_for_each(|candidate| {
            f.write_char('\n')?;
            write!(f, "  {candidate}")
        })
    }
}
