//! Connections to a partition's leader that the pieces of a reader use one after another.

use parking_lot::Mutex;

use super::task::Lead;

/// See the [module](self). Dropping it closes them.
#[derive(Default)]
pub(super) struct Lanes {
    idle: Mutex<Vec<Lead>>,
}

impl Lanes {
    /// A connection that may be used.
    pub(super) fn take(&self) -> Option<Lead> {
        let mut idle = self.idle.lock();
        while let Some(lead) = idle.pop() {
            if lead.connection.is_usable() {
                return Some(lead);
            }
        }
        None
    }

    /// Keeps a connection for the next piece.
    pub(super) fn put(&self, lead: Lead) {
        self.idle.lock().push(lead);
    }

    /// Closes those beyond `count`.
    pub(super) fn keep(&self, count: usize) {
        self.idle.lock().truncate(count);
    }

    /// Closes all: their leader may be no leader any more.
    pub(super) fn clear(&self) {
        self.idle.lock().clear();
    }
}
