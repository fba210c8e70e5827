//! The group source against brokers that fail: what is lost is not committed, what passes is waited out.

use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiKey;
use tidegate_broker::testing::{Fault, Moment, Rule, Setup};
use tidegate_client::{AssignmentStrategy, Cluster, ConnectError, GroupError, GroupEvent, GroupOptions, GroupSource};

use crate::members::{Ground, Running, assigned, chunk, next, offsets, until};
use crate::stage::{PARTITIONS, RECORDS, Stage, TOPIC, append, quick};

const ALL: usize = PARTITIONS as usize * RECORDS as usize;

fn options() -> GroupOptions {
    GroupOptions {
        heartbeat_interval: Duration::from_millis(50),
        fetch_max_wait: Duration::from_millis(20),
        ..GroupOptions::new("g", [TOPIC])
    }
}

async fn join(stage: &Stage, options: GroupOptions) -> GroupSource {
    GroupSource::join(&stage.client().await, options).await.unwrap()
}

fn commits(stage: &Stage) -> u64 {
    stage.cluster.asked(ApiKey::OffsetCommit).values().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_partition_is_dropped_without_a_commit_and_read_again() {
    for (strategy, code) in [
        (AssignmentStrategy::CooperativeSticky, 25),
        (AssignmentStrategy::CooperativeSticky, 22),
        (AssignmentStrategy::RoundRobin, 25),
    ] {
        let stage = Stage::set(Setup::default()).await;
        // The broker behind still waits for the member that the stand-in denied.
        let session_timeout = Duration::from_secs(6);
        let mut source =
            join(&stage, GroupOptions { assignment_strategy: strategy, session_timeout, ..options() }).await;
        assert_eq!(assigned(&mut source).await.len(), 3);
        let held = chunk(&mut source).await;
        // The coordinator does not know the member any more, or has another generation.
        stage.cluster.rule(Rule::new(Fault::Error(code)).on(ApiKey::Heartbeat).times(1));
        let lost = loop {
            match next(&mut source).await.unwrap() {
                GroupEvent::Lost { partitions } => break partitions,
                GroupEvent::Chunk(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(lost.len(), 3);
        assert!(!source.commit(&held.topic_partition, held.next_offset, None));
        assert_eq!(source.counts().commits_refused, 1);
        // It joins again, and reads all again.
        let mut records = 0;
        assert_eq!(assigned(&mut source).await.len(), 3);
        while records < ALL {
            records += offsets(&chunk(&mut source).await).len();
        }
        assert_eq!((records, commits(&stage)), (ALL, 0), "{strategy:?} {code}");
        source.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_marks_are_four_commits_a_second() {
    let stage = Stage::set(Setup::default()).await;
    let mut source = join(&stage, options()).await;
    let mut ends = std::collections::BTreeMap::new();
    while ends.values().sum::<i64>() < i64::from(PARTITIONS) * RECORDS {
        let chunk = chunk(&mut source).await;
        ends.insert(chunk.topic_partition, chunk.next_offset);
    }
    let begun = Instant::now();
    let committer = source.committer();
    // Time is what this is about.
    while commits(&stage) < 9 {
        for offset in 1..RECORDS {
            ends.keys().for_each(|at| assert!(committer.commit(at, offset, Some(format!("{:?}", begun.elapsed())))));
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{} commits", commits(&stage));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (sent, seconds) = (commits(&stage), begun.elapsed().as_secs_f64());
    // Partitions that are marked together go together, in one request, unless the first was sent before all were marked.
    assert!(sent <= 3 * (1 + (seconds * 4.0) as u64), "{sent} commits in {seconds} s");
    // A mark that changes nothing is no commit.
    ends.keys().for_each(|at| assert!(committer.commit(at, 5, None)));
    until("the last is sent", || commits(&stage) > sent).await;
    source.close().await.unwrap();
    let sent = commits(&stage);
    let mut source = join(&stage, options()).await;
    let found = assigned(&mut source).await;
    assert!(found.iter().all(|found| found.start == 5 && found.metadata.is_none()), "{found:?}");
    chunk(&mut source).await;
    for partition in found {
        source.commit(&partition.topic_partition, 5, None);
    }
    source.close().await.unwrap();
    assert_eq!(commits(&stage), sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_is_waited_out_and_nothing_is_lost_or_doubled() {
    // Look-ups of committed offsets that fail, commits that fail, reads that fail for longer than a reader tries.
    let faults = [
        Rule::new(Fault::Cut(Moment::BeforeAnswer)).on(ApiKey::OffsetFetch).times(2),
        Rule::new(Fault::Silence(Moment::BeforeAnswer)).on(ApiKey::OffsetFetch).times(1),
        Rule::new(Fault::Error(14)).on(ApiKey::OffsetCommit).times(2),
        Rule::new(Fault::Error(27)).on(ApiKey::OffsetCommit).times(2),
        Rule::new(Fault::Cut(Moment::BeforeAnswer)).on(ApiKey::OffsetCommit).times(2),
        Rule::new(Fault::Error(6)).on(ApiKey::Fetch).times(60),
        Rule::new(Fault::Cut(Moment::BeforeAnswer)).on(ApiKey::Fetch).times(40),
        Rule::new(Fault::Error(6)).on(ApiKey::ListOffsets).times(20),
        Rule::new(Fault::Cut(Moment::AfterAnswer)).on(ApiKey::JoinGroup).times(1),
        Rule::new(Fault::Cut(Moment::AfterAnswer)).on(ApiKey::Heartbeat).times(1),
    ];
    for fault in faults {
        let what = format!("{fault:?}");
        let stage = Stage::set(Setup::default()).await;
        let rule = stage.cluster.rule(fault);
        let source = join(&stage, options()).await;
        let member = Running::of(source);
        until(&what, || member.records() == ALL || member.seen.lock().error.is_some()).await;
        until(&what, || stage.cluster.fired(rule) > 0).await;
        for partition in 0..PARTITIONS {
            append(stage.upstream(), partition, 5).await;
        }
        until(&what, || member.records() == ALL + 15 || member.seen.lock().error.is_some()).await;
        let (seen, _) = member.close().await;
        assert!(seen.error.is_none(), "{what}: {:?}", seen.error);
        let distinct: std::collections::BTreeSet<_> = seen.records.iter().cloned().collect();
        assert_eq!((seen.records.len(), distinct.len()), (ALL + 15, ALL + 15), "{what}");
        stage.cluster.end_faults();
        let mut source = join(&stage, options()).await;
        assert!(assigned(&mut source).await.iter().all(|found| found.start == RECORDS + 5), "{what}");
        source.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_says_when_a_commit_is_not_acknowledged() {
    let stage = Stage::set(Setup::default()).await;
    let options = GroupOptions { drain_timeout: Some(Duration::from_secs(1)), ..options() };
    let mut source = join(&stage, options).await;
    let held = chunk(&mut source).await;
    stage.cluster.rule(Rule::new(Fault::Error(14)).on(ApiKey::OffsetCommit));
    assert!(source.commit(&held.topic_partition, held.next_offset, None));
    let error = source.close().await.unwrap_err();
    let GroupError::CommitUnfinished { partitions, .. } = &error else { panic!("{error}") };
    assert_eq!(*partitions, [held.topic_partition]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_although_the_cluster_is_gone() {
    for marked in [false, true] {
        let Stage { cluster, broker, _folder } = Stage::set(Setup::default()).await;
        let client = Cluster::connect(quick(cluster.bootstrap())).await.unwrap();
        let options = GroupOptions {
            drain_timeout: Some(Duration::from_secs(1)),
            session_timeout: Duration::from_secs(6),
            ..options()
        };
        let mut source = GroupSource::join(&client, options).await.unwrap();
        let held = chunk(&mut source).await;
        // Nor does a commit get through while it goes.
        cluster.rule(Rule::new(Fault::Silence(Moment::BeforeRequest)).on(ApiKey::OffsetCommit));
        drop(cluster);
        if marked {
            assert!(source.commit(&held.topic_partition, held.next_offset, None));
        }
        let closed = tokio::time::timeout(Duration::from_secs(30), source.close()).await.expect("it does not end");
        assert_eq!(matches!(closed, Err(GroupError::CommitUnfinished { .. })), marked, "{closed:?}");
        broker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_group_refuses_is_an_error_with_its_name() {
    let stage = Stage::set(Setup::default()).await;
    stage.cluster.rule(Rule::new(Fault::Error(30)).on(ApiKey::JoinGroup));
    let mut source = join(&stage, options()).await;
    let error = next(&mut source).await.unwrap_err();
    assert!(matches!(&error, GroupError::NotAuthorized { group, .. } if group == "g"), "{error}");
    source.close().await.unwrap();

    // Members that assign in different ways have no group in common.
    stage.cluster.end_faults();
    let first = Running::of(join(&stage, options()).await);
    until("the first has all", || first.holds() == 3).await;
    let range = GroupOptions { assignment_strategy: AssignmentStrategy::Range, ..options() };
    let mut second = join(&stage, range).await;
    let error = next(&mut second).await.unwrap_err();
    assert!(matches!(error, GroupError::Refused { .. }), "{error}");
    second.close().await.unwrap();
    first.close().await;

    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = Cluster::new(quick(free.to_string())).unwrap();
    let error = GroupSource::join(&nobody, options()).await.unwrap_err();
    assert!(matches!(error, GroupError::Connect(ConnectError::Unreachable { .. })), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_what_waits_for_the_next_event_loses_nothing() {
    let stage = Stage::set(Setup::default()).await;
    let mut source = join(&stage, options()).await;
    let mut records = 0;
    while records < ALL {
        // Most of these end before anything comes.
        match tokio::time::timeout(Duration::from_micros(50), source.next()).await {
            Ok(Ok(GroupEvent::Chunk(chunk))) => records += offsets(&chunk).len(),
            Ok(Ok(GroupEvent::Assigned { .. })) | Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(records, ALL);
    source.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_of_two_that_is_cut_off_is_replaced_and_told() {
    let stage = Stage::set(Setup::default()).await;
    let ground = Ground::new(
        stage.upstream().to_string(),
        tidegate_client::GroupProtocol::Classic,
        AssignmentStrategy::CooperativeSticky,
    );
    let ground = ground.await;
    let options = GroupOptions { session_timeout: Duration::from_secs(6), ..options() };
    // The first member goes through the stand-in broker, the second does not.
    let mut cut_off = join(&stage, options.clone()).await;
    let held = chunk(&mut cut_off).await;
    stage.cluster.rule(Rule::new(Fault::Silence(Moment::BeforeRequest)).on(ApiKey::Heartbeat));
    let other = Running::start(&ground, options).await;
    let lost = loop {
        match next(&mut cut_off).await.unwrap() {
            GroupEvent::Lost { partitions } => break partitions,
            GroupEvent::Chunk(_) | GroupEvent::Revoking { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(lost.contains(&held.topic_partition));
    assert!(!cut_off.commit(&held.topic_partition, held.next_offset, None));
    until("the other reads", || other.records() > 0).await;
    stage.cluster.end_faults();
    cut_off.close().await.unwrap();
    until("the other reads all", || other.records() == ALL).await;
    other.close().await;
}
