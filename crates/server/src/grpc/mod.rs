//! The gRPC face: `tidegate.v1` over the engine.
