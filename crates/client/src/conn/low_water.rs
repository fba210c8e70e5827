//! How many bytes must be here before the kernel wakes the connection's task.
//!
//! A broker sends TLS a record of 16 KiB at a time, and over a short way each of them would wake the task: a sixth of what
//! TLS costs the client. In the middle of an answer nothing is lost by waiting for more of it, so there the kernel is asked
//! to (`SO_RCVLOWAT` of socket(7)). Over a long way it must not be: the kernel sizes the window by how soon bytes are read,
//! and a window that bytes lie in for longer grows more slowly.

use std::time::{Duration, Instant};

use super::facts::Account;

/// What must be here.
const BYTES: usize = 128 << 10;

/// What may have been taken off the socket of what is left of an answer, without being read yet: the buffer of
/// [`super::transport`] and a record of TLS that is not whole. And so much less still comes.
const TAKEN_BYTES: usize = super::transport::TLS_READ_BYTES + (32 << 10);

/// A round trip below this is a short way.
const NEAR: Duration = Duration::from_millis(2);

/// The first [`BYTES`] of an answer must have come within this time: those that trickle in are noticed one by one, so that
/// the peer is not taken for silent.
const SOON: Duration = Duration::from_secs(1);

/// Sets the mark of one connection, and takes it back before the answer ends.
pub(super) struct LowWater<'a> {
    account: Option<&'a Account>,
    is_set: bool,
    /// When the answer that is read now began.
    begun: Instant,
}

impl<'a> LowWater<'a> {
    /// For a connection of TLS that is made; others are woken for every byte.
    pub(super) fn of(account: &'a Account, is_tls: bool) -> Self {
        let is_near = || account.tcp().rtt.is_some_and(|rtt| rtt < NEAR);
        Self { account: (is_tls && is_near()).then_some(account), ..Self::none() }
    }

    /// Every byte wakes the task.
    pub(super) fn none() -> Self {
        Self { account: None, is_set: false, begun: Instant::now() }
    }

    /// An answer begins.
    pub(super) fn begin(&mut self) {
        if self.account.is_some() {
            self.begun = Instant::now();
        }
    }

    /// `arrived` bytes of the answer are here and `left` are not.
    pub(super) fn before_read(&mut self, arrived: usize, left: usize) {
        let Some(account) = self.account else { return };
        let may_be = left >= BYTES + TAKEN_BYTES && arrived >= BYTES;
        if may_be && !self.is_set && self.begun.elapsed() <= SOON.mul_f64(arrived as f64 / BYTES as f64) {
            self.is_set = account.wake_at(BYTES);
        } else if !may_be && self.is_set {
            self.is_set = !account.wake_at(1);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::conn::connect::tests::pair;

    #[tokio::test]
    async fn little_wakes_nobody_in_the_middle_of_an_answer_and_at_its_end_it_does() {
        let (ours, mut theirs) = pair(None).await;
        let account = Account::new(&ours);
        let wakes = |within: Duration| {
            let ours = &ours;
            async move { tokio::time::timeout(within, ours.readable()).await.is_ok() }
        };
        let mut low_water = LowWater::of(&account, true);
        low_water.begin();
        low_water.before_read(BYTES, BYTES + TAKEN_BYTES);
        assert!(low_water.is_set);
        theirs.write_all(&[0; 1_000]).await.unwrap();
        assert!(!wakes(Duration::from_millis(50)).await);
        theirs.write_all(&vec![0; BYTES]).await.unwrap();
        assert!(wakes(Duration::from_secs(60)).await);
        while ours.try_read(&mut vec![0; 1 << 20]).is_ok() {}
        low_water.before_read(BYTES, BYTES + TAKEN_BYTES - 1);
        assert!(!low_water.is_set);
        theirs.write_all(&[0]).await.unwrap();
        assert!(wakes(Duration::from_secs(60)).await);
    }

    #[tokio::test]
    async fn beginnings_short_answers_and_connections_without_tls_are_left_alone() {
        let (ours, _theirs) = pair(None).await;
        let account = Account::new(&ours);
        let mut tls = LowWater::of(&account, true);
        for (arrived, left) in [(0, 1 << 30), (BYTES - 1, 1 << 30), (BYTES, BYTES), (1 << 30, 0)] {
            tls.before_read(arrived, left);
            assert!(!tls.is_set, "{arrived} {left}");
        }
        let mut plain = LowWater::of(&account, false);
        plain.before_read(1 << 20, 1 << 20);
        assert!(!plain.is_set);
        // One that came slowly so far.
        let begun = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        let mut slow = LowWater { begun, ..LowWater::of(&account, true) };
        slow.before_read(2 * BYTES, 1 << 20);
        assert!(!slow.is_set);
        slow.before_read(4 * BYTES, 1 << 20);
        assert!(slow.is_set);
    }
}
