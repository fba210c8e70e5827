//! DeleteRecords (KIP-107).

use std::collections::HashSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use uuid::Uuid;

use super::find_topic;
use crate::shared::{NotCarriedOut, Shared};
use crate::storage::Topic;
use crate::storage::log::{MoveStartError, NotOpen};

/// As an offset: the high watermark.
const HIGH_WATERMARK: i64 = -1;

pub(super) async fn delete_records(shared: &Arc<Shared>, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    // Each deletion waits for the disk: a small request must not ask for thousands of the same.
    let mut seen = HashSet::new();
    for topic in request.topics {
        let found = find_topic(shared, &topic.name, Uuid::nil(), false);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions {
            let result = DeleteRecordsPartitionResult::default().with_partition_index(wanted.partition_index);
            let first = seen.insert((topic.name.clone(), wanted.partition_index));
            let deleted =
                if first { delete(shared, &found, &wanted).await } else { Err(ResponseError::InvalidRequest) };
            partitions.push(match deleted {
                Ok(low_watermark) => result.with_low_watermark(low_watermark),
                Err(error) => result.with_low_watermark(-1).with_error_code(error.code()),
            });
        }
        topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
    }
    DeleteRecordsResponse::default().with_topics(topics)
}

async fn delete(
    shared: &Arc<Shared>,
    topic: &Result<Arc<Topic>, ResponseError>,
    wanted: &DeleteRecordsPartition,
) -> Result<i64, ResponseError> {
    let topic = topic.as_ref().map_err(|error| *error)?;
    let log = topic.partition(wanted.partition_index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let (log, offset) = (Arc::clone(log), wanted.offset);
    let deleted = shared.writing(move |_| {
        let offset = if offset == HIGH_WATERMARK { log.view().high_watermark() } else { offset };
        log.delete_before(offset).inspect_err(|error| {
            if matches!(error, MoveStartError::Io(_)) {
                tracing::error!(topic_partition = %log.topic_partition(), %error, "cannot delete records");
            }
        })
    });
    match deleted.await {
        Ok(Ok(log_start_offset)) => Ok(log_start_offset),
        Ok(Err(MoveStartError::OutOfRange { .. })) => Err(ResponseError::OffsetOutOfRange),
        Ok(Err(MoveStartError::NotOpen(NotOpen::Deleted))) => Err(ResponseError::UnknownTopicOrPartition),
        Ok(Err(MoveStartError::NotOpen(NotOpen::Closed))) => Err(ResponseError::NotLeaderOrFollower),
        Ok(Err(MoveStartError::NotOpen(NotOpen::Failed { .. }) | MoveStartError::Io(_))) => {
            Err(ResponseError::KafkaStorageError)
        }
        Err(NotCarriedOut) => Err(ResponseError::UnknownServerError),
    }
}
