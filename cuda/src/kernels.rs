//! Three kernels over ranges of GPU memory: fill with the pattern, poison, and count words that are wrong.
//!
//! They are PTX text that the driver compiles for its GPU. Ranges come as a table in GPU memory, cut into pieces that
//! keep all of a GPU busy however few and long, or many and short, the ranges are.

use std::ffi::CString;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nixl::Memory as _;

use crate::abi::{Function, Module};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{Alloc, GpuMemory};

const PTX: &str = include_str!("kernels.ptx");
/// Entries of the table, and of one launch.
const ENTRIES_MAX: usize = 1 << 15;
/// Words of an entry: address, position, number of words.
const ENTRY_WORDS: usize = 3;
/// Words of memory that one entry covers, at most.
const PIECE_WORDS: u64 = 1 << 12;
/// Threads of a block, and blocks of a launch.
const THREADS: u32 = 256;
const BLOCKS_MAX: u32 = 1 << 12;

/// A range of whole words, and where the data in it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes from the start of the memory; a multiple of 8.
    pub offset: u64,
    /// Position of the first word in the source.
    pub position: u64,
    /// Number of words.
    pub words: u64,
}

/// Two words that hold more than the pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Their positions in the source.
    pub at: [u64; 2],
    /// What is laid over the pattern there, by exclusive or.
    pub code: u64,
}

/// The kernels, compiled for one GPU.
pub struct Kernels {
    context: Arc<Context>,
    module: Module,
    fill: Function,
    poison: Function,
    verify: Function,
    /// The table, with a word for the count behind it.
    table: GpuMemory,
    staging: Box<[AtomicU64]>,
}

impl Kernels {
    /// Has the driver compile the kernels.
    ///
    /// # Errors
    /// The driver cannot, or the GPU has no memory for a table of 768 KiB.
    pub fn load(context: &Arc<Context>) -> Result<Self> {
        context.bind()?;
        let api = &context.driver().api;
        let text =
            CString::new(PTX).map_err(|_| Error::Incapable("the kernels hold a zero byte".to_owned()))?;
        let mut module = null_mut();
        // SAFETY: the image is text that ends in a zero byte, as the driver wants PTX.
        let code = unsafe { (api.load_module)(&raw mut module, text.as_ptr().cast()) };
        context.check(code, "cuModuleLoadData")?;
        let table = GpuMemory::new(context, (ENTRIES_MAX * ENTRY_WORDS + 1) * 8, Alloc::Malloc)?;
        let staging = (0..=ENTRIES_MAX * ENTRY_WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut kernels = Self {
            context: Arc::clone(context),
            module,
            fill: null_mut(),
            poison: null_mut(),
            verify: null_mut(),
            table,
            staging,
        };
        for (function, name) in [
            (&mut kernels.fill, c"kvwire_fill"),
            (&mut kernels.poison, c"kvwire_poison"),
            (&mut kernels.verify, c"kvwire_verify"),
        ] {
            // SAFETY: the module is loaded, and the name is a C string.
            let code = unsafe { (api.function)(function, module, name.as_ptr()) };
            context.check(code, "cuModuleGetFunction")?;
        }
        Ok(kernels)
    }

    /// Writes the pattern: the word at position `p` is mixed from `p + shift`.
    ///
    /// # Errors
    /// A piece leaves the memory, or the GPU failed.
    pub fn fill(&self, memory: &GpuMemory, pieces: &[Piece], shift: u64) -> Result<()> {
        self.run(memory, pieces, self.fill, &[shift], "kvwire_fill")
    }

    /// Writes `word` everywhere.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn poison(&self, memory: &GpuMemory, pieces: &[Piece], word: u64) -> Result<()> {
        self.run(memory, pieces, self.poison, &[word], "kvwire_poison")
    }

    /// Counts the words that do not hold the pattern.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn wrong_words(&self, memory: &GpuMemory, pieces: &[Piece], shift: u64, marks: Marks) -> Result<u64> {
        let count = ENTRIES_MAX * ENTRY_WORDS * 8;
        let word = [AtomicU64::new(0)];
        self.table.write(count, &word, 8)?;
        let out = self.table.at(count, 8)?;
        let parameters = [shift, marks.at[0], marks.at[1], marks.code, out];
        self.context.see_remote_writes()?;
        self.run(memory, pieces, self.verify, &parameters, "kvwire_verify")?;
        self.table.read(count, &word, 8)?;
        let [word] = word;
        Ok(word.into_inner())
    }

    fn run(
        &self,
        memory: &GpuMemory,
        pieces: &[Piece],
        function: Function,
        parameters: &[u64],
        name: &str,
    ) -> Result<()> {
        let mut entries = 0;
        for piece in pieces {
            let mut done = 0;
            while done < piece.words {
                let words = (piece.words - done).min(PIECE_WORDS);
                let offset = usize::try_from(piece.offset + done * 8).unwrap_or(usize::MAX);
                let address = memory.at(offset, words as usize * 8)?;
                let entry = [address, piece.position.wrapping_add(done), words];
                for (place, value) in self.staging[entries * ENTRY_WORDS..].iter().zip(entry) {
                    place.store(value, Ordering::Relaxed);
                }
                entries += 1;
                done += words;
                if entries == ENTRIES_MAX {
                    self.launch(entries, function, parameters, name)?;
                    entries = 0;
                }
            }
        }
        if entries > 0 { self.launch(entries, function, parameters, name) } else { Ok(()) }
    }

    fn launch(&self, entries: usize, function: Function, parameters: &[u64], name: &str) -> Result<()> {
        self.table.write(0, &self.staging, entries * ENTRY_WORDS * 8)?;
        let mut values = vec![self.table.address() as u64, entries as u64];
        values.extend_from_slice(parameters);
        let mut pointers: Vec<*mut std::ffi::c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        let blocks = u32::try_from(entries).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX);
        // SAFETY: the function takes as many 64-bit parameters as there are pointers to; every range of the table has
        // been checked against its memory.
        let code = unsafe {
            (self.context.driver().api.launch)(
                function,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                self.context.stream(),
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        self.context.check(code, name)?;
        self.context.wait()
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: nothing of the module runs any more: every launch was waited for.
            unsafe { (self.context.driver().api.unload_module)(self.module) };
        }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").field("device", &self.context.device().uuid).finish_non_exhaustive()
    }
}
