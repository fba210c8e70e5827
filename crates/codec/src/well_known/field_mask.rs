//! The paths of a `google.protobuf.FieldMask`: `foo_bar.baz` in the message, `fooBar.baz` in JSON.

/// One path of a mask in JSON, as the message has it; `None` when no path of the message has this JSON form.
pub(crate) fn path_from_json(text: &str) -> Option<String> {
    let mut path = String::with_capacity(text.len() + 4);
    for character in text.chars() {
        match character {
            'A'..='Z' => path.extend(['_', character.to_ascii_lowercase()]),
            '_' => return None,
            other => path.push(other),
        }
    }
    Some(path)
}

/// Appends the JSON form of one path. False when it could not be told from another one: field_mask.proto asks for an error
/// where the form does not lead back.
pub(crate) fn write_path(path: &str, out: &mut String) -> bool {
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        match character {
            '_' => match characters.next() {
                Some(next @ 'a'..='z') => out.push(next.to_ascii_uppercase()),
                _ => return false,
            },
            // The comma parts the paths of a mask.
            'A'..='Z' | ',' => return false,
            other => out.push(other),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_to_camel_case_and_back() {
        for (path, json) in [("foo_bar.baz_q", "fooBar.bazQ"), ("f", "f"), ("_foo", "Foo"), ("a1.b2", "a1.b2")] {
            let mut written = String::new();
            assert!(write_path(path, &mut written));
            assert_eq!(written, json);
            assert_eq!(path_from_json(json).as_deref(), Some(path));
        }
    }

    #[test]
    fn paths_that_would_not_come_back_are_refused() {
        for path in ["fooBar", "foo__bar", "foo_3", "foo_", "a,b"] {
            assert!(!write_path(path, &mut String::new()), "{path}");
        }
        assert_eq!(path_from_json("foo_bar"), None);
    }
}
