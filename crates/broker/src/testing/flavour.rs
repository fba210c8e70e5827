//! Kinds of brokers that people have, as far as a client can tell them apart. Pure.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

/// The versions of one API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The API.
    pub api: ApiKey,
    /// The lowest version.
    pub min: i16,
    /// The highest version.
    pub max: i16,
}

/// What becomes of an ApiVersions request in a version that the broker does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownApiVersions {
    /// Error 35 in version 0's form, with the list of versions (KIP-511).
    Error35,
    /// Error 35 in version 0's form, and an empty list: brokers before Kafka 2.4.
    Error35Bare,
    /// The connection is closed.
    Close,
}

/// A limit on what fetches bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Bytes of records a second. What has begun is finished; then fetches come back empty, without an error.
    pub bytes_per_second: u64,
    /// Whether `throttle_time_ms` says so.
    pub told: bool,
}

/// A kind of broker. Start from one of the constructors and change what differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// The APIs and versions that are spoken, as far as the broker behind speaks them; `None`: all that it does.
    pub versions: Option<Vec<Versions>>,
    /// See [`UnknownApiVersions`].
    pub unknown_api_versions: UnknownApiVersions,
    /// A connection without a byte either way for so long is dead: nothing comes through any more, and neither side is told.
    pub idle_cut: Option<Duration>,
    /// Offset commits a second and partition; one more is answered when the second is over.
    pub commits_per_second: Option<u32>,
    /// A limit on what fetches bring.
    pub egress: Option<Egress>,
}

const fn versions(api: ApiKey, min: i16, max: i16) -> Versions {
    Versions { api, min, max }
}

impl Flavour {
    /// The broker behind as it is.
    pub fn plain() -> Self {
        Self {
            versions: None,
            unknown_api_versions: UnknownApiVersions::Error35,
            idle_cut: None,
            commits_per_second: None,
            egress: None,
        }
    }

    /// Azure Event Hubs.
    ///
    /// Source: the versions that clients logged against a namespace (oliveigah/klife#13 on GitHub up to LeaveGroup; the
    /// others after Azure/azure-event-hubs-for-kafka#209 and #69, which are older, and a guess where those are silent). No
    /// topic ids and no fetch sessions follow from them. ApiVersions 4 was met with a closed connection (twmb/franz-go#1022)
    /// and, in 2026, with error 35 (twmb/franz-go#1312): [`Flavour::unknown_api_versions`] chooses. An idle connection is dropped
    /// silently after 240 s (the service's Kafka configuration page). Offset commits are limited to 4 a second and partition
    /// (its Kafka troubleshooting guide); what clients see is an answer that comes a second late
    /// (Azure/azure-event-hubs-for-kafka#197). There is one endpoint for all partitions: use one broker.
    pub fn event_hubs() -> Self {
        let spoken = vec![
            versions(ApiKey::Produce, 0, 7),
            versions(ApiKey::Fetch, 4, 6),
            versions(ApiKey::ListOffsets, 0, 8),
            versions(ApiKey::Metadata, 0, 5),
            versions(ApiKey::OffsetCommit, 0, 8),
            versions(ApiKey::OffsetFetch, 0, 8),
            versions(ApiKey::FindCoordinator, 0, 4),
            versions(ApiKey::JoinGroup, 0, 9),
            versions(ApiKey::Heartbeat, 0, 4),
            versions(ApiKey::LeaveGroup, 0, 5),
            versions(ApiKey::SyncGroup, 0, 5),
            versions(ApiKey::DescribeGroups, 0, 5),
            versions(ApiKey::ListGroups, 0, 4),
            versions(ApiKey::SaslHandshake, 0, 1),
            versions(ApiKey::ApiVersions, 0, 3),
            versions(ApiKey::CreateTopics, 0, 2),
            versions(ApiKey::DeleteTopics, 0, 2),
            versions(ApiKey::InitProducerId, 0, 4),
            versions(ApiKey::DescribeConfigs, 0, 2),
            versions(ApiKey::SaslAuthenticate, 0, 2),
            versions(ApiKey::CreatePartitions, 0, 1),
            versions(ApiKey::DeleteGroups, 0, 0),
        ];
        Self {
            versions: Some(spoken),
            unknown_api_versions: UnknownApiVersions::Close,
            idle_cut: Some(Duration::from_secs(240)),
            commits_per_second: Some(4),
            egress: None,
        }
    }

    /// A broker of Kafka 1.0, with ApiVersions 0 alone.
    pub fn old_broker() -> Self {
        let spoken = vec![
            versions(ApiKey::Produce, 0, 5),
            versions(ApiKey::Fetch, 0, 6),
            versions(ApiKey::ListOffsets, 0, 2),
            versions(ApiKey::Metadata, 0, 5),
            versions(ApiKey::OffsetCommit, 0, 3),
            versions(ApiKey::OffsetFetch, 0, 3),
            versions(ApiKey::FindCoordinator, 0, 1),
            versions(ApiKey::JoinGroup, 0, 2),
            versions(ApiKey::Heartbeat, 0, 1),
            versions(ApiKey::LeaveGroup, 0, 1),
            versions(ApiKey::SyncGroup, 0, 1),
            versions(ApiKey::ApiVersions, 0, 0),
            versions(ApiKey::CreateTopics, 0, 2),
            versions(ApiKey::DeleteTopics, 0, 1),
            versions(ApiKey::DeleteRecords, 0, 0),
            versions(ApiKey::InitProducerId, 0, 0),
            versions(ApiKey::OffsetForLeaderEpoch, 0, 0),
        ];
        Self { versions: Some(spoken), unknown_api_versions: UnknownApiVersions::Error35Bare, ..Self::plain() }
    }

    /// What is spoken before a broker that speaks `behind`.
    pub(super) fn spoken(&self, behind: &[Versions]) -> Vec<Versions> {
        let Some(own) = &self.versions else { return behind.to_vec() };
        let both = |own: &Versions| {
            let behind = behind.iter().find(|behind| behind.api == own.api)?;
            let (min, max) = (own.min.max(behind.min), own.max.min(behind.max));
            // These brokers answer ApiVersions themselves.
            if own.api == ApiKey::ApiVersions {
                Some(*own)
            } else {
                (min <= max).then_some(versions(own.api, min, max))
            }
        };
        own.iter().filter_map(both).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_never_promises_more_than_the_broker_behind_speaks() {
        let behind =
            [versions(ApiKey::Fetch, 5, 16), versions(ApiKey::ApiVersions, 0, 4), versions(ApiKey::Produce, 8, 9)];
        let spoken = Flavour::event_hubs().spoken(&behind);
        assert_eq!(spoken, [versions(ApiKey::Fetch, 5, 6), versions(ApiKey::ApiVersions, 0, 3)]);
        assert_eq!(Flavour::plain().spoken(&behind), behind);
    }
}
