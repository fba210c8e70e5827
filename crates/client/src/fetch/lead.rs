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
            }
        }
    }

    /// The leader named another replica. `false`: that is not known, or the one it is.
    pub(super) fn prefer(&self, lead: &Arc<Lead>, replica: i32, fetcher: &Fetcher) -> bool {
        let address = fetcher.cluster().broker_address(replica);
        let Some(address) = address.filter(|address| address != lead.lanes.address()) else { return false };
        let until = Instant::now() + PREFERRED_FOR;
        *self.current.lock() = Some(Lead::new(fetcher.lanes(&address), lead.epoch, Some(until)));
        true
    }
}
