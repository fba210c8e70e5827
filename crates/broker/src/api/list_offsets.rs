//! ListOffsets: offsets by timestamp, and the special ones.

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use tidegate_wire::TimestampOffset;
use uuid::Uuid;

use super::{Facts, check_leader_epoch, find_topic};
use crate::shared::Shared;
use crate::storage::Topic;
use crate::storage::log::{LEADER_EPOCH, Log};
use crate::storage::lookup::{self, LookupError};

/// What the broker answers for an offset or a time that there is not.
const NONE: i64 = -1;

/// What a timestamp field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Latest,
    Earliest,
    MaxTimestamp,
    /// The end of what lies on tiered storage: there is none.
    LatestTiered,
    AtOrAfter(i64),
}

impl Wanted {
    /// Source: `ListOffsetsRequest`; KIP-734 (-3), KIP-405 (-4), KIP-1005 (-5).
    fn of(timestamp: i64, version: i16) -> Result<Self, ResponseError> {
        match timestamp {
            0.. => Ok(Self::AtOrAfter(timestamp)),
            -1 => Ok(Self::Latest),
            -2 => Ok(Self::Earliest),
            -3 if version >= 7 => Ok(Self::MaxTimestamp),
            // The earliest offset on the local disk; all of it is there.
            -4 if version >= 8 => Ok(Self::Earliest),
            -5 if version >= 9 => Ok(Self::LatestTiered),
            _ => Err(ResponseError::UnsupportedVersion),
        }
    }
}

pub(super) async fn list_offsets(
    shared: &Arc<Shared>,
    request: ListOffsetsRequest,
    facts: Facts,
) -> ListOffsetsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    // A lookup opens a batch: a small request must not ask for thousands of the same.
    let mut seen = HashSet::new();
    for topic in request.topics {
        let found = find_topic(shared, &topic.name, Uuid::nil(), false);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let mut response = ListOffsetsPartitionResponse::default().with_partition_index(wanted.partition_index);
            (response.timestamp, response.offset) = (NONE, NONE);
            let first = seen.insert((topic.name.clone(), wanted.partition_index));
            let found =
                if first { look_up(shared, &found, &wanted, facts).await } else { Err(ResponseError::InvalidRequest) };
            match found {
                Ok(Some(found)) => {
                    (response.timestamp, response.offset) = (found.timestamp_ms, found.offset);
                    if facts.version >= 4 {
                        response.leader_epoch = LEADER_EPOCH;
                    }
                }
                Ok(None) => {}
                Err(error) => response.error_code = error.code(),
            }
            partitions.push(response);
        }
        topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    ListOffsetsResponse::default().with_topics(topics)
}

async fn look_up(
    shared: &Arc<Shared>,
    topic: &Result<Arc<Topic>, ResponseError>,
    partition: &ListOffsetsPartition,
    facts: Facts,
) -> Result<Option<TimestampOffset>, ResponseError> {
    let log = topic.as_ref().map_err(|error| *error)?.partition(partition.partition_index);
    let log = log.ok_or(ResponseError::UnknownTopicOrPartition)?;
    check_leader_epoch(partition.current_leader_epoch)?;
    let view = log.view();
    let special = |offset| Ok(Some(TimestampOffset { timestamp_ms: NONE, offset }));
    match Wanted::of(partition.timestamp, facts.version)? {
        Wanted::Latest => special(view.high_watermark()),
        Wanted::Earliest => special(view.log_start_offset),
        Wanted::LatestTiered => Ok(None),
        wanted @ (Wanted::MaxTimestamp | Wanted::AtOrAfter(_)) => {
            let log = Arc::clone(log);
            let found = shared.reading(move |shared| look_into(shared, &log, wanted));
            found.await.unwrap_or(Err(ResponseError::UnknownServerError))
        }
    }
}

fn look_into(shared: &Shared, log: &Log, wanted: Wanted) -> Result<Option<TimestampOffset>, ResponseError> {
    let limits = shared.batch_limits();
    let look = || {
        let view = log.view();
        match wanted {
            Wanted::AtOrAfter(time) => lookup::first_at_or_after(&view, log.pool(), time, &limits),
            _ => lookup::max_timestamp(&view, log.pool(), &limits),
        }
    };
    let found = match look() {
        // 1. This lookup takes its view. 2. The retention removes the oldest segment. 3. This lookup opens its files. The
        // next view is without that segment.
        Err(LookupError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => look(),
        found => found,
    };
    found.map_err(|error| {
        tracing::error!(topic_partition = %log.topic_partition(), %error, "a time lookup failed");
        match error {
            LookupError::Io(_) => ResponseError::KafkaStorageError,
            LookupError::Batch(_) => ResponseError::CorruptMessage,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_special_time_is_only_known_to_the_versions_that_have_it() {
        assert_eq!(Wanted::of(0, 1), Ok(Wanted::AtOrAfter(0)));
        assert_eq!(Wanted::of(-1, 1), Ok(Wanted::Latest));
        assert_eq!(Wanted::of(-2, 1), Ok(Wanted::Earliest));
        assert_eq!(Wanted::of(-3, 6), Err(ResponseError::UnsupportedVersion));
        assert_eq!(Wanted::of(-3, 7), Ok(Wanted::MaxTimestamp));
        assert_eq!(Wanted::of(-4, 8), Ok(Wanted::Earliest));
        assert_eq!(Wanted::of(-5, 9), Ok(Wanted::LatestTiered));
        assert_eq!(Wanted::of(i64::MIN, 10), Err(ResponseError::UnsupportedVersion));
    }
}
