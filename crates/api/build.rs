//! Generates `tidegate.v1` from the .proto file. protox compiles it, so no protoc is needed.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;
use prost_build::{Service, ServiceGenerator};

const PROTO: &str = "tidegate/v1/tidegate.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build.rs");

    let descriptors = protox::compile([PROTO], ["proto"])?;
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out_dir.join("tidegate.v1.bin"), descriptors.encode_to_vec())?;

    prost_build::Config::new()
        .bytes(["."])
        .service_generator(Box::new(Generator {
            client: tonic_prost_build::configure().build_server(false).service_generator(),
            server: tonic_prost_build::configure().build_client(false).service_generator(),
        }))
        .compile_fds(descriptors)?;
    Ok(())
}

/// The client as tonic generates it, and a server whose `ReadRange` answers with messages that are encoded already.
///
/// A server that built a `Row` for each of millions of records a second would spend its time on allocation.
struct Generator {
    client: Box<dyn ServiceGenerator>,
    server: Box<dyn ServiceGenerator>,
}

impl ServiceGenerator for Generator {
    fn generate(&mut self, service: Service, buf: &mut String) {
        self.client.generate(service.clone(), buf);
        let mut encoded = service;
        for method in &mut encoded.methods {
            if method.proto_name == "ReadRange" {
                method.output_type = "crate::encoded::EncodedReadRangeResponse".to_owned();
            }
        }
        self.server.generate(encoded, buf);
    }
}
