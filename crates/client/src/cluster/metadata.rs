//! Metadata: the request built, the response checked. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::StrBytes;
use tidegate_model::TopicName;

use super::{MetadataError, PartitionInfo, TopicInfo};
use crate::error::{KafkaCode, code};

/// Which topics to ask for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope<'a> {
    /// None: the brokers alone.
    Brokers,
    /// This one.
    Topic(&'a TopicName),
    /// All.
    All,
}

/// What a metadata response says.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// The brokers' addresses, by id.
    pub(super) brokers: BTreeMap<i32, Arc<str>>,
    /// Who takes administration, if the broker tells.
    pub(super) controller: Option<i32>,
    /// Each topic, or why it is not shown.
    pub(super) topics: HashMap<TopicName, Result<Arc<TopicInfo>, KafkaCode>>,
}

/// The request for `scope`.
pub(super) fn build(version: i16, scope: Scope<'_>) -> MetadataRequest {
    // Below version 4 a broker may create a topic because it is asked for: ask for all, then, and look it up.
    let can_forbid_creation = version >= 4;
    let topics = match scope {
        // In version 0 an empty list stands for all topics; from version 1 on, null does.
        Scope::All => (version == 0).then(Vec::new),
        Scope::Topic(_) if !can_forbid_creation => (version == 0).then(Vec::new),
        Scope::Topic(topic) => {
            let name = kafka_protocol::messages::TopicName(StrBytes::from_string(topic.as_str().to_owned()));
            Some(vec![MetadataRequestTopic::default().with_name(Some(name))])
        }
        Scope::Brokers => Some(Vec::new()),
    };
    MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(!can_forbid_creation)
}

/// What the response says; `Err` says what is wrong with it.
pub(super) fn check(response: MetadataResponse) -> Result<Answer, String> {
    let mut brokers = BTreeMap::new();
    for broker in response.brokers {
        if u16::try_from(broker.port).is_err() {
            return Err(format!("the port of broker {} is {}", broker.node_id.0, broker.port));
        }
        let host = broker.host.as_str();
        // An IPv6 address goes in brackets.
        let address = if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]:{}", broker.port)
        } else {
            format!("{host}:{}", broker.port)
        };
        brokers.insert(broker.node_id.0, address.into());
    }
    let mut topics = HashMap::new();
    for topic in response.topics {
        let Some(name) = &topic.name else { return Err("a topic has no name".to_owned()) };
        let name = match TopicName::new(name) {
            Ok(name) => name,
            Err(error) => {
                tracing::warn!(%error, "the cluster shows a topic whose name Kafka does not allow; it is left out");
                continue;
            }
        };
        let answer = topic_info(&name, topic)?;
        topics.insert(name, answer.map(Arc::new));
    }
    let controller = Some(response.controller_id.0).filter(|id| *id >= 0);
    Ok(Answer { brokers, controller, topics })
}

fn topic_info(name: &TopicName, topic: MetadataResponseTopic) -> Result<Result<TopicInfo, KafkaCode>, String> {
    match topic.error_code {
        // A topic that is being created: its partitions, as far as they are listed, have no leaders yet.
        code::NONE | code::LEADER_NOT_AVAILABLE => {}
        refused => return Ok(Err(KafkaCode(refused))),
    }
    let mut partitions: Vec<_> = topic.partitions.into_iter().map(partition_info).collect();
    partitions.sort_unstable_by_key(|partition| partition.partition);
    if partitions.iter().any(|partition| partition.partition < 0)
        || partitions.windows(2).any(|pair| pair[0].partition == pair[1].partition)
    {
        return Err(format!("the partition numbers of topic {name} are not sound"));
    }
    let id = Some(topic.topic_id).filter(|id| !id.is_nil());
    Ok(Ok(TopicInfo { name: name.clone(), id, internal: topic.is_internal, partitions }))
}

fn partition_info(partition: MetadataResponsePartition) -> PartitionInfo {
    // An error of a partition is LEADER_NOT_AVAILABLE or LISTENER_NOT_FOUND: no leader either way. (REPLICA_NOT_AVAILABLE,
    // in old versions, comes with a leader.)
    let ids = |brokers: Vec<kafka_protocol::messages::BrokerId>| brokers.into_iter().map(|id| id.0).collect();
    PartitionInfo {
        partition: partition.partition_index,
        leader: Some(partition.leader_id.0).filter(|id| *id >= 0),
        leader_epoch: partition.leader_epoch,
        replicas: ids(partition.replica_nodes),
        isr: ids(partition.isr_nodes),
    }
}

impl Answer {
    /// One topic of it.
    pub(super) fn topic(&self, topic: &TopicName) -> Result<Arc<TopicInfo>, MetadataError> {
        match self.topics.get(topic) {
            Some(Ok(info)) => Ok(Arc::clone(info)),
            None | Some(Err(KafkaCode(code::UNKNOWN_TOPIC_OR_PARTITION))) => {
                Err(MetadataError::UnknownTopic { topic: topic.clone() })
            }
            Some(Err(KafkaCode(code::TOPIC_AUTHORIZATION_FAILED))) => {
                Err(MetadataError::NotAuthorized { topic: topic.clone() })
            }
            Some(Err(code)) => Err(MetadataError::Refused { topic: topic.clone(), code: *code }),
        }
    }

    /// All topics that are shown, sorted by name.
    pub(super) fn all(&self) -> Vec<TopicInfo> {
        let mut topics: Vec<_> = self.topics.values().filter_map(|info| info.as_ref().ok()).collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics.into_iter().map(|info| TopicInfo::clone(info)).collect()
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::BrokerId;
    use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
    use kafka_protocol::protocol::{Decodable as _, Encodable as _};

    use super::*;

    fn name(name: &str) -> TopicName {
        TopicName::new(name).unwrap()
    }

    fn topic(name: &str, error_code: i16, partitions: &[(i32, i32)]) -> MetadataResponseTopic {
        let partitions = partitions.iter().map(|(index, leader)| {
            MetadataResponsePartition::default().with_partition_index(*index).with_leader_id(BrokerId(*leader))
        });
        let name = kafka_protocol::messages::TopicName(StrBytes::from_string(name.to_owned()));
        MetadataResponseTopic::default()
            .with_name(Some(name))
            .with_error_code(error_code)
            .with_partitions(partitions.collect())
    }

    fn broker(id: i32, host: &'static str, port: i32) -> MetadataResponseBroker {
        let host = StrBytes::from_static_str(host);
        MetadataResponseBroker::default().with_node_id(BrokerId(id)).with_host(host).with_port(port)
    }

    #[test]
    fn no_request_ever_lets_a_broker_create_a_topic() {
        for version in 0..=12 {
            for scope in [Scope::Topic(&name("orders")), Scope::All, Scope::Brokers] {
                let request = build(version, scope);
                let mut bytes = bytes::BytesMut::new();
                request.encode(&mut bytes, version).unwrap();
                let read = MetadataRequest::decode(&mut bytes.freeze(), version).unwrap();
                let named = read.topics.is_some_and(|topics| !topics.is_empty());
                assert!(!named || !read.allow_auto_topic_creation, "version {version}");
                assert_eq!(named, version >= 4 && matches!(scope, Scope::Topic(_)), "version {version}");
            }
        }
    }

    #[test]
    fn partitions_come_sorted_and_leaderless_ones_have_none() {
        let response = MetadataResponse::default()
            .with_brokers(vec![broker(1, "localhost", 9092), broker(2, "::1", 9093)])
            .with_controller_id(BrokerId(-1))
            .with_topics(vec![topic("orders", 0, &[(2, -1), (0, 1), (1, 2)])]);
        let answer = check(response).unwrap();
        assert_eq!((&*answer.brokers[&1], &*answer.brokers[&2]), ("localhost:9092", "[::1]:9093"));
        assert_eq!(answer.controller, None);
        let leaders: Vec<_> =
            answer.topic(&name("orders")).unwrap().partitions.iter().map(|p| (p.partition, p.leader)).collect();
        assert_eq!(leaders, [(0, Some(1)), (1, Some(2)), (2, None)]);
    }

    #[test]
    fn each_refusal_has_its_name_and_a_topic_that_is_not_listed_is_unknown() {
        let topics = vec![topic("a", 3, &[]), topic("b", 29, &[]), topic("c", 17, &[]), topic("d", 5, &[])];
        let answer = check(MetadataResponse::default().with_topics(topics)).unwrap();
        assert!(matches!(answer.topic(&name("a")), Err(MetadataError::UnknownTopic { .. })));
        assert!(matches!(answer.topic(&name("b")), Err(MetadataError::NotAuthorized { .. })));
        assert!(matches!(answer.topic(&name("c")), Err(MetadataError::Refused { code: KafkaCode(17), .. })));
        assert_eq!(answer.topic(&name("d")).unwrap().partitions, []);
        assert!(matches!(answer.topic(&name("e")), Err(MetadataError::UnknownTopic { .. })));
        assert_eq!(answer.all().iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["d"]);
    }

    #[test]
    fn numbers_that_cannot_be_are_garbage() {
        let port = MetadataResponse::default().with_brokers(vec![broker(1, "localhost", 70_000)]);
        assert!(check(port).is_err());
        for partitions in [&[(0, 1), (0, 1)][..], &[(-1, 1)]] {
            let response = MetadataResponse::default().with_topics(vec![topic("orders", 0, partitions)]);
            assert!(check(response).is_err());
        }
    }
}
