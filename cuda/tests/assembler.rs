//! NVIDIA's own assembler over the kernels: what the driver compiles at run time, for each generation of GPU that they are for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed test panics")]

use std::path::Path;
use std::process::Command;

/// Turing, Ampere (data centre, others), Ada, Hopper, Blackwell (data centre, others).
const GENERATIONS: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

fn assembled(source: &Path, generation: u32) -> Result<String, String> {
    let assembler = c_header::fetched("nvcc-12/nvidia/cuda_nvcc/bin/ptxas");
    let output = Command::new(assembler)
        .args(["--warning-as-error", "--verbose", "--output-file", "/dev/null"])
        .arg(format!("--gpu-name=sm_{generation}"))
        .arg(source)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}

#[test]
fn nvidias_assembler_takes_the_kernels_for_every_generation() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels.ptx");
    for generation in GENERATIONS {
        let said = assembled(&source, generation).unwrap_or_else(|said| panic!("sm_{generation}: {said}"));
        for kernel in ["kvwire_fill", "kvwire_poison", "kvwire_verify"] {
            assert!(said.contains(kernel), "sm_{generation} has no {kernel}: {said}");
        }
        assert!(
            !said
                .lines()
                .any(|line| line.contains("spill")
                    && !line.contains("0 bytes spill stores, 0 bytes spill loads")),
            "{said}"
        );
    }
    // It can refuse: an instruction that there is not, and a GPU older than the kernels are for.
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.ptx");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&broken, text.replacen("xor.b64", "xor.u64", 1)).unwrap();
    assert!(assembled(&broken, 90).is_err());
    assert!(assembled(&source, 70).is_err());
}
