//! The length of a prompt as a person types it.

use std::fmt;
use std::str::FromStr;

/// The longest prompt that is planned: beyond what any model takes, and small enough that no product overflows.
const MOST: u64 = 1 << 27;

/// A number of tokens: `1000`, `8k` (8,192), `1m` (1,048,576). Prompt lengths are multiples of 1,024 in this field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenCount(pub(crate) u64);

impl FromStr for TokenCount {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let text = typed.trim();
        let (digits, scale) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
            Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
            _ => (text, 1),
        };
        let number = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
        let number =
            number.ok_or_else(|| format!("`{typed}` is not a number of tokens; write 1000, 8k or 1m"))?;
        match number.checked_mul(scale) {
            Some(0) => Err("a prompt of no tokens moves nothing; write 1 or more".to_owned()),
            Some(tokens) if tokens <= MOST => Ok(Self(tokens)),
            _ => Err(format!("`{typed}` tokens are more than any model takes; write {MOST} or less")),
        }
    }
}

impl fmt::Display for TokenCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            n if n.is_multiple_of(1 << 20) => format!("{}m", n >> 20),
            n if n.is_multiple_of(1 << 10) => format!("{}k", n >> 10),
            n => n.to_string(),
        };
        f.pad(&text)
    }
}
