//! Counts what still depends on a NIXL object.
//!
//! The borrow checker says that nothing *reachable* depends on an object when it is dropped. It cannot speak for a
//! transfer that was given up in flight, or for a value that was forgotten: those are still counted here, and then
//! the object stays.

use std::cell::Cell;

/// How many dependants an object has. Every dependant enters when it is made and leaves only when it was freed.
#[derive(Debug, Default)]
pub(crate) struct Users(Cell<usize>);

impl Users {
    pub(crate) fn enter(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(crate) fn leave(&self) {
        self.0.set(self.0.get().saturating_sub(1));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.0.get() == 0
    }
}
