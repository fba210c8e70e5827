//! A frame that is decoded within an allowance of memory. Pure.

use std::ops::Range;

use bytes::{Buf, Bytes};
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};

/// The longest value that is read at once and not as a view: a UUID.
const LONGEST_VALUE: usize = 16;

/// A frame, of which only so many bytes may be read as values. Strings, records and whatever else stays a view into the frame
/// is free: it takes no memory of its own, while three bytes may become a structure of a hundred.
pub(super) struct Metered {
    frame: Bytes,
    allowance: usize,
}

impl Metered {
    pub(super) fn new(frame: Bytes, allowance: usize) -> Self {
        Self { frame, allowance }
    }

    /// Whether the allowance, and not the frame, is what ended the reading.
    pub(super) fn is_spent(&self) -> bool {
        self.allowance < LONGEST_VALUE && self.allowance < self.frame.len()
    }
}

impl Buf for Metered {
    fn remaining(&self) -> usize {
        self.frame.len().min(self.allowance)
    }

    fn chunk(&self) -> &[u8] {
        &self.frame[..self.remaining()]
    }

    fn advance(&mut self, count: usize) {
        self.frame.advance(count);
        self.allowance = self.allowance.saturating_sub(count);
    }
}

impl ByteBuf for Metered {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.frame.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.frame.split_to(size)
    }

    fn try_peek_bytes(&mut self, range: Range<usize>) -> Result<Bytes, NotEnoughBytesError> {
        if self.frame.len() < range.end { Err(NotEnoughBytesError) } else { Ok(self.peek_bytes(range)) }
    }

    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        if self.frame.len() < size { Err(NotEnoughBytesError) } else { Ok(self.get_bytes(size)) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::fetch_response::{AbortedTransaction, FetchableTopicResponse, PartitionData};
    use kafka_protocol::messages::{FetchResponse, TopicName};
    use kafka_protocol::protocol::{Decodable as _, Encodable as _, StrBytes};
    use proptest::prelude::*;

    use super::*;

    fn partition(aborted: usize, records: usize) -> PartitionData {
        PartitionData::default()
            .with_high_watermark(7)
            .with_aborted_transactions(Some(vec![AbortedTransaction::default(); aborted]))
            .with_records(Some(vec![7; records].into()))
    }

    fn response(topics: &[Vec<(usize, usize)>]) -> FetchResponse {
        let topics = topics.iter().map(|partitions| {
            let partitions = partitions.iter().map(|(aborted, records)| partition(*aborted, *records)).collect();
            let name = TopicName(StrBytes::from_static_str("a topic"));
            FetchableTopicResponse::default().with_topic(name).with_partitions(partitions)
        });
        FetchResponse::default().with_responses(topics.collect())
    }

    fn encoded(response: &FetchResponse, version: i16) -> Bytes {
        let mut bytes = BytesMut::new();
        response.encode(&mut bytes, version).unwrap();
        bytes.freeze()
    }

    fn decoded(frame: &Bytes, allowance: usize, version: i16) -> (Option<FetchResponse>, bool) {
        let mut metered = Metered::new(frame.clone(), allowance);
        let decoded = FetchResponse::decode(&mut metered, version).ok();
        (decoded, metered.is_spent())
    }

    proptest! {
        #[test]
        fn records_and_names_are_free_and_the_rest_is_not(
            topics in prop::collection::vec(prop::collection::vec((0_usize..5, 0_usize..3_000), 0..4), 0..4),
            version in 4_i16..=12,
        ) {
            let response = response(&topics);
            let frame = encoded(&response, version);
            let records: usize = topics.iter().flatten().map(|(_, records)| records).sum();
            let needed = frame.len() - records - topics.len() * "a topic".len();
            prop_assert_eq!(decoded(&frame, needed, version), (Some(response), false));
            prop_assert_eq!(decoded(&frame, needed - 1, version), (None, true));
        }

        #[test]
        fn whatever_comes_is_read_as_without_an_allowance_that_suffices(
            topics in prop::collection::vec(prop::collection::vec((0_usize..5, 0_usize..300), 0..4), 0..4),
            version in 4_i16..=12,
            cut in any::<prop::sample::Index>(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            allowance in 0_usize..600,
        ) {
            let mut frame = BytesMut::from(&encoded(&response(&topics), version)[..]);
            for (at, value) in damage {
                let at = at.index(frame.len());
                frame[at] = value;
            }
            let frame = frame.freeze();
            let frame = frame.slice(..cut.index(frame.len() + 1));
            let plain = FetchResponse::decode(&mut frame.clone(), version).ok();
            prop_assert_eq!(decoded(&frame, frame.len(), version), (plain.clone(), false));
            let (within, is_spent) = decoded(&frame, allowance, version);
            prop_assert!(within == plain || (within.is_none() && is_spent));
        }

        #[test]
        fn noise_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), version in 4_i16..=12, allowance in 0_usize..500) {
            decoded(&bytes.into(), allowance, version);
        }
    }
}
