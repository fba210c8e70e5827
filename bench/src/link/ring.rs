//! Packets on their way, in order of arrival, in one block of memory.

use std::collections::VecDeque;

/// A queue of packets with a value for each.
#[derive(Debug)]
pub struct Ring<T> {
    memory: Vec<u8>,
    /// Where each packet lies, and its value.
    packets: VecDeque<(usize, usize, T)>,
    /// Where the next packet goes.
    tail: usize,
    /// The longest packet.
    longest: usize,
}

impl<T> Ring<T> {
    /// A ring of `bytes` for packets of at most `longest`.
    pub fn new(bytes: usize, longest: usize) -> Self {
        Self { memory: vec![0; bytes.max(2 * longest)], packets: VecDeque::with_capacity(4096), tail: 0, longest }
    }

    /// Room for the next packet, to be kept with [`Ring::push`]; `None` when the ring is full.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        match self.packets.front() {
            // A queue that runs empty stays in the same few pages, which the processor's cache holds.
            None => self.tail = 0,
            Some(&(head, ..)) => {
                let end = if self.tail >= head { self.memory.len() } else { head };
                if self.tail + self.longest > end {
                    // Only a packet that lies before the end of the memory lets it begin anew.
                    if self.tail < head || self.longest > head {
                        return None;
                    }
                    self.tail = 0;
                }
            }
        }
        self.memory.get_mut(self.tail..self.tail + self.longest)
    }

    /// The first `bytes` of the last [`Ring::room`] are a packet.
    pub fn push(&mut self, bytes: usize, value: T) {
        self.packets.push_back((self.tail, bytes, value));
        self.tail += bytes;
    }

    /// What [`Ring::room`] would give, after it was filled.
    pub fn filled(&self, bytes: usize) -> &[u8] {
        &self.memory[self.tail..self.tail + bytes]
    }

    /// The oldest packet and its value.
    pub fn front(&self) -> Option<(&[u8], &T)> {
        let (start, bytes, value) = self.packets.front()?;
        Some((&self.memory[*start..start + bytes], value))
    }

    /// Lets go of the oldest packet.
    pub fn pop(&mut self) {
        self.packets.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_whole_and_in_order_however_the_ring_wraps() {
        let mut ring = Ring::new(64, 16);
        let (mut next_in, mut next_out) = (0_usize, 0_usize);
        let mut full = 0;
        for step in 0..10_000_usize {
            // Three in, two out, until it is full; then it is emptied now and then.
            for _ in 0..3 {
                let bytes = 1 + next_in * 7 % 16;
                match ring.room() {
                    Some(room) => {
                        room[..bytes].fill(next_in as u8);
                        ring.push(bytes, next_in);
                        next_in += 1;
                    }
                    None => full += 1,
                }
            }
            for _ in 0..if step % 50 == 0 { 100 } else { 2 } {
                let Some((packet, value)) = ring.front() else { break };
                assert_eq!(*value, next_out);
                assert_eq!(packet, vec![next_out as u8; 1 + next_out * 7 % 16]);
                ring.pop();
                next_out += 1;
            }
        }
        assert!(full > 0 && next_out > 10_000, "{full} {next_out}");
    }
}
