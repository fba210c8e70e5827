//! How to be a member of a group: Kafka's settings by Kafka's names, and what librdkafka is told of them.

use std::time::Duration;

use rdkafka::config::ClientConfig;
use tidegate_model::{Isolation, TopicName};

use super::error::GroupError;
use crate::budget::ByteBudget;
use crate::config::ClusterConfig;
use crate::librdkafka;
use crate::librdkafka::security::Unfit;

/// How members and brokers agree on who reads what. Kafka's `group.protocol`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupProtocol {
    /// The members elect one of them that assigns. Every broker knows it.
    #[default]
    Classic,
    /// The broker assigns (KIP-848; Apache Kafka 4.0). The broker owns the session timeout, the heartbeat interval and the
    /// assignor, so those settings are not used.
    Consumer,
}

/// How a classic group's partitions are assigned. Kafka's `partition.assignment.strategy`; all members need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AssignmentStrategy {
    /// Who has a partition keeps it where that is fair, and only what moves is given up (KIP-429).
    #[default]
    CooperativeSticky,
    /// Each topic's partitions in ranges. Every rebalance gives everything up.
    Range,
    /// All partitions in turn. Every rebalance gives everything up.
    RoundRobin,
}

/// Where a partition begins for which the group has committed nothing. Kafka's `auto.offset.reset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the log start offset.
    #[default]
    Earliest,
    /// At the end of the log: the high watermark, or the last stable offset under read_committed.
    Latest,
    /// Nowhere: [`GroupError::NoCommittedOffset`].
    None,
}

/// What becomes of a partition whose committed offset, or position, is no longer in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDataLoss {
    /// The source ends with [`GroupError::OutOfRange`]; nothing is skipped in silence.
    #[default]
    Stop,
    /// It goes on where [`GroupOptions::auto_offset_reset`] says, and tells so with `GroupEvent::Reset`.
    Reset,
}

/// How to be a member of a consumer group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Kafka's `group.id`.
    pub group_id: String,
    /// The topics; one that begins with `^` is a regular expression, and topics that come to match later are read too.
    /// Under [`GroupProtocol::Consumer`] the broker evaluates it (RE2/J), else librdkafka (POSIX extended).
    pub topics: Vec<String>,
    /// Kafka's `group.protocol`. Default: classic.
    pub protocol: GroupProtocol,
    /// Kafka's `partition.assignment.strategy`, for classic groups. Default: cooperative-sticky.
    pub assignment_strategy: AssignmentStrategy,
    /// Kafka's `group.remote.assignor`, for [`GroupProtocol::Consumer`]. Default: the broker's own choice.
    pub remote_assignor: Option<String>,
    /// Kafka's `group.instance.id`: a member of this name that comes back within the session timeout keeps its partitions
    /// without a rebalance (KIP-345). Default: none.
    pub group_instance_id: Option<String>,
    /// Where this client is, for the assignment (KIP-881, KIP-848) and for fetching. Kafka's `client.rack`. Default: what the
    /// cluster's configuration says of fetching.
    pub client_rack: Option<String>,
    /// How long a member may be silent. Kafka's `session.timeout.ms`, for classic groups. Default: 45 s.
    pub session_timeout: Duration,
    /// Kafka's `heartbeat.interval.ms`, for classic groups. Default: 3 s.
    pub heartbeat_interval: Duration,
    /// How long a rebalance waits for this member. Kafka's `max.poll.interval.ms`. A slow consumer of the source does not
    /// run against it: a thread of its own does the polling. Default: 5 min.
    pub max_poll_interval: Duration,
    /// How often the cluster is asked for new topics and partitions. Kafka's `metadata.max.age.ms`. Default: 5 min.
    pub metadata_max_age: Duration,
    /// Kafka's `auto.offset.reset`. Default: earliest.
    pub auto_offset_reset: OffsetReset,
    /// What becomes of an offset that is no longer in the log. `on_data_loss`. Default: stop.
    pub on_data_loss: OnDataLoss,
    /// How long a partition that is to be given up may take until what was fetched of it is handed out and committed; then
    /// a commit may take half of it more. At most a third of `max_poll_interval`. Default: 10 s, or that third.
    pub drain_timeout: Option<Duration>,
    /// Which records of transactions are seen. Kafka's `isolation.level`. Default: read_committed.
    pub isolation: Isolation,
    /// The most bytes that one fetch asks for. Kafka's `max.partition.fetch.bytes`. Default: auto, see
    /// [`ReaderOptions::max_partition_fetch_bytes`](crate::ReaderOptions::max_partition_fetch_bytes).
    pub max_partition_fetch_bytes: Option<usize>,
    /// How long the broker waits for a record to return. Kafka's `fetch.max.wait.ms`. Default: 500 ms.
    pub fetch_max_wait: Duration,
    /// What the readers of all partitions may hold together. Default: [`ByteBudget::default`] of its own.
    pub budget: ByteBudget,
}

impl GroupOptions {
    /// The defaults for this group and these topics.
    pub fn new(group_id: impl Into<String>, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            group_id: group_id.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            protocol: GroupProtocol::default(),
            assignment_strategy: AssignmentStrategy::default(),
            remote_assignor: None,
            group_instance_id: None,
            client_rack: None,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            max_poll_interval: Duration::from_secs(300),
            metadata_max_age: Duration::from_secs(300),
            auto_offset_reset: OffsetReset::default(),
            on_data_loss: OnDataLoss::default(),
            drain_timeout: None,
            isolation: Isolation::ReadCommitted,
            max_partition_fetch_bytes: None,
            fetch_max_wait: Duration::from_millis(500),
            budget: ByteBudget::default(),
        }
    }

    /// The limit of a drain.
    pub(super) fn drain_limit(&self) -> Duration {
        self.drain_timeout.unwrap_or_else(|| Duration::from_secs(10).min(self.max_poll_interval / 3))
    }

    /// How long the last commit of a partition may take beyond that.
    pub(super) fn commit_limit(&self) -> Duration {
        self.drain_limit() / 2
    }

    /// Whether they can work together, before anybody is asked.
    pub(super) fn check(&self) -> Result<(), GroupError> {
        let refuse = |reason: String| Err(GroupError::Setting { reason });
        if self.group_id.is_empty() {
            return refuse("group.id is empty".to_owned());
        }
        if self.topics.is_empty() {
            return refuse("no topic is given".to_owned());
        }
        for topic in &self.topics {
            if !topic.starts_with('^')
                && let Err(error) = TopicName::new(topic)
            {
                return refuse(error.to_string());
            }
            if topic.contains('\0') {
                return refuse(format!("the expression {topic:?} holds a NUL character"));
            }
        }
        if self.drain_limit() > self.max_poll_interval / 3 {
            return refuse(format!(
                "a drain_timeout of {:?} is more than a third of max.poll.interval.ms ({:?}): the group would not wait",
                self.drain_limit(),
                self.max_poll_interval
            ));
        }
        if self.protocol == GroupProtocol::Classic {
            if self.session_timeout > self.max_poll_interval {
                return refuse(format!(
                    "session.timeout.ms ({:?}) is more than max.poll.interval.ms ({:?})",
                    self.session_timeout, self.max_poll_interval
                ));
            }
            if self.heartbeat_interval >= self.session_timeout {
                return refuse(format!(
                    "heartbeat.interval.ms ({:?}) is not less than session.timeout.ms ({:?})",
                    self.heartbeat_interval, self.session_timeout
                ));
            }
            if self.remote_assignor.is_some() {
                return refuse("group.remote.assignor needs group.protocol=consumer".to_owned());
            }
        }
        Ok(())
    }

    /// librdkafka's settings.
    pub(super) fn client_config(&self, cluster: &ClusterConfig) -> Result<ClientConfig, GroupError> {
        let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128).to_string();
        let mut config = librdkafka::client_config(cluster).map_err(|unfit| match unfit {
            Unfit::Error(error) => GroupError::Security(error),
            Unfit::Refused(reason) => GroupError::Setting { reason },
        })?;
        config
            .set("group.id", &self.group_id)
            .set("max.poll.interval.ms", millis(self.max_poll_interval))
            .set("topic.metadata.refresh.interval.ms", millis(self.metadata_max_age.max(Duration::from_millis(10))))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // It never fetches; if it ever did, it should hold next to nothing, and jump nowhere.
            .set("auto.offset.reset", "error")
            .set("queued.min.messages", "1")
            .set("queued.max.messages.kbytes", "1");
        match self.protocol {
            GroupProtocol::Classic => {
                let strategy = match self.assignment_strategy {
                    AssignmentStrategy::CooperativeSticky => "cooperative-sticky",
                    AssignmentStrategy::Range => "range",
                    AssignmentStrategy::RoundRobin => "roundrobin",
                };
                config
                    .set("group.protocol", "classic")
                    .set("partition.assignment.strategy", strategy)
                    .set("session.timeout.ms", millis(self.session_timeout))
                    .set("heartbeat.interval.ms", millis(self.heartbeat_interval));
            }
            GroupProtocol::Consumer => {
                config.set("group.protocol", "consumer");
                if let Some(assignor) = &self.remote_assignor {
                    config.set("group.remote.assignor", assignor);
                }
            }
        }
        if let Some(instance) = &self.group_instance_id {
            config.set("group.instance.id", instance);
        }
        if let Some(rack) = &self.client_rack {
            config.set("client.rack", rack);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_owns_is_not_set_under_kip_848() {
        let cluster = ClusterConfig::new(["localhost:9092"]);
        let classic = GroupOptions::new("g", ["t"]);
        let consumer = GroupOptions {
            protocol: GroupProtocol::Consumer,
            remote_assignor: Some("range".to_owned()),
            ..classic.clone()
        };
        let (classic, consumer) = (classic.client_config(&cluster).unwrap(), consumer.client_config(&cluster).unwrap());
        for name in ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"] {
            assert!(classic.get(name).is_some() && consumer.get(name).is_none(), "{name}");
        }
        assert_eq!(classic.get("partition.assignment.strategy"), Some("cooperative-sticky"));
        assert_eq!(consumer.get("group.remote.assignor"), Some("range"));
        for config in [classic, consumer] {
            let made: Result<rdkafka::consumer::BaseConsumer, _> = config.create();
            assert!(made.is_ok(), "{:?}", made.err());
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let good = GroupOptions::new("g", ["t", "^t.*"]);
        good.check().unwrap();
        let seconds = Duration::from_secs;
        for (options, name) in [
            (GroupOptions { group_id: String::new(), ..good.clone() }, "group.id"),
            (GroupOptions { topics: Vec::new(), ..good.clone() }, "topic"),
            (GroupOptions { topics: vec!["a b".to_owned()], ..good.clone() }, "topic"),
            (GroupOptions { drain_timeout: Some(seconds(101)), ..good.clone() }, "drain_timeout"),
            (GroupOptions { session_timeout: seconds(301), ..good.clone() }, "session.timeout.ms"),
            (GroupOptions { heartbeat_interval: seconds(45), ..good.clone() }, "heartbeat.interval.ms"),
            (GroupOptions { remote_assignor: Some("x".to_owned()), ..good.clone() }, "group.remote.assignor"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        // A short poll interval takes the drain along.
        let short = GroupOptions { max_poll_interval: seconds(6), session_timeout: seconds(6), ..good };
        short.check().unwrap();
        assert_eq!(short.drain_limit(), seconds(2));
    }
}
