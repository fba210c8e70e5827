//! Transactions take offsets that no record has; a group that has read everything must not show a lag for ever.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tidegate_client::{AssignmentStrategy, GroupEvent, GroupProtocol};
use tidegate_testkit::{kafka, unique_topic};

use crate::members::{Ground, assigned, next, offsets};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_has_read_everything_commits_the_offset_behind_the_last_marker() {
    let Some(bootstrap) = kafka::shared("a group commits behind markers") else { return };
    let ground = Ground::new(bootstrap.clone(), GroupProtocol::Classic, AssignmentStrategy::CooperativeSticky).await;
    let (topic, group) = (ground.topic(1).await, unique_topic("markers"));
    let written = topic.clone();
    // Two records and their commit marker, then one record that is aborted, with its marker: offsets 0 to 4.
    tokio::task::spawn_blocking(move || {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("transactional.id", unique_topic("id"))
            .create()
            .unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        for (count, commit) in [(2, true), (1, false)] {
            producer.begin_transaction().unwrap();
            for _ in 0..count {
                let record = BaseRecord::<(), str>::to(written.as_str()).partition(0).payload("v");
                producer.send(record).map_err(|(error, _)| error).unwrap();
            }
            producer.flush(PATIENCE).unwrap();
            if commit { producer.commit_transaction(PATIENCE) } else { producer.abort_transaction(PATIENCE) }.unwrap();
        }
    })
    .await
    .unwrap();
    let mut source = ground.join(ground.options(&group, &[topic.as_str()])).await;
    let (mut records, mut position) = (Vec::new(), 0);
    while position < 5 {
        if let GroupEvent::Chunk(chunk) = next(&mut source).await.unwrap() {
            records.extend(offsets(&chunk));
            position = chunk.next_offset;
            assert!(source.commit(&chunk.topic_partition, position, None));
        }
    }
    assert_eq!((records, position), (vec![0, 1], 5));
    source.close().await.unwrap();
    let mut source = ground.join(ground.options(&group, &[topic.as_str()])).await;
    let found = assigned(&mut source).await;
    assert_eq!((found[0].committed, found[0].start), (Some(5), 5), "no lag is left");
    source.close().await.unwrap();
}
