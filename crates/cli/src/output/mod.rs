//! Where things go: records and tables to standard output or a file, talk to standard error.

pub(crate) mod progress;
pub(crate) mod sink;
pub(crate) mod table;
pub(crate) mod talk;
