//! Which version of each request is spoken: ours, the broker's, the highest in common.

use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest,
    SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::Request;

/// Kafka's error code for a request version that the broker does not know.
pub(crate) const UNSUPPORTED_VERSION: i16 = 35;

/// A request that this client sends, with the versions it implements.
pub(crate) trait Spoken: Request {
    /// Its name, for messages.
    const NAME: &'static str;
    /// The lowest and the highest version.
    const SPOKEN: (i16, i16);
}

macro_rules! spoken {
    ($($request:ident $name:literal $min:literal to $max:literal;)+) => {
        $(impl Spoken for $request {
            const NAME: &'static str = $name;
            const SPOKEN: (i16, i16) = ($min, $max);
        })+
    };
}

spoken! {
    // Azure resets the connection at version 4, which adds nothing that is used here.
    ApiVersionsRequest "ApiVersions" 0 to 3;
    MetadataRequest "Metadata" 0 to 12;
    // Version 1 is the first that answers one offset per partition instead of a list of segments. Version 9 and above
    // concern tiered storage.
    ListOffsetsRequest "ListOffsets" 1 to 8;
    // Version 4 is the first with isolation levels and message format v2; from 13 on topics go by id alone (KIP-516).
    FetchRequest "Fetch" 4 to 12;
    // Version 2 is the first that anybody may ask who may see the topic, and that tells a broker which lost the lead.
    OffsetForLeaderEpochRequest "OffsetForLeaderEpoch" 2 to 4;
    CreateTopicsRequest "CreateTopics" 2 to 7;
    // Version 6 lets a topic go by id; the name is what is known here.
    DeleteTopicsRequest "DeleteTopics" 1 to 5;
    DeleteRecordsRequest "DeleteRecords" 0 to 2;
    DescribeConfigsRequest "DescribeConfigs" 1 to 4;
    // Version 0 is followed by bare SASL messages without a header (before KIP-152).
    SaslHandshakeRequest "SaslHandshake" 1 to 1;
    // Version 1 and above tell how long the session lasts (KIP-368).
    SaslAuthenticateRequest "SaslAuthenticate" 0 to 2;
}

/// The versions that one broker speaks, as it told them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BrokerVersions {
    /// API key, lowest and highest version, sorted by key.
    ranges: Vec<(i16, i16, i16)>,
}

/// There is no version of a request that both sides speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoCommonVersion {
    pub(crate) ours: (i16, i16),
    pub(crate) theirs: Option<(i16, i16)>,
}

impl BrokerVersions {
    /// The versions in an ApiVersions answer.
    pub(crate) fn of(response: &ApiVersionsResponse) -> Self {
        let mut ranges: Vec<_> =
            response.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect();
        ranges.sort_unstable();
        ranges.dedup_by_key(|range| range.0);
        Self { ranges }
    }

    fn range(&self, key: i16) -> Option<(i16, i16)> {
        let at = self.ranges.binary_search_by_key(&key, |range| range.0).ok()?;
        self.ranges.get(at).map(|range| (range.1, range.2))
    }

    /// Whether the broker speaks any version of `R`.
    pub(crate) fn knows<R: Spoken>(&self) -> bool {
        self.range(R::KEY).is_some()
    }

    /// The highest version of `R` that both sides speak.
    pub(crate) fn negotiate<R: Spoken>(&self) -> Result<i16, NoCommonVersion> {
        let ours = R::SPOKEN;
        let theirs = self.range(R::KEY);
        match theirs {
            Some((low, high)) if low.max(ours.0) <= high.min(ours.1) => Ok(high.min(ours.1)),
            _ => Err(NoCommonVersion { ours, theirs }),
        }
    }
}

/// What to do after an answer to ApiVersions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The broker's versions are known.
    Done(BrokerVersions),
    /// The broker does not know that version of ApiVersions; ask again in this one.
    AskAgain(i16),
    /// The broker answered with another error code.
    Refused(i16),
}

/// Judges an answer to ApiVersions that was asked for in version `asked`.
///
/// A broker that does not know the version answers error 35 in version 0's form, whatever was asked (KIP-511); its list may
/// hold the versions of ApiVersions itself.
pub(crate) fn judge_handshake(asked: i16, response: &ApiVersionsResponse) -> Handshake {
    match response.error_code {
        0 => Handshake::Done(BrokerVersions::of(response)),
        UNSUPPORTED_VERSION if asked > 0 => {
            let known = BrokerVersions::of(response).negotiate::<ApiVersionsRequest>();
            // Without a list, or with one that would only lead back here, version 0 is what every broker speaks.
            Handshake::AskAgain(known.ok().filter(|version| *version < asked).unwrap_or(0))
        }
        code => Handshake::Refused(code),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::api_versions_response::ApiVersion;

    use super::*;

    fn answer(error_code: i16, ranges: &[(i16, i16, i16)]) -> ApiVersionsResponse {
        let api_keys = ranges.iter().map(|(key, min, max)| {
            ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max)
        });
        ApiVersionsResponse::default().with_error_code(error_code).with_api_keys(api_keys.collect())
    }

    #[test]
    fn the_highest_common_version_is_taken() {
        let versions = BrokerVersions::of(&answer(0, &[(1, 0, 17), (2, 0, 5), (3, 5, 5), (20, 6, 9)]));
        assert_eq!(versions.negotiate::<FetchRequest>(), Ok(12));
        assert_eq!(versions.negotiate::<ListOffsetsRequest>(), Ok(5));
        assert_eq!(versions.negotiate::<MetadataRequest>(), Ok(5));
        let newer = NoCommonVersion { ours: (1, 5), theirs: Some((6, 9)) };
        assert_eq!(versions.negotiate::<DeleteTopicsRequest>(), Err(newer));
        let unknown = NoCommonVersion { ours: (0, 2), theirs: None };
        assert_eq!(versions.negotiate::<DeleteRecordsRequest>(), Err(unknown));
    }

    #[test]
    fn a_range_that_lies_is_no_common_version() {
        let versions = BrokerVersions::of(&answer(0, &[(1, 9, 3), (1, 9, 3)]));
        assert!(versions.negotiate::<FetchRequest>().is_err());
    }

    #[test]
    fn error_35_asks_again_in_a_lower_version_and_never_in_the_same() {
        assert_eq!(judge_handshake(3, &answer(35, &[(18, 0, 2)])), Handshake::AskAgain(2));
        assert_eq!(judge_handshake(3, &answer(35, &[(18, 0, 4)])), Handshake::AskAgain(0));
        assert_eq!(judge_handshake(3, &answer(35, &[])), Handshake::AskAgain(0));
        assert_eq!(judge_handshake(0, &answer(35, &[])), Handshake::Refused(35));
        assert_eq!(judge_handshake(3, &answer(58, &[])), Handshake::Refused(58));
    }
}
