//! Whatever goes wrong, in whatever order: each partition yields every record once and in order, or fails with a name, and
//! nothing ever hangs.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tidegate_broker::testing::{Fault, Flavour, Lie, Moment, Rule, Setup, UnknownApiVersions};

use crate::stage::{PARTITIONS, Stage, TOPIC, all_offsets, read_resuming, small_fetches, small_fetches_that_stall};

/// How many scripts are played. A failure names its seed; to play that one alone, put it here in place of the range.
const SEEDS: std::ops::Range<u64> = 0..40;

/// How often a caller resumes after an error before it takes the read for failed.
const RESUMES: usize = 6;

/// Longer than any of these reads can take within its limits, on a machine that is busy.
const FOREVER: Duration = Duration::from_secs(120);

/// A small random number generator, so that a seed means the same script for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()].clone()
    }
}

fn setup(dice: &mut Dice, seed: u64) -> Setup {
    let closing = |flavour: Flavour| Flavour { unknown_api_versions: UnknownApiVersions::Close, ..flavour };
    let flavours = [
        Flavour::plain(),
        Flavour::plain(),
        Flavour::event_hubs(),
        Flavour::old_broker(),
        closing(Flavour::old_broker()),
    ];
    Setup { flavour: dice.pick(&flavours), brokers: 1 + i32::try_from(dice.roll(3)).unwrap(), seed }
}

fn rule(dice: &mut Dice, brokers: i32) -> Rule {
    let moments = [Moment::BeforeRequest, Moment::BeforeAnswer, Moment::InsideAnswer, Moment::AfterAnswer];
    let lies = [
        Lie::HighWatermarkBy(-20),
        Lie::HighWatermarkBy(20),
        Lie::ReversedBatches,
        Lie::CutRecords,
        Lie::FlippedBit,
        Lie::Earlier(3),
        Lie::OtherPartition,
        Lie::OtherCorrelation,
        Lie::OversizedFrame,
    ];
    let api = dice.pick(&[ApiKey::Fetch, ApiKey::Fetch, ApiKey::Fetch, ApiKey::Metadata, ApiKey::ApiVersions]);
    let partition = i32::try_from(dice.roll(3)).unwrap();
    let fault = match dice.roll(8) {
        0 => Fault::Delay(Duration::from_millis(dice.roll(20))),
        1 | 2 => Fault::Error(dice.pick(&[-1, 1, 2, 3, 5, 6, 7, 9, 13, 29, 56, 74, 75, 76, 78, 100])),
        3 => Fault::Cut(dice.pick(&moments)),
        4 => Fault::Silence(dice.pick(&moments)),
        5 => Fault::Empty { throttle: Duration::from_millis(10 * dice.roll(3)) },
        6 => Fault::Lie(dice.pick(&lies)),
        _ => Fault::MoveLeader {
            topic: TOPIC.to_owned(),
            partition,
            to: Some(1 + i32::try_from(dice.roll(u64::try_from(brokers).unwrap())).unwrap()),
            stale_answers: u32::try_from(dice.roll(3)).unwrap(),
        },
    };
    let rule = Rule::new(fault).on(api).after(dice.roll(6)).times(1 + dice.roll(4));
    let rule = if dice.roll(2) == 0 { rule.chance(0.3) } else { rule };
    if api == ApiKey::Fetch && dice.roll(2) == 0 { rule.topic(TOPIC).partition(partition) } else { rule }
}

async fn play(seed: u64) {
    let mut dice = Dice(seed);
    let setup = setup(&mut dice, seed);
    let brokers = setup.brokers;
    let stage = Stage::set(setup).await;
    // Connecting is another matter: it has to meet a broker in order.
    let client = stage.client().await;
    for _ in 0..1 + dice.roll(5) {
        stage.cluster.rule(rule(&mut dice, brokers));
    }
    let reads = (0..PARTITIONS).map(|partition| {
        let client = client.clone();
        tokio::spawn(async move { read_resuming(&client, partition, RESUMES, small_fetches_that_stall()).await })
    });
    let reads: Vec<_> = reads.collect();
    for read in reads {
        let (offsets, errors) = read.await.unwrap();
        // Nothing doubled, nothing left out, nothing out of order, whether or not the end was reached.
        let happened = || stage.cluster.happened();
        assert_eq!(offsets, all_offsets()[..offsets.len()], "seed {seed}: {errors:?} {:?}", happened());
        assert!(
            offsets.len() == all_offsets().len() || errors.len() == RESUMES + 1,
            "seed {seed}: a read ended early without an error: {offsets:?} {:?}",
            happened()
        );
    }
    // When everything is in order again, so is reading, over the same client.
    stage.cluster.end_faults();
    for partition in 0..PARTITIONS {
        let (offsets, errors) = read_resuming(&client, partition, 0, small_fetches()).await;
        assert!(errors.is_empty(), "seed {seed}: {errors:?}");
        assert_eq!(offsets, all_offsets(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_any_script_of_faults_records_come_once_and_in_order_or_the_failure_has_a_name() {
    let mut seeds = SEEDS;
    let mut playing = tokio::task::JoinSet::new();
    let mut next = |playing: &mut tokio::task::JoinSet<_>| {
        if let Some(seed) = seeds.next() {
            playing.spawn(async move { (seed, tokio::time::timeout(FOREVER, play(seed)).await.is_ok()) });
        }
    };
    (0..4).for_each(|_| next(&mut playing));
    while let Some(played) = playing.join_next().await {
        let (seed, ended) = played.unwrap();
        assert!(ended, "seed {seed} hangs");
        next(&mut playing);
    }
}
