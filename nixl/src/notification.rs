//! Notifications that arrived.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use crate::agent::Agent;
use crate::error::{Result, check};
use crate::handle::NotifMap;

impl Agent {
    /// Takes what arrived, calls `each` with sender and message, and answers how many there were.
    ///
    /// Messages of one sender come in the order of arrival, and may hold any bytes. The call also progresses the
    /// backends: a target without a progress thread must make it all the time.
    ///
    /// # Errors
    /// When NIXL refuses.
    pub fn notifications(&self, mut each: impl FnMut(&str, &[u8])) -> Result<usize> {
        // A new map each time: `each` may call this again, which would change a shared one under our feet.
        let map = NotifMap::new(&self.library)?;
        // SAFETY: both handles are live.
        let code = unsafe { (self.library.get_notifs)(self.raw, map.raw(), null_mut()) };
        check("get_notifs", code, || self)?;
        let mut senders = 0;
        // SAFETY: the map is live and `senders` writable.
        let code = unsafe { (self.library.notif_map_size)(map.raw(), &raw mut senders) };
        check("notif_map_size", code, || self)?;
        let mut total = 0;
        for index in 0..senders {
            total += self.of_sender(&map, index, &mut each)?;
        }
        Ok(total)
    }

    fn of_sender(
        &self,
        map: &NotifMap<'_>,
        index: usize,
        each: &mut impl FnMut(&str, &[u8]),
    ) -> Result<usize> {
        let (mut name, mut count) = (null(), 0);
        // SAFETY: the map is live, the index below its size, and `name` writable.
        let code = unsafe { (self.library.notif_map_get_agent_at)(map.raw(), index, &raw mut name) };
        check("notif_map_get_agent_at", code, || self)?;
        // SAFETY: the map is live, the name is its own, and `count` writable.
        let code = unsafe { (self.library.notif_map_get_notifs_size)(map.raw(), name, &raw mut count) };
        check("notif_map_get_notifs_size", code, || self)?;
        // SAFETY: NIXL gave a C string that lives as long as the map, which does not change any more.
        let sender = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        for at in 0..count {
            let (mut data, mut len) = (null(), 0);
            // SAFETY: as above; the index is below the sender's count.
            let code = unsafe {
                (self.library.notif_map_get_notif)(map.raw(), name, at, &raw mut data, &raw mut len)
            };
            check("notif_map_get_notif", code, || format!("a notification of `{sender}`"))?;
            let message = if data.is_null() || len == 0 {
                &[]
            } else {
                // SAFETY: NIXL gave `len` bytes that live as long as the map.
                unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }
            };
            each(&sender, message);
        }
        Ok(count)
    }
}
