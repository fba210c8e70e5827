//! What must hold for the group source with any broker and protocol: the embedded broker, and a real Apache Kafka with the
//! classic protocol and with KIP-848.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use tidegate_client::{
    AssignedPartition, GroupError, GroupEvent, GroupOptions, GroupProtocol, GroupSource, OffsetReset, OnDataLoss,
};
use tidegate_model::TopicPartition;
use tidegate_testkit::unique_topic;

use crate::members::{Ground, Running, assigned, chunk, next, offsets, until};
use crate::support::name;

macro_rules! on_every_ground {
    ($($behaviour:ident)+) => {
        mod embedded {
            on_every_ground! { @embedded CooperativeSticky $($behaviour)+ }
        }

        mod embedded_eager {
            on_every_ground! { @embedded Range $($behaviour)+ }
        }

        mod apache_kafka {
            on_every_ground! { @kafka Classic $($behaviour)+ }
        }

        mod apache_kafka_kip_848 {
            on_every_ground! { @kafka Consumer $($behaviour)+ }
        }
    };
    (@embedded $strategy:ident $($behaviour:ident)+) => {
        use tidegate_broker::{Broker, BrokerConfig};
        use tidegate_client::{AssignmentStrategy, GroupProtocol};

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let folder = tempfile::tempdir().unwrap();
                let broker = Broker::start(BrokerConfig::new(folder.path())).await.unwrap();
                let bootstrap = broker.addr().to_string();
                let ground =
                    crate::members::Ground::new(bootstrap, GroupProtocol::Classic, AssignmentStrategy::$strategy);
                super::$behaviour(&ground.await).await;
                broker.shutdown().await.unwrap();
            }
        )+
    };
    (@kafka $protocol:ident $($behaviour:ident)+) => {
        use tidegate_client::{AssignmentStrategy, GroupProtocol};

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let test = concat!("group, ", stringify!($protocol), ": ", stringify!($behaviour));
                if let Some(bootstrap) = tidegate_testkit::kafka::shared(test) {
                    let strategy = AssignmentStrategy::CooperativeSticky;
                    let ground = crate::members::Ground::new(bootstrap, GroupProtocol::$protocol, strategy);
                    super::$behaviour(&ground.await).await;
                }
            }
        )+
    };
}

on_every_ground! {
    two_members_share_and_when_one_leaves_the_other_goes_on_where_it_stopped
    a_partition_is_given_up_when_what_was_handed_out_is_committed_while_others_go_on
    at_the_end_of_the_drain_a_partition_is_given_up_with_what_is_marked
    metadata_and_offset_of_a_commit_are_there_for_the_next_member
    a_static_member_that_comes_back_disturbs_nobody
    of_two_members_of_one_instance_id_one_is_told
    a_committed_offset_that_is_lost_is_an_error_unless_a_reset_is_wanted
    without_a_committed_offset_the_reset_policy_decides
    new_partitions_and_topics_that_match_are_read_too
    a_topic_that_goes_while_partitions_are_given_up_keeps_none_from_being_read
    a_consumer_slower_than_the_poll_interval_stays_a_member
    what_is_marked_when_a_source_is_dropped_is_committed
}

fn all(topic: &tidegate_model::TopicName, partitions: i32, end: i64) -> BTreeSet<(TopicPartition, i64)> {
    let offsets = move |partition| (0..end).map(move |offset| (TopicPartition::new(topic.clone(), partition), offset));
    (0..partitions).flat_map(offsets).collect()
}

async fn two_members_share_and_when_one_leaves_the_other_goes_on_where_it_stopped(ground: &Ground) {
    let (topic, group) = (ground.topic(4).await, unique_topic("share"));
    let options = ground.options(&group, &[topic.as_str()]);
    ground.fill(&topic, 0..4, 50).await;
    let first = Running::start(ground, options.clone()).await;
    until("the first reads all", || first.records() == 200).await;
    let second = Running::start(ground, options).await;
    until("they share", || first.holds() == 2 && second.holds() == 2).await;
    ground.fill(&topic, 0..4, 50).await;
    until("both read", || first.records() + second.records() == 400).await;
    let (of_second, _) = second.close().await;
    until("the first has all again", || first.holds() == 4).await;
    ground.fill(&topic, 0..4, 50).await;
    until("the first reads all", || first.records() + of_second.records.len() == 600).await;
    let (of_first, counts) = first.close().await;
    assert_eq!(of_first.lost + of_second.lost, 0);
    assert!(of_first.revoked > 0 && of_first.revoking == of_first.revoked);
    assert_eq!(counts.commits_refused, 0);
    let records: Vec<_> = of_first.records.into_iter().chain(of_second.records).collect();
    assert_eq!(records.len(), 600, "nothing is repeated");
    assert_eq!(records.into_iter().collect::<BTreeSet<_>>(), all(&topic, 4, 150), "nothing is lost");
}

async fn a_partition_is_given_up_when_what_was_handed_out_is_committed_while_others_go_on(ground: &Ground) {
    let (topic, group) = (ground.topic(2).await, unique_topic("drain"));
    let options =
        GroupOptions { drain_timeout: Some(Duration::from_secs(60)), ..ground.options(&group, &[topic.as_str()]) };
    ground.fill(&topic, 0..2, 10).await;
    let mut source = ground.join(options.clone()).await;
    let mut ends = std::collections::BTreeMap::new();
    while ends.values().sum::<i64>() < 20 {
        if let GroupEvent::Chunk(chunk) = next(&mut source).await.unwrap() {
            ends.insert(chunk.topic_partition, chunk.next_offset);
        }
    }
    let other = Running::start(ground, options).await;
    let leaving = loop {
        if let GroupEvent::Revoking { partitions, .. } = next(&mut source).await.unwrap() {
            break partitions;
        }
    };
    if ground.is_cooperative() {
        assert_eq!(leaving.len(), 1);
        // What stays is read on.
        ground.fill(&topic, 0..2, 1).await;
        loop {
            let more = chunk(&mut source).await;
            assert_eq!(offsets(&more), [10]);
            if !leaving.contains(&more.topic_partition) {
                break;
            }
            // A fetch that was on its way when it was told.
            ends.insert(more.topic_partition, more.next_offset);
        }
    }
    assert_eq!(other.holds(), 0, "nothing is given up yet");
    for at in &leaving {
        assert!(source.commit(at, ends[at], None));
    }
    let revoked = loop {
        match next(&mut source).await.unwrap() {
            GroupEvent::Revoked { partitions } => break partitions,
            // A fetch that was on its way when it was told.
            GroupEvent::Chunk(chunk) if leaving.contains(&chunk.topic_partition) => {
                assert!(source.commit(&chunk.topic_partition, chunk.next_offset, None));
                ends.insert(chunk.topic_partition, chunk.next_offset);
            }
            _ => {}
        }
    };
    assert_eq!(revoked, leaving);
    // What it may have again by now, where the protocol is eager, begins behind that.
    assert!(!source.commit(&leaving[0], ends[&leaving[0]] - 1, None), "it is not ours any more");
    assert_eq!(source.counts().commits_refused, 1);
    // It has to take what it gets back, should the protocol be eager.
    let stays: BTreeSet<_> = ends.keys().filter(|at| !leaving.contains(at)).cloned().collect();
    let rest = Running::holding(source, stays);
    until("the other has its share", || other.holds() == 1).await;
    ground.fill(&topic, 0..2, 1).await;
    until("the other reads", || other.records() > 0).await;
    assert!(other.seen.lock().records.iter().all(|(_, offset)| *offset >= 10), "what is committed is not repeated");
    rest.close().await;
    other.close().await;
}

async fn at_the_end_of_the_drain_a_partition_is_given_up_with_what_is_marked(ground: &Ground) {
    let (topic, group) = (ground.topic(2).await, unique_topic("late"));
    let options =
        GroupOptions { drain_timeout: Some(Duration::from_millis(300)), ..ground.options(&group, &[topic.as_str()]) };
    ground.fill(&topic, 0..2, 10).await;
    let mut source = ground.join(options.clone()).await;
    let (one, two) = (chunk(&mut source).await.topic_partition, chunk(&mut source).await.topic_partition);
    assert_ne!(one, two, "partitions come by turns");
    // A consumer that commits a part of each, and is not heard of again.
    assert!(source.commit(&one, 4, None) && source.commit(&two, 4, None));
    let other = Running::start(ground, options).await;
    until("the other has one", || other.holds() == 1).await;
    until("the other reads on", || other.records() >= 6).await;
    // All ten again, should the acknowledgement of the commits not have come in time.
    assert!([0, 4].contains(&other.seen.lock().records[0].1));
    // One that wakes up late is told what it has no more.
    loop {
        match next(&mut source).await.unwrap() {
            GroupEvent::Revoked { partitions } => {
                assert!(partitions.contains(other.seen.lock().holds.first().unwrap()));
                break;
            }
            GroupEvent::Chunk(_) | GroupEvent::Revoking { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    source.close().await.unwrap();
    other.close().await;
}

async fn metadata_and_offset_of_a_commit_are_there_for_the_next_member(ground: &Ground) {
    let (topic, group) = (ground.topic(1).await, unique_topic("metadata"));
    let options = ground.options(&group, &[topic.as_str()]);
    ground.fill(&topic, 0..1, 10).await;
    let mut source = ground.join(options.clone()).await;
    let at = TopicPartition::new(topic, 0);
    let fresh = AssignedPartition { topic_partition: at.clone(), start: 0, committed: None, metadata: None };
    assert_eq!(assigned(&mut source).await, [fresh]);
    let mut next_offset = 0;
    while next_offset < 10 {
        next_offset = chunk(&mut source).await.next_offset;
    }
    let metadata = r#"{"clickhouse":7,"größe":"ß"}"#.to_owned();
    assert!(source.commit(&at, 7, Some(metadata.clone())));
    source.close().await.unwrap();

    let mut source = ground.join(options).await;
    let again =
        AssignedPartition { topic_partition: at.clone(), start: 7, committed: Some(7), metadata: Some(metadata) };
    assert_eq!(assigned(&mut source).await, [again]);
    assert_eq!(offsets(&chunk(&mut source).await), [7, 8, 9]);
    // More than a broker takes.
    assert!(source.commit(&at, 10, Some("x".repeat(10_000))));
    let error = loop {
        if let Err(error) = next(&mut source).await {
            break error;
        }
    };
    assert!(matches!(&error, GroupError::CommitRefused { partitions, .. } if *partitions == [at]), "{error}");
    assert!(matches!(source.close().await, Err(GroupError::CommitRefused { .. })));
}

async fn a_static_member_that_comes_back_disturbs_nobody(ground: &Ground) {
    let (topic, group) = (ground.topic(4).await, unique_topic("static"));
    let options = |instance: &str| GroupOptions {
        group_instance_id: Some(instance.to_owned()),
        ..ground.options(&group, &[topic.as_str()])
    };
    ground.fill(&topic, 0..4, 10).await;
    let stays = Running::start(ground, options("stays")).await;
    let goes = Running::start(ground, options("goes")).await;
    until("they share", || stays.holds() == 2 && goes.holds() == 2).await;
    until("all is read", || stays.records() + goes.records() >= 40).await;
    let comings_and_goings = |member: &Running| {
        let seen = member.seen.lock();
        (seen.assigned, seen.revoked)
    };
    let before = comings_and_goings(&stays);
    let (left, _) = goes.close().await;
    let back = Running::start(ground, options("goes")).await;
    until("it is back", || back.holds() == 2).await;
    assert_eq!(back.seen.lock().holds, left.holds, "it has what it had");
    ground.fill(&topic, 0..4, 1).await;
    until("both read on", || back.records() == 2).await;
    assert_eq!(comings_and_goings(&stays), before, "the other noticed nothing");
    back.close().await;
    stays.close().await;
}

async fn of_two_members_of_one_instance_id_one_is_told(ground: &Ground) {
    let (topic, group) = (ground.topic(1).await, unique_topic("fenced"));
    let options =
        GroupOptions { group_instance_id: Some("one".to_owned()), ..ground.options(&group, &[topic.as_str()]) };
    let first = Running::start(ground, options.clone()).await;
    until("the first has it", || first.holds() == 1).await;
    let second = Running::start(ground, options).await;
    // The classic protocol takes the newcomer, KIP-848 the one that is there.
    until("one is told", || first.seen.lock().error.is_some() || second.seen.lock().error.is_some()).await;
    let (told, other) = if first.seen.lock().error.is_some() { (first, second) } else { (second, first) };
    let error = told.seen.lock().error.clone().unwrap();
    assert!(matches!(&error, GroupError::Fenced { instance, .. } if instance == "one"), "{error}");
    until("the other has it", || other.holds() == 1).await;
    told.close().await;
    other.close().await;
}

async fn a_committed_offset_that_is_lost_is_an_error_unless_a_reset_is_wanted(ground: &Ground) {
    let (topic, group) = (ground.topic(1).await, unique_topic("lost"));
    let options = ground.options(&group, &[topic.as_str()]);
    ground.fill(&topic, 0..1, 100).await;
    let at = TopicPartition::new(topic.clone(), 0);
    let mut source = ground.join(options.clone()).await;
    chunk(&mut source).await;
    assert!(source.commit(&at, 10, None));
    source.close().await.unwrap();
    ground.cluster.delete_records(&topic, &[(0, 50)]).await.unwrap();

    let mut source = ground.join(options.clone()).await;
    let error = next(&mut source).await.unwrap_err();
    let GroupError::OutOfRange {
        topic_partition,
        offset: 10,
        committed: true,
        log_start_offset: 50,
        high_watermark: 100,
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(*topic_partition, at);
    assert!(error.to_string().contains("40 offsets are lost"), "{error}");
    assert!(next(&mut source).await.is_err(), "and nothing else comes");
    source.close().await.unwrap();

    let mut source = ground.join(GroupOptions { on_data_loss: OnDataLoss::Reset, ..options }).await;
    let found = assigned(&mut source).await;
    assert_eq!((found[0].start, found[0].committed), (50, Some(10)));
    assert_eq!(offsets(&chunk(&mut source).await)[0], 50);
    source.close().await.unwrap();
}

async fn without_a_committed_offset_the_reset_policy_decides(ground: &Ground) {
    let topic = ground.topic(1).await;
    ground.fill(&topic, 0..1, 10).await;
    for (auto_offset_reset, start) in
        [(OffsetReset::Earliest, Some(0)), (OffsetReset::Latest, Some(10)), (OffsetReset::None, None)]
    {
        let group = unique_topic("reset");
        let options = GroupOptions { auto_offset_reset, ..ground.options(&group, &[topic.as_str()]) };
        let mut source = ground.join(options).await;
        match (next(&mut source).await, start) {
            (Ok(GroupEvent::Assigned { partitions }), Some(start)) => assert_eq!(partitions[0].start, start),
            (Err(GroupError::NoCommittedOffset { topic_partition }), None) => {
                assert_eq!(topic_partition, TopicPartition::new(topic.clone(), 0));
            }
            (other, _) => panic!("{auto_offset_reset:?}: {other:?}"),
        }
        source.close().await.unwrap();
    }
}

fn admin(ground: &Ground) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", ground.cluster.config().bootstrap.join(",")).create().unwrap()
}

async fn new_partitions_and_topics_that_match_are_read_too(ground: &Ground) {
    let prefix = unique_topic("regex");
    let (first, second) = (name(&format!("{prefix}-a")), name(&format!("{prefix}-b")));
    ground.create(&first, 1).await;
    ground.fill(&first, 0..1, 5).await;
    let member = Running::start(ground, ground.options(&prefix, &[&format!("^{prefix}-.*")])).await;
    until("the first is read", || member.records() == 5).await;
    let more = NewPartitions::new(first.as_str(), 2);
    admin(ground).create_partitions(&[more], &AdminOptions::new()).await.unwrap()[0].clone().unwrap();
    ground.fill(&first, 1..2, 5).await;
    until("the new partition is read, from its beginning", || member.records() == 10).await;
    ground.create(&second, 1).await;
    ground.fill(&second, 0..1, 5).await;
    until("the new topic is read, from its beginning", || member.records() == 15).await;
    let (seen, _) = member.close().await;
    assert_eq!(seen.holds.len(), 3);
}

async fn a_topic_that_goes_while_partitions_are_given_up_keeps_none_from_being_read(ground: &Ground) {
    let prefix = unique_topic("goes");
    let (stays, goes) = (name(&format!("{prefix}-a")), name(&format!("{prefix}-b")));
    ground.create(&stays, 2).await;
    ground.create(&goes, 1).await;
    ground.fill(&stays, 0..2, 10).await;
    ground.fill(&goes, 0..1, 10).await;
    let options = GroupOptions {
        drain_timeout: Some(Duration::from_secs(60)),
        ..ground.options(&prefix, &[&format!("^{prefix}-.*")])
    };
    let mut source = ground.join(options.clone()).await;
    let (mut holds, mut ends) = (BTreeSet::new(), std::collections::BTreeMap::new());
    let mut take = |event: GroupEvent| match event {
        GroupEvent::Assigned { partitions } => {
            partitions.into_iter().for_each(|found| assert!(holds.insert(found.topic_partition), "assigned twice"));
        }
        GroupEvent::Chunk(chunk) => {
            assert!(holds.contains(&chunk.topic_partition));
            ends.insert(chunk.topic_partition, chunk.next_offset);
        }
        GroupEvent::Revoked { partitions } | GroupEvent::Lost { partitions } => {
            partitions.iter().for_each(|at| assert!(holds.remove(at), "{at} was not held"));
        }
        GroupEvent::Revoking { .. } => {}
        other => panic!("{other:?}"),
    };
    let mut records = 0;
    while records < 30 {
        let event = next(&mut source).await.unwrap();
        if let GroupEvent::Chunk(chunk) = &event {
            records += offsets(chunk).len();
        }
        take(event);
    }
    let other = Running::start(ground, options).await;
    while !matches!(next(&mut source).await.unwrap(), GroupEvent::Revoking { .. }) {}
    // Nothing is committed, so that the drain lasts until this is noticed, which is told in one way or another.
    let deleted = admin(ground).delete_topics(&[goes.as_str()], &AdminOptions::new()).await.unwrap();
    assert_eq!(deleted[0].as_deref(), Ok(goes.as_str()));
    if let Ok(event) = tokio::time::timeout(Duration::from_secs(4), source.next()).await {
        take(event.unwrap());
    }
    for (at, end) in &ends {
        source.commit(at, *end, None);
    }
    let rest = Running::holding(source, holds);
    ground.fill(&stays, 0..2, 1).await;
    let newest: BTreeSet<_> = (0..2).map(|partition| (TopicPartition::new(stays.clone(), partition), 10)).collect();
    until("both partitions are read on", || {
        let (rest, other) = (rest.seen.lock(), other.seen.lock());
        newest.iter().all(|at| rest.records.contains(at) || other.records.contains(at))
    })
    .await;
    let ((rest, _), (other, _)) = (rest.close().await, other.close().await);
    assert!(rest.error.is_none() && other.error.is_none(), "{:?} {:?}", rest.error, other.error);
}

async fn a_consumer_slower_than_the_poll_interval_stays_a_member(ground: &Ground) {
    let (topic, group) = (ground.topic(1).await, unique_topic("slow"));
    // No broker here takes a shorter session than six seconds, and no client a poll interval shorter than its session.
    let interval =
        if ground.protocol == GroupProtocol::Consumer { Duration::from_secs(2) } else { Duration::from_secs(6) };
    let options = GroupOptions {
        session_timeout: Duration::from_secs(6),
        max_poll_interval: interval,
        ..ground.options(&group, &[topic.as_str()])
    };
    ground.fill(&topic, 0..1, 10).await;
    let mut source = ground.join(options).await;
    let chunk = chunk(&mut source).await;
    // Time is what this is about.
    tokio::time::sleep(interval + Duration::from_millis(1_500)).await;
    assert!(source.commit(&chunk.topic_partition, chunk.next_offset, None));
    ground.fill(&topic, 0..1, 1).await;
    loop {
        match next(&mut source).await.unwrap() {
            GroupEvent::Chunk(chunk) if offsets(&chunk).contains(&10) => break,
            GroupEvent::Chunk(_) => {}
            other => panic!("{other:?}"),
        }
    }
    source.close().await.unwrap();
}

async fn what_is_marked_when_a_source_is_dropped_is_committed(ground: &Ground) {
    let (topic, group) = (ground.topic(1).await, unique_topic("dropped"));
    let options = ground.options(&group, &[topic.as_str()]);
    ground.fill(&topic, 0..1, 10).await;
    let mut source: GroupSource = ground.join(options.clone()).await;
    let chunk = chunk(&mut source).await;
    // Many marks in a short time, of which only the last is sure to be sent.
    for offset in 0..=chunk.next_offset {
        assert!(source.commit(&chunk.topic_partition, offset, None));
    }
    drop(source);
    let mut source = ground.join(options).await;
    assert_eq!(assigned(&mut source).await[0].start, chunk.next_offset);
    source.close().await.unwrap();
}
