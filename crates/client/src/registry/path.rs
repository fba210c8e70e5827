//! Addresses and paths.

use http::Uri;

use super::RegistrySettingError;

/// An address without the slash at its end, if it is one.
pub(super) fn base_url(url: &str) -> Result<String, RegistrySettingError> {
    let bad = |problem| {
        // What stands in front of an @ may be a password.
        let shown = url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, host)| format!("…@{host}"));
        RegistrySettingError::Url { url: shown, problem }
    };
    let parsed: Uri = url.parse().map_err(|_| bad("is not an address such as https://registry.example:8081"))?;
    match (parsed.scheme_str(), parsed.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err(bad("holds credentials; write them to basic.auth.user.info"))
        }
        (Some("http" | "https"), Some(_)) if parsed.query().is_some() => {
            Err(bad("holds a query, which no request has"))
        }
        (Some("http" | "https"), Some(_)) => Ok(url.trim_end_matches('/').to_owned()),
        _ => Err(bad("must begin with https:// or http://")),
    }
}

/// A text as one segment of a path: subjects may hold anything, slashes and percent signs included.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded.extend(char::from_digit(u32::from(digit), 16).map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    // Alone, they would be steps and not a name.
    match encoded.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => encoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_or_refused_with_what_to_write() {
        assert_eq!(base_url("http://a:8081/").unwrap(), "http://a:8081");
        assert_eq!(base_url("https://a/apis/ccompat/v7").unwrap(), "https://a/apis/ccompat/v7");
        for (url, says) in [
            ("a:8081", "must begin with https://"),
            ("ftp://a", "must begin with https://"),
            ("http://", "is not an address"),
            ("http://u:hunter22@a", "basic.auth.user.info"),
            ("http://a/?x=1", "query"),
            ("", "is not an address"),
        ] {
            let error = base_url(url).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter22"), "{error}");
        }
    }

    #[test]
    fn a_subject_is_one_segment_whatever_it_holds() {
        assert_eq!(segment("orders-value"), "orders-value");
        assert_eq!(segment("a/b c%é?#"), "a%2Fb%20c%25%C3%A9%3F%23");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("..."), "...");
    }
}
