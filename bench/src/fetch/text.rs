//! The values of records: random bytes, and log events that compress as real ones do.

use std::io::Write as _;

/// What an event is made of.
const SERVICES: [&str; 8] =
    ["checkout", "payments", "inventory", "gateway", "search", "sessions", "shipping", "recommendations"];
const LEVELS: [&str; 8] = ["INFO", "INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN", "ERROR"];
const VERBS: [&str; 8] = ["accepted", "forwarded", "rejected", "retried", "completed", "cached", "expired", "queued"];
const NOUNS: [&str; 16] = [
    "request",
    "order",
    "session",
    "shipment",
    "quote",
    "customer record",
    "invoice",
    "price list",
    "basket",
    "token",
    "upstream response",
    "health probe",
    "feature flag",
    "refund",
    "voucher",
    "replica",
];

/// A source of values.
#[derive(Clone, Debug)]
pub struct Words {
    state: u64,
}

impl Words {
    /// One that gives the same values for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Fills a value with random bytes.
    pub fn random(&mut self, value: &mut [u8]) {
        for part in value.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }

    /// Fills a value with one JSON object, which its last field brings to the value's length.
    pub fn event(&mut self, value: &mut Vec<u8>, timestamp_ms: i64) {
        let bytes = value.len();
        value.clear();
        let (trace, span, customer) = (self.next(), self.next(), self.next() % 90_000 + 10_000);
        let (service, level) = (self.of(&SERVICES), self.of(&LEVELS));
        let (host, zone) = (self.next() % 60, self.next() % 3);
        let status = if level == "ERROR" { 500 + self.next() % 4 } else { 200 + self.next() % 3 };
        let micros = self.next() % 250_000;
        // Writing to a vector does not fail.
        let _ = write!(
            value,
            "{{\"timestamp\":{timestamp_ms},\"level\":\"{level}\",\"service\":\"{service}\",\"host\":\"{service}-{host:02}.eu-{zone}\
             .internal\",\"trace_id\":\"{trace:016x}{span:016x}\",\"span_id\":\"{span:016x}\",\"customer\":\"c-{customer}\",\
             \"status\":{status},\"duration_us\":{micros},\"message\":\""
        );
        while value.len() + 2 < bytes {
            let (noun, verb, number) = (self.of(&NOUNS), self.of(&VERBS), self.next() % 100_000);
            let _ = write!(value, "{noun} {number} {verb} by {service}; ");
        }
        value.truncate(bytes.saturating_sub(2));
        value.extend(b"\"}");
    }

    fn of(&mut self, words: &[&'static str]) -> &'static str {
        words[(self.next() % words.len() as u64) as usize]
    }

    /// splitmix64: fast, and good enough not to compress.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_json_of_the_length_that_was_asked_for() {
        let mut words = Words::new(1);
        let mut value = vec![0; 1024];
        for _ in 0..100 {
            words.event(&mut value, 1_700_000_000_000);
            assert_eq!(value.len(), 1024);
            assert!(serde_json::from_slice::<serde_json::Value>(&value).is_ok(), "{}", String::from_utf8_lossy(&value));
        }
    }
}
