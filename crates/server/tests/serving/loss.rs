//! Records that vanish while they are read are reported, never jumped over.

use tidegate_api::{ApiError, Code};
use tidegate_model::OffsetRange;
use tidegate_server::engine::{EngineLimits, OnDataLoss, RangeStream, ReadRequest};

use crate::support::{Each, Frame, Seen, Setup, World, complete, detail, name, soon, take};

/// A thousand records of 4 KiB, and a reader that fetches little ahead and has taken 120 of them.
async fn paused_reader(on_data_loss: OnDataLoss) -> (World, RangeStream<Frame>) {
    let limits = EngineLimits {
        per_request_budget_bytes: 64 << 10,
        max_partition_fetch_bytes: Some(64 << 10),
        ..EngineLimits::default()
    };
    let world = World::with(Setup { limits, ..Setup::default() }).await;
    world.create("events", 1).await;
    world.fill("events", 1_000, 4 << 10).await;
    let request = ReadRequest { on_data_loss, ..ReadRequest::new("events") };
    let mut stream = world.engine.plan_read(request).await.unwrap().stream(Each);
    assert_eq!(offsets_of(&take(&mut stream, 120).await), (0..120).collect::<Vec<_>>());
    (world, stream)
}

fn offsets_of(records: &[Seen]) -> Vec<i64> {
    records.iter().map(|record| record.offset).collect()
}

/// Takes what comes before the failure: records without a gap, from 120 to where the hole begins.
async fn failure(mut stream: RangeStream<Frame>) -> (i64, ApiError) {
    use futures_util::StreamExt as _;
    let mut next = 120;
    loop {
        match soon("the failure", stream.next()).await {
            Some(Ok(Frame::Record(record))) => {
                assert_eq!(record.offset, next);
                next += 1;
            }
            Some(Err(error)) => {
                assert!(stream.next().await.is_none());
                return (next, error.into());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_read_that_retention_overtakes_fails_and_names_the_lost_offsets() {
    for log_start in [500, 1_000] {
        let (world, stream) = paused_reader(OnDataLoss::Fail).await;
        world.broker.delete_records_before(&name("events"), 0, log_start).await.unwrap();
        let (hole, error) = failure(stream).await;
        assert!((120..400).contains(&hole), "{hole}");
        assert_eq!(error.code, Code::DataLoss);
        assert_eq!(detail(&error, "lost_start_offset"), hole.to_string());
        assert_eq!(detail(&error, "lost_end_offset"), log_start.to_string());
        assert_eq!((detail(&error, "topic"), detail(&error, "partition")), ("events", "0"));
        assert_eq!(detail(&error, "log_start_offset"), log_start.to_string());
    }
}

#[tokio::test]
async fn with_report_the_read_goes_on_behind_the_hole_and_the_statement_carries_it() {
    for log_start in [500, 1_000] {
        let (world, stream) = paused_reader(OnDataLoss::Report).await;
        world.broker.delete_records_before(&name("events"), 0, log_start).await.unwrap();
        let (records, end) = soon("the end", complete(stream)).await.unwrap();
        let end = &end.partitions[0];
        let [lost] = end.lost_offsets[..] else { panic!("{end:?}") };
        assert!((120..400).contains(&lost.start), "{lost}");
        assert_eq!(lost.end, log_start);
        let expected: Vec<_> = (120..lost.start).chain(lost.end..1_000).collect();
        assert_eq!(offsets_of(&records), expected);
        assert_eq!((end.read, end.exhaustive), (OffsetRange::new(0, 1_000), false));
        assert_eq!(end.records_sent, 120 + expected.len() as u64);
    }
}
