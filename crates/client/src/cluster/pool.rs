//! The connections for quick questions: one per broker, shared by all callers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::conn::{Connection, Dialer};
use crate::error::RequestError;

/// One connection per address, opened when it is first needed.
#[derive(Default)]
pub(super) struct Pool {
    slots: Mutex<HashMap<Arc<str>, Arc<tokio::sync::Mutex<Slot>>>>,
}

#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    /// The last attempt that failed, for those who waited for it.
    failed: Option<(Instant, RequestError)>,
}

impl Pool {
    /// The connection to `address`. Callers that ask at the same time share one attempt to open it, and its failure.
    pub(super) async fn get(&self, dialer: &Dialer, address: &Arc<str>) -> Result<Connection, RequestError> {
        let asked = Instant::now();
        let slot = Arc::clone(self.slots.lock().entry(Arc::clone(address)).or_default());
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.connection.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(connection.clone());
        }
        if let Some((_, failure)) = slot.failed.as_ref().filter(|(at, _)| *at > asked) {
            return Err(failure.clone());
        }
        slot.connection = None;
        match dialer.open(address).await {
            Ok(connection) => {
                slot.failed = None;
                slot.connection = Some(connection.clone());
                Ok(connection)
            }
            Err(failure) => {
                slot.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Forgets the connections to addresses that are not kept.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.slots.lock().retain(|address, _| keep(address));
    }
}
