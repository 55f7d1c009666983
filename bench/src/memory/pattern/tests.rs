//! Real damage to real buffers: each kind is found, located and named.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;

use super::stamp::head_tail;
use super::*;

const SALT: u32 = 11;

fn key() -> Key {
    Key::new(7, 3)
}

fn expected() -> Expected {
    Expected { key: key(), poison_salt: SALT, stamp: None }
}

fn region(bytes: u64) -> Vec<AtomicU64> {
    (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect()
}

fn get_byte(words: &[AtomicU64], at: u64) -> u8 {
    words[(at / 8) as usize].load(Relaxed).to_ne_bytes()[(at % 8) as usize]
}

fn set_byte(words: &[AtomicU64], at: u64, byte: u8) {
    let word = &words[(at / 8) as usize];
    let mut bytes = word.load(Relaxed).to_ne_bytes();
    bytes[(at % 8) as usize] = byte;
    word.store(u64::from_ne_bytes(bytes), Relaxed);
}

/// What a perfect transport does, up to `limit` bytes of each block.
fn transfer_up_to(source: &[AtomicU64], destination: &[AtomicU64], blocks: &[Block], limit: u64) {
    for block in blocks {
        for at in 0..block.bytes.min(limit) {
            set_byte(destination, block.destination + at, get_byte(source, block.source + at));
        }
    }
}

fn transfer(source: &[AtomicU64], destination: &[AtomicU64], blocks: &[Block]) {
    transfer_up_to(source, destination, blocks, u64::MAX);
}

fn filled(bytes: u64, key: Key) -> Vec<AtomicU64> {
    let words = region(bytes);
    fill(Span::of(&words, 0, bytes).unwrap(), key, 0).unwrap();
    words
}

fn poisoned(bytes: u64) -> Vec<AtomicU64> {
    let words = region(bytes);
    poison(Span::of(&words, 0, words.len() as u64 * 8).unwrap(), SALT);
    words
}

fn block(source: u64, destination: u64, bytes: u64) -> Block {
    Block { source, destination, bytes }
}

/// Three scattered blocks: the last one ends inside a word.
fn scattered() -> Vec<Block> {
    vec![block(64, 512, 256), block(1024, 0, 256), block(2048, 1024, 101)]
}

/// A destination of `blocks` after a perfect transfer.
fn delivered(blocks: &[Block]) -> Vec<AtomicU64> {
    let destination = poisoned(4096);
    transfer(&filled(4096, key()), &destination, blocks);
    destination
}

fn mismatch(words: &[AtomicU64], blocks: &[Block], expected: &Expected) -> Mismatch {
    match verify(words, blocks, expected) {
        Err(CheckError::Data(mismatch)) => *mismatch,
        other => panic!("expected a mismatch, got {other:?}"),
    }
}

#[test]
fn what_was_sent_passes() {
    let blocks = scattered();
    assert_eq!(verify(&delivered(&blocks), &blocks, &expected()), Ok(613));
}

#[test]
fn nothing_outside_of_a_range_is_touched() {
    let words = region(64);
    let span = Span::of(&words, 8, 13).unwrap();
    fill(span, key(), 8).unwrap();
    assert_eq!(words[0].load(Relaxed), 0);
    for at in 21..64 {
        assert_eq!(get_byte(&words, at), 0, "byte {at}");
    }
    assert_eq!(verify(&words, &[block(8, 8, 13)], &expected()), Ok(13));
    poison(span, SALT);
    assert!((21..64).all(|at| get_byte(&words, at) == 0));
    assert!((8..21).all(|at| get_byte(&words, at) == poison_word(SALT).to_le_bytes()[(at % 8) as usize]));
}

#[test]
fn a_window_continues_the_pattern_of_the_whole() {
    let whole = filled(256, key());
    let window = region(128);
    fill(Span::of(&window, 0, 128).unwrap(), key(), 128).unwrap();
    let bits = |words: &[AtomicU64]| words.iter().map(|w| w.load(Relaxed)).collect::<Vec<_>>();
    assert_eq!(bits(&whole[16..]), bits(&window));
}

#[test]
fn a_layout_that_cannot_be_checked_says_so() {
    let words = region(64);
    let check = |b| verify(&words, &[b], &expected()).unwrap_err();
    assert_eq!(check(block(0, 4, 8)), CheckError::Layout(SpanError::Unaligned(4)));
    assert_eq!(check(block(3, 0, 8)), CheckError::Layout(SpanError::Unaligned(3)));
    let outside = |start, bytes| CheckError::Layout(SpanError::OutOfRegion { start, bytes, region: 64 });
    assert_eq!(check(block(0, 8, 64)), outside(8, 64));
    assert_eq!(check(block(0, u64::MAX - 7, 64)), outside(u64::MAX - 7, 64));
    assert_eq!(check(block(0, 0, u64::MAX)), outside(0, u64::MAX));
}

#[test]
fn one_turned_bit_is_found_and_counted() {
    let blocks = scattered();
    let words = delivered(&blocks);
    set_byte(&words, 37, get_byte(&words, 37) ^ 0x10);
    let found = mismatch(&words, &blocks, &expected());
    assert_eq!(found.byte_offset, 37);
    assert_eq!(found.descriptor, Some(Place { index: 1, offset: 37 }));
    assert_eq!((found.wrong_bytes, found.checked_bytes), (1, 613));
    assert_eq!(found.kind, MismatchKind::BitFlip { bits: 1 });
    assert_eq!(found.expected ^ found.found, 0x10 << 40);
    let text = found.to_string();
    assert!(text.starts_with("wrong data from byte 37 (descriptor 1, byte 37 of it): one bit"), "{text}");
}

#[test]
fn a_stale_buffer_names_its_epoch() {
    let blocks = scattered();
    let words = poisoned(4096);
    transfer(&filled(4096, key().with_epoch(1)), &words, &blocks);
    let found = mismatch(&words, &blocks, &expected());
    assert_eq!(found.byte_offset, 512);
    assert_eq!(found.kind, MismatchKind::Stale { epoch: 1 });
    assert!(found.to_string().contains("old data"), "{found}");
}

#[test]
fn two_swapped_blocks_say_where_they_belong() {
    let blocks = scattered();
    let words = poisoned(4096);
    let swapped = [block(1024, 512, 256), block(64, 0, 256), blocks[2]];
    transfer(&filled(4096, key()), &words, &swapped);
    let found = mismatch(&words, &blocks, &expected());
    assert_eq!(found.byte_offset, 512);
    assert_eq!(
        found.kind,
        MismatchKind::Elsewhere {
            source_offset: 1024,
            descriptor: Some(Place { index: 1, offset: 0 }),
            stale_epoch: None
        }
    );
    assert!(found.wrong_bytes > 490, "{}", found.wrong_bytes);

    transfer(&filled(4096, key().with_epoch(2)), &words, &swapped);
    let found = mismatch(&words, &blocks, &expected());
    let MismatchKind::Elsewhere { stale_epoch, .. } = found.kind else {
        panic!("{found}");
    };
    assert_eq!(stale_epoch, Some(2));
}

#[test]
fn an_untouched_tail_gives_its_length() {
    let blocks = [block(0, 0, 4000)];
    for arrived in [0, 8, 1000, 1003, 3992, 3996] {
        let words = poisoned(4096);
        transfer_up_to(&filled(4096, key()), &words, &blocks, arrived);
        let found = mismatch(&words, &blocks, &expected());
        // A poison byte may equal the right one, so the run may seem to begin a little later.
        assert!((arrived..arrived + 2).contains(&found.byte_offset), "{arrived}: {found}");
        let bytes = 4000 - found.byte_offset;
        assert_eq!(found.kind, MismatchKind::Untouched { bytes, to_the_end: true }, "{arrived}");
    }
}

#[test]
fn an_untouched_block_is_not_a_tail() {
    let blocks = scattered();
    let words = poisoned(4096);
    transfer(&filled(4096, key()), &words, &[blocks[0], blocks[2]]);
    let found = mismatch(&words, &blocks, &expected());
    assert_eq!(found.byte_offset, 0);
    let kind = MismatchKind::Untouched { bytes: 256, to_the_end: false };
    assert_eq!(found.kind, kind);
    assert!(found.to_string().contains("256 bytes here were never written"), "{found}");
}

#[test]
fn poison_of_an_earlier_check_is_recognised() {
    let words = region(64);
    poison(Span::of(&words, 0, 64).unwrap(), SALT - 1);
    let found = mismatch(&words, &[block(0, 0, 64)], &expected());
    assert_eq!(found.kind, MismatchKind::Untouched { bytes: 64, to_the_end: true });
}

#[test]
fn data_that_came_between_two_looks_is_late() {
    let blocks = scattered();
    let words = delivered(&blocks);
    let expected = expected();
    let right = diagnosis::compare_block(&words, 1, &blocks[1], &expected).unwrap().nth(4).unwrap();
    let seen = diagnosis::Compared { found: poison_word(SALT), ..right };
    let found = diagnosis::diagnose(&words, &blocks, &expected, seen).unwrap();
    assert_eq!(found.kind, MismatchKind::Late);
    assert_eq!((found.byte_offset, found.wrong_bytes), (32, 0));
}

#[test]
fn zeros_are_zeros() {
    let blocks = scattered();
    let words = delivered(&blocks);
    (512..768).for_each(|at| set_byte(&words, at, 0));
    assert_eq!(mismatch(&words, &blocks, &expected()).kind, MismatchKind::Zero);
}

#[test]
fn foreign_data_is_garbage() {
    let blocks = scattered();
    let words = delivered(&blocks);
    transfer(&filled(4096, Key::new(8, 3)), &words, &blocks[..1]);
    assert_eq!(mismatch(&words, &blocks, &expected()).kind, MismatchKind::Garbage);
}

#[test]
fn the_last_partial_word_is_checked_to_its_last_byte_and_no_further() {
    let blocks = scattered();
    let words = delivered(&blocks);
    set_byte(&words, 1024 + 101, 0xEE);
    assert_eq!(verify(&words, &blocks, &expected()), Ok(613));
    set_byte(&words, 1024 + 100, get_byte(&words, 1024 + 100) ^ 1);
    let found = mismatch(&words, &blocks, &expected());
    assert_eq!((found.byte_offset, found.wrong_bytes), (1124, 1));
    assert_eq!(found.descriptor, Some(Place { index: 2, offset: 100 }));
}

#[test]
fn stamps_prove_each_transfer_and_are_expected_afterwards() {
    let blocks = scattered();
    let (source, words) = (filled(4096, key()), poisoned(4096));
    let ours = EndWords::in_source(source.as_slice(), &blocks).unwrap().unwrap();
    let theirs = EndWords::in_destination(words.as_slice(), &blocks).unwrap().unwrap();
    for iteration in 1..=3 {
        ours.stamp(key(), iteration);
        assert!(!theirs.arrived(key(), iteration));
        transfer(&source, &words, &blocks);
        assert!(theirs.arrived(key(), iteration));
    }
    let with_stamp = |iteration| Expected { stamp: Some(theirs.as_stamp(iteration)), ..expected() };
    assert_eq!(verify(&words, &blocks, &with_stamp(3)), Ok(613));
    let found = mismatch(&words, &blocks, &with_stamp(4));
    assert_eq!(found.kind, MismatchKind::StaleTransfer { iteration: 3 });
    // A stamp where none belongs is damage like any other.
    assert_eq!(mismatch(&words, &blocks, &expected()).byte_offset, 512);
    // Data that never carried a stamp does not pass for stamped data.
    let found = mismatch(&delivered(&blocks), &blocks, &with_stamp(3));
    assert_eq!(found.kind, MismatchKind::StaleTransfer { iteration: 0 });
}

#[test]
fn a_stale_buffer_with_stamps_names_its_epoch() {
    let blocks = scattered();
    let (source, words) = (filled(4096, key().with_epoch(2)), poisoned(4096));
    let ours = EndWords::in_source(source.as_slice(), &blocks).unwrap().unwrap();
    ours.stamp(key().with_epoch(2), 500);
    transfer(&source, &words, &blocks);
    let stamp = Some(ours.as_stamp(4));
    let found = mismatch(&words, &blocks, &Expected { stamp, ..expected() });
    assert_eq!(found.kind, MismatchKind::Stale { epoch: 2 });
}

#[test]
fn a_stamped_end_in_the_wrong_place_is_elsewhere() {
    let blocks = scattered();
    let (source, words) = (filled(4096, key()), poisoned(4096));
    let ours = EndWords::in_source(source.as_slice(), &blocks).unwrap().unwrap();
    ours.stamp(key(), 9);
    transfer(&source, &words, &[blocks[0], block(64, 0, 256), blocks[2]]);
    let stamp = Some(ours.as_stamp(9));
    let found = mismatch(&words, &blocks, &Expected { stamp, ..expected() });
    let kind = MismatchKind::Elsewhere {
        source_offset: 64,
        descriptor: Some(Place { index: 0, offset: 0 }),
        stale_epoch: None,
    };
    assert_eq!(found.kind, kind);
}

#[test]
fn a_read_is_proved_by_poisoned_ends() {
    let blocks = scattered();
    let (source, words) = (filled(4096, key()), delivered(&scattered()));
    let ends = EndWords::in_destination(words.as_slice(), &blocks).unwrap().unwrap();
    assert!(ends.arrived(key(), 0));
    ends.poison(SALT);
    assert!(!ends.arrived(key(), 0));
    transfer(&source, &words, &blocks);
    assert!(ends.arrived(key(), 0));
    assert_eq!(verify(&words, &blocks, &expected()), Ok(613));
}

#[test]
fn end_words_are_whole_words_inside_of_the_transfer() {
    assert_eq!(head_tail(16, 7), None);
    assert_eq!(head_tail(16, 8), Some((2, 2)));
    assert_eq!(head_tail(16, 15), Some((2, 2)));
    assert_eq!(head_tail(16, 16), Some((2, 3)));
    assert_eq!(head_tail(0, 4096), Some((0, 511)));
    let words = region(64);
    assert!(EndWords::in_source(words.as_slice(), &[]).unwrap().is_none());
    assert!(EndWords::in_source(words.as_slice(), &[block(0, 0, 7)]).unwrap().is_none());
    assert!(EndWords::in_source(words.as_slice(), &[block(64, 0, 8)]).is_err());
    assert!(EndWords::in_destination(words.as_slice(), &[block(64, 0, 8)]).is_ok());
}

#[test]
fn files_keep_words_as_exact_text() {
    let blocks = scattered();
    let words = delivered(&blocks);
    set_byte(&words, 512, !get_byte(&words, 512));
    let found = mismatch(&words, &blocks, &expected());
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["expected"], format!("{:#018x}", found.expected));
    assert_eq!(json["kind"]["looks_like"], "bit_flip");
    assert_eq!(serde_json::from_value::<Mismatch>(json).unwrap(), found);
}

#[test]
fn no_poison_byte_pattern_repeats_with_the_salt() {
    let words: std::collections::BTreeSet<u64> = (0..1000).map(poison_word).collect();
    assert_eq!(words.len(), 1000);
}

proptest! {
    #[test]
    fn a_position_can_be_computed_back(seed: u64, epoch: u32, position: u64) {
        let key = Key::new(seed, epoch);
        prop_assert_eq!(key.position_of(key.word(position)), position);
    }

    #[test]
    fn any_single_wrong_byte_is_found_and_located(
        bytes in 1_u64..2000,
        at in any::<prop::sample::Index>(),
        change in 1_u8..,
        seed: u64,
        stamped in prop::option::of(1_u32..),
    ) {
        let key = Key::new(seed, 5);
        let blocks = [block(0, 0, bytes)];
        let words = filled(bytes, key);
        let ends = EndWords::in_source(words.as_slice(), &blocks).unwrap();
        let stamp = ends.zip(stamped).map(|(ends, iteration)| {
            ends.stamp(key, iteration);
            ends.as_stamp(iteration)
        });
        let expected = Expected { key, poison_salt: SALT, stamp };
        prop_assert_eq!(verify(&words, &blocks, &expected), Ok(bytes));
        let at = at.index(bytes as usize) as u64;
        set_byte(&words, at, get_byte(&words, at) ^ change);
        let found = mismatch(&words, &blocks, &expected);
        prop_assert_eq!((found.byte_offset, found.wrong_bytes), (at, 1));
        prop_assert_eq!(found.descriptor, Some(Place { index: 0, offset: at }));
        if bytes - at > 8 {
            prop_assert_eq!(found.kind, MismatchKind::BitFlip { bits: change.count_ones() });
        }
    }
}
