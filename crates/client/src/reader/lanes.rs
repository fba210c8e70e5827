//! Connections to a partition's leader that the pieces of a reader use one after another.

use parking_lot::Mutex;

use super::task::Lead;

/// See the [module](self). Dropping it closes them.
pub(super) struct Lanes {
    state: Mutex<State>,
}

struct State {
    idle: Vec<Lead>,
    /// More are not kept: as many as there are pieces at once.
    most: usize,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { state: Mutex::new(State { idle: Vec::new(), most: 1 }) }
    }
}

impl Lanes {
    /// A connection that may be used.
    pub(super) fn take(&self) -> Option<Lead> {
        let mut state = self.state.lock();
        while let Some(lead) = state.idle.pop() {
            if lead.connection.is_usable() {
                return Some(lead);
            }
        }
        None
    }

    /// Keeps a connection for the next piece, or closes it when there are enough.
    pub(super) fn put(&self, lead: Lead) {
        let mut state = self.state.lock();
        if state.idle.len() < state.most {
            state.idle.push(lead);
        }
    }

    /// From now on no more than `most` are kept.
    pub(super) fn keep(&self, most: usize) {
        let mut state = self.state.lock();
        state.most = most;
        state.idle.truncate(most);
    }

    /// Closes all: their leader may be no leader any more.
    pub(super) fn clear(&self) {
        self.state.lock().idle.clear();
    }
}
