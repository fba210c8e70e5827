//! A read as a stream of frames.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::sync::mpsc;

use super::ReadRangeError;

type Pumping = Pin<Box<dyn Future<Output = Result<(), ReadRangeError>> + Send>>;

/// The frames of one read. The reading happens while the stream is polled, except for what the readers fetch ahead within
/// the request's budget: whoever does not poll holds up nobody else. Dropping the stream stops all fetching at once.
#[must_use = "a stream reads nothing unless it is polled"]
pub struct RangeStream<F> {
    /// One frame at most stands here, between the pump and whoever polls.
    frames: mpsc::Receiver<F>,
    /// `None`: it has ended.
    pump: Option<Pumping>,
    failure: Option<ReadRangeError>,
}

impl<F: Send + 'static> RangeStream<F> {
    pub(super) fn new<P>(pump: impl FnOnce(mpsc::Sender<F>) -> P) -> Self
    where
        P: Future<Output = Result<(), ReadRangeError>> + Send + 'static,
    {
        let (sender, frames) = mpsc::channel(1);
        Self { frames, pump: Some(Box::pin(pump(sender))), failure: None }
    }
}

impl<F: Send + 'static> Stream for RangeStream<F> {
    type Item = Result<F, ReadRangeError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            // Pending is no proof that nothing stands there: tokio holds back who has done much in one turn. Only the end of
            // the channel is, and it comes after the last frame.
            match self.frames.poll_recv(cx) {
                Poll::Ready(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Poll::Ready(None) => return Poll::Ready(self.failure.take().map(Err)),
                Poll::Pending => {}
            }
            let Some(pump) = &mut self.pump else { return Poll::Pending };
            match pump.as_mut().poll(cx) {
                Poll::Ready(ended) => {
                    self.pump = None;
                    self.failure = ended.err();
                }
                // The pump may have handed over a frame before it had to wait.
                Poll::Pending => {
                    return match self.frames.poll_recv(cx) {
                        Poll::Ready(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                        Poll::Ready(None) | Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn no_frame_is_lost_however_much_was_done_before_in_the_same_turn() {
        // What tokio lets a task do in one turn is 128 steps; the stream begins after each number of them.
        for done in 0..=150 {
            let read = tokio::spawn(async move {
                for _ in 0..done {
                    tokio::task::coop::consume_budget().await;
                }
                let stream = RangeStream::new(|frames| async move {
                    for frame in 0..3 {
                        frames.send(frame).await.unwrap();
                    }
                    Err(ReadRangeError::ShuttingDown)
                });
                stream.collect::<Vec<_>>().await
            });
            let read = read.await.unwrap();
            let frames: Vec<_> = read.iter().filter_map(|item| item.as_ref().ok()).collect();
            assert_eq!(frames, [&0, &1, &2], "after {done} steps");
            assert!(matches!(read[3..], [Err(ReadRangeError::ShuttingDown)]), "after {done} steps");
        }
    }
}
