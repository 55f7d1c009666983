//! Network interfaces: `/sys/class/net/<name>/statistics`, or `/proc/<self>/net/dev` where `/sys` shows another network
//! namespace than the process's own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::super::kernel_files::{NAMES_MAX, names, number};
use super::{Counter, Kind, Unit};

/// Bytes read of `net/dev`: a line has about 130.
const NET_DEV_MAX: u64 = 128 << 10;

/// Every interface of this process's network namespace.
pub(super) fn read(sys: &Path, proc: &Path) -> Vec<Counter> {
    let class = sys.join("class/net");
    let here = net_dev(proc);
    let listed: BTreeSet<String> = names(&class).into_iter().filter(|n| class.join(n).is_dir()).collect();
    let own: BTreeSet<String> = here.iter().map(|counter| counter.device.clone()).collect();
    if listed.is_empty() || (!own.is_empty() && own != listed) {
        return here;
    }
    listed.iter().filter_map(|name| of_sysfs(&class.join(name), name)).collect()
}

fn of_sysfs(folder: &Path, name: &str) -> Option<Counter> {
    let statistics = folder.join("statistics");
    Some(Counter {
        kind: Kind::Net,
        device: name.to_owned(),
        unit: Unit::Bytes,
        sent: number(&statistics.join("tx_bytes"))?,
        received: number(&statistics.join("rx_bytes"))?,
        source: format!("{}/{{tx_bytes,rx_bytes}}", statistics.display()),
        // The kernel links a bond, bridge, VLAN or macvlan to what it stands on.
        stacked: names(folder).iter().any(|entry| entry.starts_with("lower_")),
        interface: None,
    })
}

/// Names of all interfaces of this process's network namespace, sorted.
pub(crate) fn interfaces() -> Vec<String> {
    let mut names: Vec<String> =
        net_dev(Path::new("/proc")).into_iter().map(|counter| counter.device).collect();
    names.sort();
    names
}

/// `  eth0: bytes packets errs drop fifo frame compressed multicast bytes …`, after two lines of titles.
fn net_dev(proc: &Path) -> Vec<Counter> {
    let path = proc.join("self/net/dev");
    let mut text = String::new();
    let Ok(file) = File::open(&path) else { return Vec::new() };
    if file.take(NET_DEV_MAX).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    let counter = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let values: Vec<u64> = rest.split_whitespace().map_while(|v| v.parse().ok()).collect();
        Some(Counter {
            kind: Kind::Net,
            device: name.trim().to_owned(),
            unit: Unit::Bytes,
            sent: *values.get(8)?,
            received: *values.first()?,
            source: path.display().to_string(),
            stacked: false,
            interface: None,
        })
    };
    text.lines().skip(2).filter_map(counter).take(NAMES_MAX).collect()
}
