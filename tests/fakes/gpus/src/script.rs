//! The description of the GPUs.

use std::sync::atomic::AtomicU64;

/// Everything that a test says.
#[derive(Debug)]
pub struct Script {
    /// As `cuDriverGetVersion` says it.
    pub driver: i32,
    /// What GPUs move bytes to each other over.
    pub wire: Wire,
    /// The GPUs, in CUDA's and in NVML's order.
    pub gpus: Vec<Gpu>,
    /// Calls that fail.
    pub faults: Vec<Fault>,
}

/// What carries bytes between two GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// NVLink.
    Nvlink,
    /// PCIe.
    Pcie,
    /// Something that no counter of a GPU sees.
    None,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Address as sysfs writes it.
    pub pci: String,
    /// Bytes.
    pub memory: usize,
    /// NVLinks, and how many of them are down.
    pub links: u32,
    /// Links that are down, from the last one.
    pub links_down: u32,
    /// Links that are up carry its bytes; where not, they go over PCIe.
    pub nvlink: bool,
    /// MB/s of a link.
    pub link_mbps: u32,
    /// PCIe generation and lanes.
    pub pcie: (u32, u32),
    /// The driver counts PCIe bytes.
    pub pcie_counted: bool,
    /// The driver tells rates over PCIe.
    pub pcie_sampled: bool,
    /// Can do `cuMemCreate`.
    pub vmm: bool,
    /// Can do fabric handles.
    pub fabric: bool,
    /// Can export dma-buf.
    pub dma_buf: bool,
    /// Orders by itself what network cards write to it.
    pub ordered: bool,
    /// Part of an NVLink domain that its fabric manager has set up.
    pub domain: bool,
    /// Divided into instances, of which CUDA shows one.
    pub mig: bool,
    /// Reaches the other GPUs' memory.
    pub peers: bool,
}

/// A call that fails with `code` after `after` calls that do not.
#[derive(Debug)]
pub struct Fault {
    /// Name of the function.
    pub call: String,
    /// What it returns.
    pub code: i32,
    /// Calls before that.
    pub after: u64,
    /// Calls so far.
    pub calls: AtomicU64,
}

impl Default for Script {
    fn default() -> Self {
        Self { driver: 12_080, wire: Wire::Nvlink, gpus: Vec::new(), faults: Vec::new() }
    }
}

impl Default for Gpu {
    fn default() -> Self {
        Self {
            pci: "0000:17:00.0".to_owned(),
            memory: 1 << 30,
            links: 0,
            links_down: 0,
            nvlink: true,
            link_mbps: 26_562,
            pcie: (5, 16),
            pcie_counted: true,
            pcie_sampled: true,
            vmm: true,
            fabric: true,
            dma_buf: true,
            ordered: true,
            domain: false,
            mig: false,
            peers: true,
        }
    }
}

impl Gpu {
    /// Links that are up.
    pub fn links_up(&self) -> u32 {
        self.links.saturating_sub(self.links_down)
    }
}

impl Script {
    /// What carries bytes between two different GPUs. Nothing that a GPU counts leads out of an instance.
    pub fn between(&self, a: &Gpu, b: &Gpu) -> Wire {
        let all = |of: fn(&Gpu) -> bool| of(a) && of(b);
        match self.wire {
            _ if a.mig || b.mig => Wire::None,
            Wire::Nvlink if !all(|gpu| gpu.links_up() > 0 && gpu.nvlink) => Wire::Pcie,
            wire => wire,
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "driver" => script.driver = number(rest)?,
                "wire" => {
                    script.wire = match rest {
                        "nvlink" => Wire::Nvlink,
                        "pcie" => Wire::Pcie,
                        "none" => Wire::None,
                        _ => return Err(format!("no wire `{rest}`")),
                    }
                }
                "gpu" => script.gpus.push(gpu(rest)?),
                "fault" => script.faults.push(fault(rest)?),
                _ => return Err(format!("`{line}` is not understood")),
            }
        }
        Ok(script)
    }
}

fn gpu(text: &str) -> Result<Gpu, String> {
    let mut gpu = Gpu::default();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))?;
        match key {
            "pci" => gpu.pci = value.to_owned(),
            "memory" => gpu.memory = number(value)?,
            "links" => gpu.links = number(value)?,
            "links_down" => gpu.links_down = number(value)?,
            "nvlink" => gpu.nvlink = flag(value)?,
            "link_mbps" => gpu.link_mbps = number(value)?,
            "pcie" => {
                let (generation, lanes) =
                    value.split_once('x').ok_or_else(|| format!("`{word}` is no link"))?;
                gpu.pcie = (number(generation)?, number(lanes)?);
            }
            "pcie_counted" => gpu.pcie_counted = flag(value)?,
            "pcie_sampled" => gpu.pcie_sampled = flag(value)?,
            "vmm" => gpu.vmm = flag(value)?,
            "fabric" => gpu.fabric = flag(value)?,
            "dma_buf" => gpu.dma_buf = flag(value)?,
            "ordered" => gpu.ordered = flag(value)?,
            "domain" => gpu.domain = flag(value)?,
            "mig" => gpu.mig = flag(value)?,
            "peers" => gpu.peers = flag(value)?,
            _ => return Err(format!("a GPU has no `{key}`")),
        }
    }
    Ok(gpu)
}

fn fault(text: &str) -> Result<Fault, String> {
    let (fault, after) = text.split_once("@after=").unwrap_or((text, "0"));
    let (call, code) = fault.split_once('=').ok_or_else(|| format!("`{text}` has no code"))?;
    Ok(Fault { call: call.to_owned(), code: number(code)?, after: number(after)?, calls: AtomicU64::new(0) })
}

fn flag(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("`{text}` is neither 0 nor 1")),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_there_is_and_what_fails() {
        let script =
            Script::parse("driver 12040\nwire pcie\ngpu links=2 mig=1\n# x\nfault cuInit=34@after=2")
                .unwrap();
        assert_eq!((script.driver, script.wire, script.gpus[0].links), (12_040, Wire::Pcie, 2));
        assert!(script.gpus[0].mig && script.faults[0].code == 34 && script.faults[0].after == 2);
        for wrong in ["gup links=2", "gpu link=2", "gpu links", "wire x", "fault cuInit", "driver x"] {
            assert!(Script::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nvlink_carries_bytes_only_between_gpus_that_both_have_it() {
        let script = Script::parse(
            "gpu links=2\ngpu links=2 links_down=2\ngpu links=2 nvlink=0\ngpu links=2 mig=1\ngpu links=1",
        )
        .unwrap();
        let from_first = |to: usize| script.between(&script.gpus[0], &script.gpus[to]);
        assert_eq!([4, 1, 2, 3].map(from_first), [Wire::Nvlink, Wire::Pcie, Wire::Pcie, Wire::None]);
    }
}
