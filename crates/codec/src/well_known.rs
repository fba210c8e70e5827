//! The texts that some of Google's well-known types have in JSON.

mod field_mask;
mod time;

pub(crate) use field_mask::{path_from_json, write_path};
pub(crate) use time::{parse_duration, parse_timestamp, write_duration, write_timestamp};
