use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Reads a value with the scanner and builds it from the tokens.
fn read(json: &[u8]) -> Result<Value, Stop> {
    let mut scanner = Scanner::new(json, 0);
    let value = read_value(&mut scanner)?;
    match scanner.peek() {
        Err(Stop::Incomplete) => Ok(value),
        _ => Err(scanner.invalid("the end")),
    }
}

fn read_value(scanner: &mut Scanner<'_>) -> Result<Value, Stop> {
    match scanner.peek()? {
        b'{' => {
            let mut members = serde_json::Map::new();
            scanner.object(|key, scanner| {
                let key = Token::Text { bytes: key, escaped: key.contains(&b'\\') };
                members.insert(key.text().unwrap().into_owned(), read_value(scanner)?);
                Ok(())
            })?;
            Ok(Value::Object(members))
        }
        b'[' => {
            let Token::Nested(inside) = scanner.value()? else { unreachable!() };
            let mut inside = Scanner::new(inside, 1);
            let mut elements = Vec::new();
            if !inside.accept(b']')? {
                loop {
                    elements.push(read_value(&mut inside)?);
                    if inside.accept(b']')? {
                        break;
                    }
                    assert!(inside.accept(b',')?);
                }
            }
            Ok(Value::Array(elements))
        }
        _ => Ok(match scanner.value()? {
            text @ Token::Text { .. } => Value::String(text.text().unwrap().into_owned()),
            Token::Number(bytes) => serde_json::from_slice(bytes).unwrap_or(Value::Null),
            Token::Word(b"true") => Value::Bool(true),
            Token::Word(b"false") => Value::Bool(false),
            _ => Value::Null,
        }),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn values_written_by_serde_json_round_trip(value in any_value(), pretty in any::<bool>()) {
        let write = if pretty { serde_json::to_vec_pretty } else { serde_json::to_vec };
        let mut json = write(&value).unwrap();
        // A number at the end of the window could continue.
        json.push(b' ');
        prop_assert_eq!(read(&json), serde_json::from_slice(&json).map_err(|_| Stop::Incomplete));
    }

    #[test]
    fn escapes_match_serde_json(
        text in r#"(\\u[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-f]{2}\\u[dD][c-fC-F][0-9a-f]{2}|\\["\\/bfnrt]|[a-zé😀])*"#
    ) {
        let json = format!("\"{text}\" ");
        if let Ok(expected) = serde_json::from_str::<Value>(&json) {
            prop_assert_eq!(read(json.as_bytes()), Ok(expected));
        } else {
            // A lone surrogate, which Python writes, is read as U+FFFD.
            let found = read(json.as_bytes()).unwrap();
            prop_assert!(found.as_str().unwrap().contains(char::REPLACEMENT_CHARACTER));
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let found = read(&bytes);
        if let Ok(expected) = serde_json::from_slice::<Value>(&bytes) {
            prop_assert!(found == Ok(expected) || found == Err(Stop::Incomplete));
        }
    }

    #[test]
    fn json_like_bytes_match_serde_json(
        bytes in r#"[\[\]{}:,"\\ \n0-9.eE+\-a-fnulrtsINy]{0,40}"#
    ) {
        let bytes = format!("{bytes} ").into_bytes();
        if let Ok(expected) = serde_json::from_slice::<Value>(&bytes) {
            prop_assert_eq!(read(&bytes), Ok(expected));
        }
    }

    #[test]
    fn microseconds_convert_exactly(
        negative in any::<bool>(), whole in 0i64..9_000_000_000_000_000, thousandths in 0i64..1000
    ) {
        let sign = if negative { "-" } else { "" };
        let text = format!("{sign}{whole}.{thousandths:03}");
        let expected = (whole * 1000 + thousandths) * if negative { -1 } else { 1 };
        prop_assert_eq!(nanoseconds(text.as_bytes()), Some(expected));
    }

    #[test]
    fn conversion_is_close_to_floats(text in "-?[0-9]{1,25}(\\.[0-9]{0,25})?([eE][+-]?[0-9]{1,3})?") {
        let float: f64 = text.parse::<f64>().unwrap() * 1000.0;
        match nanoseconds(text.as_bytes()) {
            Some(found) => prop_assert!((found as f64 - float).abs() <= 1.0 + float.abs() * 1e-12),
            None => prop_assert!(float.abs() > 9.2e18),
        }
    }
}

#[test]
fn microseconds_in_all_notations() {
    let check = |text: &str, expected| assert_eq!(nanoseconds(text.as_bytes()), expected, "{text}");
    check("1678.0005", Some(1_678_001));
    check("1678.0004", Some(1_678_000));
    check("1.5e3", Some(1_500_000));
    check("25e-4", Some(3));
    check("0e999999999", Some(0));
    check("1e-999999", Some(0));
    check("1e999999", None);
    check("1e99999999999", None);
    check("9223372036854775.807", Some(i64::MAX));
    check("9223372036854775.808", None);
    check("1719412345678901.2345678901234567890123", Some(1_719_412_345_678_901_235));
    for invalid in ["", "-", ".", "inf", "N/A", "1.2.3", "0x10", "--1", "1e", " 1"] {
        check(invalid, None);
    }
}

#[test]
fn quoted_numbers_are_numbers() {
    let text = |bytes| Token::Text { bytes, escaped: false };
    assert_eq!(text(b"25738").signed(), Some(25738));
    assert_eq!(text(b"-9223372036854775808").signed(), Some(i64::MIN));
    assert_eq!(Token::Number(b"-9223372036854775809").signed(), None);
    assert_eq!(Token::Number(b"18446744073709551615").unsigned(), Some(u64::MAX));
    assert_eq!(Token::Number(b"18446744073709551616").unsigned(), None);
    assert_eq!(Token::Number(b"1.5").unsigned(), None);
    assert_eq!(text(b"inf").float(), None);
    assert_eq!(text(b"").signed(), None);
    assert_eq!(Token::Missing.signed(), None);
}

#[test]
fn truncated_values_are_incomplete() {
    let json = br#"{"a\"\\": [1, -2.5e3, null, {"b": "\u00e9"}], "c": {}} "#;
    assert!(read(json).is_ok());
    for end in 0..json.len() - 1 {
        assert_eq!(read(&json[..end]), Err(Stop::Incomplete), "at {end}");
    }
}

#[test]
fn nesting_is_limited() {
    let deep = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    let scanner_value = |json: &[u8]| Scanner::new(json, 0).value().map(drop);
    assert_eq!(scanner_value(&deep(MAX_DEPTH)), Ok(()));
    let too_deep = scanner_value(&deep(20_000));
    assert!(matches!(too_deep, Err(Stop::Invalid { at: MAX_DEPTH, .. })), "{too_deep:?}");
}

#[test]
fn non_finite_words_are_accepted() {
    for word in ["NaN", "Infinity", "-Infinity", "inf", "-inf", "nan"] {
        assert_eq!(read(format!("[{word}]").as_bytes()), Ok(serde_json::json!([null])));
    }
    for wrong in ["[nul]", "[+1]", "[infinite]", "[1a]", "['a']", "[,]", "{,}", "{1:2}"] {
        assert!(matches!(read(wrong.as_bytes()), Err(Stop::Invalid { .. })), "{wrong}");
    }
}
