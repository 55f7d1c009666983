//! GPU memory against the fake driver: real bytes in what it takes for GPUs, and its kernels interpreted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda::{Alloc, Context, Driver, Export, GpuMemory, Kernels, Marks, Piece};
use nixl::Memory as _;

const GPUS: &str =
    "gpu pci=0000:17:00.0 links=2\ngpu pci=0000:65:00.0 mig=1 vmm=0 fabric=0 dma_buf=0 memory=4194304\n";
const WORDS: usize = 20_000;
const SHIFT: u64 = 0x1234_5678_9abc_def0;

/// The pattern, written down apart from the code under test.
fn word(position: u64) -> u64 {
    let x = position.wrapping_add(SHIFT).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 32)
}

fn content(memory: &GpuMemory) -> Vec<u64> {
    let host: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    memory.read(0, &host, WORDS * 8).unwrap();
    host.into_iter().map(AtomicU64::into_inner).collect()
}

/// One test, since the environment that chooses the fakes belongs to the whole process.
#[test]
fn memory_of_a_gpu_holds_what_copies_and_kernels_put_there() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gpus"), GPUS).unwrap();
    let target = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let library = [target.join("libfake_cuda.so"), target.join("deps/libfake_cuda.so")];
    let library =
        library.iter().find(|path| path.is_file()).expect("cargo build --workspace builds the fake driver");
    // SAFETY: no other thread of this process reads the environment: this is its only test.
    unsafe {
        std::env::set_var(cuda::VARIABLE, library);
        std::env::set_var("KVWIRE_FAKE_GPUS", folder.path());
    }
    let driver = Driver::open().unwrap();
    let devices = driver.devices().unwrap();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[0].uuid, "GPU-66616b65-0000-0000-0000-000000000000");
    assert_eq!(
        (devices[0].pci.as_str(), devices[0].capability, &devices[0].peers),
        ("0000:17:00.0", (9, 0), &vec![1])
    );
    assert!(devices[1].is_instance() && devices[1].uuid.starts_with("MIG-"), "{:?}", devices[1]);
    assert_eq!(devices[1].gpu_uuid, "GPU-66616b65-0000-0000-0000-000000000001");

    let context = Arc::new(Context::open(&driver, &devices[0]).unwrap());
    for (alloc, means) in [
        (Alloc::Malloc, "legacy IPC handle"),
        (Alloc::Vmm, "file descriptor"),
        (Alloc::Fabric, "fabric handle"),
    ] {
        let memory = GpuMemory::new(&context, 3 << 20, alloc).unwrap();
        assert_eq!((memory.len(), memory.device(), memory.kind()), (3 << 20, 0, nixl::MemoryKind::Vram));
        let exports = memory.exports();
        assert_eq!(
            (&exports.dma_buf, &exports.process, exports.means.as_str()),
            (&Export::Works, &Export::Works, means)
        );
    }
    // The driver exports whole pages alone.
    let small = GpuMemory::new(&context, 100, Alloc::Malloc).unwrap();
    assert_eq!(small.exports().dma_buf, Export::Works);
    let memory = GpuMemory::new(&context, WORDS * 8, Alloc::Malloc).unwrap();
    kernels(&context, &memory);

    let out = GpuMemory::new(&context, 2 << 30, Alloc::Vmm).unwrap_err().to_string();
    assert!(out.contains("CUDA_ERROR_OUT_OF_MEMORY") && out.contains("--gpu"), "{out}");
    let host = [AtomicU64::new(0)];
    assert!(memory.write(WORDS * 8 - 7, &host, 8).is_err());
    assert!(memory.read(0, &host, 16).is_err());

    let other = Arc::new(Context::open(&driver, &devices[1]).unwrap());
    let poor = GpuMemory::new(&other, 1 << 20, Alloc::Malloc).unwrap();
    assert!(poor.exports().dma_buf.to_string().contains("no dma-buf"));
    let refused = GpuMemory::new(&other, 1 << 20, Alloc::Vmm).unwrap_err().to_string();
    assert!(refused.contains("no virtual memory management"), "{refused}");
}

fn kernels(context: &Arc<Context>, memory: &GpuMemory) {
    let kernels = Kernels::load(context).unwrap();
    let all = [Piece { offset: 0, position: 0, words: WORDS as u64 }];
    kernels.poison(memory, &all, 0xdead).unwrap();
    assert!(content(memory).iter().all(|word| *word == 0xdead));
    // Two pieces, the second with data of another place; what lies between them stays.
    let pieces = [
        Piece { offset: 0, position: 0, words: 9000 },
        Piece { offset: 10_000 * 8, position: 500_000, words: 7 },
    ];
    kernels.fill(memory, &pieces, SHIFT).unwrap();
    let found = content(memory);
    assert!((0..9000).all(|place| found[place] == word(place as u64)));
    assert!((0..7).all(|place| found[10_000 + place] == word(500_000 + place as u64)));
    assert!(found[9000] == 0xdead && found[9999] == 0xdead && found[10_007] == 0xdead);
    let wrong = |marks| kernels.wrong_words(memory, &pieces, SHIFT, marks).unwrap();
    let none = Marks { at: [u64::MAX; 2], code: 0 };
    assert_eq!(wrong(none), 0);
    // One bit of one word, in the last piece of a launch's table.
    let host = [AtomicU64::new(word(500_003) ^ (1 << 40))];
    memory.write(10_003 * 8, &host, 8).unwrap();
    assert_eq!(wrong(none), 1);
    // A mark at that very position makes the same word the expected one, and the other marked one wrong.
    assert_eq!(wrong(Marks { at: [500_003, 500_003], code: 1 << 40 }), 0);
    assert_eq!(wrong(Marks { at: [500_003, 17], code: 1 << 40 }), 1);
    host[0].store(word(17) ^ (1 << 40), Ordering::Relaxed);
    memory.write(17 * 8, &host, 8).unwrap();
    assert_eq!(wrong(Marks { at: [500_003, 17], code: 1 << 40 }), 0);
    assert!(kernels.fill(memory, &[Piece { offset: 8, position: 0, words: WORDS as u64 }], 0).is_err());
}
