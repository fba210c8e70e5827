//! The types of the REST bodies.
