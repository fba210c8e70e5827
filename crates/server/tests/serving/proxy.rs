//! A proxy between the client and the broker that sees, counts and holds up fetches; and one between a gRPC client and the
//! server that counts the server's pings.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{self, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Kafka's number of Fetch.
const FETCH: [u8; 2] = [0, 1];

/// Which connections' fetches wait for [`BrokerProxy::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    None,
    /// Those of the first connection that fetches.
    First,
    All,
}

pub struct BrokerProxy {
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    hold: Mutex<Hold>,
    released: CancellationToken,
    /// The connections that have fetched so far.
    fetched: Mutex<usize>,
    /// Connections that have fetched and are open.
    fetching: watch::Sender<usize>,
    fetches: watch::Sender<u64>,
}

impl BrokerProxy {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(None),
            hold: Mutex::new(Hold::None),
            released: CancellationToken::new(),
            fetched: Mutex::default(),
            fetching: watch::Sender::new(0),
            fetches: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        let (accepting, stopped) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let forwarding = forward(Arc::clone(&accepting), stream);
                tokio::spawn(stopped.clone().run_until_cancelled_owned(forwarding));
            }
        }));
        Self { addr, shared, _stop: stop.drop_guard() }
    }

    pub fn set_target(&self, broker: SocketAddr) {
        *self.shared.target.lock() = Some(broker);
    }

    pub fn hold(&self, hold: Hold) {
        *self.shared.hold.lock() = hold;
    }

    pub fn release(&self) {
        self.shared.released.cancel();
    }

    /// Waits until no connection that has fetched is open.
    pub async fn no_fetching(&self) {
        self.shared.fetching.subscribe().wait_for(|open| *open == 0).await.unwrap();
    }

    /// Waits until so many fetches have been asked for.
    pub async fn fetches(&self, at_least: u64) {
        self.shared.fetches.subscribe().wait_for(|seen| *seen >= at_least).await.unwrap();
    }

    pub fn fetches_so_far(&self) -> u64 {
        *self.shared.fetches.borrow()
    }
}

async fn forward(shared: Arc<Shared>, client: TcpStream) {
    let target = shared.target.lock().unwrap();
    let Ok(broker) = TcpStream::connect(target).await else { return };
    for side in [&client, &broker] {
        side.set_nodelay(true).unwrap();
    }
    let (from_client, mut to_client) = client.into_split();
    let (mut from_broker, to_broker) = broker.into_split();
    // Either side's end ends both.
    tokio::select! {
        () = requests(&shared, from_client, to_broker) => {}
        _ = io::copy(&mut from_broker, &mut to_client) => {}
    }
}

async fn requests(shared: &Arc<Shared>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut fetcher: Option<Fetcher> = None;
    loop {
        let mut head = [0; 6];
        if from.read_exact(&mut head).await.is_err() {
            return;
        }
        let len = usize::try_from(i32::from_be_bytes(head[..4].try_into().unwrap())).unwrap();
        let mut rest = vec![0; len - 2];
        if from.read_exact(&mut rest).await.is_err() {
            return;
        }
        if head[4..] == FETCH {
            let fetcher = fetcher.get_or_insert_with(|| Fetcher::new(shared));
            fetcher.count();
            let hold = *shared.hold.lock();
            if hold == Hold::All || (hold == Hold::First && fetcher.ordinal == 0) {
                // A client that goes away meanwhile is seen too.
                let mut more = [0];
                tokio::select! {
                    () = shared.released.cancelled() => {}
                    _ = from.peek(&mut more) => return,
                }
            }
        }
        if to.write_all(&head).await.is_err() || to.write_all(&rest).await.is_err() {
            return;
        }
    }
}

/// Counts a connection that fetches for as long as it is open.
struct Fetcher {
    shared: Arc<Shared>,
    ordinal: usize,
}

impl Fetcher {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.fetching.send_modify(|open| *open += 1);
        let mut fetched = shared.fetched.lock();
        *fetched += 1;
        Self { shared: Arc::clone(shared), ordinal: *fetched - 1 }
    }

    fn count(&self) {
        self.shared.fetches.send_modify(|fetches| *fetches += 1);
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.shared.fetching.send_modify(|open| *open -= 1);
    }
}

/// Stands between an HTTP/2 client and the server, and counts the pings that the server sends.
pub struct PingCounter {
    pub addr: SocketAddr,
    pings: watch::Sender<u64>,
    /// Once cancelled, nothing reaches the client or the server any more, but the connection stays open.
    black_hole: CancellationToken,
    _stop: DropGuard,
}

impl PingCounter {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (pings, black_hole, stop) = (watch::Sender::new(0), CancellationToken::new(), CancellationToken::new());
        let (counted, dark) = (pings.clone(), black_hole.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let (client, _) = listener.accept().await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
            let passing = async {
                tokio::select! {
                    _ = io::copy(&mut from_client, &mut to_server) => {}
                    () = count_pings(from_server, &mut to_client, &counted) => {}
                }
            };
            tokio::select! {
                () = passing => {}
                () = dark.cancelled() => std::future::pending().await,
            }
        }));
        Self { addr, pings, black_hole, _stop: stop.drop_guard() }
    }

    /// Waits until the server has sent so many pings more.
    pub async fn more_pings(&self, count: u64) {
        let mut pings = self.pings.subscribe();
        let aim = *pings.borrow() + count;
        pings.wait_for(|seen| *seen >= aim).await.unwrap();
    }

    pub fn fall_silent(&self) {
        self.black_hole.cancel();
    }
}

/// Passes HTTP/2 frames on, and counts PING frames that are no acknowledgements (RFC 9113, section 6.7).
async fn count_pings(mut from: OwnedReadHalf, to: &mut OwnedWriteHalf, pings: &watch::Sender<u64>) {
    loop {
        let mut head = [0; 9];
        if from.read_exact(&mut head).await.is_err() {
            return;
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        if from.read_exact(&mut payload).await.is_err() {
            return;
        }
        if head[3] == 6 && head[4] & 1 == 0 {
            pings.send_modify(|pings| *pings += 1);
        }
        if to.write_all(&head).await.is_err() || to.write_all(&payload).await.is_err() {
            return;
        }
    }
}
