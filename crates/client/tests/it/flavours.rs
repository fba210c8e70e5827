//! The client against the kinds of brokers that people have.

use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiKey;
use tidegate_broker::testing::{Egress, Flavour, Setup, UnknownApiVersions};
use tidegate_client::{Cluster, ClusterConfig, OffsetQuery};
use tidegate_model::Isolation;

use crate::stage::{
    PARTITIONS, RECORDS, Stage, TOPIC, all_offsets, append, quick, read_resuming, small_fetches, whole,
};
use crate::support::{drain, eventually, name, slice};

fn flavours() -> Vec<(&'static str, Flavour)> {
    let with = |flavour: Flavour, unknown_api_versions| Flavour { unknown_api_versions, ..flavour };
    let egress = |told| Some(Egress { bytes_per_second: 2_500, told });
    vec![
        ("plain", Flavour::plain()),
        ("Event Hubs that closes", Flavour::event_hubs()),
        ("Event Hubs that answers 35", with(Flavour::event_hubs(), UnknownApiVersions::Error35)),
        ("an old broker", Flavour::old_broker()),
        ("an old broker that closes", with(Flavour::old_broker(), UnknownApiVersions::Close)),
        ("a broker that throttles and says so", Flavour { egress: egress(true), ..Flavour::plain() }),
        ("a broker that throttles in silence", Flavour { egress: egress(false), ..Flavour::event_hubs() }),
    ]
}

#[tokio::test]
async fn every_record_is_read_once_and_in_order_from_every_kind_of_broker() {
    for (what, flavour) in flavours() {
        let throttles = flavour.egress.is_some();
        let spoken = flavour.versions.clone();
        let stage = Stage::of(flavour).await;
        let client = stage.client().await;
        let mut options = small_fetches();
        // Throttling takes a part of each second.
        options.stall_timeout = Duration::from_secs(60);
        for partition in 0..PARTITIONS {
            let (offsets, end) = drain(&mut client.read(whole(partition), options.clone())).await;
            assert!(end.is_ok(), "{what}: {end:?}");
            assert_eq!(offsets, all_offsets(), "{what}");
        }
        assert_eq!(stage.cluster.throttled() > 0, throttles, "{what}");
        for versions in spoken.into_iter().flatten().filter(|versions| versions.api != ApiKey::ApiVersions) {
            let asked = stage.cluster.asked(versions.api);
            assert!(asked.keys().all(|asked| (versions.min..=versions.max).contains(asked)), "{what}: {asked:?}");
        }
    }
}

#[tokio::test]
async fn offsets_are_found_by_time_at_every_kind_of_broker() {
    for (what, flavour) in flavours() {
        let stage = Stage::of(flavour).await;
        let client = stage.client().await;
        let queries = [
            (0, OffsetQuery::Earliest),
            (1, OffsetQuery::Latest),
            (2, OffsetQuery::AtOrAfter(1_033)),
            (0, OffsetQuery::AtOrAfter(1_000 + RECORDS)),
        ];
        let answers = client.list_offsets(&name(TOPIC), &queries, Isolation::default()).await.unwrap();
        let offsets: Vec<_> = answers.iter().map(|answer| answer.found.map(|found| found.offset)).collect();
        assert_eq!(offsets, [Some(0), Some(RECORDS), Some(33), None], "{what}");
    }
}

#[tokio::test]
async fn a_broker_that_closes_at_a_version_is_met_in_its_version_from_the_second_connection_on() {
    let flavour = Flavour { unknown_api_versions: UnknownApiVersions::Close, ..Flavour::old_broker() };
    let stage = Stage::of(flavour).await;
    let client = stage.client().await;
    let (offsets, errors) = read_resuming(&client, 0, 0, small_fetches()).await;
    assert_eq!((offsets, errors.len()), (all_offsets(), 0));
    let asked = stage.cluster.asked(ApiKey::ApiVersions);
    assert_eq!(asked.get(&3), Some(&1), "the version that the broker closed at was asked for once: {asked:?}");
    assert!(asked[&0] >= 2, "{asked:?}");
}

fn idle(cut: Duration) -> Setup {
    Setup { flavour: Flavour { idle_cut: Some(cut), ..Flavour::event_hubs() }, ..Setup::default() }
}

async fn latest(client: &Cluster) -> i64 {
    let asked = client.list_offsets(&name(TOPIC), &[(0, OffsetQuery::Latest)], Isolation::default()).await;
    asked.unwrap()[0].found.unwrap().offset
}

#[tokio::test]
async fn a_connection_is_renewed_before_an_idle_cut_and_no_request_is_lost_to_it() {
    // The proportion of the defaults: 180 s of 240 s.
    let stage = Stage::set(idle(Duration::from_millis(800))).await;
    let config = ClusterConfig {
        connection_max_idle: Duration::from_millis(600),
        request_timeout: Duration::from_secs(60),
        ..quick(stage.cluster.bootstrap())
    };
    let client = Cluster::connect(config).await.unwrap();
    assert_eq!(latest(&client).await, RECORDS);
    eventually("the idle cut", || stage.cluster.idle_cuts() > 0).await;
    let asked = Instant::now();
    assert_eq!(latest(&client).await, RECORDS);
    assert!(asked.elapsed() < Duration::from_secs(30), "the request waited for a dead connection");
}

#[tokio::test]
async fn a_connection_that_died_in_silence_costs_one_request_timeout() {
    // A busy machine comes to the first question before the cut, and gets its answer before it is given up.
    const TIMEOUT: Duration = Duration::from_secs(1);
    let stage = Stage::set(idle(Duration::from_secs(2))).await;
    let client = stage.client_with(TIMEOUT).await;
    assert_eq!(latest(&client).await, RECORDS);
    eventually("the idle cut", || stage.cluster.idle_cuts() > 0).await;
    let asked = Instant::now();
    assert_eq!(latest(&client).await, RECORDS);
    assert!(asked.elapsed() >= TIMEOUT, "the old connection was tried");
}

#[tokio::test]
async fn a_reader_whose_consumer_rests_longer_than_an_idle_cut_reads_on() {
    let stage = Stage::set(idle(Duration::from_millis(300))).await;
    let client = stage.client().await;
    let mut options = small_fetches();
    options.budget = tidegate_client::ByteBudget::new(400);
    let mut reader = client.read(whole(0), options);
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!(first.batches.first().map(|batch| batch.header().base_offset), Some(0));
    // Its chunk is kept, so that there is room for nothing else, and the connection rests.
    eventually("the idle cut", || stage.cluster.idle_cuts() > 1).await;
    let position = reader.position();
    drop(first);
    let (offsets, end) = drain(&mut reader).await;
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(offsets, (position..RECORDS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_tail_that_is_left_alone_is_kept_alive_by_its_fetches() {
    let stage = Stage::set(idle(Duration::from_secs(2))).await;
    // A request that was given up would have made another connection, to be cut too.
    let client = stage.patient_client().await;
    let mut options = small_fetches();
    options.fetch_max_wait = Duration::from_millis(50);
    options.stall_timeout = Duration::from_secs(120);
    let mut reader = client.read(slice(TOPIC, 0, RECORDS, RECORDS + 1), options);
    let waiting = tokio::spawn(async move { drain(&mut reader).await });
    // That for questions, and that over which the first fetch found the end of the log.
    eventually("the idle cuts of connections that nobody uses", || stage.cluster.idle_cuts() == 2).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(stage.cluster.idle_cuts(), 2, "the tail's own connection lives");
    append(stage.upstream(), 0, 1).await;
    let (offsets, end) = waiting.await.unwrap();
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(offsets, [RECORDS]);
}
