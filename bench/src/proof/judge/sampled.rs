//! What sampled rates of a PCIe link say, where nothing counts its bytes.

use super::{CaseFacts, DeviceShare, Evidence, GpuOfSide, LISTED, Row, Source, Told, transport_of};
use crate::measure::units::ByteSize;
use crate::plan::Op;
use crate::proof::class::Class;
use crate::proof::counters::{Reading, Sampled, WINDOW, Windows};

/// Windows that are needed before a mean stands for the whole loop.
const WINDOWS_MIN: u64 = 5;
/// A link that moved more than so many times the payload carries others' traffic, and tells nothing of it.
const MOST: f64 = 2.0;

/// A side's PCIe link by its rates between the last two readings.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    uuid: String,
    windows: u64,
    /// Mean rate in the direction of the payload in bytes per second, less that of the quiet window.
    rate: f64,
    /// `None` where the quiet window had no room to be sampled.
    background: Option<f64>,
    seconds: f64,
    /// Part of the payload that such a rate accounts for in that time.
    part: f64,
}

impl Estimate {
    /// `None` where nobody sampled. `receives`: the payload goes into this GPU.
    pub(super) fn of(
        gpu: &GpuOfSide,
        readings: &[Reading; 4],
        receives: bool,
        facts: &CaseFacts<'_>,
    ) -> Option<Self> {
        let windows = |reading: &Reading| -> Option<Windows> {
            let link: &Sampled = reading.sampled.iter().find(|link| link.uuid == gpu.uuid)?;
            Some(if receives { link.received } else { link.sent })
        };
        let seen = windows(&readings[3])?;
        let background = windows(&readings[1]).and_then(Windows::mean);
        let mean = seen.mean()?;
        let rate = (mean - background.unwrap_or(0.0)).max(0.0);
        let seconds = readings[3].at_ns.saturating_sub(readings[2].at_ns) as f64 / 1e9;
        let payload = facts.payload_bytes.max(1) as f64 * gpu.share.max(f64::MIN_POSITIVE);
        let part = rate * seconds / payload;
        Some(Self { uuid: gpu.uuid.clone(), windows: seen.count, rate, background, seconds, part })
    }

    /// The part of the payload, where there were windows enough to tell.
    pub(super) fn part(&self) -> Option<f64> {
        (self.windows >= WINDOWS_MIN).then_some(self.part)
    }

    /// More moved than this payload can explain.
    pub(super) fn is_crowded(&self) -> bool {
        self.part > MOST
    }

    pub(super) fn evidence(&self, side: &str, facts: &CaseFacts<'_>) -> Evidence {
        let Self { uuid, windows, rate, background, seconds, part } = self;
        let payload = ByteSize(facts.payload_bytes);
        let means = match self.part() {
            Some(_) => {
                format!("which in {seconds:.2} s is about {:.0} % of the payload ({payload})", part * 100.0)
            }
            None => format!("fewer than the {WINDOWS_MIN} windows that tell anything"),
        };
        let background = match background {
            Some(rate) => format!("{:.3} GB/s of background taken off", rate / 1e9),
            None => "its background is not known".to_owned(),
        };
        Evidence {
            source: Source::SampledRates,
            side: side.to_owned(),
            text: format!(
                "{uuid} pcie: sampled in {windows} windows of {} ms, a mean of {:.3} GB/s in the direction of the payload, {means}; {background} (NVML, PCIe throughput)",
                WINDOW.as_millis(),
                rate / 1e9,
            ),
        }
    }

    /// The GPU as a device that carried payload. Its bytes were not counted.
    pub(super) fn device(&self, side: &str, row: Option<&Row>) -> Option<DeviceShare> {
        let part = self.part().filter(|part| *part >= LISTED)?;
        Some(DeviceShare {
            side: side.to_owned(),
            device: self.uuid.clone(),
            transport: transport_of(row, Class::PcieP2p, &self.uuid),
            bytes: None,
            share_percent: Some((part.min(1.0) * 1000.0).round() / 10.0),
        })
    }
}

/// What is known of PCIe, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pcie {
    pub(super) told: Told,
    /// Rates were sampled on a side where nothing counts.
    pub(super) sampled: bool,
    /// The most windows of a side that had too few.
    pub(super) too_few: Option<u64>,
}

impl Pcie {
    pub(super) fn new<'a>(told: Told, estimates: impl Iterator<Item = &'a Estimate>) -> Self {
        let (mut sampled, mut too_few) = (false, None);
        for estimate in estimates {
            sampled = true;
            if estimate.part().is_none() {
                too_few = too_few.max(Some(estimate.windows));
            }
        }
        Self { told, sampled, too_few }
    }

    /// Whether it proves that PCIe carried the payload of a GPU lane. Counted bytes do; samples only where no NVLink
    /// moved, since they leave out what nobody watched.
    pub(super) fn carried(&self, nvlink: Told) -> bool {
        self.told == Told::Carried && (!self.sampled || matches!(nvlink, Told::Idle | Told::Silent))
    }

    /// What is missing.
    pub(super) fn lacks(&self) -> String {
        match (self.told, self.too_few) {
            (Told::Carried, _) => "the sampled rates of PCIe fit it, but NVLinks moved as well".to_owned(),
            (_, Some(windows)) => format!(
                "the loop was too short for the sampled rates of PCIe ({windows} windows of {} ms, at least {WINDOWS_MIN} are needed: --case-time)",
                WINDOW.as_millis()
            ),
            (_, None) if self.sampled => "the sampled rates of PCIe do not fit it".to_owned(),
            _ => "nothing counts what it carries".to_owned(),
        }
    }
}

/// Whether payload of this operation goes into the memory of a side.
pub(super) fn receives(op: Op, side: &str) -> bool {
    (op == Op::Read) == (side == "initiator")
}
