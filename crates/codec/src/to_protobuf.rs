//! Placeholder.
use crate::table::Table;
use crate::{ToProtobufError, UnknownMode};
pub(crate) fn convert(_: &Table, _: u32, _: &[u8], _: UnknownMode, _: &mut Vec<u8>) -> Result<(), ToProtobufError> {
    todo!()
}
