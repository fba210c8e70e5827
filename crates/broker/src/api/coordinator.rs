//! FindCoordinator: this broker is the coordinator of every group. Transactions have none here.

use std::collections::HashSet;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Facts, Peer, Refusal, refusals};
use crate::shared::{NODE_ID, Shared};

const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

pub(super) fn find_coordinator(
    shared: &Shared,
    request: FindCoordinatorRequest,
    peer: &Peer<'_>,
    facts: Facts,
) -> FindCoordinatorResponse {
    let found = match request.key_type {
        GROUP_KEY => Ok(shared.advertised(peer.local)),
        TRANSACTION_KEY => Err(refusals::transaction_coordinator(facts.version)),
        other => {
            let text = format!("the embedded broker coordinates consumer groups only, not keys of type {other}");
            Err(Refusal::new(ResponseError::InvalidRequest, text))
        }
    };
    if facts.version >= 4 {
        // Once a key, however often it is asked for: an answer must not outgrow its request.
        let mut seen = HashSet::new();
        let keys = request.coordinator_keys.into_iter().filter(|key| seen.insert(key.clone()));
        let coordinators = keys.map(|key| {
            let coordinator = Coordinator::default().with_key(key);
            match &found {
                Ok((host, port)) => coordinator
                    .with_node_id(NODE_ID.into())
                    .with_host(StrBytes::from_string(host.clone()))
                    .with_port(i32::from(*port)),
                Err(refusal) => coordinator
                    .with_node_id((-1).into())
                    .with_port(-1)
                    .with_error_code(refusal.error.code())
                    .with_error_message(refusal.text()),
            }
        });
        return FindCoordinatorResponse::default().with_coordinators(coordinators.collect());
    }
    match found {
        Ok((host, port)) => FindCoordinatorResponse::default()
            .with_node_id(NODE_ID.into())
            .with_host(StrBytes::from_string(host))
            .with_port(i32::from(port)),
        Err(refusal) => FindCoordinatorResponse::default()
            .with_error_code(refusal.error.code())
            .with_error_message(if facts.version >= 1 { refusal.text() } else { None })
            .with_node_id((-1).into())
            .with_port(-1),
    }
}
