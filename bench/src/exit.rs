//! The exit codes: the one place that decides what a caller sees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How kvwire ends. The numbers are a contract; `docs/exit-codes.md` explains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub(crate) enum Exit {
    /// 0: the run is trusted within its scope, or the command did what was asked.
    Trusted = 0,
    /// 1: a check, the transport or the data failed.
    NotTrusted = 1,
    /// 2: the command line or a value was wrong; nothing was started.
    Usage = 2,
    /// 3: nothing can be said: NIXL, the peer or the control plane was missing, or the run was interrupted.
    Inconclusive = 3,
    /// 4: a fault in kvwire itself, or the result could not be written.
    Internal = 4,
}

impl Exit {
    /// Prints what the parser of the command line says: help and version are results, everything else is a wrong
    /// command line.
    pub(crate) fn of_parser(error: &clap::Error) -> Self {
        // Ignored: when even this cannot be printed, the exit code still tells.
        let _ = error.print();
        if error.use_stderr() { Self::Usage } else { Self::Trusted }
    }

    /// The process exit code.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
