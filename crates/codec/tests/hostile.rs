//! Bombs: an error, or a document, and no more memory than a stated multiple of what came in.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{everything, hex, older, sample};
use tidegate_codec::{JsonOptions, JsonValue, MessageType, ToJsonReason, ToProtobufReason, UnknownMode};

/// The one place of this crate's tests with `unsafe`: counting what is allocated takes a global allocator, and its trait is
/// unsafe to implement. It hands every call to the system's allocator unchanged, so that one's promises are kept; the
/// counters are plain cells of the thread, which neither allocate nor run a destructor.
#[allow(unsafe_code)]
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    thread_local! {
        static LIVE: Cell<isize> = const { Cell::new(0) };
        static PEAK: Cell<isize> = const { Cell::new(0) };
    }

    fn count(bytes: isize) {
        // A thread that is ending has no cells any more, and nothing to measure.
        let _ = LIVE.try_with(|live| {
            live.set(live.get() + bytes);
            let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
        });
    }

    // SAFETY: every method forwards its arguments to `System` as they are, whose contract is the same.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count(layout.size().cast_signed());
            unsafe { System.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            count(layout.size().cast_signed());
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            count(-layout.size().cast_signed());
            unsafe { System.dealloc(block, layout) }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // A block that moves is there twice for a moment.
            count(size.cast_signed());
            count(-layout.size().cast_signed());
            unsafe { System.realloc(block, layout, size) }
        }
    }

    /// What `work` returns, and the most bytes that it held at one time on this thread.
    pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        let result = work();
        let peak = PEAK.with(Cell::get) - before;
        (result, usize::try_from(peak).unwrap_or(0))
    }
}

use counting::peak_of;

/// What a conversion may take whatever comes in.
const BASE_BYTES: usize = 64 * 1024;

fn to_json(message: &MessageType, bytes: &[u8]) -> (Result<Vec<u8>, ToJsonReason>, usize) {
    let mut options = JsonOptions::default();
    options.max_json_bytes = 16 << 20;
    let ((result, length), peak) = peak_of(|| {
        let mut out = Vec::new();
        let result = message.protobuf_to_json(bytes, &options, &mut out).map_err(|error| error.reason);
        let capacity = out.capacity();
        (result.map(|()| out), capacity)
    });
    // The text itself is the caller's: it grows by doubling, and is there twice while it moves.
    (result, peak.saturating_sub(length + length / 2))
}

fn to_protobuf(message: &MessageType, json: &str) -> (Result<Vec<u8>, ToProtobufReason>, usize) {
    peak_of(|| {
        let mut out = Vec::new();
        let result = message.json_to_protobuf(json.as_bytes(), UnknownMode::Lenient, &mut out);
        result.map(|()| out).map_err(|error| error.reason)
    })
}

/// A message in `depth` others, each in the field with this tag.
fn nested(tag: &[u8], depth: usize, innermost: &[u8]) -> Vec<u8> {
    let mut bytes = innermost.to_vec();
    for _ in 0..depth {
        let mut outer = tag.to_vec();
        let mut length = bytes.len();
        while length >= 0x80 {
            outer.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.extend_from_slice(&bytes);
        bytes = outer;
    }
    bytes
}

#[test]
fn messages_that_nest_too_deep_are_refused_on_the_wire() {
    let all = everything();
    // All.child, and Any in Any, each of which starts a message of its own for other readers.
    let child = hex("8a 01");
    assert!(to_json(&all, &nested(&child, 100, &[])).0.is_ok());
    assert_eq!(to_json(&all, &nested(&child, 101, &[])).0, Err(ToJsonReason::Depth { limit: 100 }));
    assert_eq!(to_json(&all, &nested(&child, 5_000, &[])).0, Err(ToJsonReason::Depth { limit: 100 }));

    let url = b"\x0a\x15x/google.protobuf.Any";
    let mut any = Vec::new();
    for _ in 0..5_000 {
        any = [&url[..], &nested(&[0x12], 1, &any)].concat();
    }
    let bytes = nested(&hex("a2 04"), 1, &any);
    assert_eq!(to_json(&all, &bytes).0, Err(ToJsonReason::Depth { limit: 100 }));

    // Groups that the schema knows, and groups that it does not.
    let known = [vec![0x08, 0x00], [0x2b, 0x13].repeat(50_000)].concat();
    assert!(to_json(&older(), &known).0.is_err());
    assert!(to_json(&older(), &[0x7b; 100_000]).0.is_err());
}

#[test]
fn documents_that_nest_too_deep_are_refused() {
    let all = everything();
    let child = |depth: usize| format!("{}{{}}{}", r#"{"child":"#.repeat(depth), "}".repeat(depth));
    assert!(to_protobuf(&all, &child(100)).0.is_ok());
    assert_eq!(to_protobuf(&all, &child(101)).0, Err(ToProtobufReason::Depth { limit: 100 }));
    let bombs = [
        r#"{"child":"#.repeat(1_000_000),
        format!(r#"{{"value":{}"#, "[".repeat(1_000_000)),
        format!(r#"{{"struct":{}"#, r#"{"a":"#.repeat(1_000_000)),
        format!(r#"{{"zzz":{}"#, "[".repeat(1_000_000)),
        format!(r#"{{"any":{}"#, r#"{"@type":"x/google.protobuf.Any","value":"#.repeat(100_000)),
        format!(r#"{{"any":{}"#, r#"{"x":"#.repeat(1_000_000)),
    ];
    for bomb in bombs {
        let (result, peak) = to_protobuf(&all, &bomb);
        assert!(result.is_err());
        assert!(peak < BASE_BYTES, "{} took {peak} bytes", &bomb[..20]);
    }
    let (shown, peak) = peak_of(|| matches!(JsonValue::of("[".repeat(4096).as_bytes()), JsonValue::Text(_)));
    assert!(shown && peak < BASE_BYTES);
}

#[test]
fn what_a_document_of_any_depth_gives_can_be_read_by_other_readers() {
    // prost's readers count map entries too.
    let all = everything();
    let value = format!(r#"{{"struct":{}1{}}}"#, r#"{"a":"#.repeat(33), "}".repeat(33));
    let bytes = to_protobuf(&all, &value).0.unwrap();
    let set = {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("everything.proto"), common::EVERYTHING).unwrap();
        let mut compiler = protox::Compiler::new([folder.path()]).unwrap();
        compiler.open_file("everything.proto").unwrap();
        compiler.include_imports(true).encode_file_descriptor_set()
    };
    let pool = prost_reflect::DescriptorPool::decode(&set[..]).unwrap();
    let descriptor = pool.get_message_by_name("everything.All").unwrap();
    prost_reflect::DynamicMessage::decode(descriptor, &bytes[..]).unwrap();
    let deeper = format!(r#"{{"struct":{}1{}}}"#, r#"{"a":"#.repeat(34), "}".repeat(34));
    assert_eq!(to_protobuf(&all, &deeper).0, Err(ToProtobufReason::Depth { limit: 100 }));
}

#[test]
fn a_million_small_values_take_no_more_than_a_multiple_of_their_bytes() {
    let all = everything();
    let packed = |tag: &str, count: usize| [hex(tag), vec![0xc0, 0x84, 0x3d], vec![1; count]].concat();
    let cases: Vec<(&str, Vec<u8>, usize)> = vec![
        // Packed values are read one after the other.
        ("packed bools", packed("92 02", 1_000_000), 0),
        ("packed enums", packed("aa 02", 1_000_000), 0),
        // Each field on the wire takes 8 bytes while its message is printed; the stack grows by doubling.
        ("unpacked integers", hex("b8 02 05").repeat(1_000_000), 8),
        ("empty messages", hex("b2 02 00").repeat(1_000_000), 8),
        ("the same field", hex("18 05").repeat(1_000_000), 12),
        ("one message in parts", hex("8a 01 00").repeat(1_000_000), 16),
        ("a oneof to and fro", hex("9a 03 00 a0 03 00").repeat(500_000), 8),
        ("the same map key", hex("ca 02 00").repeat(1_000_000), 8),
        ("unknown fields", hex("f8 06 00").repeat(1_000_000), 0),
        (
            "different map keys",
            (0_u32..200_000).flat_map(|key| [&hex("e2 02 05 08")[..], &varint(key + (1 << 21))].concat()).collect(),
            16,
        ),
        // Each level merges two parts, one of them nearly as large as the whole: nothing may be copied.
        (
            "messages in parts at every level",
            (0..90).fold(nested(&hex("ba 02"), 1, &[1; 1 << 19]), |inner, _| {
                [nested(&hex("8a 01"), 1, &inner), hex("8a 01 00")].concat()
            }),
            1,
        ),
    ];
    for (name, bytes, multiple) in cases {
        let (result, peak) = to_json(&all, &bytes);
        assert!(matches!(result, Ok(_) | Err(ToJsonReason::TooLarge { .. })), "{name}: {:?}", result.map(|_| ()));
        let allowed = bytes.len() * multiple + BASE_BYTES;
        assert!(peak <= allowed, "{name}: {} bytes took {peak}, allowed {allowed}", bytes.len());
    }
}

fn varint(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn a_document_gives_no_more_than_seven_times_its_bytes() {
    let all = everything();
    let cases = [
        format!(r#"{{"doubles":[{}0]}}"#, "0,".repeat(100_000)),
        format!(r#"{{"values":[{}0]}}"#, "0,".repeat(100_000)),
        format!(r#"{{"list":[{}0]}}"#, "0,".repeat(100_000)),
        format!(r#"{{"colors":[{}0]}}"#, "-2,".repeat(100_000)),
        format!(r#"{{"children":[{}{{}}]}}"#, "{},".repeat(100_000)),
    ];
    for json in cases {
        let (result, peak) = to_protobuf(&all, &json);
        let bytes = result.unwrap().len();
        assert!(bytes < json.len() * 7, "{}: {bytes} of {}", &json[..12], json.len());
        assert!(peak <= bytes * 3 + BASE_BYTES, "{}: {peak}", &json[..12]);
    }
}

#[test]
fn a_long_string_of_control_characters_grows_sixfold_and_no_more() {
    let bytes = [hex("92 01 80 80 40"), vec![1; 1 << 20]].concat();
    let (result, _) = to_json(&sample(), &bytes);
    assert_eq!(result.unwrap().len(), 6 * (1 << 20) + r#"{"str":""}"#.len());
}
