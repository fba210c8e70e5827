//! Schema registries for tests: a real one, Apicurio Registry, and a stand-in that can misbehave.

mod apicurio;
mod fake;

pub use apicurio::{Apicurio, StartError, VERSION};
pub use fake::{FakeRegistry, FakeSchema};
