//! Flags that decide where the payload lies.

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::memory::{AllocKind, MemoryKind, MemoryWish, Nics, Numa};

/// Memory, GPUs, network ports and cores of both sides.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where the payload lies")]
pub(crate) struct MemoryArgs {
    /// Memory of both sides: dram (host), vram (GPU), auto (GPU where one can be used, else host)
    #[arg(
        long,
        env = "KVWIRE_MEMORY",
        value_name = "KIND",
        default_value = "dram",
        hide_possible_values = true
    )]
    pub(crate) memory: MemoryKind,

    /// Memory of the initiator [default: --memory]
    #[arg(long, env = "KVWIRE_INITIATOR_MEMORY", value_name = "KIND", hide_possible_values = true)]
    pub(crate) initiator_memory: Option<MemoryKind>,

    /// Memory of the target [default: --memory]
    #[arg(long, env = "KVWIRE_TARGET_MEMORY", value_name = "KIND", hide_possible_values = true)]
    pub(crate) target_memory: Option<MemoryKind>,

    /// GPUs: numbers, UUIDs or PCI addresses, or all; the engines of a side take them in turn, on one host the
    /// target's after the initiator's
    #[arg(long, env = "KVWIRE_GPU", value_name = "LIST", default_value = "all", value_delimiter = ',')]
    pub(crate) gpu: Vec<String>,

    /// How GPU memory is allocated: malloc (as cudaMalloc), vmm (cuMemCreate), fabric (for NVLink between nodes)
    #[arg(
        long,
        env = "KVWIRE_ALLOC",
        value_name = "KIND",
        default_value = "malloc",
        hide_possible_values = true
    )]
    pub(crate) alloc: AllocKind,

    /// Network ports for UCX: auto (for GPU memory the RDMA ports nearest to the GPU), ucx (what UCX chooses), or
    /// names, for example mlx5_0:1,mlx5_3:1
    #[arg(long, env = "KVWIRE_NICS", value_name = "LIST", default_value = "auto")]
    pub(crate) nics: Nics,

    /// Take host memory from the huge pages of 2 MiB that were set aside (vm.nr_hugepages) [default: huge pages as the
    /// kernel gives them]
    #[arg(long, env = "KVWIRE_HUGE_PAGES", value_parser = FalseyValueParser::new())]
    pub(crate) huge_pages: bool,

    /// NUMA node for cores and host memory of the engines: auto (that of the GPU), off, or a number
    #[arg(long, env = "KVWIRE_NUMA", value_name = "NODE", default_value = "auto")]
    pub(crate) numa: Numa,
}

impl MemoryArgs {
    /// What these flags ask for.
    pub(crate) fn wish(&self) -> MemoryWish {
        MemoryWish {
            initiator: self.initiator_memory.unwrap_or(self.memory),
            target: self.target_memory.unwrap_or(self.memory),
            alloc: self.alloc,
            gpus: named(&self.gpu),
            nics: self.nics.clone(),
            huge_pages: self.huge_pages,
            numa: self.numa,
        }
    }
}

/// The GPUs of a list; none where it says all.
pub(crate) fn named(list: &[String]) -> Vec<String> {
    let all = list.iter().any(|name| name.trim().eq_ignore_ascii_case("all"));
    let names = list.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    if all { Vec::new() } else { names.collect() }
}
