//! DescribeGroups, ListGroups and DeleteGroups.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::membership::check_offsets_group_id;
use super::{Facts, committed};
use crate::groups::machine::StateName;
use crate::shared::Shared;
use crate::storage::offsets::{Change, ChangeKind};

/// The first version in which an unknown group is an error (KIP-1043).
const FIRST_WITH_NOT_FOUND: i16 = 6;

/// All groups here follow the classic protocol (KIP-848 is not offered).
const GROUP_TYPE: &str = "classic";

pub(super) fn describe_groups(shared: &Shared, request: DescribeGroupsRequest, facts: Facts) -> DescribeGroupsResponse {
    // A group is described once, however often it is asked for: an answer must not outgrow its request.
    let mut seen = HashSet::new();
    let groups = request.groups.into_iter().filter(|group| seen.insert(group.clone()));
    DescribeGroupsResponse::default().with_groups(groups.map(|group| describe(shared, group, facts)).collect())
}

fn describe(shared: &Shared, group: GroupId, facts: Facts) -> DescribedGroup {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    if let Some(found) = shared.groups.describe(&group) {
        let members = found.members.into_iter().map(|member| {
            DescribedGroupMember::default()
                .with_member_id(text(&member.id))
                .with_group_instance_id(member.instance.as_deref().map(text))
                .with_client_id(text(&member.client_id))
                .with_client_host(text(&member.client_host))
                .with_member_metadata(member.metadata)
                .with_member_assignment(member.assignment)
        });
        let protocol_type = stored_unless_known(shared, &group, found.protocol_type);
        return DescribedGroup::default()
            .with_group_id(group)
            .with_group_state(text(found.state.as_str()))
            .with_protocol_type(text(&protocol_type))
            .with_protocol_data(text(&found.protocol))
            .with_members(members.collect());
    }
    let offsets = shared.storage.offsets().group(&group, |of| of.protocol_type.clone());
    if let Some(protocol_type) = offsets {
        return DescribedGroup::default()
            .with_group_id(group)
            .with_group_state(text(StateName::Empty.as_str()))
            .with_protocol_type(text(&protocol_type));
    }
    let unknown = DescribedGroup::default().with_group_state(text(StateName::Dead.as_str()));
    if facts.version < FIRST_WITH_NOT_FOUND {
        return unknown.with_group_id(group);
    }
    let message = text(&format!("Group {} not found.", group.as_str()));
    unknown
        .with_group_id(group)
        .with_error_code(ResponseError::GroupIdNotFound.code())
        .with_error_message(Some(message))
}

/// A group in which somebody has only been given an id does not say what its members call themselves; its offsets may.
fn stored_unless_known(shared: &Shared, group: &str, protocol_type: String) -> String {
    if !protocol_type.is_empty() {
        return protocol_type;
    }
    shared.storage.offsets().protocol_type(group)
}

pub(super) fn list_groups(shared: &Shared, request: &ListGroupsRequest) -> ListGroupsResponse {
    let mut groups = BTreeMap::new();
    for (group, protocol_type) in shared.storage.offsets().groups() {
        groups.insert(group, (StateName::Empty, protocol_type));
    }
    for (group, state, protocol_type) in shared.groups.list() {
        let protocol_type = stored_unless_known(shared, &group, protocol_type);
        groups.insert(group, (state, protocol_type));
    }
    let passes = |filter: &[StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|wanted| wanted.as_str().eq_ignore_ascii_case(value))
    };
    let listed = groups.into_iter().filter(|(_, (state, _))| {
        passes(&request.states_filter, state.as_str()) && passes(&request.types_filter, GROUP_TYPE)
    });
    let listed = listed.map(|(group, (state, protocol_type))| {
        ListedGroup::default()
            .with_group_id(StrBytes::from_string(group).into())
            .with_protocol_type(StrBytes::from_string(protocol_type))
            .with_group_state(StrBytes::from_static_str(state.as_str()))
            .with_group_type(StrBytes::from_static_str(GROUP_TYPE))
    });
    ListGroupsResponse::default().with_groups(listed.collect())
}

pub(super) async fn delete_groups(shared: &Arc<Shared>, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    // Each deletion waits for the disk: a small request must not ask for thousands of the same.
    let mut seen = HashSet::new();
    for group in request.groups_names {
        if seen.insert(group.clone()) {
            let deleted = delete(shared, group.to_string()).await;
            let code = deleted.err().map_or(0, |error| error.code());
            results.push(DeletableGroupResult::default().with_group_id(group).with_error_code(code));
        }
    }
    DeleteGroupsResponse::default().with_results(results)
}

async fn delete(shared: &Arc<Shared>, group: String) -> Result<(), ResponseError> {
    check_offsets_group_id(&group)?;
    let store = shared.storage.offsets();
    let known = store.group(&group, |_| ()).is_some();
    let change = Change { group, kind: ChangeKind::RemoveGroup };
    let queued = shared.groups.queue_change(change, store, |group| match group {
        Some(group) if group.has_members() => Err(ResponseError::NonEmptyGroup),
        // Whoever was only given an id joins with it all the same.
        Some(_) => Ok(()),
        None if known => Ok(()),
        None => Err(ResponseError::GroupIdNotFound),
    })?;
    committed::write(shared, queued).await
}
