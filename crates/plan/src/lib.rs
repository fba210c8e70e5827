//! Pure decisions: what a time expression means, which offsets a range needs, which records belong to it, and what may be
//! said at the end. No clock, no environment, no I/O: facts go in, values come out.
//!
//! - [`time_expr`]: the time grammar.
//! - [`range`]: a range and a partition's facts give the offsets to read.
//! - [`tally`]: record by record, what belongs to the range and what is late.
//! - [`end`]: the end statement, with its proof.

pub mod end;
pub mod range;
pub mod tally;
pub mod time_expr;

pub use end::{EndStatement, LogEnd, PartitionEnd, Proof};
pub use range::{OffsetBounds, PartitionFacts, PartitionPlan, PlanOffsetsError, plan_offsets, plan_time};
pub use tally::{PartitionTally, Verdict};
pub use time_expr::{RangeError, TimeExprError, parse, parse_range};
