//! Where records go: standard output, or a file.
//!
//! Writing happens on a thread of its own, a few frames behind, so that a slow disk or a slow pipe holds back the reading
//! and nothing else of the process. When the reader of standard output goes away (`tidegate read … | head`) the sink says
//! so at once, also while there is nothing to write.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Frames between the reading and the writing side.
const FRAMES_AHEAD: usize = 4;

/// A file under construction carries this at the end of its name.
const PART_SUFFIX: &str = ".incomplete";

/// Takes frames and writes them in order.
pub(crate) struct Sink {
    frames: mpsc::Sender<Bytes>,
    writer: JoinHandle<io::Result<u64>>,
    watch: Option<AsyncFd<OwnedFd>>,
    file: Option<PartFile>,
}

/// A file that is written beside its final name.
struct PartFile {
    part: PathBuf,
    path: PathBuf,
}

/// The writing side ended early. [`Sink::finish`] knows why.
#[derive(Debug)]
pub(crate) struct SinkClosed;

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SinkError {
    /// Whoever read standard output went away.
    #[error("the reader of standard output went away")]
    OutputClosed,
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Stdout(#[source] io::Error),
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl Sink {
    /// Standard output, or the file at `path`.
    ///
    /// A file is written as `PATH.incomplete` and gets its name when the read is complete. What is at `path` and is not a
    /// regular file (a pipe, a device) is written as it is.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, SinkError> {
        let Some(path) = path else {
            let owned = || io::stdout().as_fd().try_clone_to_owned();
            let out = File::from(owned().map_err(SinkError::Stdout)?);
            let watch = owned().ok().and_then(watch);
            return Ok(Self::start(out, watch, None));
        };
        let special = std::fs::metadata(path).is_ok_and(|meta| !meta.is_file());
        let file_error = |path: &Path| {
            let path = path.to_owned();
            move |source| SinkError::File { path, source }
        };
        if special {
            let out = File::options().write(true).open(path).map_err(file_error(path))?;
            return Ok(Self::start(out, None, None));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(PART_SUFFIX);
        let part = PathBuf::from(part);
        let out = File::create(&part).map_err(file_error(&part))?;
        Ok(Self::start(out, None, Some(PartFile { part, path: path.to_owned() })))
    }

    fn start(mut out: File, watch: Option<AsyncFd<OwnedFd>>, file: Option<PartFile>) -> Self {
        let (frames, mut incoming) = mpsc::channel::<Bytes>(FRAMES_AHEAD);
        let writer = tokio::task::spawn_blocking(move || {
            let mut written = 0_u64;
            while let Some(frame) = incoming.blocking_recv() {
                out.write_all(&frame)?;
                written = written.saturating_add(frame.len() as u64);
            }
            out.flush()?;
            Ok(written)
        });
        Self { frames, writer, watch, file }
    }

    /// Hands over one frame; waits while the writing side is [`FRAMES_AHEAD`] behind.
    pub(crate) async fn write(&self, frame: Bytes) -> Result<(), SinkClosed> {
        if frame.is_empty() {
            return Ok(());
        }
        self.frames.send(frame).await.map_err(|_| SinkClosed)
    }

    /// Ends when nobody reads the output any more, or writing failed.
    pub(crate) async fn closed(&self) {
        let Some(watch) = &self.watch else { return self.frames.closed().await };
        let hung_up = async {
            while let Ok(mut guard) = watch.ready(Interest::ERROR).await {
                if guard.ready().is_error() {
                    return;
                }
                guard.clear_ready();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.frames.closed() => {}
            () = hung_up => {}
        }
    }

    /// Writes what is pending and, when the output is `complete`, gives the file its name.
    ///
    /// Answers with the number of bytes written, and with the path of the part file when it was left as such.
    pub(crate) async fn finish(self, complete: bool) -> Result<(u64, Option<PathBuf>), SinkError> {
        drop(self.frames);
        let result = self.writer.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let written = result.map_err(|source| match (&self.file, source.kind()) {
            (Some(file), _) => SinkError::File { path: file.part.clone(), source },
            (None, io::ErrorKind::BrokenPipe) => SinkError::OutputClosed,
            (None, _) => SinkError::Stdout(source),
        })?;
        let Some(PartFile { part, path }) = self.file else { return Ok((written, None)) };
        if !complete {
            return Ok((written, Some(part)));
        }
        std::fs::rename(&part, &path).map_err(|source| SinkError::File { path, source })?;
        Ok((written, None))
    }
}

/// Watches for the reader's end. Not every kind of output can be watched: a regular file cannot, and has no reader who could
/// leave.
#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of types whose descriptor changes; OwnedFd's does not"
)]
fn watch(fd: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::ERROR).ok()
}

/// Writes a whole text to standard output.
pub(crate) fn print(text: &str) -> Result<(), SinkError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|source| match source.kind() {
        io::ErrorKind::BrokenPipe => SinkError::OutputClosed,
        _ => SinkError::Stdout(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_gets_its_name_when_it_is_complete_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.ndjson");
        let part = dir.path().join("out.ndjson.incomplete");

        let sink = Sink::open(Some(&path)).unwrap();
        sink.write(Bytes::from_static(b"one\n")).await.unwrap();
        assert_eq!(sink.finish(false).await.unwrap(), (4, Some(part.clone())));
        assert!(part.exists() && !path.exists());

        let sink = Sink::open(Some(&path)).unwrap();
        sink.write(Bytes::from_static(b"one\ntwo\n")).await.unwrap();
        assert_eq!(sink.finish(true).await.unwrap(), (8, None));
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert!(!part.exists());
    }

    #[tokio::test]
    async fn a_pipe_without_a_reader_is_noticed_while_nothing_is_written() {
        let (reader, writer) = io::pipe().unwrap();
        let fd = OwnedFd::from(writer);
        let out = File::from(fd.try_clone().unwrap());
        let sink = Sink::start(out, watch(fd), None);
        sink.write(Bytes::from_static(b"line\n")).await.unwrap();
        drop(reader);
        tokio::time::timeout(std::time::Duration::from_secs(30), sink.closed()).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Sink::open(Some(&dir.path().join("missing/out"))).err().unwrap().to_string();
        assert!(error.contains("missing/out.incomplete"), "{error}");
    }
}
