//! Fetching from the replica near by that the leader names (KIP-392).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use tidegate_client::{Cluster, Fetcher, FetcherOptions};

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log, Reply, Request, metadata, proper};
use crate::support::{batch, connect, drain, options, slice};

const RACK: &str = "near";

fn topic() -> FakeTopic {
    FakeTopic::new("t", 1)
}

fn log() -> Log {
    Log::of((0..20).map(|at| batch(at * 5, 5)))
}

/// What each of the brokers was asked for.
#[derive(Clone, Default)]
struct Fetches {
    leader: Arc<AtomicUsize>,
    replica: Arc<AtomicUsize>,
}

/// A leader that sends whoever is in the rack to broker `named`, which it says lives at `replica`.
async fn leader(named: i32, replica: Option<SocketAddr>, fetches: &Fetches) -> FakeBroker {
    let (log, asked) = (log(), Arc::clone(&fetches.leader));
    FakeBroker::start(move |request: &Request, addr| match request.api {
        ApiKey::Metadata => {
            let brokers: Vec<SocketAddr> = [addr].into_iter().chain(replica).collect();
            request.respond(&metadata(&brokers, &topic(), &|_| Some(0)))
        }
        ApiKey::Fetch => {
            asked.fetch_add(1, Ordering::SeqCst);
            if request.fetch().rack_id.as_str() == RACK {
                return FetchAnswer { preferred: Some(named), ..FetchAnswer::records(Bytes::new(), log.end()) }
                    .to(request);
            }
            log.answer(request).to(request)
        }
        _ => proper(request, addr, &topic()).unwrap_or(Reply::Silence),
    })
    .await
}

async fn replica(fetches: &Fetches) -> FakeBroker {
    let (log, asked) = (log(), Arc::clone(&fetches.replica));
    FakeBroker::serving(topic(), move |request| {
        asked.fetch_add(1, Ordering::SeqCst);
        log.answer(request).to(request)
    })
    .await
}

/// Reads all of it as a client in this rack does. How often the leader and the replica were asked.
async fn read(cluster: &Cluster, rack: Option<&str>, fetches: &Fetches) -> (usize, usize) {
    let fetching = FetcherOptions { client_rack: rack.map(str::to_owned), ..FetcherOptions::default() };
    let mut reader = Fetcher::new(cluster, fetching).read(slice("t", 0, 0, 100), options());
    let (offsets, result) = drain(&mut reader).await;
    result.unwrap();
    assert_eq!(offsets, (0..100).collect::<Vec<_>>());
    (fetches.leader.swap(0, Ordering::SeqCst), fetches.replica.swap(0, Ordering::SeqCst))
}

#[tokio::test]
async fn a_client_in_the_rack_of_a_replica_reads_from_it_and_any_other_from_the_leader() {
    let fetches = Fetches::default();
    let near = replica(&fetches).await;
    let leader = leader(1, Some(near.addr), &fetches).await;
    let cluster = connect(leader.bootstrap()).await;
    let (asked, served) = read(&cluster, Some(RACK), &fetches).await;
    assert_eq!(asked, 1, "it is asked once, and names the other");
    assert!(served > 0);
    for rack in [None, Some("elsewhere")] {
        let (asked, served) = read(&cluster, rack, &fetches).await;
        assert!(asked > 0 && served == 0, "{rack:?}");
    }
}

#[tokio::test]
async fn a_replica_that_is_gone_or_that_nobody_knows_leaves_the_leader() {
    let fetches = Fetches::default();
    let gone = replica(&fetches).await.addr;
    for (named, place) in [(1, Some(gone)), (7, None)] {
        let leader = leader(named, place, &fetches).await;
        let cluster = connect(leader.bootstrap()).await;
        let (asked, served) = read(&cluster, Some(RACK), &fetches).await;
        assert!(asked > 1 && served == 0, "{named}");
    }
}
