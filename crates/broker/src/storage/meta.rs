//! The data folder's own file: format version, cluster id, producer ids handed out, topics with ids and configuration.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_model::TopicName;
use uuid::Uuid;

use super::text::{self, TextError, TextKind};
use super::topic_config::TopicConfig;
use crate::error::OpenError;

const META: TextKind = TextKind { name: "tidegate-data", version: 1 };

/// What the data folder holds.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) cluster_id: String,
    /// No producer id from here on was ever handed out.
    pub(crate) next_producer_id: i64,
    pub(crate) topics: BTreeMap<TopicName, TopicMeta>,
}

/// What is known of a topic without its logs.
#[derive(Clone, Debug)]
pub(crate) struct TopicMeta {
    pub(crate) id: Uuid,
    pub(crate) partitions: i32,
    pub(crate) config: TopicConfig,
}

impl Meta {
    /// A new cluster.
    pub(crate) fn new() -> Self {
        // Kafka's cluster ids are 22 characters of a UUID too; clients take any string.
        let cluster_id = Uuid::new_v4().simple().to_string()[..22].to_owned();
        Self { cluster_id, next_producer_id: 0, topics: BTreeMap::new() }
    }

    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join("meta")
    }

    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let mut lines =
            vec![("cluster_id", self.cluster_id.clone()), ("next_producer_id", self.next_producer_id.to_string())];
        for (name, topic) in &self.topics {
            lines.push(("topic", format!("{} {} {name}", topic.id, topic.partitions)));
            for (key, value) in topic.config.set() {
                lines.push(("config", format!("{} {key} {value}", topic.id)));
            }
        }
        text::write(&Self::path(dir), META, &lines, true)
    }

    /// `None` when there is no such file.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, OpenError> {
        let path = Self::path(dir);
        let lines = match text::read(&path, META) {
            Ok(Some(lines)) => lines,
            Ok(None) => return Ok(None),
            Err(TextError::Damaged(reason)) => return Err(OpenError::Damaged { path, reason }),
            Err(TextError::Version(found)) => {
                return Err(OpenError::FormatVersion { path, found, supported: META.version });
            }
            Err(TextError::Io(source)) => return Err(OpenError::Io { action: "read", path, source }),
        };
        parse(&lines).map(Some).map_err(|reason| OpenError::Damaged { path, reason })
    }
}

/// A topic line, and its config lines.
struct TopicLines<'a> {
    name: TopicName,
    partitions: i32,
    config: Vec<(&'a str, Option<&'a str>)>,
}

fn parse(lines: &[(String, String)]) -> Result<Meta, String> {
    let mut cluster_id = None;
    let mut next_producer_id = None;
    let mut topics: BTreeMap<Uuid, TopicLines<'_>> = BTreeMap::new();
    for (key, value) in lines {
        let broken = || format!("the line \"{key} {value}\" cannot be read");
        match key.as_str() {
            "cluster_id" => cluster_id = Some(value.clone()),
            "next_producer_id" => next_producer_id = Some(value.parse::<i64>().map_err(|_| broken())?),
            "topic" => {
                let mut words = value.splitn(3, ' ');
                let mut word = || words.next().ok_or_else(broken);
                let id = word()?.parse().map_err(|_| broken())?;
                let partitions = word()?.parse().map_err(|_| broken())?;
                let name = TopicName::new(word()?).map_err(|error| error.to_string())?;
                topics.insert(id, TopicLines { name, partitions, config: Vec::new() });
            }
            "config" => {
                let (id, setting) = value.split_once(' ').ok_or_else(broken)?;
                let (key, value) = setting.split_once(' ').ok_or_else(broken)?;
                let id: Uuid = id.parse().map_err(|_| broken())?;
                topics.get_mut(&id).ok_or_else(broken)?.config.push((key, Some(value)));
            }
            _ => return Err(broken()),
        }
    }
    let topics = topics.into_iter().map(|(id, lines)| {
        // The settings were checked against the limits of the time; narrower limits of today do not unmake the topic.
        let config = TopicConfig::parse(lines.config, usize::MAX).map_err(|error| error.to_string())?;
        Ok((lines.name, TopicMeta { id, partitions: lines.partitions, config }))
    });
    Ok(Meta {
        cluster_id: cluster_id.ok_or("the cluster id is missing")?,
        next_producer_id: next_producer_id.ok_or("the next producer id is missing")?,
        topics: topics.collect::<Result<_, String>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut meta = Meta::new();
        meta.next_producer_id = 3_000;
        let config =
            TopicConfig::parse([("retention.ms", Some("-1")), ("segment.bytes", Some("4096"))], usize::MAX).unwrap();
        let topic = TopicMeta { id: Uuid::new_v4(), partitions: 6, config };
        meta.topics.insert(TopicName::new("flights").unwrap(), topic);
        meta.write(dir.path()).unwrap();
        let back = Meta::read(dir.path()).unwrap().unwrap();
        assert_eq!((&back.cluster_id, back.next_producer_id), (&meta.cluster_id, 3_000));
        let (name, topic) = back.topics.first_key_value().unwrap();
        let before = &meta.topics[name];
        assert_eq!((topic.id, topic.partitions, &topic.config), (before.id, 6, &before.config));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_an_empty_broker() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(Meta::path(dir.path()), b"").unwrap();
        assert!(matches!(Meta::read(dir.path()), Err(OpenError::Damaged { .. })));
    }
}
