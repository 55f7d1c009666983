//! One agent: what it registered, whom it knows, what it sends.

use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::Ordering;

use nixl_sys as sys;

use crate::control::{AGENTS, REGISTRATIONS};
use crate::mailbox::Mailbox;
use crate::metadata::{Metadata, Region};
use crate::script::{self, Call, Fault};
use crate::segments::{Place, Segment};
use crate::status::{BACKEND, INVALID_PARAM, NOT_FOUND, Outcome, scripted};

/// The plugins that the fake has, unless the script takes UCX away.
const PLUGINS: [&str; 2] = ["UCX", "POSIX"];

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) telemetry: bool,
    pub(crate) mailbox: Mailbox,
    backends: Vec<String>,
    regions: Vec<Region>,
    peers: BTreeMap<String, Metadata>,
}

/// A descriptor list that was checked against registered memory.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The peer that owns the memory; `None` for the agent itself.
    pub(crate) peer: Option<String>,
    pub(crate) place: Place,
    /// The fake GPU that the memory belongs to; `None` for host memory.
    pub(crate) gpu: Option<usize>,
    pub(crate) ranges: Vec<Segment>,
}

/// A descriptor list as the caller builds it: ranges with their device.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub(crate) kind: i32,
    pub(crate) list: Vec<(Segment, u64)>,
}

impl Descriptors {
    /// The GPU of the first range: lists of several are not made.
    fn gpu(&self) -> Option<usize> {
        let (_, device) = self.list.first().filter(|_| self.kind == sys::NIXL_CAPI_MEM_VRAM)?;
        usize::try_from(*device).ok()
    }
}

impl Agent {
    pub(crate) fn new(name: String, telemetry: bool) -> Outcome<Self> {
        script::name_agent(&name);
        scripted(script::active(
            |fault| if let Fault::CreateAgent(status) = fault { Some(status) } else { None },
        ))?;
        if script::active(|fault| (fault == Fault::ExitCrash).then_some(())).is_some() {
            static ONCE: Once = Once::new();
            // SAFETY: the handler is a function of this library, which is never unloaded.
            ONCE.call_once(|| _ = unsafe { libc::atexit(crash) });
        }
        let mailbox = Mailbox::open(&name).map_err(|error| {
            crate::say(&format!("no mailbox for agent `{name}`: {error}"));
            BACKEND
        })?;
        AGENTS.fetch_add(1, Ordering::Relaxed);
        let (backends, regions, peers) = Default::default();
        Ok(Self { name, telemetry, mailbox, backends, regions, peers })
    }

    pub(crate) fn plugins() -> Vec<&'static str> {
        let hidden = script::active(|fault| (fault == Fault::NoUcx).then_some("UCX"));
        PLUGINS.into_iter().filter(|plugin| Some(*plugin) != hidden).collect()
    }

    pub(crate) fn create_backend(&mut self, plugin: &str) -> Outcome<()> {
        script::hang(Call::CreateBackend);
        scripted(script::active(
            |fault| if let Fault::CreateBackend(status) = fault { Some(status) } else { None },
        ))?;
        if !Self::plugins().contains(&plugin) || self.backends.iter().any(|known| known == plugin) {
            return Err(BACKEND);
        }
        self.backends.push(plugin.to_owned());
        Ok(())
    }

    pub(crate) fn register(&mut self, descriptors: &Descriptors) -> Outcome<()> {
        scripted(script::active(
            |fault| if let Fault::Register(status) = fault { Some(status) } else { None },
        ))?;
        // Memory of fake GPUs is host memory: the bytes can be moved all the same.
        let known = match descriptors.kind {
            sys::NIXL_CAPI_MEM_DRAM => true,
            sys::NIXL_CAPI_MEM_VRAM => fake_gpus::folder().is_some(),
            _ => false,
        };
        if self.backends.is_empty() || !known {
            return Err(BACKEND);
        }
        self.regions.extend(regions(descriptors));
        REGISTRATIONS.fetch_add(descriptors.list.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn deregister(&mut self, descriptors: &Descriptors) -> Outcome<()> {
        for region in regions(descriptors) {
            let at = self.regions.iter().position(|known| *known == region).ok_or(NOT_FOUND)?;
            self.regions.swap_remove(at);
            REGISTRATIONS.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn metadata(&self) -> Metadata {
        Metadata { pid: std::process::id(), name: self.name.clone(), regions: self.regions.clone() }
    }

    /// Learns about a peer and answers its name.
    pub(crate) fn load(&mut self, blob: &[u8]) -> Outcome<String> {
        script::hang(Call::LoadRemote);
        scripted(script::active(
            |fault| if let Fault::LoadRemote(status) = fault { Some(status) } else { None },
        ))?;
        let peer = Metadata::decode(blob).ok_or(BACKEND)?;
        if peer.name == self.name {
            return Err(INVALID_PARAM);
        }
        let name = peer.name.clone();
        self.peers.insert(name.clone(), peer);
        Ok(name)
    }

    pub(crate) fn forget(&mut self, peer: &str) -> Outcome<()> {
        self.peers.remove(peer).map(drop).ok_or(NOT_FOUND)
    }

    pub(crate) fn peer(&self, name: &str) -> Outcome<&Metadata> {
        self.peers.get(name).ok_or(NOT_FOUND)
    }

    /// Checks a list against the memory of a peer, or of this agent where the name is empty.
    pub(crate) fn prepare(&self, peer: &str, descriptors: &Descriptors) -> Outcome<Prepared> {
        scripted(script::active(|fault| if let Fault::Prep(status) = fault { Some(status) } else { None }))?;
        let own = self.metadata();
        let owner = if peer.is_empty() { &own } else { self.peer(peer)? };
        let is_known = |(range, device): &(Segment, u64)| {
            owner.regions.iter().any(|region| region.holds(descriptors.kind, *device, range.0, range.1))
        };
        if !descriptors.list.iter().all(is_known) {
            return Err(NOT_FOUND);
        }
        Ok(Prepared {
            peer: (!peer.is_empty()).then(|| peer.to_owned()),
            place: Place { pid: owner.pid },
            gpu: descriptors.gpu(),
            ranges: descriptors.list.iter().map(|(range, _)| *range).collect(),
        })
    }

    pub(crate) fn send(&self, peer: &str, message: &[u8]) -> Outcome<()> {
        let peer = self.peer(peer)?;
        self.mailbox.send(peer.pid, &peer.name, message).map_err(|error| {
            crate::say(&format!("no notification to `{}`: {error}", peer.name));
            BACKEND
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        AGENTS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn regions(descriptors: &Descriptors) -> impl Iterator<Item = Region> {
    let region =
        |&((address, len), device): &(Segment, u64)| Region { address, len, device, kind: descriptors.kind };
    descriptors.list.iter().map(region)
}

/// What some installations do when their libraries' destructors run.
extern "C" fn crash() {
    crate::say("crashing at exit");
    // A Rust program's own handler would swallow a raised SIGSEGV once, so the default action is restored first.
    // SAFETY: both calls only concern how this process takes a signal that ends it.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
}
