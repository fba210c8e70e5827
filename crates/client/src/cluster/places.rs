//! How many connections are open to each broker for fetching.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts connections by the broker's address.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<HashMap<Arc<str>, usize>>,
}

/// One connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    address: Arc<str>,
}

impl Places {
    /// Counts one more connection to `address`.
    pub(crate) fn take(self: &Arc<Self>, address: &Arc<str>) -> Place {
        *self.taken.lock().entry(Arc::clone(address)).or_default() += 1;
        Place { places: Arc::clone(self), address: Arc::clone(address) }
    }

    /// How many there are to `address`.
    pub(crate) fn count(&self, address: &str) -> usize {
        self.taken.lock().get(address).copied().unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_as_long_as_it_is_kept() {
        let (places, address) = (Arc::new(Places::default()), Arc::from("a:1"));
        let (first, second) = (places.take(&address), places.take(&address));
        assert_eq!((places.count("a:1"), places.count("b:1")), (2, 0));
        drop(first);
        assert_eq!(places.count("a:1"), 1);
        drop(second);
        assert!(places.taken.lock().is_empty());
    }
}
