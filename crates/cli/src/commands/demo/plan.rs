//! What to do with a topic that may be there already, whole, in part, or as something else.

use crate::exit::{Exit, Failure};

/// What the user wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) partitions: Option<i32>,
    pub(super) reload: bool,
    /// How many records the data has.
    pub(super) records: u64,
}

/// What there is of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) partitions: i32,
    pub(super) records: u64,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is all there.
    Keep,
    /// Create it with so many partitions and fill it.
    Load { partitions: i32 },
    /// Delete it first.
    Replace { partitions: i32, why: Why },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// An earlier demo was stopped while it loaded.
    Unfinished { records: u64 },
    /// The user asked for it.
    Asked,
}

/// Decides for the topic `name`.
pub(super) fn step(name: &str, present: Option<Present>, wish: &Wish) -> Result<Step, Failure> {
    let Some(present) = present else { return Ok(Step::Load { partitions: wish.partitions.unwrap_or(1) }) };
    // Whoever loads again without a number keeps the one there is.
    let partitions = wish.partitions.unwrap_or(present.partitions);
    if wish.reload {
        return Ok(Step::Replace { partitions, why: Why::Asked });
    }
    if present.records < wish.records {
        return Ok(Step::Replace { partitions, why: Why::Unfinished { records: present.records } });
    }
    if partitions != present.partitions {
        let message = format!("topic {name} is there with {} partitions, not {partitions}", present.partitions);
        return Err(Failure::new(Exit::Usage, message)
            .hint("--reload loads it again with the new number; another --data-dir leaves it as it is"));
    }
    // More records than the data has are somebody's own, which a demo must not throw away.
    Ok(Step::Keep)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(partitions: Option<i32>, reload: bool) -> Wish {
        Wish { partitions, reload, records: 100 }
    }

    fn present(partitions: i32, records: u64) -> Option<Present> {
        Some(Present { partitions, records })
    }

    #[test]
    fn what_is_missing_is_loaded_and_what_is_whole_is_kept() {
        assert_eq!(step("t", None, &wish(None, false)).unwrap(), Step::Load { partitions: 1 });
        assert_eq!(step("t", None, &wish(Some(6), false)).unwrap(), Step::Load { partitions: 6 });
        assert_eq!(step("t", present(6, 100), &wish(None, false)).unwrap(), Step::Keep);
        assert_eq!(step("t", present(6, 100), &wish(Some(6), false)).unwrap(), Step::Keep);
        assert_eq!(step("t", present(6, 103), &wish(None, false)).unwrap(), Step::Keep);
    }

    #[test]
    fn what_is_half_loaded_is_loaded_again() {
        let again = |partitions| Step::Replace { partitions, why: Why::Unfinished { records: 99 } };
        assert_eq!(step("t", present(6, 99), &wish(None, false)).unwrap(), again(6));
        assert_eq!(step("t", present(6, 99), &wish(Some(2), false)).unwrap(), again(2));
    }

    #[test]
    fn another_number_of_partitions_needs_a_reload() {
        let failure = step("t", present(1, 100), &wish(Some(6), false)).unwrap_err();
        assert!(failure.message.contains("1 partitions, not 6") && failure.hint.unwrap().contains("--reload"));
        let replace = Step::Replace { partitions: 6, why: Why::Asked };
        assert_eq!(step("t", present(1, 100), &wish(Some(6), true)).unwrap(), replace);
    }
}
