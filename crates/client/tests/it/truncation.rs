//! A log that is truncated and written anew behind a reader's position: a scripted broker plays the leaders, since no real one
//! elects a replica that lacks records when it is asked to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{ApiKey, OffsetForLeaderEpochResponse};
use tidegate_client::{ReadError, Slice};
use tidegate_wire::BatchOptions;

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log, Reply, Request, api_versions, metadata};
use crate::support::{batch_of, connect, drain, options, slice};

const OLD_EPOCH: i32 = 3;
const NEW_EPOCH: i32 = 4;
const FENCED_LEADER_EPOCH: i16 = 74;

/// Led under one epoch until everything up to offset 10 was read, and then under another.
struct Leaders {
    topic: FakeTopic,
    /// Where the new leader says that the batches of the old one end.
    end_of_old: (i16, i64),
    /// How often it was asked.
    asked: Arc<AtomicUsize>,
    epoch: i32,
}

impl Leaders {
    fn answer(&mut self, request: &Request, addr: SocketAddr) -> Reply {
        match request.api {
            ApiKey::ApiVersions => request.respond(&api_versions(&self.topic.versions)),
            ApiKey::Metadata => {
                let mut shown = metadata(&[addr], &self.topic, &|_| Some(0));
                shown.topics[0].partitions[0].leader_epoch = self.epoch;
                request.respond(&shown)
            }
            ApiKey::OffsetForLeaderEpoch => self.tell_end(request),
            ApiKey::Fetch => self.serve(request),
            other => panic!("{other:?}"),
        }
    }

    fn tell_end(&self, request: &Request) -> Reply {
        let asked = request.offset_for_leader_epoch();
        let partition = &asked.topics[0].partitions[0];
        assert_eq!((partition.current_leader_epoch, partition.leader_epoch), (NEW_EPOCH, OLD_EPOCH));
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (error_code, end_offset) = self.end_of_old;
        let answer = EpochEndOffset::default()
            .with_partition(partition.partition)
            .with_error_code(error_code)
            .with_leader_epoch(OLD_EPOCH)
            .with_end_offset(end_offset);
        let topic = OffsetForLeaderTopicResult::default()
            .with_topic(asked.topics[0].topic.clone())
            .with_partitions(vec![answer]);
        request.respond(&OffsetForLeaderEpochResponse::default().with_topics(vec![topic]))
    }

    fn serve(&mut self, request: &Request) -> Reply {
        let batch = |base, epoch| batch_of(base, 5, BatchOptions { leader_epoch: epoch, ..BatchOptions::default() });
        let partition = request.fetch().topics[0].partitions[0].clone();
        if partition.fetch_offset >= 10 {
            self.epoch = NEW_EPOCH;
        }
        if partition.current_leader_epoch != self.epoch {
            return FetchAnswer::error(FENCED_LEADER_EPOCH).to(request);
        }
        // The new leader has the same number of batches and one more.
        let epochs = if self.epoch == OLD_EPOCH { &[3, 3][..] } else { &[3, 3, 4] };
        let log = Log::of((0..).step_by(5).zip(epochs).map(|(base, epoch)| batch(base, *epoch)));
        log.answer(request).to(request)
    }
}

/// What a reader gets, and how often the new leader was asked where the old one's batches end.
async fn read(topic: FakeTopic, end_of_old: (i16, i64), slice: Slice) -> (Vec<i64>, Result<(), ReadError>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let mut leaders = Leaders { topic, end_of_old, asked: Arc::clone(&asked), epoch: OLD_EPOCH };
    let broker = FakeBroker::start(move |request, addr| leaders.answer(request, addr)).await;
    let client = connect(broker.bootstrap()).await;
    let (offsets, result) = drain(&mut client.read(slice, options())).await;
    (offsets, result, asked.load(Ordering::SeqCst))
}

fn telling() -> FakeTopic {
    FakeTopic::new("orders", 1).with_version(ApiKey::OffsetForLeaderEpoch, 2, 4)
}

#[tokio::test]
async fn a_log_that_was_truncated_behind_the_position_ends_the_read_with_what_is_lost() {
    let following = Slice::from(slice("orders", 0, 0, 1).topic_partition, 0);
    for slice in [slice("orders", 0, 0, 15), following] {
        let (offsets, result, _) = read(telling(), (0, 6), slice).await;
        assert_eq!(offsets, (0..10).collect::<Vec<_>>());
        let error = result.unwrap_err();
        assert!(
            matches!(error, ReadError::Truncated { position: 10, end_offset: 6, leader_epoch: OLD_EPOCH, .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_new_leader_that_has_what_was_read_is_asked_once_and_reading_goes_on() {
    let (offsets, result, asked) = read(telling(), (0, 10), slice("orders", 0, 0, 15)).await;
    result.unwrap();
    assert_eq!((offsets, asked), ((0..15).collect::<Vec<_>>(), 1));
}

#[tokio::test]
async fn a_broker_that_cannot_tell_is_trusted() {
    // An epoch that it does not know, an error that no other leader would mend, and no such request at all.
    let silent = FakeTopic::new("orders", 1);
    for (topic, end_of_old, times) in [(telling(), (0, -1), 1), (telling(), (43, -1), 1), (silent, (0, 6), 0)] {
        let (offsets, result, asked) = read(topic, end_of_old, slice("orders", 0, 0, 15)).await;
        result.unwrap();
        assert_eq!((offsets, asked), ((0..15).collect::<Vec<_>>(), times));
    }
}
