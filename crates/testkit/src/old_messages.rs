//! Writes messages of Kafka's formats v0 and v1, which nothing of Tidegate writes: for tests of reading them.

/// One message. Encode a few behind each other for a message set; compress that and put it into a message's value for a
/// wrapper.
#[derive(Clone, Copy, Debug)]
pub struct OldMessage<'a> {
    /// The offset in front of it.
    pub offset: i64,
    /// 0 or 1.
    pub magic: u8,
    /// Bits 0 to 2: the codec. Bit 3, in v1: LogAppendTime.
    pub attributes: u8,
    /// In ms; v0 has none and leaves it out.
    pub timestamp_ms: i64,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
}

impl OldMessage<'_> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.magic, self.attributes];
        if self.magic > 0 {
            body.extend(self.timestamp_ms.to_be_bytes());
        }
        for field in [self.key, self.value] {
            body.extend(field.map_or(-1, |field| length(field.len())).to_be_bytes());
            body.extend(field.unwrap_or_default());
        }
        let mut entry = self.offset.to_be_bytes().to_vec();
        entry.extend(length(body.len() + 4).to_be_bytes());
        entry.extend(crc32(&body).to_be_bytes());
        entry.extend(body);
        entry
    }
}

fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or_else(|_| panic!("{bytes} bytes are too long for a message"))
}

/// CRC-32 (ISO-HDLC), bit by bit.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xedb8_8320 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_the_one_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
