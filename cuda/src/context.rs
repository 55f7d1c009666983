//! The primary context of a GPU, with one stream of our own.

use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::abi::{Address, ContextHandle, DeviceHandle, FLUSH_CURRENT, FLUSH_TO_OWNER, NON_BLOCKING, Stream};
use crate::device::{Device, Driver};
use crate::error::Result;

/// The primary context of a GPU. UCX works in the same one, as inference engines do. It stays current for the thread
/// that opened it, which is the one that calls NIXL.
pub struct Context {
    driver: Arc<Driver>,
    device: Device,
    handle: DeviceHandle,
    raw: ContextHandle,
    stream: Stream,
}

// SAFETY: the driver may be called from any thread, and every call here makes the context the current one first. The
// handles are only numbers to this process.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the primary context of `device` and makes it current.
    ///
    /// # Errors
    /// The driver refuses, for example because another process has the GPU for itself.
    pub fn open(driver: &Arc<Driver>, device: &Device) -> Result<Self> {
        let api = &driver.api;
        let handle = driver.handle(i32::try_from(device.ordinal).unwrap_or(i32::MAX))?;
        let mut raw = null_mut();
        // SAFETY: the pointer is to a local.
        api.check(unsafe { (api.retain_primary)(&raw mut raw, handle) }, || {
            format!("cuDevicePrimaryCtxRetain of {device}")
        })?;
        let mut context =
            Self { driver: Arc::clone(driver), device: device.clone(), handle, raw, stream: null_mut() };
        context.bind()?;
        // SAFETY: the pointer is to a field of a local.
        let code = unsafe { (api.create_stream)(&raw mut context.stream, NON_BLOCKING) };
        api.check(code, || format!("cuStreamCreate on {device}"))?;
        Ok(context)
    }

    /// The GPU.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Makes the context the current one of this thread.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context is held.
        self.check(unsafe { (self.driver.api.set_current)(self.raw) }, "cuCtxSetCurrent")
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    pub(crate) fn check(&self, code: i32, call: &str) -> Result<()> {
        self.driver.api.check(code, || format!("{call} on {}", self.device))
    }

    /// Waits for what was put on our stream, and for nothing else on the GPU.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the context.
        self.check(unsafe { (self.driver.api.wait_for_stream)(self.stream) }, "cuStreamSynchronize")
    }

    /// Copies `bytes` bytes from the start of `host` to the GPU. The caller has checked both ends.
    ///
    /// # Safety
    /// `to` and the bytes after it must be memory of this context; `host` must hold as many.
    pub(crate) unsafe fn to_device(&self, to: Address, host: &[AtomicU64], bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's word. The stream is waited for before `host` can go.
        let code = unsafe { (self.driver.api.to_device)(to, host.as_ptr().cast(), bytes, self.stream) };
        self.check(code, "cuMemcpyHtoDAsync")?;
        self.wait()
    }

    /// Has what a network card wrote seen by what is started after this. Most GPUs order such writes themselves.
    pub(crate) fn see_remote_writes(&self) -> Result<()> {
        match self.driver.api.flush_writes.filter(|_| self.device.flush_remote_writes) {
            Some(flush) => {
                self.bind()?;
                // SAFETY: the call takes two numbers, and works on the current context.
                self.check(unsafe { flush(FLUSH_CURRENT, FLUSH_TO_OWNER) }, "cuFlushGPUDirectRDMAWrites")
            }
            None => Ok(()),
        }
    }

    /// Copies from the GPU to the start of `host`.
    ///
    /// # Safety
    /// As [`Self::to_device`].
    pub(crate) unsafe fn to_host(&self, host: &[AtomicU64], from: Address, bytes: usize) -> Result<()> {
        self.bind()?;
        self.see_remote_writes()?;
        // SAFETY: the caller's word; atomics may be written through a shared reference.
        let code =
            unsafe { (self.driver.api.to_host)(host.as_ptr().cast_mut().cast(), from, bytes, self.stream) };
        self.check(code, "cuMemcpyDtoHAsync")?;
        self.wait()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let api = &self.driver.api;
        // SAFETY: stream and context are ours, and nothing is on its way: every call here waits for its own.
        unsafe {
            if !self.stream.is_null() {
                (api.destroy_stream)(self.stream);
            }
            (api.release_primary)(self.handle);
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device).finish_non_exhaustive()
    }
}
