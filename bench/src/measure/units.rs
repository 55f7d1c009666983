//! Sizes and times as people type them, and as they read them back.
//!
//! Bytes are exact integers everywhere. A size that is printed can be typed again and means the same bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a size or a duration was refused. Each message names the text that was typed and what to type instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum UnitError {
    /// Nothing was typed.
    #[error("the size is empty; write a number and a unit, for example 64KiB")]
    Empty,
    /// A fraction may not be a whole number of bytes.
    #[error(
        "`{0}` has a fraction; sizes are whole bytes, write it in the next smaller unit (1536KiB for 1.5MiB)"
    )]
    Fraction(String),
    /// No number in front.
    #[error("`{0}` is not a size; write a number and a unit, for example 4096, 64KiB or 1GB")]
    NotASize(String),
    /// `Gb` is read as gigabits by everyone who works with networks.
    #[error("`{0}` reads as bits; write {1}B for 10-based bytes or {1}iB for 2-based bytes")]
    Bits(String, char),
    /// A unit that does not exist here.
    #[error("`{typed}` has the unknown unit `{unit}`; use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB")]
    UnknownUnit { typed: String, unit: String },
    /// Larger than 64 bits can say.
    #[error("`{0}` is larger than 2^64 bytes; write a smaller size")]
    TooLarge(String),
    /// Zero bytes or zero time measures nothing.
    #[error("`{0}` is zero, and nothing can be measured with it; write a value above zero")]
    Zero(String),
    /// A duration without unit, or one that cannot be read.
    #[error("`{0}` is not a duration; write a number and a unit, for example 500ms or 2s")]
    NotADuration(String),
}

/// A number of bytes.
///
/// Typed as a bare number (`4096`) or with a unit. `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; `KB`, `MB`,
/// `GB`, `TB` are powers of 1000. A single letter (`4K`, `64m`) or `Ki`, `Mi` is 1024-based, because that is
/// what a person who types a block size means. Upper and lower case are the same, but `Kb`, `Mb`, `Gb`, `Tb`
/// are refused: they read as bits. Printed exactly, in the unit that gives the smallest whole number.
/// Serialised as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ByteSize {
    /// A size of exactly `bytes` bytes.
    pub(crate) const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The exact number of bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }
}

/// Units a size may be printed in. There is no KB: beside KiB it is too easily misread, so 1000 prints as
/// bytes.
const PRINTED_UNITS: [(u64, &str); 8] = [
    (1, "B"),
    (1 << 10, "KiB"),
    (1 << 20, "MiB"),
    (1 << 30, "GiB"),
    (1 << 40, "TiB"),
    (1_000_000, "MB"),
    (1_000_000_000, "GB"),
    (1_000_000_000_000, "TB"),
];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = PRINTED_UNITS
            .iter()
            .filter(|(scale, _)| self.0.is_multiple_of(*scale))
            .map(|(scale, unit)| (self.0 / scale, *unit))
            .min_by_key(|(count, _)| *count)
            .unwrap_or((self.0, "B"));
        f.pad(&format!("{count} {unit}"))
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(typed: &str) -> Result<Self, UnitError> {
        let text = typed.trim();
        if text.is_empty() {
            return Err(UnitError::Empty);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(digits);
        if rest.starts_with(['.', ',']) && digits > 0 {
            return Err(UnitError::Fraction(text.to_owned()));
        }
        if digits == 0 {
            return Err(UnitError::NotASize(text.to_owned()));
        }
        let scale = scale_of(text, rest.trim_start())?;
        number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(scale))
            .map(Self)
            .ok_or_else(|| UnitError::TooLarge(text.to_owned()))
    }
}

/// Bytes in one of `unit`.
fn scale_of(typed: &str, unit: &str) -> Result<u64, UnitError> {
    if let [prefix @ b'K' | prefix @ b'M' | prefix @ b'G' | prefix @ b'T', b'b'] = unit.as_bytes() {
        return Err(UnitError::Bits(typed.to_owned(), char::from(*prefix)));
    }
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Ok(1),
        "k" | "ki" | "kib" => Ok(1 << 10),
        "m" | "mi" | "mib" => Ok(1 << 20),
        "g" | "gi" | "gib" => Ok(1 << 30),
        "t" | "ti" | "tib" => Ok(1 << 40),
        "kb" => Ok(1_000),
        "mb" => Ok(1_000_000),
        "gb" => Ok(1_000_000_000),
        "tb" => Ok(1_000_000_000_000),
        _ => Err(UnitError::UnknownUnit { typed: typed.to_owned(), unit: unit.to_owned() }),
    }
}

/// A duration for a flag: `500ms`, `2s`, `1m 30s`. A bare number is refused, because it does not say its
/// unit.
///
/// # Errors
/// [`UnitError::NotADuration`] for text that cannot be read, [`UnitError::Zero`] for no time at all.
pub(crate) fn parse_duration(typed: &str) -> Result<Duration, UnitError> {
    let text = typed.trim();
    if text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|b| b == b'0') {
        return Err(UnitError::Zero(text.to_owned()));
    }
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err(UnitError::Zero(text.to_owned())),
        Ok(duration) => Ok(duration),
        Err(_) => Err(UnitError::NotADuration(text.to_owned())),
    }
}

/// A rate in GB/s (1e9 bytes per second), without the unit: 3 decimals, more only where those would read as
/// zero.
pub(crate) fn gigabytes_per_s(bytes_per_s: f64) -> String {
    fixed(bytes_per_s / 1e9, 3)
}

/// A rate in Gb/s (1e9 bits per second), without the unit: 2 decimals, more only where those would read as
/// zero.
pub(crate) fn gigabits_per_s(bytes_per_s: f64) -> String {
    fixed(bytes_per_s * 8.0 / 1e9, 2)
}

/// `value` with `decimals`, or with 3 significant digits where that many decimals would show fewer than two.
fn fixed(value: f64, decimals: usize) -> String {
    let smallest_clear = 10_f64.powi(1 - i32::try_from(decimals).unwrap_or(3));
    if value == 0.0 || value >= smallest_clear {
        return format!("{value:.decimals$}");
    }
    let leading_zeros = (-value.abs().log10().floor()).clamp(0.0, 15.0);
    let needed = leading_zeros as usize + 2;
    format!("{value:.needed$}")
}

/// A time with the unit that fits it and 3 to 4 significant digits: `850 ns`, `19.7 us`, `2.11 ms`, `3.40 s`.
pub(crate) fn time(ns: u64) -> String {
    let value = ns as f64;
    // The limits lie where rounding to three digits would give 1000 of the smaller unit.
    if ns < 1_000 {
        format!("{ns} ns")
    } else if value < 999.5e3 {
        format!("{} us", three_digits(value / 1e3))
    } else if value < 999.5e6 {
        format!("{} ms", three_digits(value / 1e6))
    } else {
        format!("{} s", three_digits(value / 1e9))
    }
}

/// A time in microseconds without the unit, for a column of them: `3.45`, `19.7`, `296`, `55545`.
pub(crate) fn microseconds(ns: u64) -> String {
    three_digits(ns as f64 / 1e3)
}

/// At least three significant digits, and never a fraction from 100 on.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A count with thousands separated: `10,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(text: &str) -> Result<u64, UnitError> {
        text.parse::<ByteSize>().map(ByteSize::bytes)
    }

    #[test]
    fn sizes_are_read_as_people_mean_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4Ki", 4096),
            ("4KiB", 4096),
            (" 64 MiB ", 64 << 20),
            ("64M", 64 << 20),
            ("1GB", 1_000_000_000),
            ("1gib", 1 << 30),
            ("2TB", 2_000_000_000_000),
            ("3KB", 3000),
            ("7B", 7),
            ("0", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_refused_size_names_itself_and_the_fix() {
        for (text, part, fix) in [
            ("", "empty", "64KiB"),
            ("1.5MiB", "`1.5MiB`", "next smaller unit"),
            ("big", "`big`", "for example"),
            ("-4", "`-4`", "for example"),
            ("4Gb", "reads as bits", "GB"),
            ("4Gb", "reads as bits", "GiB"),
            ("4 parsecs", "`parsecs`", "KiB"),
            ("18446744073709551616", "2^64", "smaller"),
            ("99999999TiB", "2^64", "smaller"),
        ] {
            let message = size(text).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(fix), "{text}: {message}");
        }
    }

    #[test]
    fn sizes_are_printed_exactly() {
        for (bytes, text) in [
            (0, "0 B"),
            (1000, "1000 B"),
            (4096, "4 KiB"),
            (4097, "4097 B"),
            (1_000_000, "1 MB"),
            (1_024_000_000, "1024 MB"),
            (64 << 20, "64 MiB"),
            (96_000_000_000, "96 GB"),
            (3 << 29, "1536 MiB"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(ByteSize::from_bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn durations_carry_their_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("0"), Err(UnitError::Zero("0".into())));
        assert_eq!(parse_duration("0s"), Err(UnitError::Zero("0s".into())));
        for text in ["2", "", "fast", "-1s"] {
            let message = parse_duration(text).unwrap_err().to_string();
            assert!(message.contains("500ms"), "{message}");
        }
    }

    #[test]
    fn rates_show_both_units_and_never_vanish() {
        let both = |rate| (gigabytes_per_s(rate), gigabits_per_s(rate));
        assert_eq!(both(12.3149e9), ("12.315".to_owned(), "98.52".to_owned()));
        assert_eq!(both(207e6), ("0.207".to_owned(), "1.66".to_owned()));
        assert_eq!(both(0.0), ("0.000".to_owned(), "0.00".to_owned()));
        assert_eq!(gigabytes_per_s(42_000.0), "0.0000420");
        assert_eq!(gigabits_per_s(42_000.0), "0.000336");
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        for (ns, text) in [
            (0, "0 ns"),
            (850, "850 ns"),
            (1_000, "1.00 us"),
            (19_700, "19.7 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (2_110_700, "2.11 ms"),
            (55_545_000, "55.5 ms"),
            (3_400_000_000, "3.40 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(microseconds(55_545_000), "55545");
        assert_eq!(microseconds(9_996), "10.0");
        assert_eq!(microseconds(42), "0.04");
    }

    #[test]
    fn counts_separate_thousands() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
    }

    proptest! {
        #[test]
        fn what_is_printed_can_be_typed_again(
            bytes in prop_oneof![any::<u64>(), (0_u64..4096, 0_u32..45).prop_map(|(n, s)| n << s)]
        ) {
            prop_assert_eq!(size(&ByteSize::from_bytes(bytes).to_string()), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,24}") {
            let _ = size(&text);
            let _ = parse_duration(&text);
        }
    }
}
