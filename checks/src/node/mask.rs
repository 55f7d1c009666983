//! Takes names and addresses out of evidence, so that it can be given to somebody else: each is replaced by another of
//! the same kind, everywhere the same, so that the evidence means what it meant.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::evidence::{Entry, Evidence, PLACE};

/// Files of which nothing but their being there is needed.
const SECRET_FILES: [&str; 4] =
    ["/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname", "/proc/cmdline"];

impl Evidence {
    /// The same evidence without host names, IP and GID addresses, GUIDs, GPU UUIDs and the kernel command line's
    /// values other than those about the IOMMU.
    #[must_use]
    pub fn masked(self) -> Self {
        let hostname = self.text("/proc/sys/kernel/hostname").map(str::to_owned);
        let mut mask = Mask { hostname, known: BTreeMap::new() };
        self.map(|path, entry| {
            let entry = match entry {
                Entry::Text(text) => Entry::Text(mask.file(&path, &text)),
                Entry::Names(names) => Entry::Names(names.iter().map(|name| mask.words(name)).collect()),
                Entry::Link(target) => Entry::Link(mask.words(&target)),
                Entry::Real(real) => Entry::Real(mask.words(&real)),
                other => other,
            };
            (mask.words(&path), entry)
        })
    }
}

struct Mask {
    hostname: Option<String>,
    /// What was replaced, and its number.
    known: BTreeMap<String, u32>,
}

impl Mask {
    fn number(&mut self, what: &str) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX).saturating_add(1);
        *self.known.entry(what.to_owned()).or_insert(next)
    }

    fn file(&mut self, path: &str, text: &str) -> String {
        if path == "/proc/cmdline" {
            let kept: Vec<&str> = text.split_whitespace().filter(|word| word.contains("iommu")).collect();
            return kept.join(" ") + "\n";
        }
        if SECRET_FILES.contains(&path) || path == PLACE {
            return format!("masked-{}\n", self.number(text.trim()));
        }
        // A URL names a host, however it is written.
        if path.starts_with("env:") && text.contains("://") {
            return format!("masked-{}\n", self.number(text.trim()));
        }
        if path.ends_with("/information") {
            let kept = text.lines().filter(|line| !line.contains("UUID"));
            return kept.fold(String::new(), |all, line| all + &self.words(line) + "\n");
        }
        text.lines().fold(String::new(), |all, line| all + &self.words(line) + "\n")
    }

    /// Replaces what looks like an address or is the host's name, and leaves everything between.
    fn words(&mut self, text: &str) -> String {
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '-' | '_');
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let word = rest.find(|c| !part(c)).unwrap_or(rest.len());
            out.push_str(&self.word(&rest[..word]));
            let gap = rest[word..].find(part).map_or(rest.len(), |at| word + at);
            out.push_str(&rest[word..gap]);
            rest = &rest[gap..];
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        if self.hostname.as_deref().is_some_and(|name| !name.is_empty() && name == word) {
            return "masked-host".to_owned();
        }
        if let Ok(address) = word.parse::<Ipv4Addr>() {
            // Versions look like addresses too, but have no four parts in the files that are read.
            return self.ipv4(address).to_string();
        }
        if word.matches(':').count() >= 2
            && let Ok(address) = word.parse::<Ipv6Addr>()
        {
            return full(self.ipv6(address));
        }
        if is_guid(word) {
            return guid(u64::from(self.number(word)));
        }
        if is_cluster(word) {
            return format!("{:032x}", self.number(word));
        }
        if let Some(hex) = word.strip_prefix("GPU-") {
            return format!("GPU-masked-{}", self.number(hex));
        }
        word.to_owned()
    }

    fn ipv4(&mut self, address: Ipv4Addr) -> Ipv4Addr {
        if address.is_unspecified() || address.is_loopback() {
            return address;
        }
        Ipv4Addr::from_bits(0x0a00_0000 | (self.number(&address.to_string()) & 0x00ff_ffff))
    }

    /// Keeps what a GID is judged by: IPv4-mapped, link-local, and which ones share a subnet prefix.
    fn ipv6(&mut self, address: Ipv6Addr) -> Ipv6Addr {
        if address.is_unspecified() || address.is_loopback() {
            return address;
        }
        if let Some(mapped) = address.to_ipv4_mapped() {
            return self.ipv4(mapped).to_ipv6_mapped();
        }
        let bits = address.to_bits();
        let prefix = (bits >> 64) as u64;
        let masked = if address.is_unicast_link_local() {
            prefix
        } else {
            0xfd00_0000_0000_0000 | u64::from(self.number(&format!("prefix {prefix:x}")))
        };
        let end = self.number(&format!("interface {:x}", bits as u64));
        Ipv6Addr::from_bits(u128::from(masked) << 64 | u128::from(end))
    }
}

/// As sysfs writes a GID.
fn full(address: Ipv6Addr) -> String {
    address.segments().map(|segment| format!("{segment:04x}")).join(":")
}

/// `f452:1403:0012:3456`
fn is_guid(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    parts.len() == 4
        && parts.iter().all(|part| part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The UUID of an NVLink cluster, with or without its dashes; that of no cluster is zeros and stays.
fn is_cluster(word: &str) -> bool {
    let digits = word.bytes().filter(|byte| *byte != b'-');
    digits.clone().count() == 32
        && digits.clone().all(|byte| byte.is_ascii_hexdigit())
        && digits.clone().any(|byte| byte != b'0')
}

fn guid(number: u64) -> String {
    [48, 32, 16, 0].map(|shift| format!("{:04x}", number >> shift & 0xffff)).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_go_and_their_meaning_stays() {
        let mut evidence = Evidence::new("test");
        let mut add = |path: &str, text: &str| evidence.add(path, Entry::Text(text.to_owned()));
        add("/proc/sys/kernel/hostname", "node-17.example\n");
        add("/proc/cmdline", "root=UUID=12 iommu=pt secret=x\n");
        add("/gids/0", "fe80:0000:0000:0000:f652:14ff:fe01:0203\n");
        add("/gids/1", "0000:0000:0000:0000:0000:ffff:c0a8:0102\n");
        add("/gids/2", "fec0:0000:0000:0007:f652:14ff:fe01:0203\n");
        add("/gids/3", "fec0:0000:0000:0007:0000:0000:0000:0009\n");
        add("/note", "node-17.example has 192.168.1.2, GPU-12ab-34 and f452:1403:0012:3456\n");
        add("env:NIXL_ETCD_ENDPOINTS", "http://etcd.example.org:2379\n");
        add("/z/fabric", "cluster 0123456789abcdef0123456789abcdef\n");
        add("/sys/x", "0000:17:00.0 and 32.0 GT/s\n");
        let masked = evidence.masked();
        let text = masked.to_capture();
        for secret in [
            "node-17",
            "c0a8",
            "192.168",
            "12ab",
            "1403",
            "f652:14ff",
            "secret",
            "0007",
            "89abcdef0123",
            "example",
        ] {
            assert!(!text.contains(secret), "{secret} is still in\n{text}");
        }
        let gid = |at: u32| masked.text(&format!("/gids/{at}")).unwrap().parse::<Ipv6Addr>().unwrap();
        assert!(gid(0).is_unicast_link_local());
        let mapped = gid(1).to_ipv4_mapped().unwrap();
        assert!(masked.text("/note").unwrap().contains(&mapped.to_string()), "one address, one mask: {text}");
        assert_eq!(gid(2).to_bits() >> 64, gid(3).to_bits() >> 64);
        assert_eq!(masked.text("/sys/x"), Some("0000:17:00.0 and 32.0 GT/s"));
        assert_eq!(masked.text("/proc/cmdline"), Some("iommu=pt"));
    }
}
