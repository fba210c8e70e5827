//! What `publish` reads: lines of a file or of standard input, and the records in them.

pub(crate) mod fields;
pub(crate) mod lines;
pub(crate) mod open;
pub(crate) mod records;
pub(crate) mod timestamp;
