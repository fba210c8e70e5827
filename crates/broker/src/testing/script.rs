//! Which faults happen when: rules, matched in order, the first that applies decides. Pure but for its counters.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use super::message::Named;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The request is carried out and answered in order, this much later.
    Delay(Duration),
    /// The partitions that match, or those of the whole request where the rule names none, are refused with this code and
    /// not carried out. Of requests without partitions: Metadata (its topics), and those with one error code.
    Error(i16),
    /// The connection is closed.
    Cut(Moment),
    /// The connection stays open, and nothing comes over it any more.
    Silence(Moment),
    /// A fetch comes back without records and without an error, as Event Hubs throttles.
    Empty {
        /// `throttle_time_ms`; zero says nothing of throttling.
        throttle: Duration,
    },
    /// The answer is wrong.
    Lie(Lie),
    /// The lead of a partition moves before the request is looked at.
    MoveLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The next leader; `None`: the partition has none.
        to: Option<i32>,
        /// How many metadata answers still show the previous one.
        stale_answers: u32,
    },
}

/// When a connection ends or falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The request is not carried out.
    BeforeRequest,
    /// The request is carried out, and no byte of its answer is sent.
    BeforeAnswer,
    /// Half of the answer is sent.
    InsideAnswer,
    /// All of the answer is sent.
    AfterAnswer,
}

/// A wrong answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// ListOffsets: the offsets found are this much too high, or too low (not below 0).
    OffsetBy(i64),
    /// ListOffsets: nothing was found.
    NothingFound,
    /// Fetch: high watermark and last stable offset are this much too high, or too low (not below 0).
    HighWatermarkBy(i64),
    /// Fetch: the batches come in reverse order. Needs two of them.
    ReversedBatches,
    /// Fetch: the last batch is cut in the middle.
    CutRecords,
    /// Fetch: a bit of the last batch's records is flipped.
    FlippedBit,
    /// Fetch: what is answered was asked for this many offsets earlier (not before 0).
    Earlier(i64),
    /// Produce, Fetch, ListOffsets: the answer is about the partition after the one that was asked for.
    OtherPartition,
    /// The correlation id is that of another request.
    OtherCorrelation,
    /// The frame claims 2 GiB.
    OversizedFrame,
    /// The frame holds random bytes behind the correlation id.
    Garbage,
}

/// When a [`Fault`] happens. By default: at every request.
#[derive(Clone, Debug)]
pub struct Rule {
    api: Option<ApiKey>,
    topic: Option<String>,
    partition: Option<i32>,
    node: Option<i32>,
    skip: u64,
    times: u64,
    chance: f64,
    pub(super) fault: Fault,
}

/// A rule of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(usize);

/// A fault that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// The rule.
    pub rule: RuleId,
    /// The request.
    pub api: ApiKey,
    /// Its version.
    pub version: i16,
    /// The broker that it was sent to.
    pub node: i32,
    /// The first of its partitions that matched the rule.
    pub partition: Option<(String, i32)>,
}

impl Rule {
    /// `fault` at every request.
    pub fn new(fault: Fault) -> Self {
        Self { api: None, topic: None, partition: None, node: None, skip: 0, times: u64::MAX, chance: 1.0, fault }
    }

    /// Only at requests of this API.
    #[must_use]
    pub fn on(mut self, api: ApiKey) -> Self {
        self.api = Some(api);
        self
    }

    /// Only at requests that name this topic, and only for its partitions.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Only at requests that name a partition with this number, and only for it.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Only at this broker.
    #[must_use]
    pub fn node(mut self, node: i32) -> Self {
        self.node = Some(node);
        self
    }

    /// Not at the first `count` requests that match.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// At most so often.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }

    /// Only with this probability. It is drawn from the script's seed and from how many requests of the same partition the
    /// rule has seen, so that what other connections do in between changes nothing.
    #[must_use]
    pub fn chance(mut self, probability: f64) -> Self {
        self.chance = probability;
        self
    }

    fn matches(&self, named: &Named) -> bool {
        self.topic.as_ref().is_none_or(|topic| *topic == named.topic)
            && self.partition.is_none_or(|partition| partition == named.partition)
    }
}

/// The happenings that are kept one by one; beyond it they are only counted.
const KEPT: usize = 10_000;

/// The rules, and what came of them.
#[derive(Debug)]
pub(super) struct Script {
    seed: u64,
    rules: Vec<Counted>,
    happened: Vec<Happened>,
}

#[derive(Debug)]
struct Counted {
    rule: Rule,
    matched: u64,
    fired: u64,
    /// How many requests it saw, by their first matching partition.
    seen: std::collections::HashMap<(String, i32), u64>,
}

/// What a request is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) node: i32,
    pub(super) partitions: &'a [Named],
}

/// A fault that is to happen.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) fault: Fault,
    /// The partitions that it concerns.
    pub(super) partitions: Vec<(String, i32)>,
    /// Something to draw random numbers from.
    pub(super) seed: u64,
    id: RuleId,
    happened: Happened,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, rules: Vec::new(), happened: Vec::new() }
    }

    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        self.rules.push(Counted { rule, matched: 0, fired: 0, seen: std::collections::HashMap::new() });
        RuleId(self.rules.len() - 1)
    }

    pub(super) fn clear(&mut self) {
        for counted in &mut self.rules {
            counted.rule.times = 0;
        }
    }

    pub(super) fn fired(&self, RuleId(id): RuleId) -> u64 {
        self.rules.get(id).map_or(0, |counted| counted.fired)
    }

    pub(super) fn happened(&self) -> &[Happened] {
        &self.happened
    }

    /// The fault that this request meets, if any.
    pub(super) fn decide(&mut self, seen: Seen<'_>) -> Option<Due> {
        for (at, counted) in self.rules.iter_mut().enumerate() {
            let Counted { rule, .. } = counted;
            if rule.api.is_some_and(|api| api != seen.api) || rule.node.is_some_and(|node| node != seen.node) {
                continue;
            }
            let partitions: Vec<_> = seen
                .partitions
                .iter()
                .filter(|named| rule.matches(named))
                .map(|named| (named.topic.clone(), named.partition))
                .collect();
            if partitions.is_empty() && (rule.topic.is_some() || rule.partition.is_some()) {
                continue;
            }
            counted.matched += 1;
            let key = partitions.first().cloned().unwrap_or_default();
            let nth = counted.seen.entry(key.clone()).or_default();
            *nth += 1;
            let seed = mixed(&[self.seed, at as u64, hash_of(&key.0), u64::from(key.1.unsigned_abs()), *nth]);
            let rule = &counted.rule;
            if counted.matched <= rule.skip || counted.fired >= rule.times || fraction(seed) >= rule.chance {
                continue;
            }
            counted.fired += 1;
            let partition = partitions.first().cloned();
            let id = RuleId(at);
            let happened = Happened { rule: id, api: seen.api, version: seen.version, node: seen.node, partition };
            return Some(Due { fault: rule.fault.clone(), partitions, seed, id, happened });
        }
        None
    }

    /// The fault happened.
    pub(super) fn note(&mut self, due: &Due) {
        if self.happened.len() < KEPT {
            self.happened.push(due.happened.clone());
        }
    }

    /// There was nothing that the fault could spoil: it did not happen.
    pub(super) fn take_back(&mut self, due: &Due) {
        if let Some(counted) = self.rules.get_mut(due.id.0) {
            counted.fired = counted.fired.saturating_sub(1);
        }
    }
}

/// A random number for every combination of parts. splitmix64's finisher, chained.
pub(super) fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mut z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0, |hash, byte| mixed(&[hash, u64::from(byte)]))
}

/// 0 to 1, without 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are what a double holds")]
fn fraction(seed: u64) -> f64 {
    (mixed(&[seed]) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(partition: i32) -> [Named; 1] {
        [Named { topic: "t".to_owned(), partition, epoch: -1 }]
    }

    fn fetch(script: &mut Script, partition: i32) -> bool {
        let partitions = named(partition);
        let seen = Seen { api: ApiKey::Fetch, version: 12, node: 1, partitions: &partitions };
        let due = script.decide(seen);
        if let Some(due) = &due {
            script.note(due);
        }
        due.is_some()
    }

    #[test]
    fn a_rule_skips_counts_and_ends() {
        let mut script = Script::new(0);
        let rule = Rule::new(Fault::Error(6)).on(ApiKey::Fetch).topic("t").partition(1).after(1).times(2);
        let id = script.add(rule);
        let met: Vec<bool> = [1, 0, 1, 1, 1].into_iter().map(|partition| fetch(&mut script, partition)).collect();
        assert_eq!(met, [false, false, true, true, false]);
        assert_eq!((script.fired(id), script.happened().len()), (2, 2));
        assert_eq!(script.happened()[0].partition, Some(("t".to_owned(), 1)));
    }

    #[test]
    fn other_partitions_in_between_change_no_draw() {
        let draws = |seed, others: bool| {
            let mut script = Script::new(seed);
            script.add(Rule::new(Fault::Error(6)).chance(0.5));
            let mut draw = || {
                if others {
                    fetch(&mut script, 7);
                }
                fetch(&mut script, 1)
            };
            (0..64).map(|_| draw()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, false), draws(1, true));
        assert_ne!(draws(1, false), draws(2, false));
        let heads = draws(3, false).into_iter().filter(|met| *met).count();
        assert!((16..=48).contains(&heads), "{heads} of 64");
    }

    #[test]
    fn a_fault_that_had_nothing_to_spoil_may_happen_later() {
        let mut script = Script::new(0);
        let id = script.add(Rule::new(Fault::Lie(Lie::CutRecords)).times(1));
        let partitions = named(0);
        let seen = Seen { api: ApiKey::Fetch, version: 12, node: 1, partitions: &partitions };
        let due = script.decide(seen).unwrap();
        script.take_back(&due);
        assert_eq!(script.fired(id), 0);
        assert!(script.decide(seen).is_some());
        assert!(script.decide(seen).is_none());
    }
}
