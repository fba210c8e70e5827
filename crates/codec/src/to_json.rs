//! Placeholder.
use crate::table::Table;
use crate::{JsonOptions, ToJsonError};
pub(crate) fn convert(_: &Table, _: u32, _: &[u8], _: &JsonOptions, _: &mut Vec<u8>) -> Result<(), ToJsonError> {
    todo!()
}
