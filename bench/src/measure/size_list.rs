//! The list of sizes that one sweep visits, as typed after `--size`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::units::{ByteSize, UnitError};

/// More sizes than this in one sweep is taken for a slip of the hand.
pub(crate) const MAX_SIZES: usize = 64;

/// Why a list of sizes was refused. Each message names the part of the list that is wrong and what to write
/// instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SizeListError {
    /// Nothing between two commas, or nothing at all.
    #[error("an entry of the list of sizes is empty; write for example 4KiB,64KiB or 4KiB..64MiB")]
    EmptyEntry,
    /// One size cannot be read.
    #[error("in `{entry}`: {source}")]
    Size { entry: String, source: UnitError },
    /// Zero bytes move nothing.
    #[error("`{entry}` asks for a transfer of zero bytes; start at 1B or more")]
    Zero { entry: String },
    /// The range runs downwards.
    #[error("`{entry}` ends below its start; write {end}..{start}",
            end = compact(*end), start = compact(*start))]
    Swapped { entry: String, start: ByteSize, end: ByteSize },
    /// The factor after `*` is not a whole number of at least 2.
    #[error("`{entry}` has the step factor `{factor}`; write a whole number of 2 or more, for example *4")]
    Factor { entry: String, factor: String },
    /// The steps jump over the end: leaving it out in silence would measure less than was asked for.
    #[error("`{entry}` does not reach its end in steps of x{factor}; end it at {last}, or add the end \
             after a comma", last = compact(*last))]
    EndNotReached { entry: String, factor: u64, last: ByteSize },
    /// The same size twice would be two cases of one name.
    #[error("{} stands in the list twice; name each size once", compact(*.0))]
    Twice(ByteSize),
    /// More than [`MAX_SIZES`].
    #[error("the list has more than {MAX_SIZES} sizes; use a larger step (4KiB..64MiB*4) or several runs")]
    TooMany,
}

/// A size as it would be typed, without the space.
fn compact(size: ByteSize) -> String {
    size.to_string().replace(' ', "")
}

/// One to [`MAX_SIZES`] different sizes above zero, in the order typed.
///
/// Typed as a comma list of sizes and ranges. `4KiB..64MiB` doubles from the start to the end, both included;
/// `4KiB..64MiB*4` takes steps of four.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct SizeList(Vec<ByteSize>);

impl SizeList {
    /// The sizes in the order they are to be measured.
    pub(crate) fn sizes(&self) -> &[ByteSize] {
        &self.0
    }

    fn push(&mut self, size: ByteSize) -> Result<(), SizeListError> {
        if self.0.contains(&size) {
            return Err(SizeListError::Twice(size));
        }
        if self.0.len() == MAX_SIZES {
            return Err(SizeListError::TooMany);
        }
        self.0.push(size);
        Ok(())
    }

    fn push_range(&mut self, entry: &str, start: &str, rest: &str) -> Result<(), SizeListError> {
        let (end, factor) = match rest.split_once('*') {
            Some((end, factor)) => (end, parse_factor(entry, factor)?),
            None => (rest, 2),
        };
        let start = parse_size(entry, start)?;
        let end = parse_size(entry, end)?;
        if end < start {
            let entry = entry.to_owned();
            return Err(SizeListError::Swapped { entry, start, end });
        }
        let mut size = start;
        loop {
            self.push(size)?;
            match size.bytes().checked_mul(factor).map(ByteSize::from_bytes) {
                Some(next) if next <= end => size = next,
                _ => break,
            }
        }
        if size < end {
            let entry = entry.to_owned();
            return Err(SizeListError::EndNotReached { entry, factor, last: size });
        }
        Ok(())
    }
}

fn parse_size(entry: &str, text: &str) -> Result<ByteSize, SizeListError> {
    let size: ByteSize =
        text.parse().map_err(|source| SizeListError::Size { entry: entry.to_owned(), source })?;
    if size.bytes() == 0 {
        let entry = entry.to_owned();
        return Err(SizeListError::Zero { entry });
    }
    Ok(size)
}

fn parse_factor(entry: &str, text: &str) -> Result<u64, SizeListError> {
    match text.trim().parse::<u64>() {
        Ok(factor) if factor >= 2 => Ok(factor),
        _ => Err(SizeListError::Factor { entry: entry.to_owned(), factor: text.trim().to_owned() }),
    }
}

impl FromStr for SizeList {
    type Err = SizeListError;

    fn from_str(text: &str) -> Result<Self, SizeListError> {
        let mut list = Self(Vec::new());
        for entry in text.split(',').map(str::trim) {
            if entry.is_empty() {
                return Err(SizeListError::EmptyEntry);
            }
            match entry.split_once("..") {
                Some((start, rest)) => list.push_range(entry, start, rest)?,
                None => list.push(parse_size(entry, entry)?)?,
            }
        }
        Ok(list)
    }
}

impl fmt::Display for SizeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, size) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}", compact(*size))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Vec<u64> {
        let list: SizeList = text.parse().unwrap();
        list.sizes().iter().map(|s| s.bytes()).collect()
    }

    #[test]
    fn lists_and_ranges_are_read_in_order() {
        assert_eq!(bytes("64KiB"), [65536]);
        assert_eq!(bytes("1MB, 4k"), [1_000_000, 4096]);
        assert_eq!(bytes("4KiB..32KiB"), [4096, 8192, 16384, 32768]);
        assert_eq!(bytes("4KiB..64KiB*4"), [4096, 16384, 65536]);
        assert_eq!(bytes("8B,1KB..4KB"), [8, 1000, 2000, 4000]);
        assert_eq!(bytes("4KiB..4KiB"), [4096]);
        assert_eq!(bytes("4KiB..64MiB").len(), 15);
    }

    #[test]
    fn a_refused_list_names_the_part_and_the_fix() {
        for (text, part, fix) in [
            ("", "empty", "4KiB,64KiB"),
            ("4KiB,,8KiB", "empty", "4KiB,64KiB"),
            ("0", "`0`", "1B or more"),
            ("0..64KiB", "`0..64KiB`", "1B or more"),
            ("8KiB,64KiB..16KiB", "`64KiB..16KiB`", "write 16KiB..64KiB"),
            ("4KiB..lots", "`4KiB..lots`", "for example"),
            ("4KiB..100KiB", "`4KiB..100KiB`", "end it at 64KiB"),
            ("4KiB..64KiB*1", "`1`", "*4"),
            ("4KiB..64KiB*x", "`x`", "*4"),
            ("4KiB,4096", "4KiB", "once"),
            ("1..18446744073709551615", "18446744073709551615", "end it at"),
        ] {
            let message = text.parse::<SizeList>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(fix), "{text}: {message}");
        }
        let many: Vec<String> = (1..=65).map(|n| n.to_string()).collect();
        assert_eq!(many.join(",").parse::<SizeList>(), Err(SizeListError::TooMany));
        assert_eq!(bytes(&many[..64].join(",")).len(), 64);
    }

    proptest! {
        #[test]
        fn what_is_printed_can_be_typed_again(
            sizes in proptest::collection::btree_set(1_u64..u64::MAX, 1..MAX_SIZES)
        ) {
            let list = SizeList(sizes.into_iter().map(ByteSize::from_bytes).collect());
            prop_assert_eq!(list.to_string().parse::<SizeList>(), Ok(list));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9KMGi B.,*]{0,24}") {
            let _ = text.parse::<SizeList>();
        }
    }
}
