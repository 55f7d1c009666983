//! The driver, and the GPUs that it shows to this process.

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::abi::{DeviceHandle, FLUSH_BY_HOST, ORDERED_FOR_OWNER, SUCCESS, Uuid, attribute};
use crate::error::{Error, Result};
use crate::library::Api;

/// The oldest CUDA of a driver that is used: what NIXL's wheels are built for.
const VERSION_MIN: c_int = 12_000;
/// GPUs looked at, at most.
const DEVICES_MAX: c_int = 64;
/// Bytes of a name or PCI address.
const TEXT_MAX: usize = 128;

/// A driver that has been initialised.
#[derive(Debug)]
pub struct Driver {
    pub(crate) api: Api,
    version: i32,
}

/// A GPU, or an instance of one (MIG), as CUDA shows it to this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// CUDA's number in this process; NIXL's device number.
    pub ordinal: u32,
    /// Model.
    pub name: String,
    /// `GPU-…`, or `MIG-…` of an instance.
    pub uuid: String,
    /// `GPU-…` of the whole GPU, also for an instance.
    pub gpu_uuid: String,
    /// PCI address as sysfs writes it.
    pub pci: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Memory of kind `vmm` can be had.
    pub virtual_memory: bool,
    /// And a network card can reach it.
    pub virtual_memory_rdma: bool,
    /// What a network card has written must be flushed before the GPU itself is sure to see it.
    pub flush_remote_writes: bool,
    /// Memory can be exported as dma-buf.
    pub dma_buf: bool,
    /// Memory of kind `fabric` can be asked for.
    pub fabric_handles: bool,
    /// Ordinals of the GPUs whose memory this one can reach by NVLink or PCIe.
    pub peers: Vec<u32>,
}

impl Device {
    /// An instance of a GPU that is divided (MIG).
    #[must_use]
    pub fn is_instance(&self) -> bool {
        self.uuid != self.gpu_uuid
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({}, {}, {})", self.ordinal, self.name, self.pci, self.uuid)
    }
}

impl Driver {
    /// Opens and initialises the driver.
    ///
    /// # Errors
    /// There is no driver, it is too old, or it has no GPU for this process.
    pub fn open() -> Result<Arc<Self>> {
        let (api, path) = Api::open()?;
        // SAFETY: the function's only argument must be 0.
        api.check(unsafe { (api.init)(0) }, || format!("cuInit of {path}"))?;
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        api.check(unsafe { (api.driver_version)(&raw mut version) }, || "cuDriverGetVersion".to_owned())?;
        if version < VERSION_MIN {
            return Err(Error::DriverTooOld { version });
        }
        Ok(Arc::new(Self { api, version }))
    }

    /// The newest CUDA that the driver supports: 1000 x major + 10 x minor.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.version
    }

    /// All GPUs that this process may use, by their numbers.
    ///
    /// # Errors
    /// The driver refuses to tell.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.api.device_count)(&raw mut count) };
        self.api.check(code, || "cuDeviceGetCount".to_owned())?;
        let handles: Vec<DeviceHandle> =
            (0..count.min(DEVICES_MAX)).map(|ordinal| self.handle(ordinal)).collect::<Result<_>>()?;
        (0..).zip(&handles).map(|(ordinal, handle)| self.device(ordinal, *handle, &handles)).collect()
    }

    pub(crate) fn handle(&self, ordinal: c_int) -> Result<DeviceHandle> {
        let mut handle = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.api.device)(&raw mut handle, ordinal) };
        self.api.check(code, || format!("cuDeviceGet {ordinal}"))?;
        Ok(handle)
    }

    fn device(&self, ordinal: u32, handle: DeviceHandle, all: &[DeviceHandle]) -> Result<Device> {
        let of = |what: &str| format!("{what} of GPU {ordinal}");
        let api = &self.api;
        let (mut own, mut memory_bytes) = (Uuid::default(), 0);
        // SAFETY: both pointers are to locals of the types that cuda.h says.
        let codes = unsafe {
            [(api.device_uuid)(&raw mut own, handle), (api.device_memory)(&raw mut memory_bytes, handle)]
        };
        codes.into_iter().try_for_each(|code| api.check(code, || of("identity")))?;
        // The older form of the call tells of the whole GPU what the newer one tells of an instance.
        let mut whole = own;
        if let Some(parent_uuid) = api.parent_uuid {
            // SAFETY: as above.
            api.check(unsafe { parent_uuid(&raw mut whole, handle) }, || of("cuDeviceGetUuid"))?;
        }
        let name = text(|bytes, len| {
            // SAFETY: `bytes` has room for `len` characters.
            api.check(unsafe { (api.device_name)(bytes, len, handle) }, || of("cuDeviceGetName"))
        })?;
        let pci = text(|bytes, len| {
            // SAFETY: as above.
            api.check(unsafe { (api.device_pci)(bytes, len, handle) }, || of("cuDeviceGetPCIBusId"))
        })?;
        let gpu_uuid = format!("GPU-{}", hex(whole));
        let uuid = if own == whole { gpu_uuid.clone() } else { format!("MIG-{}", hex(own)) };
        let number = |which| u32::try_from(self.attribute(which, handle)).unwrap_or(0);
        let can = |which| self.attribute(which, handle) > 0;
        Ok(Device {
            ordinal,
            name,
            uuid,
            gpu_uuid,
            pci: pci.to_lowercase(),
            memory_bytes: memory_bytes as u64,
            capability: (number(attribute::CAPABILITY_MAJOR), number(attribute::CAPABILITY_MINOR)),
            virtual_memory: can(attribute::VIRTUAL_MEMORY),
            virtual_memory_rdma: can(attribute::RDMA_WITH_VIRTUAL_MEMORY),
            flush_remote_writes: self.attribute(attribute::RDMA_WRITES_ORDERING, handle) < ORDERED_FOR_OWNER
                && self.attribute(attribute::RDMA_FLUSH_OPTIONS, handle) & FLUSH_BY_HOST != 0,
            dma_buf: can(attribute::DMA_BUF),
            fabric_handles: can(attribute::FABRIC_HANDLES),
            peers: (0..)
                .zip(all)
                .filter(|(_, peer)| self.reaches(handle, **peer))
                .map(|(peer, _)| peer)
                .collect(),
        })
    }

    /// 0 where the driver does not know the attribute.
    fn attribute(&self, which: c_int, handle: DeviceHandle) -> c_int {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.api.device_attribute)(&raw mut value, which, handle) };
        if code == SUCCESS { value } else { 0 }
    }

    fn reaches(&self, from: DeviceHandle, to: DeviceHandle) -> bool {
        let mut can = 0;
        // SAFETY: the pointer is to a local.
        from != to && unsafe { (self.api.can_access_peer)(&raw mut can, from, to) } == SUCCESS && can > 0
    }
}

/// A C string that `write` fills.
fn text(write: impl FnOnce(*mut std::ffi::c_char, c_int) -> Result<()>) -> Result<String> {
    let mut bytes = [0_u8; TEXT_MAX];
    write(bytes.as_mut_ptr().cast(), TEXT_MAX as c_int)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(TEXT_MAX);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// As `nvidia-smi` writes it.
fn hex(uuid: Uuid) -> String {
    let mut text = String::with_capacity(36);
    for (place, byte) in uuid.0.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_nvidia_smi_writes_it() {
        let mut bytes = [0; 16];
        (0..).zip(&mut bytes).for_each(|(place, byte)| *byte = place * 17);
        assert_eq!(hex(Uuid(bytes)), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
