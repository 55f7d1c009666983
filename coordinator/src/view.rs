//! What a watcher has been told, so that after a reconnect it is told exactly the difference.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::store::{Event, Why};

/// Keys reported so far, each with the revision at which it was put.
#[derive(Debug, Default)]
pub(crate) struct View {
    known: BTreeMap<String, u64>,
}

impl View {
    /// A change that the store reported while connected.
    pub(crate) fn put(&mut self, key: String, value: Bytes, rev: u64) -> Event {
        self.known.insert(key.clone(), rev);
        Event::Put { key, value }
    }

    /// A deletion that the store reported while connected. None if the key was never reported.
    pub(crate) fn deleted(&mut self, key: String, why: Why) -> Option<Event> {
        self.known.remove(&key)?;
        Some(Event::Deleted { key, why })
    }

    /// How many keys are known to be there.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether a listing lacks a key that was reported.
    pub(crate) fn misses_any(&self, present: &[(String, Bytes, u64)]) -> bool {
        self.known.keys().any(|known| present.iter().all(|(key, _, _)| key != known))
    }

    /// The keys of a listing that were never reported; what it lacks stays known.
    pub(crate) fn additions(&mut self, present: &[(String, Bytes, u64)]) -> Vec<Event> {
        let mut fresh: Vec<_> = present.iter().filter(|(key, _, _)| !self.known.contains_key(key)).collect();
        fresh.sort_by_key(|(_, _, rev)| *rev);
        fresh.into_iter().map(|(key, value, rev)| self.put(key.clone(), value.clone(), *rev)).collect()
    }

    /// Like [`resync`](Self::resync) for a store whose revisions started anew: keys that are there
    /// again count as unchanged.
    pub(crate) fn replace(&mut self, present: Vec<(String, Bytes, u64)>) -> Vec<Event> {
        for (key, _, rev) in &present {
            if let Some(known) = self.known.get_mut(key) {
                *known = *rev;
            }
        }
        self.resync(present)
    }

    /// Turns a full listing into the events that lead from what was known to it.
    pub(crate) fn resync(&mut self, present: Vec<(String, Bytes, u64)>) -> Vec<Event> {
        let now: BTreeMap<&str, u64> = present.iter().map(|(k, _, r)| (k.as_str(), *r)).collect();
        let mut events: Vec<Event> = self
            .known
            .iter()
            .filter(|(key, rev)| now.get(key.as_str()) != Some(rev))
            .map(|(key, _)| Event::Deleted { key: key.clone(), why: Why::Unknown })
            .collect();
        let mut fresh: Vec<_> =
            present.into_iter().filter(|(key, _, rev)| self.known.get(key) != Some(rev)).collect();
        fresh.sort_by_key(|(_, _, rev)| *rev);
        for event in &events {
            self.known.remove(event.key());
        }
        for (key, value, rev) in fresh {
            events.push(self.put(key, value, rev));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, rev: u64) -> (String, Bytes, u64) {
        (key.to_owned(), Bytes::from_static(b"v"), rev)
    }

    fn names(events: &[Event]) -> Vec<String> {
        let name = |e: &Event| match e {
            Event::Put { key, .. } => format!("+{key}"),
            Event::Deleted { key, .. } => format!("-{key}"),
        };
        events.iter().map(name).collect()
    }

    #[test]
    fn additions_are_told_while_what_is_missing_stays_known() {
        let mut view = View::default();
        view.resync(vec![row("a", 5), row("b", 6)]);
        // A store that lost its data: b is back at a new revision, c is new, a is not there yet.
        let rows = [row("c", 2), row("b", 1)];
        assert_eq!(names(&view.additions(&rows)), ["+c"]);
        assert!(view.misses_any(&rows));
        assert_eq!(names(&view.additions(&rows)), [""; 0]);
        assert_eq!(names(&view.replace(vec![row("b", 1), row("c", 2)])), ["-a"]);
    }

    #[test]
    fn a_resync_tells_the_difference_only() {
        let mut view = View::default();
        assert_eq!(names(&view.resync(vec![row("b", 2), row("a", 5)])), ["+b", "+a"]);
        assert_eq!(names(&view.resync(vec![row("a", 5), row("b", 2)])), [""; 0]);
        // b was replaced, a vanished, c is new.
        assert_eq!(names(&view.resync(vec![row("c", 8), row("b", 7)])), ["-a", "-b", "+b", "+c"]);
        assert!(view.deleted("a".into(), Why::Left).is_none());
        assert!(view.deleted("b".into(), Why::Left).is_some());
    }
}
