//! One request as a frame, one frame as its response. Pure.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, HeaderVersion as _, Request, StrBytes};

use super::metered::Metered;
use super::versions::UNSUPPORTED_VERSION;
use crate::error::RequestFailure;

/// What a response without records may take, and what of one with records may be read as values: room for the metadata of more
/// than 200 000 partitions. A fetch's records stay views into the frame, but a decoded value takes up to some thirty times its
/// bytes there, so a hostile broker could make more of a frame of the size of a fetch than this process has.
const MAX_CONTROL_BYTES: usize = 16 << 20;

/// The request as a whole frame, the four bytes of its size included.
pub(super) fn encode_frame<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &StrBytes,
) -> Result<Bytes, RequestFailure> {
    let cannot = |error: &dyn std::fmt::Display| RequestFailure::Encode { what: error.to_string() };
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(client_id.clone()));
    let header_version = R::header_version(version);
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, header_version).map_err(|error| cannot(&error))?;
    request.encode(&mut frame, version).map_err(|error| cannot(&error))?;
    let size = i32::try_from(frame.len() - size_of::<i32>()).map_err(|error| cannot(&error))?;
    frame[..size_of::<i32>()].copy_from_slice(&size.to_be_bytes());
    Ok(frame.freeze())
}

/// The correlation id that a response frame begins with.
pub(super) fn correlation_id(frame: &[u8]) -> Option<i32> {
    frame.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

/// The response in `frame`, which is the whole frame without its size. Bytes behind the response are let pass, as every
/// client does.
pub(super) fn decode_frame<R: Request>(frame: Bytes, version: i16) -> Result<R::Response, RequestFailure> {
    if R::KEY != ApiKey::Fetch as i16 && frame.len() > MAX_CONTROL_BYTES {
        let what = format!("it is {} bytes long; only fetched records take more than {MAX_CONTROL_BYTES}", frame.len());
        return Err(RequestFailure::Garbage { what });
    }
    decode_within::<R>(frame, version, MAX_CONTROL_BYTES)
}

fn decode_within<R: Request>(frame: Bytes, version: i16, allowance: usize) -> Result<R::Response, RequestFailure> {
    let mut frame = Metered::new(frame, allowance);
    let decoded = ResponseHeader::decode(&mut frame, R::Response::header_version(version))
        .and_then(|_| R::Response::decode(&mut frame, version));
    decoded.map_err(|error| {
        let what = match frame.is_spent() {
            true => format!("it holds more than {allowance} bytes besides records"),
            false => format!("it cannot be decoded: {error}"),
        };
        RequestFailure::Garbage { what }
    })
}

/// As [`decode_frame`] for ApiVersions, whose error 35 always comes in version 0's form (KIP-511).
pub(super) fn decode_api_versions(frame: Bytes, version: i16) -> Result<ApiVersionsResponse, RequestFailure> {
    // The header of this response is the same in all versions: the correlation id alone.
    let mut body = frame.get(size_of::<i32>()..).unwrap_or_default();
    let unsupported = body.remaining() >= size_of::<i16>() && body.get_i16() == UNSUPPORTED_VERSION;
    let version = if unsupported { 0 } else { version };
    let whole = decode_frame::<ApiVersionsRequest>(frame.clone(), version);
    if unsupported && whole.is_err() {
        // Some brokers send the code and nothing else.
        return Ok(ApiVersionsResponse::default().with_error_code(UNSUPPORTED_VERSION));
    }
    whole
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::api_versions_response::ApiVersion;
    use kafka_protocol::messages::{FetchRequest, MetadataRequest, MetadataResponse};
    use kafka_protocol::protocol::decode_request_header_from_buffer;

    use super::*;

    fn response_frame(response: &ApiVersionsResponse, version: i16) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_i32(7);
        response.encode(&mut frame, version).unwrap();
        frame.freeze()
    }

    #[test]
    fn a_frame_says_its_size_and_holds_the_header() {
        let client = StrBytes::from_static_str("me");
        let request = MetadataRequest::default().with_allow_auto_topic_creation(false);
        let mut frame = encode_frame(&request, 12, 41, &client).unwrap();
        assert_eq!(usize::try_from(frame.get_i32()).unwrap(), frame.len());
        let header = decode_request_header_from_buffer(&mut frame).unwrap();
        assert_eq!((header.request_api_key, header.request_api_version, header.correlation_id), (3, 12, 41));
        assert_eq!(header.client_id.as_deref(), Some("me"));
        assert_eq!(MetadataRequest::decode(&mut frame, 12).unwrap(), request);
    }

    #[test]
    fn a_field_that_the_version_does_not_have_is_an_error() {
        let request = MetadataRequest::default().with_allow_auto_topic_creation(false);
        let failure = encode_frame(&request, 1, 0, &StrBytes::new()).unwrap_err();
        assert!(matches!(failure, RequestFailure::Encode { .. }), "{failure}");
    }

    #[test]
    fn a_response_without_records_that_is_as_long_as_one_with_them_is_not_decoded() {
        let frame = Bytes::from(vec![0; MAX_CONTROL_BYTES + 1]);
        let failure = decode_frame::<MetadataRequest>(frame.clone(), 1).unwrap_err();
        assert!(failure.to_string().contains("only fetched records"), "{failure}");
        decode_frame::<FetchRequest>(frame, 4).unwrap();
    }

    #[test]
    fn a_fetch_answer_of_next_to_no_records_takes_no_more_than_is_allowed() {
        // Version 12, with topics that have neither a name nor partitions: three bytes for a structure of a hundred.
        let mut frame = BytesMut::new();
        frame.put_bytes(0, 4 + 1 + 4 + 2 + 4);
        // A thousand and one, as a varint.
        frame.put_slice(&[0xe9, 0x07]);
        (0..1_000).for_each(|_| frame.put_slice(&[1, 1, 0]));
        frame.put_u8(0);
        let frame = frame.freeze();
        let topics = |allowance| {
            let decoded = decode_within::<FetchRequest>(frame.clone(), 12, allowance);
            decoded.map(|response| response.responses.len())
        };
        assert_eq!(topics(4_000).unwrap(), 1_000);
        let failure = topics(2_000).unwrap_err();
        assert!(failure.to_string().contains("more than 2000 bytes besides records"), "{failure}");
    }

    #[test]
    fn error_35_is_read_in_the_form_of_version_0_whatever_was_asked() {
        let api = ApiVersion::default().with_api_key(18).with_max_version(2);
        let refused = ApiVersionsResponse::default().with_error_code(35).with_api_keys(vec![api.clone()]);
        let read = decode_api_versions(response_frame(&refused, 0), 3).unwrap();
        assert_eq!((read.error_code, read.api_keys), (35, vec![api]));
        let bare = Bytes::from_static(&[0, 0, 0, 7, 0, 35]);
        assert_eq!(decode_api_versions(bare, 3).unwrap().error_code, 35);
    }

    #[test]
    fn every_cut_of_a_response_is_garbage_and_not_a_panic() {
        let api = ApiVersion::default().with_api_key(18).with_max_version(2);
        let whole = response_frame(&ApiVersionsResponse::default().with_api_keys(vec![api]), 3);
        assert!(decode_api_versions(whole.clone(), 3).is_ok());
        for cut in 0..whole.len() {
            let failure = decode_api_versions(whole.slice(..cut), 3).unwrap_err();
            assert!(matches!(failure, RequestFailure::Garbage { .. }), "cut at {cut}: {failure}");
        }
    }

    #[test]
    fn a_count_that_lies_is_garbage() {
        let mut frame = BytesMut::new();
        frame.put_i32(7);
        frame.put_i32(0);
        frame.put_i32(i32::MAX);
        let read: Result<MetadataResponse, _> = decode_frame::<MetadataRequest>(frame.freeze(), 3);
        assert!(matches!(read, Err(RequestFailure::Garbage { .. })));
    }
}
