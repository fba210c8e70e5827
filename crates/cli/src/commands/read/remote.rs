//! Reads from a server over gRPC. What comes out is, byte for byte, what a read in this process would write.

mod decode;

use tidegate_api::ApiError;
use tidegate_api::v1::tidegate_client::TidegateClient;
use tidegate_api::v1::{self, read_range_request, read_range_response};
use tidegate_model::Isolation;
use tidegate_server::engine::{Encode as _, OnDataLoss, RangeSpec, ReadRequest};
use tidegate_server::formats::ndjson::{self, LineValue};
use tidegate_server::formats::{Encoder, Format, Part, end};
use tonic::Streaming;
use tonic::transport::Channel;

use super::{Ended, LayoutArg, ReadArgs};
use crate::exit::{Exit, Failure};
use crate::output::progress::Progress;
use crate::output::sink::Sink;
use crate::target::ServerUrl;
use crate::units::Size;

/// A frame of the output is written when so much has come together, or when a message of the stream is used up.
const FRAME_BYTES: usize = 1 << 20;

/// What a message may hold beside what `max_message_bytes` counts.
const SLACK_BYTES: usize = 4 << 10;

/// A read that is ready.
pub(super) struct RemoteRead {
    server: ServerUrl,
    client: TidegateClient<Channel>,
    stream: Streaming<v1::ReadRangeResponse>,
    first: Option<v1::ReadRangeResponse>,
    topic: String,
    cluster: String,
    format: Format,
}

/// Connects and waits for the first message: all that can fail before the first record.
pub(super) async fn begin(args: &ReadArgs, server: &ServerUrl) -> Result<RemoteRead, Failure> {
    let Size(limit) = args.max_message_bytes;
    let max_message_bytes = u32::try_from(limit)
        .ok()
        .filter(|limit| *limit > 0)
        .ok_or_else(|| Failure::usage("--max-message-bytes must lie between 1B and 4095MiB"))?;
    let decoding = usize::try_from(max_message_bytes).unwrap_or(usize::MAX).saturating_add(SLACK_BYTES);
    let mut client = server.connect(decoding).await?;
    let format = Format::from(args.format);
    let mut request = request(args.request(), args.layout, format, max_message_bytes);
    let cluster = args.target.cluster().to_owned();
    request.cluster.clone_from(&cluster);
    let failure = |status: tonic::Status| server.failure(&status);
    let mut stream = client.read_range(request).await.map_err(failure)?.into_inner();
    let first = stream.message().await.map_err(failure)?;
    Ok(RemoteRead { server: server.clone(), client, stream, first, topic: args.topic().to_owned(), cluster, format })
}

fn request(request: ReadRequest, layout: LayoutArg, format: Format, max_message_bytes: u32) -> v1::ReadRangeRequest {
    let range = match request.range {
        RangeSpec::Time { from, until } => read_range_request::Range::Time(v1::TimeRange {
            from: from.unwrap_or_default(),
            until: until.unwrap_or_default(),
        }),
        RangeSpec::Offsets { start, end } => read_range_request::Range::Offsets(v1::OffsetRange { start, end }),
        RangeSpec::Last { count } => read_range_request::Range::Last(v1::LastRecords { count }),
    };
    let layout = match layout {
        LayoutArg::Rows => v1::Layout::Rows,
        LayoutArg::Columns => v1::Layout::Columns,
    };
    let value_encoding = match format {
        Format::Protobuf => v1::ValueEncoding::AsStored,
        Format::Ndjson | Format::Json | Format::Values => v1::ValueEncoding::Json,
    };
    let isolation = match request.isolation {
        Isolation::ReadCommitted => v1::Isolation::ReadCommitted,
        Isolation::ReadUncommitted => v1::Isolation::ReadUncommitted,
    };
    let on_data_loss = match request.on_data_loss {
        OnDataLoss::Fail => v1::OnDataLoss::Fail,
        OnDataLoss::Report => v1::OnDataLoss::Report,
    };
    v1::ReadRangeRequest {
        topic: request.topic,
        range: Some(range),
        partitions: request.partitions,
        limit: request.limit.unwrap_or_default(),
        layout: layout.into(),
        value_encoding: value_encoding.into(),
        isolation: isolation.into(),
        on_data_loss: on_data_loss.into(),
        max_message_bytes,
        ..v1::ReadRangeRequest::default()
    }
}

impl RemoteRead {
    /// Reads into `sink`. Answers with the number of records and with how it ended.
    pub(super) async fn run(mut self, sink: &Sink, progress: &mut Progress) -> (u64, Ended) {
        let mut encoder = Encoder::new(self.format, Default::default(), FRAME_BYTES);
        let mut records = 0;
        let ended = self.copy(&mut encoder, &mut records, sink, progress).await;
        let ended = match ended {
            Ok(ended) => ended,
            Err(Broken::Failure(failure)) => Ended::Failed(failure),
            Err(Broken::Api(error)) => {
                let mut parts = Vec::new();
                encoder.flush(&mut parts);
                if self.format == Format::Ndjson {
                    let mut line = Vec::new();
                    ndjson::write_error(&mut line, &error);
                    parts.push(Part::Data(line.into()));
                }
                for part in parts {
                    if let Part::Data(bytes) = part {
                        // If nobody takes it the exit code still says it.
                        let _ = sink.write(bytes).await;
                    }
                }
                Ended::Failed(error.into())
            }
        };
        (records, ended)
    }

    async fn copy(
        &mut self,
        encoder: &mut Encoder,
        records: &mut u64,
        sink: &Sink,
        progress: &mut Progress,
    ) -> Result<Ended, Broken> {
        let mut next = self.first.take();
        // Why a value is not JSON is said only where the topic was declared to hold something that has a JSON form.
        let mut tell_why = None;
        let mut parts = Vec::new();
        let mut end = None;
        while let Some(message) = next.take() {
            match message.message {
                None => {}
                Some(read_range_response::Message::End(statement)) => end = Some(statement),
                Some(batch) => {
                    let batch = decode::Records::new(batch).map_err(|error| self.malformed(&error))?;
                    if tell_why.is_none() && batch.has_value_errors() {
                        tell_why = Some(self.payload_is_declared().await?);
                    }
                    for record in batch.iter() {
                        let mut record = record.map_err(|error| self.malformed(&error))?;
                        if let LineValue::AsStored { error, .. } = &mut record.value
                            && tell_why != Some(true)
                        {
                            *error = None;
                        }
                        encoder
                            .push_converted(&record.head, record.value, record.headers, &mut parts)
                            .map_err(|error| Broken::Failure(Failure::failed_plain(error)))?;
                        *records += 1;
                    }
                    encoder.flush(&mut parts);
                }
            }
            for part in parts.drain(..) {
                if let Part::Data(bytes) = part
                    && sink.write(bytes).await.is_err()
                {
                    return Ok(Ended::OutputClosed);
                }
            }
            progress.set(*records);
            next = tokio::select! {
                () = sink.closed() => return Ok(Ended::OutputClosed),
                message = self.stream.message() => message.map_err(|status| self.broken(&status))?,
            };
        }
        let Some(end) = end else {
            let message = format!("{} ended the stream without an end statement", self.server);
            return Err(Broken::Failure(Failure::failed_plain(message)));
        };
        // What counts as converted is a matter of the format: `null` is JSON, but as a record's `value` it would say that
        // there is none.
        let mut statement = end::statement_from_grpc(&end);
        statement.values_not_converted = encoder.values_not_converted();
        encoder.finish_converted(&statement, &mut parts);
        let mut apart = None;
        for part in parts {
            match part {
                Part::End { apart: text } => apart = text,
                Part::Data(bytes) => {
                    if sink.write(bytes).await.is_err() {
                        return Ok(Ended::OutputClosed);
                    }
                }
            }
        }
        Ok(Ended::Complete { end: statement, apart })
    }

    /// Whether the server's configuration says what the topic's values are.
    async fn payload_is_declared(&mut self) -> Result<bool, Broken> {
        let request = v1::DescribeTopicRequest { topic: self.topic.clone(), cluster: self.cluster.clone() };
        let answer = self.client.describe_topic(request).await.map_err(|status| self.broken(&status))?;
        Ok(matches!(
            answer.into_inner().payload_kind(),
            v1::PayloadKind::Json | v1::PayloadKind::Protobuf | v1::PayloadKind::Registry
        ))
    }

    fn broken(&self, status: &tonic::Status) -> Broken {
        match ApiError::from_status(status) {
            Some(error) => Broken::Api(error),
            None => Broken::Failure(self.server.failure(status)),
        }
    }

    fn malformed(&self, error: &decode::Malformed) -> Broken {
        let message = format!("{} sent a message that makes no sense: {error}", self.server);
        Broken::Failure(Failure::new(Exit::Failed, message))
    }
}

/// Why copying stopped.
enum Broken {
    /// The server said it.
    Api(ApiError),
    /// Something else.
    Failure(Failure),
}
