//! `clusters:`, further clusters of one server, each by a name that requests say.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use tidegate_server::engine::ClusterName;

use super::{KafkaSection, RegistrySection, TopicsSection};

/// The named clusters.
#[derive(Debug, Default)]
pub(crate) struct ClustersSection(pub(crate) BTreeMap<ClusterName, ClusterSection>);

/// One of them: the sections that the file's top level has for the cluster called `default`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// How to reach it.
    pub(crate) kafka: KafkaSection,
    /// What its topics hold.
    #[serde(default)]
    pub(crate) topics: TopicsSection,
    /// Where the schemas are that values name.
    #[serde(default, rename = "schema.registry")]
    pub(crate) registry: Option<RegistrySection>,
}

impl<'de> Deserialize<'de> for ClustersSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Clusters;

        impl<'de> Visitor<'de> for Clusters {
            type Value = ClustersSection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from names of clusters to how each is reached")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClustersSection, A::Error> {
                let mut clusters = BTreeMap::new();
                while let Some(text) = map.next_key::<String>()? {
                    let name = ClusterName::new(&text).map_err(de::Error::custom)?;
                    // A map would let the last one win, and the first would silently not be in force.
                    match clusters.entry(name) {
                        Entry::Occupied(_) => {
                            return Err(de::Error::custom(format_args!("cluster {text:?} stands there twice")));
                        }
                        Entry::Vacant(entry) => {
                            entry.insert(map.next_value()?);
                        }
                    }
                }
                Ok(ClustersSection(clusters))
            }
        }

        deserializer.deserialize_map(Clusters)
    }
}

impl ClustersSection {
    /// Makes the paths count from `base`.
    pub(super) fn resolve(&mut self, base: &Path) {
        for cluster in self.0.values_mut() {
            cluster.kafka.resolve(base);
            cluster.topics.resolve(base);
            if let Some(registry) = &mut cluster.registry {
                registry.resolve(base);
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (name, cluster) in &self.0 {
            let name = name.as_str();
            if name == ClusterName::DEFAULT {
                return Err(format!(
                    "clusters.{name}: the cluster called {name:?} is the one whose sections stand at the top of the file; \
                     write them there, or choose another name"
                ));
            }
            cluster.kafka.check().map_err(|what| format!("clusters.{name}.kafka: {what}"))?;
            if let Some(registry) = &cluster.registry {
                registry.check(&format!("clusters.{name}.schema.registry"))?;
            }
            cluster.topics.check(&format!("clusters.{name}.topics"), cluster.registry.is_some())?;
        }
        Ok(())
    }
}
