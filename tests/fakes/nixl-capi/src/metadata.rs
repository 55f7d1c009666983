//! The blob that one agent gives to another.

use crate::wire::{Reader, put};

/// Starts every blob, so that foreign bytes are refused.
const MAGIC: &[u8; 8] = b"KVFAKE01";

/// A registered region, as the peer needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) device: u64,
    pub(crate) kind: i32,
}

impl Region {
    /// Whether a descriptor lies inside.
    pub(crate) fn holds(&self, kind: i32, device: u64, address: usize, len: usize) -> bool {
        let end = |start: usize, len: usize| start.checked_add(len);
        self.kind == kind
            && self.device == device
            && address >= self.address
            && end(address, len).zip(end(self.address, self.len)).is_some_and(|(inner, outer)| inner <= outer)
    }
}

/// What a peer learns about an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) regions: Vec<Region>,
}

impl Metadata {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut blob = MAGIC.to_vec();
        put(&mut blob, u64::from(self.pid));
        put(&mut blob, self.name.len() as u64);
        blob.extend_from_slice(self.name.as_bytes());
        put(&mut blob, self.regions.len() as u64);
        for region in &self.regions {
            put(&mut blob, region.address as u64);
            put(&mut blob, region.len as u64);
            put(&mut blob, region.device);
            put(&mut blob, u64::from(region.kind.unsigned_abs()));
        }
        blob
    }

    /// `None` for anything that is not exactly one blob.
    pub(crate) fn decode(blob: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(blob.strip_prefix(MAGIC)?);
        let pid = u32::try_from(reader.number()?).ok()?;
        let name_len = reader.size()?;
        let name = String::from_utf8(reader.bytes(name_len)?.to_vec()).ok()?;
        let count = reader.size()?;
        let regions = (0..count).map(|_| region(&mut reader)).collect::<Option<Vec<_>>>()?;
        reader.is_empty().then_some(Self { pid, name, regions })
    }
}

fn region(reader: &mut Reader<'_>) -> Option<Region> {
    Some(Region {
        address: reader.size()?,
        len: reader.size()?,
        device: reader.number()?,
        kind: i32::try_from(reader.number()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Metadata {
        let region = Region { address: 4096, len: 100, device: 3, kind: 0 };
        Metadata { pid: 7, name: "décode".to_owned(), regions: vec![region, region] }
    }

    #[test]
    fn a_blob_says_what_went_in() {
        assert_eq!(Metadata::decode(&example().encode()), Some(example()));
    }

    #[test]
    fn a_cut_or_longer_blob_is_refused() {
        let blob = example().encode();
        for len in 0..blob.len() {
            assert_eq!(Metadata::decode(&blob[..len]), None, "{len}");
        }
        assert_eq!(Metadata::decode(&[&blob[..], b"x"].concat()), None);
    }

    #[test]
    fn a_region_holds_what_lies_in_it() {
        let region = example().regions[0];
        assert!(region.holds(0, 3, 4096, 100));
        assert!(region.holds(0, 3, 4195, 1));
        for (kind, device, address, len) in
            [(1, 3, 4096, 1), (0, 0, 4096, 1), (0, 3, 4095, 2), (0, 3, 4096, 101), (0, 3, 4100, usize::MAX)]
        {
            assert!(!region.holds(kind, device, address, len), "{kind} {device} {address} {len}");
        }
    }
}
