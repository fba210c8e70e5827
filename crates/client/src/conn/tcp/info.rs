//! `struct tcp_info` of `linux/tcp.h`, read by its bytes.
//!
//! The struct only ever grows at its end, and a kernel fills as much as it knows of: what lies behind that is not measured.
//! Reading by place needs neither the headers of a new kernel nor a libc that has them. The places are the same on every
//! architecture: up to `tcpi_total_retrans` there are bytes and 32-bit numbers, and what follows is aligned by itself.

use std::time::Duration;

use super::TcpFacts;

/// Room for the struct of kernels to come; that of Linux 6.18 has 280 bytes.
pub(super) const ROOM: usize = 512;

const OPTIONS: usize = 5;
const WINDOW_SCALES: usize = 6;
const SEND_MSS: usize = 16;
const RECEIVE_MSS: usize = 20;
const RECEIVE_SSTHRESH: usize = 64;
const RTT: usize = 68;
const RTT_VAR: usize = 72;
const RECEIVE_RTT: usize = 92;
const RECEIVE_SPACE: usize = 96;
const TOTAL_RETRANSMITS: usize = 100;
/// Since Linux 4.1.
const BYTES_RECEIVED: usize = 128;
/// Since Linux 4.6.
const MIN_RTT: usize = 148;
/// Since Linux 5.4.
const OUT_OF_ORDER: usize = 224;
/// Since Linux 6.2.
const RECEIVE_WINDOW: usize = 232;

/// `TCPI_OPT_WSCALE`: both sides offered to scale their windows.
const WINDOW_SCALING: u8 = 4;

/// What the bytes that a kernel gave say.
pub(super) fn read(info: &[u8]) -> TcpFacts {
    let window_scaling = info.get(OPTIONS).map(|options| options & WINDOW_SCALING != 0);
    let scales = info.get(WINDOW_SCALES).filter(|_| window_scaling == Some(true)).copied().map(window_scales);
    // The kernel says zero for a round trip that it has not measured.
    let microseconds = |at| u32_at(info, at).filter(|us| *us > 0).map(|us| Duration::from_micros(us.into()));
    let rtt = microseconds(RTT);
    TcpFacts {
        rtt,
        rtt_var: rtt.and(u32_at(info, RTT_VAR)).map(|us| Duration::from_micros(us.into())),
        // It begins with the largest number that there is.
        min_rtt: microseconds(MIN_RTT).filter(|rtt| rtt.as_micros() < u32::MAX.into()),
        receive_rtt: microseconds(RECEIVE_RTT),
        receive_window: u32_at(info, RECEIVE_WINDOW),
        receive_space: u32_at(info, RECEIVE_SPACE),
        receive_ssthresh: u32_at(info, RECEIVE_SSTHRESH),
        out_of_order: u32_at(info, OUT_OF_ORDER),
        window_scaling,
        send_window_scale: scales.map(|(send, _)| send),
        receive_window_scale: scales.map(|(_, receive)| receive),
        bytes_received: u64_at(info, BYTES_RECEIVED),
        retransmits: u32_at(info, TOTAL_RETRANSMITS),
        send_mss: u32_at(info, SEND_MSS),
        receive_mss: u32_at(info, RECEIVE_MSS),
        ..TcpFacts::default()
    }
}

/// `tcpi_snd_wscale` and `tcpi_rcv_wscale`: two C bit fields of a byte, the first where the byte order puts it.
fn window_scales(byte: u8) -> (u8, u8) {
    let (low, high) = (byte & 0xf, byte >> 4);
    if cfg!(target_endian = "little") { (low, high) } else { (high, low) }
}

fn u32_at(info: &[u8], at: usize) -> Option<u32> {
    info.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(info: &[u8], at: usize) -> Option<u64> {
    info.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_env = "gnu")]
    #[test]
    fn the_places_are_those_of_the_c_struct() {
        use std::mem::offset_of;

        use libc::tcp_info;

        for (ours, theirs) in [
            (OPTIONS, offset_of!(tcp_info, tcpi_options)),
            (WINDOW_SCALES, offset_of!(tcp_info, tcpi_snd_rcv_wscale)),
            (SEND_MSS, offset_of!(tcp_info, tcpi_snd_mss)),
            (RECEIVE_MSS, offset_of!(tcp_info, tcpi_rcv_mss)),
            (RECEIVE_SSTHRESH, offset_of!(tcp_info, tcpi_rcv_ssthresh)),
            (RTT, offset_of!(tcp_info, tcpi_rtt)),
            (RTT_VAR, offset_of!(tcp_info, tcpi_rttvar)),
            (RECEIVE_RTT, offset_of!(tcp_info, tcpi_rcv_rtt)),
            (RECEIVE_SPACE, offset_of!(tcp_info, tcpi_rcv_space)),
            (TOTAL_RETRANSMITS, offset_of!(tcp_info, tcpi_total_retrans)),
            (BYTES_RECEIVED, offset_of!(tcp_info, tcpi_bytes_received)),
            (MIN_RTT, offset_of!(tcp_info, tcpi_min_rtt)),
            (OUT_OF_ORDER, offset_of!(tcp_info, tcpi_rcv_ooopack)),
            (RECEIVE_WINDOW, offset_of!(tcp_info, tcpi_rcv_wnd)),
        ] {
            assert_eq!(ours, theirs);
        }
    }

    /// Every byte 1, so that nothing is zero.
    const FULL: [u8; 240] = [1; 240];

    #[test]
    fn what_an_older_kernel_does_not_tell_is_not_measured() {
        let known = |length: usize| {
            let facts = read(&FULL[..length]);
            (facts.retransmits, facts.bytes_received, facts.min_rtt, facts.out_of_order, facts.receive_window)
        };
        let (number, time) = (Some(0x0101_0101), Some(Duration::from_micros(0x0101_0101)));
        let bytes = Some(0x0101_0101_0101_0101);
        assert_eq!(known(0), (None, None, None, None, None));
        assert_eq!(known(103), (None, None, None, None, None));
        // Linux 2.6.
        assert_eq!(known(104), (number, None, None, None, None));
        assert_eq!(known(136), (number, bytes, None, None, None));
        assert_eq!(known(192), (number, bytes, time, None, None));
        assert_eq!(known(232), (number, bytes, time, number, None));
        assert_eq!(known(240), (number, bytes, time, number, number));
        assert_eq!(read(&[]), TcpFacts::default());
    }

    #[test]
    fn round_trips_that_the_kernel_has_not_measured_are_not_zero() {
        let mut info = [0; 240];
        info[MIN_RTT..MIN_RTT + 4].fill(0xff);
        let facts = read(&info);
        assert_eq!((facts.rtt, facts.rtt_var, facts.min_rtt, facts.receive_rtt), (None, None, None, None));
        assert_eq!(facts.retransmits, Some(0));
    }

    #[test]
    fn scales_are_told_only_where_windows_are_scaled() {
        let mut info = FULL;
        info[WINDOW_SCALES] = if cfg!(target_endian = "little") { 0x97 } else { 0x79 };
        let scaling = |info: &[u8]| {
            let facts = read(info);
            (facts.window_scaling, facts.send_window_scale, facts.receive_window_scale)
        };
        info[OPTIONS] = 0b0111;
        assert_eq!(scaling(&info), (Some(true), Some(7), Some(9)));
        info[OPTIONS] = 0b0011;
        assert_eq!(scaling(&info), (Some(false), None, None));
    }
}
