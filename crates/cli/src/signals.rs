//! SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// Both signals, caught from the moment this is made.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// Which of the two came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Interrupt,
    Terminate,
}

impl Stop {
    /// The signal's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// Ends the process at once, with the code that a shell would report for a process that the signal killed.
    pub(crate) fn exit(self) -> ! {
        std::process::exit(match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        })
    }
}

impl Signals {
    /// Begins to catch them.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| signal(kind).map_err(|error| Failure::failed("cannot catch signals", &error));
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Waits for the first.
    pub(crate) async fn first(&mut self) -> Stop {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Stop::Interrupt,
            Some(()) = self.terminate.recv() => Stop::Terminate,
            // Both streams ended: the runtime is going away.
            else => Stop::Terminate,
        }
    }

    /// From now on the next signal ends the process at once.
    pub(crate) fn exit_at_the_next(mut self) {
        tokio::spawn(async move {
            self.first().await.exit();
        });
    }
}
