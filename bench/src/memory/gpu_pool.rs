//! A pool on a GPU: made ready and checked there by kernels, else through a copy in host memory.
//!
//! The copy is also the judge of the kernels. Before they are used they must give what the processor gives, and what
//! they find wrong is looked at again in a copy, which gives the diagnosis.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use cuda::{GpuMemory, Kernels, Marks, Piece};
use nixl::{HostMemory, Memory as _, Populate};

use super::PoolError;
use super::pattern::{
    Block, CheckError, Expected, FarMemory, Key, Mismatch, MismatchKind, Region, Span, WORD_BYTES, after,
    fill, poison, poison_word, verify,
};

/// Words of the pool on which the kernels are tried before they are used.
const TRIAL_WORDS: usize = 4099;
/// Keys of the trial.
const TRIAL_KEYS: [Key; 2] = [Key::new(0x7472_6961_6c21, 1), Key::new(u64::MAX, 2)];

/// Memory of a GPU, with what makes it ready and checks it.
#[derive(Debug)]
pub(crate) struct GpuPool {
    memory: Arc<GpuMemory>,
    /// As large as the pool; the pages that are used take host memory.
    shadow: HostMemory,
    kernels: Result<Kernels, String>,
}

impl GpuPool {
    /// A pool over `memory`. Kernels that do not load, or that do not give what the processor gives, are not used.
    ///
    /// # Errors
    /// The host has no address space for the copy, or the GPU failed.
    pub(crate) fn new(memory: Arc<GpuMemory>) -> Result<Self, String> {
        let shadow = HostMemory::new(memory.len(), Populate::OnTouch).map_err(|e| e.to_string())?;
        let kernels = Kernels::load(memory.context()).map_err(|e| e.to_string());
        let mut pool = Self { memory, shadow, kernels };
        if pool.kernels.is_ok()
            && let Err(why) = pool.try_kernels()
        {
            pool.kernels = Err(why);
        }
        Ok(pool)
    }

    /// The memory itself, for NIXL.
    pub(crate) fn memory(&self) -> &Arc<GpuMemory> {
        &self.memory
    }

    /// Why no kernels are used; `None` when they are.
    pub(crate) fn without_kernels(&self) -> Option<&str> {
        self.kernels.as_ref().err().map(String::as_str)
    }

    pub(crate) fn region(&self) -> Region<'_> {
        Region::Far(self, 0, self.words())
    }

    /// The copy from a byte on.
    fn shadow_from(&self, base: u64) -> &[AtomicU64] {
        after(self.shadow.words(), base)
    }

    fn words(&self) -> usize {
        self.memory.len() / WORD_BYTES as usize
    }

    pub(crate) fn fill(&self, base: u64, ranges: &[(u64, u64)], key: Key) -> Result<(), PoolError> {
        let by_kernel = |kernels: &Kernels, pieces: &[Piece]| kernels.fill(&self.memory, pieces, key.shift());
        self.make_ready(base, ranges, by_kernel, |span, offset| fill(span, key, offset))
    }

    pub(crate) fn poison(&self, base: u64, ranges: &[(u64, u64)], salt: u32) -> Result<(), PoolError> {
        let by_kernel =
            |kernels: &Kernels, pieces: &[Piece]| kernels.poison(&self.memory, pieces, poison_word(salt));
        self.make_ready(base, ranges, by_kernel, |span, _| {
            poison(span, salt);
            Ok(())
        })
    }

    /// Whole words by a kernel where there is one, the rest of each range through the copy.
    fn make_ready(
        &self,
        base: u64,
        ranges: &[(u64, u64)],
        by_kernel: impl Fn(&Kernels, &[Piece]) -> cuda::Result<()>,
        by_host: impl Fn(Span<'_>, u64) -> Result<(), super::pattern::SpanError>,
    ) -> Result<(), PoolError> {
        for &(offset, bytes) in ranges {
            // Refuses what does not fit before anything is written.
            Span::of(self.shadow_from(base), offset, bytes)?;
        }
        let mut rest = Vec::new();
        match &self.kernels {
            Ok(kernels) => {
                let pieces: Vec<Piece> = ranges
                    .iter()
                    .map(|&(offset, bytes)| Piece {
                        offset: base + offset,
                        position: offset / WORD_BYTES,
                        words: bytes / WORD_BYTES,
                    })
                    .collect();
                by_kernel(kernels, &pieces).map_err(gpu_failed)?;
                let tail = |&(offset, bytes): &(u64, u64)| {
                    let whole = bytes / WORD_BYTES * WORD_BYTES;
                    (bytes > whole).then_some((offset + whole, bytes - whole))
                };
                rest.extend(ranges.iter().filter_map(tail));
            }
            Err(_) => rest.extend_from_slice(ranges),
        }
        for (offset, bytes) in rest {
            by_host(Span::of(self.shadow_from(base), offset, bytes)?, offset)?;
            let host = &self.shadow_from(base)[word_of(offset)..];
            self.memory.write((base + offset) as usize, host, bytes as usize).map_err(gpu_failed)?;
        }
        Ok(())
    }

    /// Compares on the GPU; only what is wrong there is copied.
    pub(crate) fn verify(&self, base: u64, blocks: &[Block], expected: &Expected) -> Result<u64, CheckError> {
        let whole_words = blocks.iter().all(|block| block.bytes.is_multiple_of(WORD_BYTES));
        let Ok(kernels) = &self.kernels else { return self.verify_copy(base, blocks, expected) };
        if !whole_words {
            return self.verify_copy(base, blocks, expected);
        }
        for block in blocks {
            Span::of(self.shadow_from(base), block.destination, block.bytes)?;
        }
        let wrong = self.wrong_words(kernels, base, blocks, expected)?;
        if wrong == 0 {
            return Ok(blocks.iter().map(|block| block.bytes).sum());
        }
        let copied = self.verify_copy(base, blocks, expected)?;
        // The copy is right: either the data came after the first look, or the kernel counts wrong.
        match (self.wrong_words(kernels, base, blocks, expected)?, blocks.first()) {
            (0, Some(first)) => Err(CheckError::Data(Box::new(late(first, wrong, copied, expected)))),
            (again, _) => Err(CheckError::Memory(format!(
                "the GPU's kernel finds {again} wrong words where a copy in host memory is right; its figures cannot be trusted"
            ))),
        }
    }

    fn wrong_words(
        &self,
        kernels: &Kernels,
        base: u64,
        blocks: &[Block],
        expected: &Expected,
    ) -> Result<u64, CheckError> {
        let pieces: Vec<Piece> = blocks
            .iter()
            .map(|block| Piece {
                offset: base + block.destination,
                position: block.source / WORD_BYTES,
                words: block.bytes / WORD_BYTES,
            })
            .collect();
        let marks = expected.stamp.map_or(Marks { at: [u64::MAX; 2], code: 0 }, |stamp| Marks {
            at: [stamp.head, stamp.tail],
            code: stamp.bits(),
        });
        kernels
            .wrong_words(&self.memory, &pieces, expected.key.shift(), marks)
            .map_err(|error| CheckError::Memory(error.to_string()))
    }

    /// Copies everything from the first to the last byte of the blocks, and compares the copy.
    fn verify_copy(&self, base: u64, blocks: &[Block], expected: &Expected) -> Result<u64, CheckError> {
        for block in blocks {
            Span::of(self.shadow_from(base), block.destination, block.bytes)?;
        }
        let begin = blocks.iter().map(|block| block.destination).min().unwrap_or(0);
        let end = blocks.iter().map(|block| block.destination + block.bytes).max().unwrap_or(0);
        let host = &self.shadow_from(base)[word_of(begin)..];
        self.memory
            .read((base + begin) as usize, host, end.saturating_sub(begin) as usize)
            .map_err(|error| CheckError::Memory(error.to_string()))?;
        verify(self.shadow_from(base), blocks, expected)
    }

    /// Holds the kernels against the processor, on the first words of the pool.
    fn try_kernels(&self) -> Result<(), String> {
        let Ok(kernels) = &self.kernels else { return Ok(()) };
        let words = TRIAL_WORDS.min(self.words());
        let host = &self.shadow.words()[..words];
        let piece = |position| [Piece { offset: 0, position, words: words as u64 }];
        let whole = |source| [Block { source, destination: 0, bytes: words as u64 * WORD_BYTES }];
        let failed = |error: cuda::Error| format!("the GPU's kernels failed in their trial: {error}");
        let differs =
            |what: &str| Err(format!("the GPU's kernel that {what} does not give what the processor gives"));
        for (key, position) in TRIAL_KEYS.into_iter().zip([0, 1 << 30]) {
            let expected = Expected { key, poison_salt: 0, stamp: None };
            kernels.fill(&self.memory, &piece(position), key.shift()).map_err(failed)?;
            self.memory.read(0, host, words * 8).map_err(failed)?;
            if verify(host, &whole(position * WORD_BYTES), &expected).is_err() {
                return differs("fills");
            }
            let wrong = || {
                kernels.wrong_words(
                    &self.memory,
                    &piece(position),
                    key.shift(),
                    Marks { at: [u64::MAX; 2], code: 0 },
                )
            };
            if wrong().map_err(failed)? != 0 {
                return differs("compares");
            }
            // It must also find what is wrong: the last word, by one bit.
            let last = [AtomicU64::new(host[words - 1].load(Relaxed) ^ 1)];
            self.memory.write((words - 1) * 8, &last, 8).map_err(failed)?;
            if wrong().map_err(failed)? != 1 {
                return differs("compares");
            }
        }
        kernels.poison(&self.memory, &piece(0), poison_word(7)).map_err(failed)?;
        self.memory.read(0, host, words * 8).map_err(failed)?;
        if host.iter().any(|word| u64::from_le(word.load(Relaxed)) != poison_word(7)) {
            return differs("poisons");
        }
        Ok(())
    }
}

impl FarMemory for GpuPool {
    fn load(&self, index: usize) -> u64 {
        let word = [AtomicU64::new(0)];
        match self.memory.read(index * 8, &word, 8) {
            Ok(()) => word[0].load(Relaxed),
            Err(_) => 0,
        }
    }

    fn store(&self, index: usize, word: u64) {
        // A GPU that failed also fails the check that follows, and says why.
        let _ = self.memory.write(index * 8, &[AtomicU64::new(word)], 8);
    }
}

/// What was wrong at a first look and right at the second.
fn late(first: &Block, wrong: u64, checked: u64, expected: &Expected) -> Mismatch {
    let word = expected.key.word(first.source / WORD_BYTES);
    Mismatch {
        byte_offset: first.destination,
        descriptor: None,
        expected: word,
        found: word,
        checked_bytes: checked,
        wrong_bytes: wrong * WORD_BYTES,
        kind: MismatchKind::Late,
        place: None,
        belongs_to: None,
    }
}

fn word_of(offset: u64) -> usize {
    (offset / WORD_BYTES) as usize
}

#[expect(clippy::needless_pass_by_value, reason = "an adapter for `map_err`")]
fn gpu_failed(error: cuda::Error) -> PoolError {
    PoolError::Gpu(error.to_string())
}
