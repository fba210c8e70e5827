//! The headers of a record as `tidegate.v1.Header` messages.

use tidegate_model::{Header, Headers};

use super::field::{implicit_len, len_field, optional_len, put_implicit, put_len, put_optional};

const NAME: u8 = 1;
const VALUE: u8 = 2;

fn message_len(header: &Header<'_>) -> usize {
    implicit_len(header.name.len()) + optional_len(header.value)
}

/// The size of all headers as a repeated field.
pub(super) fn headers_len(headers: Headers<'_>) -> usize {
    headers.map(|header| len_field(message_len(&header))).sum()
}

/// Appends all headers as a repeated field.
pub(super) fn put_headers(out: &mut Vec<u8>, number: u8, headers: Headers<'_>) {
    for header in headers {
        put_len(out, number, message_len(&header));
        put_implicit(out, NAME, header.name);
        put_optional(out, VALUE, header.value);
    }
}
