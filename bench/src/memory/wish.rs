//! Where the payload is to lie: what a plan says, before anybody has looked at a machine.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The memory of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MemoryKind {
    /// Host memory.
    #[default]
    Dram,
    /// GPU memory.
    Vram,
    /// GPU memory where a GPU can be used, else host memory.
    Auto,
}

impl MemoryKind {
    /// Whether a GPU is looked for.
    pub(crate) fn wants_gpu(self) -> bool {
        self != Self::Dram
    }
}

/// How GPU memory is allocated. What can be exported over NVLink and as dma-buf depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AllocKind {
    /// As cudaMalloc: what inference engines use by default.
    #[default]
    Malloc,
    /// Mapped physical memory (cuMemCreate): what PyTorch's expandable segments use.
    Vmm,
    /// The same with handles for an NVLink domain of several nodes.
    Fabric,
}

impl From<AllocKind> for cuda::Alloc {
    fn from(kind: AllocKind) -> Self {
        match kind {
            AllocKind::Malloc => Self::Malloc,
            AllocKind::Vmm => Self::Vmm,
            AllocKind::Fabric => Self::Fabric,
        }
    }
}

/// The network ports that UCX may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) enum Nics {
    /// For GPU memory the RDMA ports nearest to the GPU, and every network interface; for host memory what UCX chooses.
    #[default]
    Auto,
    /// What UCX chooses.
    Ucx,
    /// These, as UCX names them.
    List(Vec<String>),
}

impl FromStr for Nics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "ucx" => Ok(Self::Ucx),
            _ => {
                let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
                let fine = |name: &String| !name.is_empty() && !name.contains([' ', '^']);
                if names.iter().all(fine) {
                    Ok(Self::List(names))
                } else {
                    Err("write auto, ucx, or names as UCX has them, for example mlx5_0:1,mlx5_3:1".to_owned())
                }
            }
        }
    }
}

impl TryFrom<String> for Nics {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Nics> for String {
    fn from(nics: Nics) -> Self {
        match nics {
            Nics::Auto => "auto".to_owned(),
            Nics::Ucx => "ucx".to_owned(),
            Nics::List(names) => names.join(","),
        }
    }
}

/// The NUMA node whose cores an engine runs on and whose memory it gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) enum Numa {
    /// That of the GPU; anywhere for host memory.
    #[default]
    Auto,
    /// Anywhere.
    Off,
    /// This one.
    Node(u32),
}

impl FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => text
                .parse()
                .map(Self::Node)
                .map_err(|_| "write auto, off, or the number of a node".to_owned()),
        }
    }
}

impl TryFrom<String> for Numa {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Numa> for String {
    fn from(numa: Numa) -> Self {
        match numa {
            Numa::Auto => "auto".to_owned(),
            Numa::Off => "off".to_owned(),
            Numa::Node(node) => node.to_string(),
        }
    }
}

/// Everything that decides where the payload of both sides lies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MemoryWish {
    /// Memory of the initiator.
    pub(crate) initiator: MemoryKind,
    /// Memory of the target.
    pub(crate) target: MemoryKind,
    /// How GPU memory is allocated.
    pub(crate) alloc: AllocKind,
    /// GPUs by number, UUID or PCI address, in turn for the engines of a side; none is all.
    pub(crate) gpus: Vec<String>,
    /// Network ports that UCX may use: `auto`, `ucx`, or names.
    pub(crate) nics: Nics,
    /// Host memory in huge pages that the administrator has set aside.
    pub(crate) huge_pages: bool,
    /// NUMA node of engines and host memory: `auto`, `off`, or a number.
    pub(crate) numa: Numa,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dram => "host memory",
            Self::Vram => "GPU memory",
            Self::Auto => "GPU or host memory",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_two_words_or_names() {
        assert_eq!("auto".parse(), Ok(Nics::Auto));
        assert_eq!("ucx".parse(), Ok(Nics::Ucx));
        assert_eq!("mlx5_0:1, eth0".parse(), Ok(Nics::List(vec!["mlx5_0:1".to_owned(), "eth0".to_owned()])));
        for wrong in ["", "mlx5_0:1,", "^mlx5_0:1", "mlx5_0 mlx5_1"] {
            assert!(wrong.parse::<Nics>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn both_read_in_a_result_as_they_were_typed() {
        for text in ["auto", "ucx", "mlx5_0:1,eth0"] {
            assert_eq!(String::from(text.parse::<Nics>().unwrap()), text);
        }
        for text in ["auto", "off", "3"] {
            assert_eq!(String::from(text.parse::<Numa>().unwrap()), text);
        }
    }

    #[test]
    fn a_node_is_a_number_or_a_word() {
        assert_eq!(
            ("auto".parse(), "off".parse(), "1".parse()),
            (Ok(Numa::Auto), Ok(Numa::Off), Ok(Numa::Node(1)))
        );
        assert!("-1".parse::<Numa>().is_err());
    }
}
