//! The settings of TCP that decide how fast one connection can be over a long way.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::Namespace;

/// The settings that are recorded; those below the line belong to the whole machine.
const NAMES: [&str; 8] = [
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.core.rmem_max",
    "net.core.wmem_max",
];

/// TCP's settings in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Tcp(pub BTreeMap<String, String>);

impl Tcp {
    /// Those of the calling thread's namespace.
    pub fn here() -> Self {
        let value = |name: &str| std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok();
        let tidy = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self(NAMES.iter().filter_map(|&name| Some((name.to_owned(), tidy(value(name)?)))).collect())
    }

    /// Those of a namespace.
    pub fn of(namespace: &Namespace) -> Result<Self> {
        namespace.run(Self::here)
    }
}
