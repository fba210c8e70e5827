//! What a broker does without being asked: forcing records to the disk, deleting old ones, forgetting silent producers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use crate::clock;
use crate::config::FsyncPolicy;
use crate::shared::Shared;
use crate::storage::log::Log;

/// How often the checkpoints follow, where the records are forced to the disk otherwise or not at all.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Forces records to the disk as often as the policy says, and writes down how far that went.
pub(crate) async fn keep_synced(shared: Arc<Shared>) {
    let (period, sync) = match shared.config.fsync {
        FsyncPolicy::Interval(period) => (period, true),
        FsyncPolicy::Always | FsyncPolicy::Never => (CHECKPOINT_INTERVAL, false),
    };
    let due = move |log: &Log| (sync && log.has_unsynced()) || log.has_stale_checkpoint();
    every(&shared, period, due, move |log| {
        if sync {
            log.sync()?;
        }
        log.write_checkpoint()
    })
    .await;
}

/// Applies the retention settings, and forgets producers that have been silent for long.
pub(crate) async fn keep_retention(shared: Arc<Shared>) {
    let expiry = i64::try_from(shared.config.limits.producer_expiry.as_millis()).unwrap_or(i64::MAX);
    every(&shared, shared.config.retention_interval, |_| true, move |log| {
        let now_ms = clock::now_ms();
        log.expire_producers(now_ms.saturating_sub(expiry));
        let removed = log.apply_retention(now_ms)?;
        if removed > 0 {
            tracing::info!(topic_partition = %log.topic_partition(), segments = removed, "old segments were deleted");
        }
        Ok(())
    })
    .await;
}

/// Forces committed offsets to the disk as often as the policy says.
pub(crate) async fn keep_offsets_synced(shared: Arc<Shared>) {
    // Under the other policies this happens with each commit, or at the shutdown.
    let FsyncPolicy::Interval(period) = shared.config.fsync else { return };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.stop.cancelled() => return,
        }
        if shared.storage.offsets().has_unsynced() {
            // What goes wrong is logged there.
            let _ = shared.writing(|shared| shared.storage.offsets().sync()).await;
        }
    }
}

/// Ends the sessions of silent members and the rebalances that have waited long enough.
pub(crate) async fn keep_groups(shared: Arc<Shared>) {
    loop {
        let next = shared.groups.expire(Instant::now());
        let until_next = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = until_next => {}
            () = shared.groups.earlier() => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Does `work` for every log that is `due`, one after another, until the broker stops.
async fn every<D, W>(shared: &Arc<Shared>, period: Duration, due: D, work: W)
where
    D: Fn(&Log) -> bool,
    W: Fn(&Log) -> std::io::Result<()> + Clone + Send + 'static,
{
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.stop.cancelled() => return,
        }
        for log in shared.storage.logs().into_iter().filter(|log| due(log)) {
            if shared.stop.is_cancelled() {
                return;
            }
            let work = work.clone();
            let done = shared.writing(move |_| {
                if let Err(error) = work(&log) {
                    tracing::error!(topic_partition = %log.topic_partition(), %error, "the upkeep of a log failed");
                }
            });
            // A panic in it is logged there, and the next log is not to blame for it.
            let _ = done.await;
        }
    }
}
