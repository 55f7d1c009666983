//! The classes of wire, and which UCX transport belongs to which.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What carried the bytes of a case. `docs/proof.md` says how each is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Class {
    /// An RDMA adapter wrote or read the other side's memory: InfiniBand, RoCE, EFA.
    Rdma,
    /// NVLink between two GPUs, also across nodes.
    Nvlink,
    /// PCIe between two devices, without host memory in between.
    PcieP2p,
    /// Memory of one host: cross-memory attach or a shared segment.
    Shm,
    /// TCP sockets.
    Tcp,
    /// Software on the other side took part in every operation, whatever the wire below.
    Emulated,
    /// Evidence is missing or does not fit together.
    Unknown,
}

impl Class {
    /// The name as it stands in the result.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Nvlink => "nvlink",
            Self::PcieP2p => "pcie-p2p",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Emulated => "emulated",
            Self::Unknown => "unknown",
        }
    }

    /// How good a wire is for a KV cache, to tell what lies below an expectation.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Emulated => 1,
            Self::Tcp => 2,
            Self::Shm => 3,
            Self::PcieP2p => 4,
            Self::Rdma => 5,
            Self::Nvlink => 6,
        }
    }

    /// The class of a UCX transport by its name in a lane; `None` for one that is not known here.
    ///
    /// `cuda_ipc` and its kin run over NVLink or over PCIe: the name does not say, so counters must.
    /// Names: `ucx_info -d` of UCX 1.13 to 1.23.
    pub(crate) fn of_transport(name: &str) -> Option<Self> {
        Some(match name {
            "rc_mlx5" | "rc_verbs" | "dc_mlx5" | "ud_mlx5" | "ud_verbs" | "gga_mlx5" | "srd" | "rc_gda" => {
                Self::Rdma
            }
            "cma" | "knem" | "xpmem" | "posix" | "sysv" | "self" => Self::Shm,
            "cuda_ipc" | "rocm_ipc" | "ze_ipc" => Self::PcieP2p,
            "tcp" => Self::Tcp,
            _ => return None,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The wire that the user expects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Expect {
    /// The best that the two nodes could use.
    #[default]
    Auto,
    /// RDMA, or better.
    Rdma,
    /// NVLink.
    Nvlink,
    /// Shared memory, or better.
    Shm,
    /// TCP, or better.
    Tcp,
    /// Whatever carries the bytes.
    Any,
}

impl Expect {
    /// The word as typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Rdma => "rdma",
            Self::Nvlink => "nvlink",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Any => "any",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_belongs_to_one_class_and_a_new_one_to_none() {
        for (name, class) in [
            ("rc_mlx5", Class::Rdma),
            ("rc_verbs", Class::Rdma),
            ("srd", Class::Rdma),
            ("cma", Class::Shm),
            ("sysv", Class::Shm),
            ("tcp", Class::Tcp),
            ("cuda_ipc", Class::PcieP2p),
        ] {
            assert_eq!(Class::of_transport(name), Some(class), "{name}");
        }
        assert_eq!(Class::of_transport("warp"), None);
    }

    #[test]
    fn the_result_names_classes_as_the_documentation_does() {
        for class in [Class::Rdma, Class::Nvlink, Class::PcieP2p, Class::Shm, Class::Tcp, Class::Emulated] {
            assert_eq!(serde_json::to_value(class).unwrap(), class.name());
        }
    }
}
