//! What a GPU knows of the NVLink fabric that it is part of.
#![allow(unsafe_code, reason = "nvml-wrapper has no call for the fabric; each block says why it is sound")]

use std::ffi::c_uint;

use nvml_wrapper::{Device, Nvml};

/// The NVLink fabric of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fabric {
    /// `state completed, status 0, clique 1, cluster …, health 0x155`, or why the fabric is not known.
    pub words: String,
    /// Cluster UUID and clique of the NVLink domain that the GPU is part of: GPUs that agree in both reach each other over
    /// NVLink, on other hosts too. `None` where the fabric manager has not brought the GPU into one.
    pub domain: Option<String>,
}

/// `nvmlGpuFabricInfo_v2_t` of nvml.h.
#[repr(C)]
#[derive(Default)]
struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
}

/// `nvmlGpuFabricInfo_t`: what drivers older than 12.4 know.
#[repr(C)]
#[derive(Default)]
struct FabricInfoFirst {
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
}

/// `NVML_GPU_FABRIC_STATE_COMPLETED`.
const COMPLETED: u8 = 3;

/// `NVML_STRUCT_VERSION`: the size, and the number of the version in the highest byte.
fn version() -> c_uint {
    c_uint::try_from(size_of::<FabricInfo>()).unwrap_or(0) | 2 << 24
}

/// What NVML tells of it.
pub(super) fn fabric(nvml: &Nvml, device: &Device<'_>) -> Fabric {
    let mut info = FabricInfo { version: version(), ..FabricInfo::default() };
    if let Ok(get) = &nvml.lib().nvmlDeviceGetGpuFabricInfoV {
        // SAFETY: the device is of this NVML, which lives longer than the call; the version in the structure tells NVML
        // its layout and size.
        let told = unsafe { get(device.handle(), (&raw mut info).cast()) };
        if told == 0 {
            return told_of(info.state, info.status, info.clique, info.cluster, Some(info.health));
        }
    }
    let Ok(get) = &nvml.lib().nvmlDeviceGetGpuFabricInfo else {
        return unknown("this driver's NVML has no call for it");
    };
    let mut info = FabricInfoFirst::default();
    // SAFETY: as above; the structure is the one that this call takes.
    match unsafe { get(device.handle(), (&raw mut info).cast()) } {
        0 => told_of(info.state, info.status, info.clique, info.cluster, None),
        error => unknown(&format!("NVML error {error}")),
    }
}

fn unknown(why: &str) -> Fabric {
    Fabric { words: format!("not known: {why}"), domain: None }
}

fn told_of(state: u8, status: c_uint, clique: c_uint, cluster: [u8; 16], health: Option<c_uint>) -> Fabric {
    let name = match state {
        0 => return Fabric { words: "state not supported".to_owned(), domain: None },
        1 => "not started",
        2 => "in progress",
        COMPLETED => "completed",
        _ => "of a kind that this kvwire does not know",
    };
    // The switches of a single host complete as well, with a cluster of zeros.
    let in_domain = state == COMPLETED && status == 0 && cluster != [0; 16];
    let cluster: String = cluster.iter().map(|byte| format!("{byte:02x}")).collect();
    let health = health.map_or(String::new(), |mask| format!(", health {mask:#x}"));
    Fabric {
        domain: in_domain.then(|| format!("cluster {cluster}, clique {clique}")),
        words: format!("state {name}, status {status}, clique {clique}, cluster {cluster}{health}"),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use c_header::{Claims, NVML};

    use super::*;

    #[test]
    fn structures_and_states_are_those_of_nvml_h() {
        let mut claims = Claims::of(&NVML);
        let (first, second) = ("nvmlGpuFabricInfo_t", "nvmlGpuFabricInfo_v2_t");
        claims.size(first, size_of::<FabricInfoFirst>());
        claims.field(first, "clusterUuid", offset_of!(FabricInfoFirst, cluster), 16);
        claims.field(first, "status", offset_of!(FabricInfoFirst, status), 4);
        claims.field(first, "cliqueId", offset_of!(FabricInfoFirst, clique), 4);
        claims.field(first, "state", offset_of!(FabricInfoFirst, state), 1);
        claims.size(second, size_of::<FabricInfo>());
        claims.field(second, "version", offset_of!(FabricInfo, version), 4);
        claims.field(second, "clusterUuid", offset_of!(FabricInfo, cluster), 16);
        claims.field(second, "status", offset_of!(FabricInfo, status), 4);
        claims.field(second, "cliqueId", offset_of!(FabricInfo, clique), 4);
        claims.field(second, "state", offset_of!(FabricInfo, state), 1);
        claims.field(second, "healthMask", offset_of!(FabricInfo, health), 4);
        claims.number("nvmlGpuFabricInfo_v2", version().into());
        for (state, word) in [
            ("NOT_SUPPORTED", "not supported"),
            ("NOT_STARTED", "not started"),
            ("IN_PROGRESS", "in progress"),
            ("COMPLETED", "completed"),
        ] {
            let value = (0..=u8::MAX).find(|value| {
                told_of(*value, 0, 0, [0; 16], None).words.starts_with(&format!("state {word}"))
            });
            claims.number(&format!("NVML_GPU_FABRIC_STATE_{state}"), value.unwrap().into());
        }
        claims.hold();
    }

    #[test]
    fn a_domain_is_one_that_is_set_up_and_has_a_cluster() {
        let domain = |state, status, cluster| told_of(state, status, 7, [cluster; 16], None).domain;
        assert_eq!(domain(COMPLETED, 0, 1), Some(format!("cluster {}, clique 7", "01".repeat(16))));
        assert_eq!((domain(2, 0, 1), domain(COMPLETED, 1, 1)), (None, None));
        assert_eq!(domain(COMPLETED, 0, 0), None, "the NVSwitch of one host");
    }
}
