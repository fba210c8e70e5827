//! The byte budget that readers share.

/// A budget of bytes for what readers have fetched and nobody has consumed yet. Cheap to clone; clones are the same budget.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    limit: usize,
}

impl ByteBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { limit: bytes }
    }

    /// The budget, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }
}
