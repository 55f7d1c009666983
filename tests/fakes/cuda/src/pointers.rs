//! What a pointer points to.

use std::ffi::{c_int, c_uint, c_void};

use crate::contexts::handle;
use crate::heap::{Block, Kind, block_of};
use crate::{Code, INVALID_VALUE, NOT_SUPPORTED, call, give};

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: c_uint = 2;

/// Writes one attribute of a block; of what is no GPU's memory, zero.
///
/// # Safety
/// `out` must have room for the type that cuda.h names for the attribute.
unsafe fn tell(attribute: c_int, found: Option<(usize, Block)>, out: *mut c_void) -> Result<(), Code> {
    let block = found.map(|(_, block)| block);
    let handles = match block.map(|block| block.kind) {
        Some(Kind::Mapped(handles)) => handles,
        _ => 0,
    };
    // SAFETY: the caller's word.
    unsafe {
        match attribute {
            1 => give(out.cast(), block.map_or(std::ptr::null_mut(), |block| handle(block.gpu))),
            2 => give(out.cast(), block.map_or(0, |_| DEVICE)),
            7 => give(out.cast(), block.map_or(0, |block| block.id)),
            8 => give(out.cast(), 0_u32),
            9 => give(out.cast(), block.map_or(-2, |block| c_int::try_from(block.gpu).unwrap_or(c_int::MAX))),
            10 => give(out.cast(), u32::from(block.is_some_and(|block| block.kind == Kind::Plain))),
            11 => give(out.cast(), found.map_or(0, |(start, _)| start as u64)),
            12 => give(out.cast(), block.map_or(0, |block| block.bytes)),
            14 => give(out.cast(), u64::from(handles.unsigned_abs())),
            17 => give(out.cast(), std::ptr::null_mut::<c_void>()),
            _ => Err(NOT_SUPPORTED),
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuPointerGetAttribute(
    out: *mut c_void,
    attribute: c_int,
    address: u64,
) -> Code {
    // SAFETY: the caller's word, here and below.
    call("cuPointerGetAttribute", || unsafe { tell(attribute, Some(block_of(address, 0)?), out) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    out: *mut *mut c_void,
    address: u64,
) -> Code {
    call("cuPointerGetAttributes", || {
        for index in 0..count as usize {
            // SAFETY: as above.
            unsafe { tell(*attributes.add(index), block_of(address, 0).ok(), *out.add(index))? };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuPointerSetAttribute(
    _value: *const c_void,
    _attribute: c_int,
    address: u64,
) -> Code {
    call("cuPointerSetAttribute", || block_of(address, 0).map(|_| ()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAddressRange_v2(
    start: *mut u64,
    bytes: *mut usize,
    address: u64,
) -> Code {
    call("cuMemGetAddressRange_v2", || {
        let (at, block) = block_of(address, 0)?;
        // SAFETY: as above; cuda.h lets either be null.
        unsafe {
            if !start.is_null() {
                give(start, at as u64)?;
            }
            if bytes.is_null() { Ok(()) } else { give(bytes, block.bytes) }
        }
    })
}

/// Asked about managed memory, which there is none of.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRangeGetAttribute(
    _out: *mut c_void,
    _bytes: usize,
    _attribute: c_int,
    _address: u64,
    _count: usize,
) -> Code {
    INVALID_VALUE
}
