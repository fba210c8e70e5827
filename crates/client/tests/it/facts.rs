//! What a cluster tells of its connections.

use tidegate_client::{Cluster, ClusterConfig};

use crate::fake::{FakeBroker, FakeTopic};
use crate::support::config;

#[tokio::test]
async fn a_cluster_tells_of_its_connections_and_of_the_buffer_asked_for() {
    const ASKED: usize = 50_000;
    let broker = FakeBroker::serving(FakeTopic::new("facts", 1), |_| unreachable!("only metadata is asked for")).await;
    let idle = Cluster::new(config(broker.bootstrap())).unwrap();
    assert!(idle.connections().is_empty());

    let asking = ClusterConfig { receive_buffer_bytes: Some(ASKED), ..config(broker.bootstrap()) };
    let cluster = Cluster::connect(asking).await.unwrap();
    let before = cluster.connections();
    cluster.topics().await.unwrap();
    let after = cluster.connections();
    let ([before], [after]) = (&before[..], &after[..]) else { panic!("{before:?} {after:?}") };

    assert_eq!((&*after.address, after.receive_buffer_asked), (&*broker.bootstrap(), Some(ASKED)));
    assert_eq!(after.idle + after.waiting + after.receiving, after.opened_for);
    assert_eq!((after.in_flight, after.answers), (0, before.answers + 1));
    assert!(after.bytes_received > before.bytes_received && after.waiting > before.waiting, "{before:?} {after:?}");
    assert!(after.first_byte.is_some_and(|first| first.latest <= after.waiting + after.receiving), "{after:?}");
    // Linux doubles it; other systems tell nothing.
    let linux = cfg!(target_os = "linux");
    assert_eq!(after.tcp.receive_buffer, linux.then_some(2 * ASKED));
    assert!(after.tcp.bytes_received.is_none_or(|bytes| bytes == after.bytes_received), "{after:?}");
}
