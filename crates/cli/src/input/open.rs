//! Opens the input: a file or standard input, unpacked when it is zstd or gzip, which its first bytes tell.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Buffered input that tells what it has at hand.
pub(crate) trait Input: BufRead + Send {
    /// Whether a whole line can be read without waiting for anybody.
    fn has_line(&self) -> bool;
}

impl<R: Read + Send> Input for BufReader<R> {
    fn has_line(&self) -> bool {
        self.buffer().contains(&b'\n')
    }
}

const BUFFER_BYTES: usize = 1 << 20;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens `path`; `-` is standard input.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Input>> {
    if path.as_os_str() == "-" { unpacked(io::stdin()) } else { unpacked(File::open(path)?) }
}

/// `source`, unpacked when its first bytes say that it is packed.
pub(crate) fn unpacked(mut source: impl Read + Send + 'static) -> io::Result<Box<dyn Input>> {
    // A pipe may hand over the first bytes one by one.
    let mut first = Vec::with_capacity(ZSTD.len());
    source.by_ref().take(ZSTD.len() as u64).read_to_end(&mut first)?;
    let packed = |first: &[u8]| (first.starts_with(&ZSTD), first.starts_with(&GZIP));
    let (zstd, gzip) = packed(&first);
    let whole: Chain<Cursor<Vec<u8>>, _> = Cursor::new(first).chain(source);
    let whole = BufReader::with_capacity(BUFFER_BYTES, whole);
    Ok(if zstd {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, zstd::stream::read::Decoder::with_buffer(whole)?))
    } else if gzip {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole)))
    } else {
        Box::new(whole)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        let mut text = String::new();
        unpacked(Cursor::new(bytes)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn plain_zstd_and_gzip_are_told_by_their_first_bytes() {
        let plain = b"{\"a\":1}\n{\"a\":2}\n".to_vec();
        let packed = zstd::encode_all(plain.as_slice(), 1).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let expected = String::from_utf8(plain.clone()).unwrap();
        assert_eq!(text(plain), expected);
        assert_eq!(text(packed), expected);
        assert_eq!(text(gzip.finish().unwrap()), expected);
    }

    #[test]
    fn files_put_together_are_read_to_the_end() {
        let mut packed = zstd::encode_all(&b"one\n"[..], 1).unwrap();
        packed.extend(zstd::encode_all(&b"two\n"[..], 1).unwrap());
        assert_eq!(text(packed), "one\ntwo\n");
    }

    #[test]
    fn an_input_shorter_than_a_magic_number_is_read_as_it_is() {
        assert_eq!(text(Vec::new()), "");
        assert_eq!(text(b"1".to_vec()), "1");
    }

    #[test]
    fn a_cut_off_archive_is_an_error_and_not_a_short_input() {
        let mut packed = zstd::encode_all(&b"one\ntwo\n"[..], 1).unwrap();
        packed.truncate(packed.len() - 3);
        let mut out = Vec::new();
        assert!(unpacked(Cursor::new(packed)).unwrap().read_to_end(&mut out).is_err());
    }
}
