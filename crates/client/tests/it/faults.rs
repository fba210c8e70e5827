//! The client against brokers that fail and lie: records come out once and in order, or the failure has its name.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tidegate_broker::testing::{Fault, Lie, Moment, Rule, Setup};
use tidegate_client::{
    ListOffsetsError, MetadataError, OffsetQuery, Producer, ProducerSettings, ReadError, ReaderOptions, RecordToSend,
    RequestFailure,
};
use tidegate_model::Isolation;

use crate::stage::{
    AT_LEISURE, PARTITIONS, PATIENCE, RECORDS, Stage, TOPIC, all_offsets, quick, read_resuming, small_fetches,
    small_fetches_that_stall, whole,
};
use crate::support::{drain, eventually, name, slice};

const MOMENTS: [Moment; 4] = [Moment::BeforeRequest, Moment::BeforeAnswer, Moment::InsideAnswer, Moment::AfterAnswer];

/// A rule for fetches of partition 1.
fn fetches(fault: Fault) -> Rule {
    Rule::new(fault).on(ApiKey::Fetch).topic(TOPIC).partition(1)
}

/// Only silence has to be given up; whatever else is late is only that.
fn patience(fault: &Fault) -> Duration {
    if matches!(fault, Fault::Silence(_)) { PATIENCE } else { AT_LEISURE }
}

/// Reads the three partitions with a fault at fetches of partition 1, the others beside it; checks that the fault happened
/// and that the others know nothing of it. What partition 1 gave. `patience`: how long a request may take.
async fn read_beside(
    what: &str,
    rule: Rule,
    patience: Duration,
    resumes: usize,
    options: ReaderOptions,
) -> (Vec<i64>, Vec<ReadError>) {
    let stage = Stage::set(Setup::default()).await;
    let rule = stage.cluster.rule(rule);
    let client = stage.client_with(patience).await;
    let (first, met, last) = tokio::join!(
        read_resuming(&client, 0, 0, small_fetches()),
        read_resuming(&client, 1, resumes, options),
        read_resuming(&client, 2, 0, small_fetches())
    );
    for (offsets, errors) in [first, last] {
        assert!(errors.is_empty(), "{what}: {errors:?}");
        assert_eq!(offsets, all_offsets(), "{what}");
    }
    assert!(stage.cluster.fired(rule) > 0, "{what} did not happen");
    met
}

#[tokio::test]
async fn what_passes_is_waited_out_and_nothing_is_lost_or_doubled() {
    let mut faults = vec![
        ("a delay".to_owned(), Fault::Delay(Duration::from_millis(30))),
        ("emptiness".to_owned(), Fault::Empty { throttle: Duration::ZERO }),
        ("emptiness that is called throttling".to_owned(), Fault::Empty { throttle: Duration::from_millis(30) }),
        ("a cut record set".to_owned(), Fault::Lie(Lie::CutRecords)),
        ("records from before".to_owned(), Fault::Lie(Lie::Earlier(1))),
        ("a high watermark that went back".to_owned(), Fault::Lie(Lie::HighWatermarkBy(-40))),
        ("a high watermark too high".to_owned(), Fault::Lie(Lie::HighWatermarkBy(1_000))),
    ];
    // Whatever concerns the leader; an offset out of range that is in range; and -1, of which nobody knows what it is.
    faults.extend(
        [-1, 1, 3, 5, 6, 7, 8, 9, 13, 56, 72, 74, 75, 78].map(|code| (format!("error {code}"), Fault::Error(code))),
    );
    faults.extend(MOMENTS.map(|moment| (format!("a cut {moment:?}"), Fault::Cut(moment))));
    faults.extend(MOMENTS.map(|moment| (format!("silence {moment:?}"), Fault::Silence(moment))));
    for (what, fault) in faults {
        let patience = patience(&fault);
        let rule = fetches(fault).after(2).times(2);
        let (offsets, errors) = read_beside(&what, rule, patience, 0, small_fetches()).await;
        assert!(errors.is_empty(), "{what}: {errors:?}");
        assert_eq!(offsets, all_offsets(), "{what}");
    }
}

#[tokio::test]
async fn a_lie_is_an_error_with_its_name_and_a_caller_that_resumes_gets_the_rest() {
    let garbage = |error: &ReadError| matches!(error, ReadError::Request { source, .. } if matches!(source.failure, RequestFailure::Garbage { .. }));
    type Expected = fn(&ReadError) -> bool;
    let cases: [(&str, Fault, Expected); 8] = [
        ("another partition", Fault::Lie(Lie::OtherPartition), garbage),
        ("another correlation id", Fault::Lie(Lie::OtherCorrelation), garbage),
        ("noise", Fault::Lie(Lie::Garbage), |error| {
            // Noise may say anything, also that the partition is in trouble.
            matches!(error, ReadError::Request { .. } | ReadError::Refused { .. })
        }),
        ("a frame of 2 GiB", Fault::Lie(Lie::OversizedFrame), |error| matches!(error, ReadError::BatchTooLarge { .. })),
        ("a flipped bit", Fault::Lie(Lie::FlippedBit), |error| matches!(error, ReadError::Batch { .. })),
        ("the wrong order", Fault::Lie(Lie::ReversedBatches), |error| matches!(error, ReadError::OutOfOrder { .. })),
        ("no authorization", Fault::Error(29), |error| matches!(error, ReadError::NotAuthorized { .. })),
        (
            "an error that stays",
            Fault::Error(43),
            |error| matches!(error, ReadError::Refused { code, .. } if code.0 == 43),
        ),
    ];
    for (what, fault, expected) in cases {
        // An answer that was given up for being late would be asked for again, and the truth told then.
        let rule = fetches(fault).after(2).times(1);
        let (offsets, errors) = read_beside(what, rule, AT_LEISURE, 3, small_fetches()).await;
        assert_eq!(offsets, all_offsets(), "{what}");
        assert_eq!(errors.len(), 1, "{what}: {errors:?}");
        assert!(expected(&errors[0]), "{what}: {errors:?}");
    }
}

#[tokio::test]
async fn what_does_not_pass_ends_with_its_name_and_within_the_limits() {
    type Expected = fn(&ReadError) -> bool;
    let cases: [(&str, Fault, Expected); 6] = [
        ("emptiness", Fault::Empty { throttle: Duration::ZERO }, |e| matches!(e, ReadError::Stalled { .. })),
        ("throttling", Fault::Empty { throttle: Duration::from_millis(40) }, |e| {
            matches!(e, ReadError::Stalled { .. })
        }),
        ("no leader", Fault::Error(6), |e| matches!(e, ReadError::Refused { code, .. } if code.0 == 6)),
        ("cuts", Fault::Cut(Moment::InsideAnswer), |e| matches!(e, ReadError::Request { .. })),
        (
            "silence",
            Fault::Silence(Moment::BeforeAnswer),
            |e| matches!(e, ReadError::Request { source, .. } if matches!(source.failure, RequestFailure::Timeout { .. })),
        ),
        ("records from before", Fault::Lie(Lie::Earlier(30)), |e| matches!(e, ReadError::Request { .. })),
    ];
    for (what, fault, expected) in cases {
        let patience = patience(&fault);
        let read = read_beside(what, fetches(fault).after(3), patience, 0, small_fetches_that_stall());
        let (offsets, errors) = tokio::time::timeout(Duration::from_secs(60), read).await.unwrap();
        assert!(!offsets.is_empty() && offsets.len() < all_offsets().len(), "{what}: {offsets:?}");
        assert_eq!(offsets, all_offsets()[..offsets.len()], "{what}");
        assert!(matches!(&errors[..], [error] if expected(error)), "{what}: {errors:?}");
    }
}

#[tokio::test]
async fn a_reader_follows_a_lead_that_moves_again_and_again() {
    for stale_answers in [0, 2] {
        let stage = Stage::set(Setup { brokers: 3, ..Setup::default() }).await;
        let mut rules = Vec::new();
        // To each broker, to none, and back, with a fetch in between that the leader answers.
        for (nth, to) in (0..).zip([Some(3), Some(1), None, Some(2), Some(3)]) {
            let (topic, partition) = (TOPIC.to_owned(), 1);
            let fault = Fault::MoveLeader { topic, partition, to, stale_answers };
            rules.push(stage.cluster.rule(fetches(fault).after(nth).times(1)));
        }
        let client = stage.client().await;
        let back = async {
            eventually("the lead of nobody", || stage.cluster.fired(rules[2]) > 0).await;
            stage.cluster.move_leader(TOPIC, 1, Some(1), stale_answers);
        };
        let ((), (offsets, errors), others) = tokio::join!(
            back,
            read_resuming(&client, 1, 0, small_fetches()),
            read_resuming(&client, 0, 0, small_fetches())
        );
        assert!(errors.is_empty(), "{stale_answers}: {errors:?}");
        assert_eq!(offsets, all_offsets());
        assert_eq!(others.0, all_offsets());
        for rule in rules {
            assert_eq!(stage.cluster.fired(rule), 1);
        }
        let epoch = client.topic(&name(TOPIC)).await.unwrap().partitions[1].leader_epoch;
        assert_eq!(epoch, 6);
    }
}

#[tokio::test]
async fn offset_lookup_waits_out_what_passes_and_names_what_stays() {
    let queries: Vec<_> = (0..PARTITIONS).map(|partition| (partition, OffsetQuery::Latest)).collect();
    let mut faults = vec![Fault::Delay(Duration::from_millis(30))];
    faults.extend([3, 5, 6, 7, 56, 74, 75, 78].map(Fault::Error));
    faults.extend(MOMENTS.map(Fault::Cut));
    faults.extend(MOMENTS.map(Fault::Silence));
    let stage = Stage::set(Setup { brokers: 2, ..Setup::default() }).await;
    for fault in faults {
        let rule = Rule::new(fault.clone()).on(ApiKey::ListOffsets).topic(TOPIC).partition(1).times(2);
        let rule = stage.cluster.rule(rule);
        let client = stage.client().await;
        let mut asked = 0;
        while stage.cluster.fired(rule) < 2 {
            let answers = client.list_offsets(&name(TOPIC), &queries, Isolation::default()).await;
            let answers = answers.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            let found: Vec<_> = answers.iter().map(|answer| answer.found.unwrap().offset).collect();
            assert_eq!(found, [RECORDS; 3], "{fault:?}");
            asked += 1;
            assert!(asked < 4, "{fault:?} did not happen");
        }
    }
    for (lie, name_of_it) in
        [(Lie::OtherPartition, "nothing of partition"), (Lie::NothingFound, "the offset of partition")]
    {
        let rule = stage.cluster.rule(Rule::new(Fault::Lie(lie)).on(ApiKey::ListOffsets).times(1));
        // As above: told once, and only the first answer counts.
        let client = stage.patient_client().await;
        let error = client.list_offsets(&name(TOPIC), &queries, Isolation::default()).await.unwrap_err();
        assert!(matches!(&error, ListOffsetsError::Request(_)) && error.to_string().contains(name_of_it), "{error}");
        assert_eq!(stage.cluster.fired(rule), 1);
    }
}

#[tokio::test]
async fn an_end_that_was_told_too_high_is_named_when_it_does_not_come() {
    let stage = Stage::set(Setup::default()).await;
    stage.cluster.rule(Rule::new(Fault::Lie(Lie::OffsetBy(9))).on(ApiKey::ListOffsets).times(1));
    let client = stage.patient_client().await;
    let queries = [(0, OffsetQuery::Latest)];
    let told = client.list_offsets(&name(TOPIC), &queries, Isolation::default()).await.unwrap();
    let end = told[0].found.unwrap().offset;
    assert_eq!(end, RECORDS + 9);
    let (offsets, error) = drain(&mut client.read(slice(TOPIC, 0, 0, end), small_fetches_that_stall())).await;
    assert_eq!(offsets, all_offsets());
    let expected =
        |error: &ReadError| matches!(error, ReadError::Stalled { offset: RECORDS, high_watermark: RECORDS, .. });
    assert!(expected(&error.unwrap_err()));
}

#[tokio::test]
async fn a_start_that_was_told_too_low_is_named_with_what_is_lost() {
    let stage = Stage::set(Setup::default()).await;
    let client = stage.patient_client().await;
    client.delete_records(&name(TOPIC), &[(0, 20)]).await.unwrap();
    stage.cluster.rule(Rule::new(Fault::Lie(Lie::OffsetBy(-6))).on(ApiKey::ListOffsets).times(1));
    let queries = [(0, OffsetQuery::Earliest)];
    let told = client.list_offsets(&name(TOPIC), &queries, Isolation::default()).await.unwrap();
    let start = told[0].found.unwrap().offset;
    assert_eq!(start, 14);
    let (offsets, error) = drain(&mut client.read(slice(TOPIC, 0, start, RECORDS), small_fetches())).await;
    assert_eq!(offsets, [0_i64; 0]);
    let error = error.unwrap_err();
    assert!(matches!(error, ReadError::OffsetOutOfRange { requested: 14, log_start_offset: 20, .. }), "{error}");
}

#[tokio::test]
async fn metadata_that_fails_for_a_while_holds_a_read_up_and_no_more() {
    let mut faults = vec![Fault::Error(5), Fault::Delay(Duration::from_millis(30))];
    faults.extend(MOMENTS.map(Fault::Cut));
    faults.extend(MOMENTS.map(Fault::Silence));
    for fault in faults {
        let stage = Stage::set(Setup { brokers: 3, ..Setup::default() }).await;
        let client = stage.client().await;
        let rule = stage.cluster.rule(Rule::new(fault.clone()).on(ApiKey::Metadata).times(2));
        // Each reader looks its leader up, and the lead moves on the way.
        let (topic, partition) = (TOPIC.to_owned(), 1);
        stage.cluster.rule(fetches(Fault::MoveLeader { topic, partition, to: Some(1), stale_answers: 0 }).times(1));
        let (offsets, errors) = read_resuming(&client, 1, 0, small_fetches()).await;
        assert!(errors.is_empty(), "{fault:?}: {errors:?}");
        assert_eq!(offsets, all_offsets(), "{fault:?}");
        assert!(stage.cluster.fired(rule) > 0, "{fault:?} did not happen");
    }
    let stage = Stage::set(Setup::default()).await;
    let client = stage.client().await;
    stage.cluster.rule(Rule::new(Fault::Error(29)).on(ApiKey::Metadata));
    let (_, end) = drain(&mut client.read(whole(0), small_fetches())).await;
    assert!(matches!(end, Err(ReadError::Metadata(MetadataError::NotAuthorized { .. }))), "{end:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_produced_while_answers_are_lost_and_leads_move_is_there_once() {
    const COUNT: usize = 300;
    let stage = Stage::set(Setup { brokers: 2, ..Setup::default() }).await;
    let (topic, partition) = (TOPIC.to_owned(), 0);
    let moved = Fault::MoveLeader { topic, partition, to: Some(2), stale_answers: 1 };
    let faults = [
        (Fault::Cut(Moment::BeforeAnswer), 1, 2),
        (Fault::Cut(Moment::InsideAnswer), 4, 1),
        (Fault::Error(6), 6, 2),
        (moved, 9, 1),
    ];
    let rules = faults.map(|(fault, after, times)| {
        let rule = Rule::new(fault).on(ApiKey::Produce).topic(TOPIC).partition(0).after(after).times(times);
        stage.cluster.rule(rule)
    });
    let settings =
        ProducerSettings { linger: Duration::from_millis(1), batch_bytes: 400, ..ProducerSettings::default() };
    let producer = Producer::new(&quick(stage.cluster.bootstrap()), settings).unwrap();
    let mut session = producer.session(&name(TOPIC));
    for n in 0..COUNT {
        let value = n.to_string();
        let value = Some(value.as_bytes());
        session
            .send(RecordToSend { partition: Some(0), value, timestamp_ms: Some(1), ..RecordToSend::default() })
            .await
            .unwrap();
    }
    session.finish().await.unwrap();
    for rule in rules {
        assert!(stage.cluster.fired(rule) > 0, "{:?}", stage.cluster.happened());
    }
    let client = stage.client().await;
    let end = RECORDS + i64::try_from(COUNT).unwrap();
    let mut reader = client.read(slice(TOPIC, 0, RECORDS, end), small_fetches());
    let mut values = Vec::new();
    while let Some(chunk) = reader.next().await {
        for batch in &chunk.unwrap().batches {
            values.extend(
                batch.records().map(|record| String::from_utf8_lossy(record.unwrap().value.unwrap()).into_owned()),
            );
        }
    }
    assert_eq!(values, (0..COUNT).map(|n| n.to_string()).collect::<Vec<_>>());
    let answers = client.list_offsets(&name(TOPIC), &[(0, OffsetQuery::Latest)], Isolation::default()).await.unwrap();
    assert_eq!(answers[0].found.unwrap().offset, end, "and nothing behind them");
}
