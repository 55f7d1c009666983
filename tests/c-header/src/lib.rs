//! Holds numbers, layouts and signatures that are written down in Rust against the C header that they come from: a C
//! compiler judges them.
//!
//! ```no_run
//! use c_header::{CUDA, Claims};
//! let mut claims = Claims::of(&CUDA);
//! claims.number("CUDA_ERROR_OUT_OF_MEMORY", 2);
//! claims.size("CUuuid", 16);
//! claims.function("cuDeviceGet", "unsafe extern \"C\" fn(*mut c_int, c_int) -> Code", &[("Code", "CUresult")]);
//! claims.hold();
//! ```
#![expect(clippy::panic, clippy::expect_used, reason = "a helper of tests: what it cannot do fails the test")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A header, and where `make setup-tests` puts it.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    file: &'static str,
    folder: &'static str,
}

/// The CUDA driver's.
pub const CUDA: Header = Header { file: "cuda.h", folder: "cudart-12/nvidia/cuda_runtime/include" };
/// That of NVIDIA's management library.
pub const NVML: Header = Header { file: "nvml.h", folder: "nvml-12/nvidia/nvml_dev/include" };

/// What is fetched lies there, from the root of the repository.
const CACHE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache");
/// Rust's names of C types; a test adds its own.
const TYPES: [(&str, &str); 6] = [
    ("c_char", "char"),
    ("c_int", "int"),
    ("c_uint", "unsigned int"),
    ("c_ulonglong", "unsigned long long"),
    ("c_void", "void"),
    ("usize", "size_t"),
];

/// A file that `make setup-tests` fetches.
///
/// # Panics
/// It is not there.
pub fn fetched(path: &str) -> PathBuf {
    let found = Path::new(CACHE).join(path);
    assert!(found.is_file(), "{} is missing; run: make setup-tests", found.display());
    found
}

/// Claims about one header.
#[derive(Debug)]
pub struct Claims {
    header: Header,
    text: String,
}

impl Claims {
    /// None yet.
    pub fn of(header: &Header) -> Self {
        Self { header: *header, text: format!("#include <stddef.h>\n#include \"{}\"\n", header.file) }
    }

    fn claim(&mut self, expression: &str) {
        self.text.push_str(&format!("_Static_assert({expression}, \"as in Rust\");\n"));
    }

    /// A constant, a macro or a value of an enumeration.
    pub fn number(&mut self, name: &str, value: i64) {
        self.claim(&format!("{name} == {value}"));
    }

    /// Bytes of a type.
    pub fn size(&mut self, name: &str, bytes: usize) {
        self.claim(&format!("sizeof({name}) == {bytes}"));
    }

    /// Where a field lies in a structure, and how many bytes it has.
    pub fn field(&mut self, structure: &str, field: &str, offset: usize, bytes: usize) {
        self.claim(&format!("offsetof({structure}, {field}) == {offset}"));
        self.claim(&format!("sizeof((({structure} *)0)->{field}) == {bytes}"));
    }

    /// A function, by its Rust type as the compiler spells it; `types` are C's names for Rust's.
    ///
    /// # Panics
    /// The type is not spelled like one of a C function, or holds a name that is not known.
    pub fn function(&mut self, name: &str, rust: &str, types: &[(&str, &str)]) {
        let text = rust.split_whitespace().collect::<Vec<_>>().join(" ");
        let inner = text.strip_prefix("unsafe extern \"C\" fn(").and_then(|rest| rest.split_once(") -> "));
        let (parameters, result) = inner.unwrap_or_else(|| panic!("{name}: `{text}` is no C function"));
        let parameters: Vec<String> = parameters
            .trim_end_matches(", ")
            .trim_end_matches(',')
            .split(", ")
            .map(|p| c_type(p, types))
            .collect();
        let signature = format!("{} ({})", c_type(result, types), parameters.join(", "));
        self.claim(&format!("__builtin_types_compatible_p(__typeof__({name}), {signature})"));
    }

    /// Asks the compiler.
    ///
    /// # Panics
    /// A claim does not hold, or the header or the compiler is missing.
    pub fn hold(&self) {
        let header = fetched(&format!("{}/{}", self.header.folder, self.header.file));
        let mut compiler = Command::new("cc");
        compiler
            .args(["-std=gnu11", "-Werror", "-fsyntax-only", "-x", "c", "-", "-I"])
            .arg(header.parent().expect("a folder"));
        compiler.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = compiler.spawn().expect("cc is there; run: scripts/need cc");
        child.stdin.take().expect("a pipe").write_all(self.text.as_bytes()).expect("cc reads");
        let output = child.wait_with_output().expect("cc ends");
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = self.text.lines().collect();
        let wrong = said
            .lines()
            .filter_map(|line| line.strip_prefix("<stdin>:")?.split(':').next()?.parse::<usize>().ok());
        let wrong: Vec<&str> = wrong.filter_map(|number| lines.get(number - 1).copied()).collect();
        assert!(
            output.status.success(),
            "{} says otherwise of:\n{}\n\n{said}",
            self.header.file,
            wrong.join("\n")
        );
    }
}

/// `*const c_char` is `const char *`.
fn c_type(rust: &str, types: &[(&str, &str)]) -> String {
    if let Some(inner) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(inner, types));
    }
    if let Some(inner) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(inner, types));
    }
    let known = types.iter().chain(&TYPES).find(|(name, _)| *name == rust);
    known.unwrap_or_else(|| panic!("`{rust}` has no name in C")).1.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(make: impl FnOnce(&mut Claims)) -> String {
        let mut claims = Claims::of(&CUDA);
        make(&mut claims);
        let held = std::panic::catch_unwind(|| claims.hold());
        held.err().and_then(|why| why.downcast_ref::<String>().cloned()).unwrap_or_default()
    }

    #[test]
    fn what_the_header_says_otherwise_is_named() {
        assert_eq!(said(|claims| claims.number("CUDA_ERROR_OUT_OF_MEMORY", 2)), "");
        let number = said(|claims| claims.number("CUDA_ERROR_OUT_OF_MEMORY", 3));
        assert!(number.contains("CUDA_ERROR_OUT_OF_MEMORY == 3"), "{number}");
        assert!(said(|claims| claims.size("CUuuid", 8)).contains("sizeof(CUuuid) == 8"));
        assert!(
            said(|claims| claims.field("CUmemLocation", "id", 0, 4))
                .contains("offsetof(CUmemLocation, id) == 0")
        );
        let types = [("Code", "CUresult")];
        let call = |rust: &str| said(|claims| claims.function("cuDeviceGetCount", rust, &types));
        assert_eq!(call("unsafe extern \"C\" fn(*mut c_int) -> Code"), "");
        assert!(call("unsafe extern \"C\" fn(*mut usize) -> Code").contains("cuDeviceGetCount"));
        assert!(call("unsafe extern \"C\" fn(*mut c_int, c_int) -> Code").contains("cuDeviceGetCount"));
        assert!(said(|claims| claims.number("NO_SUCH_NAME", 1)).contains("NO_SUCH_NAME"));
    }
}
