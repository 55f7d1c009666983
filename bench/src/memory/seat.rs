//! Where one engine sits: its memory, its processor cores, its network ports.

use cuda::Device;
use serde::{Deserialize, Serialize};

use super::AllocKind;

/// The variable by which UCX is told its network devices.
pub(crate) const UCX_NET_DEVICES: &str = "UCX_NET_DEVICES";

/// Where an engine sits, decided by its supervisor before it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// The GPU that its memory is on; `None` for host memory.
    pub(crate) gpu: Option<GpuSeat>,
    /// Why it is host memory although GPU memory was wished for.
    pub(crate) instead_of_gpu: Option<String>,
    /// Host memory in huge pages that were set aside.
    pub(crate) huge_pages: bool,
    /// NUMA node that it is pinned to.
    pub(crate) numa: Option<u32>,
    /// Network ports for UCX; none leaves them to it.
    pub(crate) nics: Vec<String>,
    /// How near to the GPU those are that were chosen for it, in the words of `nvidia-smi topo`.
    pub(crate) nics_distance: Option<String>,
    /// Network interfaces that UCX may use beside the ports.
    pub(crate) interfaces: Vec<String>,
}

/// A place on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuSeat {
    /// `GPU-…` or `MIG-…`.
    pub(crate) uuid: String,
    /// How memory is allocated.
    pub(crate) alloc: AllocKind,
}

/// A GPU that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--gpu: no GPU of this side is `{wanted}`; there are: {there}")]
pub(crate) struct SeatError {
    wanted: String,
    there: String,
}

/// The GPUs that the engines of a side take in turn: `wanted`, or all where nothing is wanted. At least one.
///
/// # Errors
/// One of `wanted` is not among `devices`, or there is no device.
pub(crate) fn chosen<'a>(devices: &'a [Device], wanted: &[String]) -> Result<Vec<&'a Device>, SeatError> {
    let everything = wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case("all"));
    let chosen: Vec<&Device> = if everything {
        devices.iter().collect()
    } else {
        wanted.iter().map(|name| find(devices, name)).collect::<Result<_, _>>()?
    };
    if chosen.is_empty() { Err(missing(devices, "all")) } else { Ok(chosen) }
}

/// Where a target begins to take GPUs that it shares with its initiator: after the initiator's, and where that would give
/// every rank the GPU of its peer, half of them further.
pub(crate) fn first_of_target(ranks: usize, gpus: usize) -> usize {
    if gpus > 1 && ranks.is_multiple_of(gpus) { gpus / 2 } else { ranks }
}

fn find<'a>(devices: &'a [Device], name: &str) -> Result<&'a Device, SeatError> {
    let lower = name.to_lowercase();
    // `65:00.0` is short for `0000:65:00.0`.
    let address = if lower.matches(':').count() == 1 { format!("0000:{lower}") } else { lower.clone() };
    let is_it = |device: &&Device| {
        lower.parse() == Ok(device.ordinal)
            || device.pci == address
            || (lower.len() > "gpu-".len() && device.uuid.to_lowercase().starts_with(&lower))
    };
    let mut found = devices.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(device), None) => Ok(device),
        _ => Err(missing(devices, name)),
    }
}

fn missing(devices: &[Device], wanted: &str) -> SeatError {
    let there: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join("; ") };
    SeatError { wanted: wanted.to_owned(), there }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ordinal: u32, pci: &str, uuid: &str) -> Device {
        Device {
            ordinal,
            name: "H200".to_owned(),
            uuid: uuid.to_owned(),
            gpu_uuid: uuid.to_owned(),
            pci: pci.to_owned(),
            memory_bytes: 1 << 30,
            capability: (9, 0),
            virtual_memory: true,
            virtual_memory_rdma: true,
            flush_remote_writes: false,
            dma_buf: true,
            fabric_handles: true,
            peers: Vec::new(),
        }
    }

    fn two() -> Vec<Device> {
        vec![device(0, "0000:17:00.0", "GPU-aa11"), device(1, "0000:65:00.0", "GPU-bb22")]
    }

    fn ordinals(wanted: &[&str]) -> Result<Vec<u32>, String> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let devices = two();
        let chosen = chosen(&devices, &wanted).map_err(|e| e.to_string())?;
        Ok(chosen.iter().map(|device| device.ordinal).collect())
    }

    #[test]
    fn a_gpu_is_a_number_a_uuid_or_a_pci_address() {
        for name in ["1", "GPU-bb22", "gpu-bb", "0000:65:00.0", "65:00.0"] {
            assert_eq!(ordinals(&[name]), Ok(vec![1]), "{name}");
        }
        for name in ["2", "GPU-", "GPU-cc", "0000:66:00.0", "x"] {
            assert!(
                ordinals(&[name]).unwrap_err().contains("GPU 1 (H200, 0000:65:00.0, GPU-bb22)"),
                "{name}"
            );
        }
    }

    #[test]
    fn gpus_are_those_that_are_named_in_that_order_or_all() {
        assert_eq!(ordinals(&[]), Ok(vec![0, 1]));
        assert_eq!(ordinals(&["all"]), Ok(vec![0, 1]));
        assert_eq!(ordinals(&["1", "0"]), Ok(vec![1, 0]));
        assert!(chosen(&[], &[]).unwrap_err().to_string().contains("there are: none"));
    }

    #[test]
    fn ranks_on_one_host_meet_other_gpus_than_their_own_where_there_are_any() {
        for (ranks, gpus) in [(1, 2), (2, 2), (4, 2), (2, 4), (3, 3), (8, 8), (3, 2), (1, 8)] {
            let first = first_of_target(ranks, gpus);
            let same = (0..ranks).filter(|rank| rank % gpus == (first + rank) % gpus).count();
            assert_eq!(same, 0, "{ranks} ranks on {gpus} GPUs");
        }
        assert_eq!(first_of_target(1, 2), 1, "the target's after the initiator's");
    }
}
