//! Numbers by their text, so that no digit is lost on the way through a float.

use super::reader::number_length;

/// Why a number's text is no integer of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerError {
    /// It has a fraction.
    Fraction,
    /// It has more digits than any 64-bit integer.
    Range,
}

/// Whether `text` is a number as JSON writes them, and nothing else.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && number_length(text.as_bytes()) == text.len()
}

/// The value of a JSON number that is an integer, in whatever form: `100`, `100.0`, `1e2`.
///
/// `text` must be a number ([`is_number`]). The value is exact and has at most 20 digits.
pub(crate) fn parse_integer(text: &str) -> Result<i128, IntegerError> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        // An exponent that does not fit is beyond all integers, or below them, unless the mantissa is zero.
        Some((mantissa, exponent)) => {
            let far = if exponent.starts_with('-') { i64::MIN / 2 } else { i64::MAX / 2 };
            (mantissa, exponent.parse::<i64>().map_or(far, |exponent| exponent.clamp(i64::MIN / 2, i64::MAX / 2)))
        }
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte.wrapping_sub(b'0')));

    // The digits without zeroes at either end, and the power of ten of the last of them.
    let count = whole.len() + fraction.len();
    let leading = digits.clone().take_while(|digit| *digit == 0).count();
    if leading == count {
        return Ok(0);
    }
    let trailing = digits.clone().rev().take_while(|digit| *digit == 0).count();
    let length = count - leading - trailing;
    let signed = |length: usize| i64::try_from(length).unwrap_or(i64::MAX / 4);
    let power = exponent - signed(fraction.len()) + signed(trailing);
    if power < 0 {
        return Err(IntegerError::Fraction);
    }
    if signed(length) + power > 20 {
        return Err(IntegerError::Range);
    }
    let value = digits.skip(leading).take(length).fold(0_i128, |value, digit| value * 10 + digit);
    let value = (0..power).fold(value, |value, _| value * 10);
    Ok(if negative { -value } else { value })
}

/// The double nearest to a number's text; `None` beyond the largest one, which must not turn into infinity.
pub(crate) fn parse_f64(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// The float nearest to a number's text, as [`parse_f64`]. By way of a double it could be rounded twice.
pub(crate) fn parse_f32(text: &str) -> Option<f32> {
    text.parse::<f32>().ok().filter(|value| value.is_finite())
}

/// A value of floats that a JSON number cannot express, by the name that it has in a string.
pub(crate) fn special_float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_exact_in_every_form() {
        let cases = [
            ("0", 0),
            ("-0", 0),
            ("0e99999999999999999999", 0),
            ("0.000", 0),
            ("7", 7),
            ("1e2", 100),
            ("1.50e1", 15),
            ("100.000", 100),
            ("120e-1", 12),
            ("9007199254740993", 9_007_199_254_740_993),
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("-9223372036854775808", i128::from(i64::MIN)),
            ("1.8446744073709551615e19", i128::from(u64::MAX)),
            ("99999999999999999999", 99_999_999_999_999_999_999),
        ];
        for (text, value) in cases {
            assert!(is_number(text), "{text}");
            assert_eq!(parse_integer(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_integer_is_told_from_what_is_too_large() {
        for text in ["0.5", "1e-1", "1.5", "100.001", "1e-99999999999999999999", "12345678901234567890123.5"] {
            assert_eq!(parse_integer(text), Err(IntegerError::Fraction), "{text}");
        }
        for text in
            ["100000000000000000000", "1e20", "1e400", "1e99999999999999999999", "-123456789012345678901234567890"]
        {
            assert_eq!(parse_integer(text), Err(IntegerError::Range), "{text}");
        }
    }

    #[test]
    fn only_the_forms_of_json_are_numbers() {
        for text in ["", " 1", "1 ", "+1", "01", ".5", "5.", "1e", "0x10", "NaN", "Infinity", "١"] {
            assert!(!is_number(text), "{text}");
        }
    }

    #[test]
    fn a_float_is_rounded_once_and_never_to_infinity() {
        // A little above the middle of two floats. Of the doubles, the nearest is that middle, which goes to the even float.
        let text = "1.00000005960464477540";
        assert_eq!(parse_f64(text).map(|value| value as f32), Some(1.0));
        assert_eq!(parse_f32(text), Some(1.000_000_1));
        assert_eq!(parse_f32("3.4028235e38"), Some(f32::MAX));
        assert_eq!((parse_f32("3.5e38"), parse_f32("-3.5e38")), (None, None));
        assert_eq!((parse_f64("1e308"), parse_f64("1e309")), (Some(1e308), None));
    }

    proptest! {
        #[test]
        fn an_integer_reads_back_whatever_its_exponent(value: i64, power in 0_u32..18) {
            prop_assert_eq!(parse_integer(&value.to_string()), Ok(i128::from(value)));
            let scaled = format!("{value}{}e-{power}", "0".repeat(power as usize));
            prop_assert_eq!(parse_integer(&scaled), Ok(i128::from(value)));
        }
    }
}
