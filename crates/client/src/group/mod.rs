//! The group source: a consumer group's records, fetched by our own readers.
//!
//! librdkafka joins the group, sends its heartbeats and commits, and fetches nothing (`member`): it keeps one fetch in
//! flight for each broker, our readers as many as pay. A task (`driver`) follows the rebalances: for what is assigned it
//! finds out where to begin (`start`) and reads it (`feed`); what is revoked it drains (`drain`). The consumer takes what
//! is ready from the `desk`, where the `ledger` keeps what was handed out and what is to be committed.

mod desk;
mod drain;
mod driver;
mod error;
mod event;
mod feed;
mod ledger;
mod member;
mod options;
mod start;
mod verdict;

use std::sync::Arc;

use tidegate_model::TopicPartition;
use tokio::sync::oneshot;

use crate::cluster::Cluster;
use crate::librdkafka::security::Guard;
use desk::Desk;
pub use desk::GroupCounts;
use driver::{Closing, Driver};
pub use error::GroupError;
pub use event::{AssignedPartition, GroupEvent};
use member::Member;
pub use options::{AssignmentStrategy, GroupOptions, GroupProtocol, OffsetReset, OnDataLoss};

/// A member of a consumer group: the records of the partitions that the group gives it, at least once.
///
/// Take [`GroupEvent`]s from [`GroupSource::next`], and mark what is settled with [`GroupSource::commit`]. A consumer may
/// take its time: it holds up its own partitions and nothing else, neither its membership nor its commits.
///
/// A partition is given up in order. `Revoking` comes first; then the chunks that had been fetched; when everything that
/// was handed out is committed, or when the drain's time is up, what is marked is committed, and `Revoked` follows. The
/// other partitions go on meanwhile (under the cooperative and the KIP-848 protocol). A partition that was `Lost` is
/// dropped at once, without a commit.
///
/// Dropping a source is [`GroupSource::close`] without waiting.
#[derive(Debug)]
pub struct GroupSource {
    desk: Arc<Desk>,
    closing: Option<oneshot::Sender<Closing>>,
}

/// Marks offsets to be committed, apart from the source. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GroupCommitter {
    desk: Arc<Desk>,
}

impl GroupSource {
    /// Joins a group, in a task of the current tokio runtime. Returns when a broker has answered; the group's first answer
    /// comes with [`GroupSource::next`].
    ///
    /// # Errors
    /// [`GroupError::Setting`], [`GroupError::Security`] and [`GroupError::Connect`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn join(cluster: &Cluster, options: GroupOptions) -> Result<Self, GroupError> {
        options.check()?;
        let config = options.client_config(cluster.config())?;
        let guard = Guard::new(&cluster.config().security).ok_or_else(|| GroupError::Setting {
            reason: "OAUTHBEARER needs a tokio runtime to get tokens on, and there is none".to_owned(),
        })?;
        cluster.check().await?;
        let (member, happenings) = Member::join(&config, guard, &options.topics)
            .map_err(|error| GroupError::Setting { reason: error.to_string() })?;
        let desk = Arc::<Desk>::default();
        let (closing, asked) = oneshot::channel();
        let driver = Driver::new(cluster.clone(), Arc::new(options), Arc::clone(&desk), member, happenings);
        let ended = EndOnDrop(Arc::clone(&desk));
        tokio::spawn(async move {
            driver.run(asked).await;
            drop(ended);
        });
        Ok(Self { desk, closing: Some(closing) })
    }

    /// What happens next. Waits while there is nothing: a group may give a member no partition, and a log may be idle.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`GroupError`]: the source is at its end. What had been fetched before comes first, then the same error for ever;
    /// what is marked is still committed. The member stays in the group until the source is closed or dropped.
    pub async fn next(&mut self) -> Result<GroupEvent, GroupError> {
        loop {
            let ready = self.desk.ready.notified();
            if let Some(next) = self.desk.take() {
                return next;
            }
            ready.await;
        }
    }

    /// Marks an offset to be committed: all records before it are settled, the record at it is the next. See
    /// [`GroupCommitter::commit`].
    pub fn commit(&self, at: &TopicPartition, offset: i64, metadata: Option<String>) -> bool {
        self.desk.mark(at, offset, metadata)
    }

    /// Something to commit with while [`GroupSource::next`] waits, or in another task.
    pub fn committer(&self) -> GroupCommitter {
        GroupCommitter { desk: Arc::clone(&self.desk) }
    }

    /// What was counted so far.
    pub fn counts(&self) -> GroupCounts {
        self.desk.counts()
    }

    /// Commits what is marked, leaves the group (a static member only goes away), and returns when librdkafka has ended,
    /// or some seconds later where the cluster does not answer. What was fetched and not handed out is dropped.
    ///
    /// # Errors
    /// [`GroupError::CommitUnfinished`] and [`GroupError::CommitRefused`]: a mark may not be committed, so its records may
    /// come again.
    pub async fn close(mut self) -> Result<(), GroupError> {
        let (sender, receiver) = oneshot::channel();
        if let Some(closing) = self.closing.take() {
            // Where it fails, the task is gone, and the receiver says so.
            let _sent = closing.send(sender);
        }
        receiver.await.unwrap_or(Err(GroupError::TaskEnded))
    }
}

impl GroupCommitter {
    /// Marks an offset to be committed with some metadata: all records before it are settled, the record at it is the next.
    /// The latest mark of a partition counts. Marks go out within 250 ms, at most four times a second for a partition, and
    /// before a partition is given up and when the source is closed.
    ///
    /// `false`: refused and counted ([`GroupCounts::commits_refused`]), because the partition is not held any more, or
    /// because the offset lies before where its present assignment began or after what that has handed out. It needs no
    /// handling: the records come again, to whoever has the partition.
    pub fn commit(&self, at: &TopicPartition, offset: i64, metadata: Option<String>) -> bool {
        self.desk.mark(at, offset, metadata)
    }
}

/// Tells the consumer when the driver is gone, however it went.
struct EndOnDrop(Arc<Desk>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.close(GroupError::TaskEnded);
    }
}
