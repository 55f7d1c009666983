//! Numbers and bytes in a blob: eight little-endian bytes a number.

pub(crate) fn put(blob: &mut Vec<u8>, value: u64) {
    blob.extend_from_slice(&value.to_le_bytes());
}

/// Reads a blob from its start; every method is `None` past the end.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(blob: &'a [u8]) -> Self {
        Self { rest: blob }
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let (head, tail) = self.rest.split_first_chunk()?;
        self.rest = tail;
        Some(u64::from_le_bytes(*head))
    }

    pub(crate) fn size(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
