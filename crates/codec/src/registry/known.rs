//! The `.proto` files that a schema may import without a reference. Those under `google/protobuf/` come with the compiler.

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("protos/", $name)))),+];
    };
}

files! {
    "confluent/meta.proto",
    "confluent/type/decimal.proto",
    "google/type/calendar_period.proto",
    "google/type/color.proto",
    "google/type/date.proto",
    "google/type/datetime.proto",
    "google/type/dayofweek.proto",
    "google/type/decimal.proto",
    "google/type/expr.proto",
    "google/type/fraction.proto",
    "google/type/interval.proto",
    "google/type/latlng.proto",
    "google/type/localized_text.proto",
    "google/type/money.proto",
    "google/type/month.proto",
    "google/type/phone_number.proto",
    "google/type/postal_address.proto",
    "google/type/quaternion.proto",
    "google/type/timeofday.proto",
}

/// The text of a file that every client is expected to have.
pub(super) fn known_file(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::protobuf::ProtobufFile;

    #[test]
    fn every_one_of_them_compiles() {
        let imports: String = FILES.iter().map(|(name, _)| format!("import \"{name}\";\n")).collect();
        let text = format!("syntax = \"proto3\";\n{imports}message M {{ google.type.Money price = 1; }}");
        let file = ProtobufFile::compile("all.proto", &text, &|_| None).unwrap();
        let mut json = Vec::new();
        let money = file.message(&[0]).unwrap();
        money.protobuf_to_json(b"\x0a\x05\x0a\x03EUR", &crate::JsonOptions::default(), &mut json).unwrap();
        assert_eq!(json, br#"{"price":{"currencyCode":"EUR"}}"#);
    }
}
