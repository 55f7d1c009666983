//! Rates of PCIe links that the driver does not count: NVML tells them for windows of 20 ms, which are watched one after
//! the other by a thread that sleeps meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use checks::nvml::Way;
use serde::{Deserialize, Serialize};

use super::GpuLinks;

/// How long NVML watches a link for one rate (nvml.h).
pub(crate) const WINDOW: Duration = Duration::from_millis(20);

/// Which directions of the links are watched, as the GPU sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ways {
    pub(crate) sent: bool,
    pub(crate) received: bool,
}

impl Ways {
    fn each(self) -> impl Iterator<Item = Way> {
        let sent = self.sent.then_some(Way::Sent);
        sent.into_iter().chain(self.received.then_some(Way::Received))
    }
}

/// What was seen of one link in one direction since the reading before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Windows {
    /// Windows that were watched.
    pub(crate) count: u64,
    /// Sum of their rates in bytes per second.
    pub(crate) rates: u64,
}

impl Windows {
    /// Mean rate in bytes per second; `None` without a window.
    pub(crate) fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.rates as f64 / self.count as f64)
    }

    fn add(&mut self, rate: u64) {
        self.count += 1;
        self.rates = self.rates.saturating_add(rate);
    }
}

/// The PCIe link of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sampled {
    /// `GPU-…`.
    pub(crate) uuid: String,
    pub(crate) sent: Windows,
    pub(crate) received: Windows,
}

/// A thread that watches links until it is told to stop.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sampled>>,
}

impl Sampler {
    /// Watches the links of these GPUs in turn. `None` where there is nothing to watch, or no thread to be had.
    pub(crate) fn start(gpus: Arc<dyn GpuLinks>, uuids: Vec<String>, ways: Ways) -> Option<Self> {
        if uuids.is_empty() {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let watch = move || watch(gpus.as_ref(), uuids, ways, &told);
        let thread = thread::Builder::new().name("pcie rates".to_owned()).spawn(watch).ok()?;
        Some(Self { stop, thread })
    }

    /// What was seen. Waits for the window that is being watched.
    pub(crate) fn stop(self) -> Vec<Sampled> {
        self.stop.store(true, Relaxed);
        // A thread that panicked has seen nothing.
        self.thread.join().unwrap_or_default()
    }
}

/// A link that does not tell its rate is left alone from then on.
fn watch(gpus: &dyn GpuLinks, uuids: Vec<String>, ways: Ways, stop: &AtomicBool) -> Vec<Sampled> {
    let new = |uuid| (Sampled { uuid, sent: Windows::default(), received: Windows::default() }, true);
    let mut links: Vec<(Sampled, bool)> = uuids.into_iter().map(new).collect();
    while links.iter().any(|(_, tells)| *tells) && !stop.load(Relaxed) {
        for (link, tells) in links.iter_mut().filter(|(_, tells)| *tells) {
            for way in ways.each() {
                if stop.load(Relaxed) {
                    break;
                }
                let begin = Instant::now();
                match (gpus.pcie_rate(&link.uuid, way), way) {
                    (Some(rate), Way::Sent) => link.sent.add(rate),
                    (Some(rate), Way::Received) => link.received.add(rate),
                    (None, _) => *tells = false,
                }
                // A driver that does not wait would be asked for one window again and again.
                thread::sleep(WINDOW.saturating_sub(begin.elapsed()));
            }
        }
    }
    links.into_iter().map(|(link, _)| link).filter(|link| link.sent.count + link.received.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use checks::nvml::Traffic;

    /// Tells the rates of one GPU, and stops the sampler after some windows.
    #[derive(Debug)]
    struct OneThatTells {
        stop: Arc<AtomicBool>,
        asked: std::sync::atomic::AtomicU64,
    }

    impl GpuLinks for OneThatTells {
        fn traffic(&self) -> Vec<Traffic> {
            Vec::new()
        }

        fn pcie_rate(&self, uuid: &str, way: Way) -> Option<u64> {
            if self.asked.fetch_add(1, Relaxed) == 8 {
                self.stop.store(true, Relaxed);
            }
            (uuid == "GPU-a").then_some(if way == Way::Sent { 100 } else { 30 })
        }
    }

    #[test]
    fn a_link_that_does_not_tell_is_left_alone_and_the_others_have_their_mean() {
        let stop = Arc::new(AtomicBool::new(false));
        let gpus = OneThatTells { stop: Arc::clone(&stop), asked: 0.into() };
        let uuids = vec!["GPU-b".to_owned(), "GPU-a".to_owned()];
        let seen = watch(&gpus, uuids, Ways { sent: true, received: true }, &stop);
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!((seen[0].sent.mean(), seen[0].received.mean()), (Some(100.0), Some(30.0)));
        // Two questions to the one that does not tell; the ninth question is the last.
        assert_eq!(seen[0].sent.count + seen[0].received.count, 7);
    }

    #[test]
    fn only_the_direction_that_is_wanted_is_watched_and_without_links_nobody_is_asked() {
        let stop = Arc::new(AtomicBool::new(false));
        let gpus = Arc::new(OneThatTells { stop: Arc::clone(&stop), asked: 0.into() });
        let ways = Ways { sent: false, received: true };
        let seen = watch(gpus.as_ref(), vec!["GPU-a".to_owned()], ways, &stop);
        assert_eq!((seen[0].sent.count, seen[0].received.count, seen[0].sent.mean()), (0, 9, None));
        assert!(Sampler::start(gpus, Vec::new(), ways).is_none());
    }
}
