//! The one call of NVML that the wrapper gives no way to make: field values of a single link.
#![allow(unsafe_code, reason = "one C call, with a structure that is laid out as nvml.h does")]

use std::ffi::{OsStr, c_int, c_uint, c_void};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nvml_wrapper::Device;

/// Fields asked in one call, at most.
const FIELDS_MAX: usize = 128;

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency_us: i64,
    kind: c_uint,
    status: c_uint,
    value: u64,
}

type GetFieldValues = unsafe extern "C" fn(*mut c_void, c_int, *mut FieldValue) -> c_uint;

/// `nvmlDeviceGetFieldValues`, found beside the wrapper's own copy of it.
pub(super) struct Fields {
    call: GetFieldValues,
    /// Keeps the library mapped.
    _library: Library,
}

impl Fields {
    /// `None` when this NVML does not have the call.
    pub(super) fn open(path: &OsStr) -> Option<Self> {
        // SAFETY: the wrapper has just opened and initialised the same library; this only counts one more user.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        // SAFETY: the signature is that of nvml.h, unchanged since NVML 8.
        let call = *unsafe { library.get::<GetFieldValues>(b"nvmlDeviceGetFieldValues\0") }.ok()?;
        Some(Self { call, _library: library })
    }

    /// Values of fields, each with its scope (for NVLink: the number of the link). `None` for what this GPU does not
    /// tell, or tells in fractions.
    pub(super) fn read(&self, device: &Device<'_>, asked: &[(u32, u32)]) -> Vec<Option<u64>> {
        let mut values: Vec<FieldValue> = asked
            .iter()
            .take(FIELDS_MAX)
            .map(|&(field, scope)| FieldValue { field, scope, ..FieldValue::default() })
            .collect();
        let count = c_int::try_from(values.len()).unwrap_or(0);
        // SAFETY: the handle belongs to this library and lives as long as `device`; `values` has room for `count`
        // structures, and the call writes no more than that.
        let status = unsafe { (self.call)(device.handle().cast(), count, values.as_mut_ptr()) };
        if status != 0 {
            return vec![None; asked.len()];
        }
        values.iter().map(FieldValue::whole).collect()
    }
}

impl FieldValue {
    /// Values of `nvmlValueType_t`.
    const UNSIGNED_INT: c_uint = 1;
    const UNSIGNED_LONG: c_uint = 2;
    const UNSIGNED_LONG_LONG: c_uint = 3;
    const SIGNED_LONG_LONG: c_uint = 4;
    const SIGNED_INT: c_uint = 5;

    fn whole(&self) -> Option<u64> {
        if self.status != 0 {
            return None;
        }
        match self.kind {
            // The union's first four bytes: NVIDIA's platforms are little-endian.
            Self::UNSIGNED_INT => Some(self.value & u64::from(u32::MAX)),
            Self::SIGNED_INT => u64::try_from((self.value as u32).cast_signed()).ok(),
            Self::UNSIGNED_LONG | Self::UNSIGNED_LONG_LONG => Some(self.value),
            Self::SIGNED_LONG_LONG => u64::try_from(self.value.cast_signed()).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use c_header::{Claims, NVML};

    use super::*;

    #[test]
    fn structure_and_call_are_those_of_nvml_h() {
        let mut claims = Claims::of(&NVML);
        let name = "nvmlFieldValue_t";
        claims.size(name, size_of::<FieldValue>());
        for (field, offset, bytes) in [
            ("fieldId", offset_of!(FieldValue, field), 4),
            ("scopeId", offset_of!(FieldValue, scope), 4),
            ("timestamp", offset_of!(FieldValue, timestamp), 8),
            ("latencyUsec", offset_of!(FieldValue, latency_us), 8),
            ("valueType", offset_of!(FieldValue, kind), 4),
            ("nvmlReturn", offset_of!(FieldValue, status), 4),
            ("value", offset_of!(FieldValue, value), 8),
        ] {
            claims.field(name, field, offset, bytes);
        }
        for (name, value) in [
            ("UNSIGNED_INT", FieldValue::UNSIGNED_INT),
            ("UNSIGNED_LONG", FieldValue::UNSIGNED_LONG),
            ("UNSIGNED_LONG_LONG", FieldValue::UNSIGNED_LONG_LONG),
            ("SIGNED_LONG_LONG", FieldValue::SIGNED_LONG_LONG),
            ("SIGNED_INT", FieldValue::SIGNED_INT),
        ] {
            claims.number(&format!("NVML_VALUE_TYPE_{name}"), value.into());
        }
        claims.number("NVML_SUCCESS", 0);
        let call = "unsafe extern \"C\" fn(Handle, c_int, *mut FieldValue) -> Code";
        let types = [("Handle", "nvmlDevice_t"), ("FieldValue", name), ("Code", "nvmlReturn_t")];
        claims.function("nvmlDeviceGetFieldValues", call, &types);
        claims.hold();
    }

    #[test]
    fn only_whole_numbers_that_were_told_count() {
        let value = |kind, status, value| FieldValue { kind, status, value, ..FieldValue::default() }.whole();
        assert_eq!(value(3, 0, 1 << 40), Some(1 << 40));
        assert_eq!(value(1, 0, (7 << 32) | 5), Some(5));
        assert_eq!(value(5, 0, u64::from(u32::MAX)), None);
        assert_eq!(value(0, 0, 5), None, "a double");
        assert_eq!(value(3, 3, 5), None, "not supported");
    }
}
