//! The commands, one file each.

pub(crate) mod demo;
pub(crate) mod publish;
pub(crate) mod read;
pub(crate) mod serve;
pub(crate) mod topics;
