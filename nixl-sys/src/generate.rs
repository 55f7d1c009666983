//! Generates the bindings from our header. Only with the feature `bindgen`.

use std::path::Path;

use crate::header;

/// Where the header stands in the source tree.
const HEADER_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/nixl_capi.h");

/// Where the generated file stands in the source tree.
pub const BINDINGS_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bindings.rs");

/// Why no bindings could be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// libclang refused the header.
    #[error(transparent)]
    Bindgen(#[from] bindgen::BindgenError),
}

/// The text of `src/bindings.rs` for the header as it is now.
///
/// The header's fingerprint is recorded in it, so that a stale file is noticed where libclang is absent.
///
/// # Errors
/// When the header cannot be read or is not valid C.
pub fn bindings() -> Result<String, GenerateError> {
    let fingerprint = header::fingerprint(&std::fs::read(Path::new(HEADER_PATH))?);
    let generated = bindgen::Builder::default()
        .header(HEADER_PATH)
        .allowlist_item("(nixl_capi|NIXL_CAPI)_.*")
        .default_macro_constant_type(bindgen::MacroTypeVariation::Signed)
        .layout_tests(true)
        .derive_default(true)
        .formatter(bindgen::Formatter::Prettyplease)
        .disable_header_comment()
        .raw_line("// Generated from include/nixl_capi.h by `make bindings`. Do not edit.")
        .raw_line("")
        .raw_line("/// Fingerprint of the header that this file was generated from.")
        .raw_line(format!("pub const HEADER_FINGERPRINT: u64 = {fingerprint:#018x};"))
        .generate()?;
    Ok(generated.to_string())
}
