//! Whether a broker is ready: a metadata request by hand, so that the test kit needs none of the code under test.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const METADATA: i16 = 3;
/// The first version with the cluster id, which tells this broker from a stranger on the same port.
const METADATA_VERSION: i16 = 2;
const CORRELATION_ID: i32 = 7;
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// What the broker says of its cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClusterState {
    /// How many brokers clients are told of. A broker that has started but is still fenced by the controller is not
    /// among them, and would refuse to lead a partition.
    pub(super) brokers: usize,
    pub(super) cluster_id: Option<String>,
}

/// Asks the broker on `port` for metadata of no topic. An error means: not yet.
pub(super) fn ask(port: u16) -> io::Result<ClusterState> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, IO_TIMEOUT)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(&request())?;

    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let size = usize::try_from(i32::from_be_bytes(size)).ok().filter(|&size| size <= MAX_RESPONSE_BYTES);
    let mut response = vec![0; size.ok_or(io::ErrorKind::InvalidData)?];
    stream.read_exact(&mut response)?;
    parse(&response).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Metadata v2 with request header v1: size, key, version, correlation id, client id, an empty array of topics.
fn request() -> Vec<u8> {
    let client_id = b"testkit";
    let mut body = Vec::new();
    body.extend(METADATA.to_be_bytes());
    body.extend(METADATA_VERSION.to_be_bytes());
    body.extend(CORRELATION_ID.to_be_bytes());
    body.extend((client_id.len() as i16).to_be_bytes());
    body.extend(client_id);
    body.extend(0_i32.to_be_bytes());
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

/// The start of a Metadata v2 response: correlation id, brokers, cluster id.
fn parse(response: &[u8]) -> Option<ClusterState> {
    let mut rest = response;
    if i32::from_be_bytes(take(&mut rest)?) != CORRELATION_ID {
        return None;
    }
    let brokers = usize::try_from(i32::from_be_bytes(take(&mut rest)?)).ok()?;
    for _ in 0..brokers {
        take::<4>(&mut rest)?; // node id
        string(&mut rest)??; // host
        take::<4>(&mut rest)?; // port
        string(&mut rest)?; // rack
    }
    Some(ClusterState { brokers, cluster_id: string(&mut rest)? })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// A nullable string: `Some(None)` is null, `None` a cut response.
fn string(rest: &mut &[u8]) -> Option<Option<String>> {
    let Ok(length) = usize::try_from(i16::from_be_bytes(take(rest)?)) else { return Some(None) };
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(Some(String::from_utf8_lossy(head).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] =
        b"\0\0\0\x07\0\0\0\x01\0\0\0\x01\0\x09127.0.0.1\0\0\x4e\x20\xff\xff\0\x03abc\0\0\0\x01\0\0\0\0";

    #[test]
    fn brokers_and_cluster_id_are_read() {
        let state = ClusterState { brokers: 1, cluster_id: Some("abc".to_owned()) };
        assert_eq!(parse(RESPONSE), Some(state));
    }

    #[test]
    fn a_cut_or_lying_response_is_no_answer() {
        let end_of_cluster_id = RESPONSE.len() - 8;
        for cut in 0..end_of_cluster_id {
            assert_eq!(parse(&RESPONSE[..cut]), None, "cut at {cut}");
        }
        assert_eq!(parse(b"\0\0\0\x07\x7f\xff\xff\xff\0\0"), None);
        assert_eq!(parse(b"\0\0\0\x08\0\0\0\0\xff\xff"), None, "another correlation id");
    }
}
