//! Whom a partition is fetched from: its leader, or the replica near by that the leader names (KIP-392).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::TopicPartition;
use tokio::time::Instant;

use super::Fetcher;
use super::lanes::{Lanes, Presence};
use super::task::Trouble;
use crate::cluster::LeaderError;

/// A replica is preferred for so long before the leader is asked again, as long as Kafka's `metadata.max.age.ms` is by
/// default.
const PREFERRED_FOR: Duration = Duration::from_secs(300);

/// So long after trouble with a replica the leader is fetched from itself: it may not know yet that the replica is gone.
const SHUNNED_FOR: Duration = Duration::from_secs(30);

/// The broker to fetch from.
pub(super) struct Lead {
    pub(super) lanes: Arc<Lanes>,
    pub(super) epoch: i32,
    pub(super) is_follower: bool,
    /// While there is something to fetch.
    presence: Mutex<Option<Presence>>,
    until: Option<Instant>,
}

impl Lead {
    fn new(lanes: Arc<Lanes>, epoch: i32, until: Option<Instant>) -> Arc<Self> {
        let presence = Mutex::new(Some(lanes.join()));
        Arc::new(Self { lanes, epoch, is_follower: until.is_some(), presence, until })
    }

    /// Whether the reader has something to fetch, and so takes a share of what may be on its way.
    pub(super) fn set_busy(&self, is_busy: bool) {
        let mut presence = self.presence.lock();
        if presence.is_some() != is_busy {
            *presence = is_busy.then(|| self.lanes.join());
        }
    }
}

/// Finds it once for all pieces of a reader.
#[derive(Default)]
pub(super) struct Leads {
    current: Mutex<Option<Arc<Lead>>>,
    /// Who led the partition up to then is not trusted. Locked while it is being found out.
    stale: tokio::sync::Mutex<Option<Instant>>,
    /// Until then no other replica is asked for.
    shunned_until: Mutex<Option<Instant>>,
}

impl Leads {
    /// The one that was found.
    pub(super) fn current(&self) -> Option<Arc<Lead>> {
        self.current.lock().clone().filter(|lead| lead.until.is_none_or(|until| until > Instant::now()))
    }

    /// The one that was found, or who it is.
    pub(super) async fn get(&self, fetcher: &Fetcher, topic_partition: &TopicPartition) -> Result<Arc<Lead>, Trouble> {
        if let Some(lead) = self.current() {
            return Ok(lead);
        }
        let stale = self.stale.lock().await;
        if let Some(lead) = self.current() {
            return Ok(lead);
        }
        let TopicPartition { topic, partition } = topic_partition;
        let found = fetcher.cluster().leaders(topic, &[*partition], *stale).await.map_err(Trouble::Metadata)?;
        let leader = match found.into_iter().next() {
            Some(Ok(leader)) => leader,
            Some(Err(LeaderError::NoLeader)) => return Err(Trouble::NoLeader),
            Some(Err(LeaderError::UnknownPartition)) | None => return Err(Trouble::UnknownPartition),
        };
        let lead = Lead::new(fetcher.lanes(&leader.address), leader.epoch, None);
        *self.current.lock() = Some(Arc::clone(&lead));
        Ok(lead)
    }

    /// Nothing more is fetched.
    pub(super) fn forget(&self) {
        *self.current.lock() = None;
    }

    /// Fetching from it led to trouble. Another piece may have found another one since.
    pub(super) async fn distrust(&self, lead: Option<&Arc<Lead>>) {
        let mut stale = self.stale.lock().await;
        let mut current = self.current.lock();
        let is_known = match (&*current, lead) {
            (Some(current), Some(lead)) => Arc::ptr_eq(current, lead),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if is_known {
            *current = None;
            // A replica that fails says nothing against the leader.
            if lead.is_none_or(|lead| !lead.is_follower) {
                *stale = Some(Instant::now());
            } else {
                self.shun();
            }
        }
    }

    /// Whether the leader may name another replica.
    pub(super) fn may_prefer(&self) -> bool {
        self.shunned_until.lock().is_none_or(|until| until <= Instant::now())
    }

    fn shun(&self) {
        *self.shunned_until.lock() = Some(Instant::now() + SHUNNED_FOR);
    }

    /// The leader named another replica; one that is not known even to fresh metadata is not asked for again soon.
    pub(super) async fn prefer(&self, lead: &Arc<Lead>, replica: i32, fetcher: &Fetcher) {
        let cluster = fetcher.cluster();
        let mut address = cluster.broker_address(replica);
        if address.is_none() {
            if let Err(error) = cluster.refresh_brokers().await {
                tracing::debug!(%error, replica, "the replica that the leader names cannot be looked up");
            }
            address = cluster.broker_address(replica);
        }
        let Some(address) = address.filter(|address| address != lead.lanes.address()) else {
            self.shun();
            return;
        };
        let mut current = self.current.lock();
        // Another piece may have been told, too.
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, lead)) {
            let until = Instant::now() + PREFERRED_FOR;
            *current = Some(Lead::new(fetcher.lanes(&address), lead.epoch, Some(until)));
        }
    }
}
