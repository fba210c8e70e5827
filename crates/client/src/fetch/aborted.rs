//! Which batches belong to aborted transactions (KIP-98). Pure.

use std::collections::{HashSet, VecDeque};

/// One aborted transaction, as a fetch response lists those that its records may belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aborted {
    pub(super) producer_id: i64,
    /// Where its first record is.
    pub(super) first_offset: i64,
}

/// Follows the aborted transactions of one fetch response, batch by batch in offset order.
///
/// ```text
/// list: (producer 7, first offset 10)
/// offset:   8        10       12       13        14       15
/// batch:    7:data   7:data   9:data   7:ABORT   7:data   7:COMMIT
///           kept     dropped  kept     ends it   kept
/// ```
/// Only from its first offset on do a producer's transactional batches belong to the aborted transaction, and only up to
/// its ABORT marker; a producer may abort one transaction and commit the next.
#[derive(Clone, Debug)]
pub(super) struct AbortedTransactions {
    ahead: VecDeque<Aborted>,
    open: HashSet<i64>,
}

impl AbortedTransactions {
    pub(super) fn new(mut listed: Vec<Aborted>) -> Self {
        listed.sort_unstable_by_key(|aborted| aborted.first_offset);
        Self { ahead: listed.into(), open: HashSet::new() }
    }

    /// The next batch ends at `last_offset`: transactions that began up to there are open now.
    pub(super) fn advance(&mut self, last_offset: i64) {
        while let Some(aborted) = self.ahead.pop_front_if(|aborted| aborted.first_offset <= last_offset) {
            self.open.insert(aborted.producer_id);
        }
    }

    /// Whether what `producer_id` writes here is part of an aborted transaction.
    pub(super) fn contains(&self, producer_id: i64) -> bool {
        self.open.contains(&producer_id)
    }

    /// The producer's ABORT marker was passed.
    pub(super) fn end(&mut self, producer_id: i64) {
        self.open.remove(&producer_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(aborted: &[(i64, i64)]) -> AbortedTransactions {
        let aborted = aborted
            .iter()
            .map(|(producer_id, first_offset)| Aborted { producer_id: *producer_id, first_offset: *first_offset });
        AbortedTransactions::new(aborted.collect())
    }

    #[test]
    fn a_transaction_is_aborted_from_its_first_offset_to_its_marker() {
        let mut transactions = listed(&[(7, 10)]);
        transactions.advance(8);
        assert!(!transactions.contains(7));
        transactions.advance(10);
        assert!(transactions.contains(7) && !transactions.contains(9));
        transactions.end(7);
        transactions.advance(14);
        assert!(!transactions.contains(7));
    }

    #[test]
    fn one_producer_may_abort_twice_and_the_list_may_come_in_any_order() {
        let mut transactions = listed(&[(7, 30), (9, 20), (7, 10)]);
        transactions.advance(10);
        assert!(transactions.contains(7) && !transactions.contains(9));
        transactions.end(7);
        transactions.advance(25);
        assert!(!transactions.contains(7) && transactions.contains(9));
        transactions.advance(31);
        assert!(transactions.contains(7));
    }
}
