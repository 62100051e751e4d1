//! Sanitizes one message for the typed layers behind it, without losing content.
//!
//! Input that real editors send and strict parsers refuse is repaired: invalid UTF-8 and lone
//! surrogate escapes become U+FFFD, positions beyond any text are clamped, and paths in URIs are
//! percent-encoded. Dropping an edit instead would leave the texts of editor and server permanently
//! different. A message that cannot be repaired gets an error response if it has an id.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tower_lsp::jsonrpc::Request;

/// The maximum nesting depth. serde_json stops at 128, and no protocol message reaches 30.
const DEPTH_LIMIT: usize = 100;

/// The maximum number of messages in one array.
const BATCH_LIMIT: usize = 1000;

/// The maximum number of values in one message. Each takes up to a hundred bytes once it is parsed.
/// A notification with 100,000 edits has 1.2 million.
pub(crate) const VALUES_LIMIT: usize = 4_000_000;

/// Result of screening one message.
#[derive(Debug, PartialEq)]
pub(super) enum ScreenedMessage {
    /// A request or notification to pass on.
    Call(Request),
    /// The client's response to a request of the server.
    Answer {
        /// The id of the request.
        id: Value,
        /// The result, or the error's message.
        outcome: Result<Value, String>,
    },
    /// Refused, with the error response to send, as JSON.
    Refused(String),
    /// Dropped without a response.
    Dropped(&'static str),
    /// The body is not JSON.
    NotJson,
}

/// The top-level keys of a message. Everything else is skipped without recursion, so that deeply
/// nested `params` cannot exhaust the stack here.
#[derive(Deserialize)]
struct Head {
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<Value>,
    params: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Splits a body into messages: usually one, several if it is an array.
pub(super) fn screen(body: Vec<u8>) -> Vec<ScreenedMessage> {
    let mut body = into_utf8(body);
    let shape = repair_strings(&mut body);
    let Ok(text) = String::from_utf8(body) else { return vec![ScreenedMessage::NotJson] };
    if !text.trim_start().starts_with('[') {
        return vec![screen_one(text, &shape)];
    }
    if serde_json::from_str::<IgnoredAny>(&text).is_err() {
        return vec![ScreenedMessage::NotJson];
    }
    // Not all elements of a longer array are in the shape.
    if shape.elements.is_empty() || shape.elements.len() > BATCH_LIMIT {
        return vec![refused(None, -32600, "an empty batch, or one with too many messages")];
    }
    let element_shape =
        Shape { depth: shape.depth.saturating_sub(1), values: shape.values, elements: Vec::new() };
    let elements = shape.elements.iter().filter_map(|range| text.get(range.clone()));
    elements
        .map(|element| {
            if element.trim_start().starts_with('[') {
                refused(None, -32600, "nested batches are not allowed")
            } else {
                screen_one(element.to_owned(), &element_shape)
            }
        })
        .collect()
}

/// Returns a message with valid UTF-8 and without lone surrogate escapes, and whether it has more
/// than [`VALUES_LIMIT`] values. Otherwise it is unchanged.
pub(crate) fn with_repaired_strings(body: Vec<u8>) -> Option<(String, bool)> {
    let mut body = into_utf8(body);
    let shape = repair_strings(&mut body);
    // Replacing escapes leaves the text valid.
    Some((String::from_utf8(body).ok()?, shape.values > VALUES_LIMIT))
}

fn into_utf8(mut body: Vec<u8>) -> Vec<u8> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    if body.starts_with(BYTE_ORDER_MARK) {
        body.drain(..BYTE_ORDER_MARK.len());
    }
    match String::from_utf8(body) {
        Ok(text) => text.into_bytes(),
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into_bytes(),
    }
}

fn screen_one(text: String, shape: &Shape) -> ScreenedMessage {
    let head: Head = match serde_json::from_str(&text) {
        Ok(head) => head,
        Err(error) if error.is_data() => {
            return refused(None, -32600, "this is JSON, but not a JSON-RPC message");
        }
        Err(_) => return ScreenedMessage::NotJson,
    };
    let id = head.id.filter(|id| !id.is_null());
    let is_too_deep = shape.depth > DEPTH_LIMIT;
    if is_too_deep || shape.values > VALUES_LIMIT {
        return match (is_too_deep, head.method.is_some() && id.is_none()) {
            (true, true) => ScreenedMessage::Dropped("a notification nested too deeply"),
            (true, false) => refused(id, -32600, "this message is nested too deeply"),
            (false, true) => ScreenedMessage::Dropped("a notification with too many values"),
            (false, false) => refused(id, -32600, "this message has too many values"),
        };
    }
    let is_answer = head.method.is_none() && (head.result.is_some() || head.error.is_some());
    match (head.method, id) {
        (Some(_), Some(id)) if !(id.is_string() || id.is_i64()) => {
            refused(None, -32600, "an id must be a string or an integer")
        }
        (Some(Value::String(method)), id) => call(method, id, &text, head.params.is_some()),
        (Some(_), id) => refused(id, -32600, "a method must be a string"),
        // serde reads a null result as absent, so a response with only an id is read the same way.
        (None, Some(id)) => answer(id, &text),
        (None, None) if is_answer => ScreenedMessage::Dropped("a response without an id"),
        (None, None) => refused(None, -32600, "neither a method nor an id"),
    }
}

/// Screens a request or notification.
fn call(method: String, id: Option<Value>, text: &str, has_params: bool) -> ScreenedMessage {
    // tower-lsp would not answer them, and no request of the protocol has such a name.
    if id.is_some() && method.starts_with("$/") {
        return refused(id, -32601, "this method is not a request");
    }
    let params = match repaired_params(text, has_params) {
        Ok(Some(params)) if method == "initialize" => {
            Some(crate::lsp::initialize::readable(params))
        }
        Ok(params) => params,
        // A number that is too large, for example. The rest of the message is JSON.
        Err(()) => return refused(id, -32700, "the parameters are not valid JSON"),
    };
    ScreenedMessage::Call(request(method, id, params))
}

fn answer(id: Value, text: &str) -> ScreenedMessage {
    let message: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let outcome = match message.get("error") {
        None | Some(Value::Null) => Ok(message.get("result").cloned().unwrap_or(Value::Null)),
        Some(error) => Err(error
            .get("message")
            .and_then(Value::as_str)
            .map_or_else(|| error.to_string(), str::to_owned)),
    };
    ScreenedMessage::Answer { id, outcome }
}

/// An error response. The id is null if none could be read, as JSON-RPC requires.
pub(super) fn refused(id: Option<Value>, code: i64, message: &str) -> ScreenedMessage {
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    ScreenedMessage::Refused(error.to_string())
}

fn request(method: String, id: Option<Value>, params: Option<Value>) -> Request {
    let mut request = Request::build(method);
    if let Some(params) = params {
        request = request.params(params);
    }
    match id {
        Some(Value::String(id)) => request.id(id).finish(),
        Some(id) => request.id(id.as_i64().unwrap_or_default()).finish(),
        None => request.finish(),
    }
}

/// The parameters of a call. `null` counts as absent.
fn repaired_params(text: &str, has_params: bool) -> Result<Option<Value>, ()> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(default)]
        params: Value,
    }
    if !has_params {
        return Ok(None);
    }
    let Params { mut params } = serde_json::from_str(text).map_err(|_| ())?;
    repair_value(&mut params);
    Ok(Some(params))
}

/// Repairs a value with a depth of at most [`DEPTH_LIMIT`].
fn repair_value(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(repair_value),
        Value::Object(entries) => {
            for (key, value) in entries.iter_mut() {
                match (key.as_str(), &mut *value) {
                    // Editors send -1 and `Number.MAX_VALUE` for "the end". Both are out of range
                    // for u32.
                    ("line" | "character", Value::Number(number)) => {
                        *value = Value::from(clamp(number, 0, i64::from(u32::MAX)));
                    }
                    ("version" | "rangeLength" | "processId", Value::Number(number)) => {
                        let least = if key == "version" { i64::from(i32::MIN) } else { 0 };
                        *value = Value::from(clamp(number, least, i64::from(i32::MAX)));
                    }
                    ("version", Value::Null) => *value = Value::from(0),
                    ("uri" | "rootUri" | "scopeUri", Value::String(uri)) => {
                        if let Some(encoded) = encode_uri(uri) {
                            *value = Value::from(encoded);
                        }
                    }
                    _ => repair_value(value),
                }
            }
        }
        _ => {}
    }
}

fn clamp(number: &serde_json::Number, least: i64, most: i64) -> i64 {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole.clamp(least, most),
        // A cast from f64 saturates, and NaN does not occur in JSON.
        (None, Some(real)) => (real as i64).clamp(least, most),
        (None, None) => most,
    }
}

/// Percent-encodes the characters of `uri` that RFC 3986 does not allow. Returns `None` if there
/// are none.
fn encode_uri(uri: &str) -> Option<String> {
    let bytes = uri.as_bytes();
    let is_escape = |at: usize| {
        bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let allowed = |at: usize, byte: u8| match byte {
        b'%' => is_escape(at),
        _ => byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=".contains(&byte),
    };
    if bytes.iter().enumerate().all(|(at, byte)| allowed(at, *byte)) {
        return None;
    }
    let mut encoded = String::with_capacity(uri.len() + 16);
    for (at, byte) in bytes.iter().enumerate() {
        if allowed(at, *byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    Some(encoded)
}

/// The structure that [`repair_strings`] finds.
struct Shape {
    /// The maximum nesting depth of arrays and objects.
    depth: usize,
    /// About the number of values: the commas and opening brackets outside of strings.
    values: usize,
    /// The byte ranges of the elements of a top-level array, at most two more than [`BATCH_LIMIT`].
    elements: Vec<std::ops::Range<usize>>,
}

/// Replaces lone surrogate escapes with `\ufffd`, in place, in one pass without recursion.
fn repair_strings(bytes: &mut [u8]) -> Shape {
    let mut shape = Shape { depth: 0, values: 0, elements: Vec::new() };
    let mut depth = 0_usize;
    let mut element_start: Option<usize> = None;
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        shape.values += usize::from(matches!(byte, b',' | b'[' | b'{'));
        match byte {
            b'"' => at = repair_string(bytes, at + 1),
            b'[' | b'{' => {
                depth += 1;
                shape.depth = shape.depth.max(depth);
                if depth == 1 && byte == b'[' {
                    element_start = Some(at + 1);
                }
            }
            b',' if depth == 1 => {
                if let Some(start) = element_start.replace(at + 1)
                    && shape.elements.len() <= BATCH_LIMIT
                {
                    shape.elements.push(start..at);
                }
            }
            b']' | b'}' => {
                if depth == 1
                    && let Some(start) = element_start.take()
                    && bytes.get(start..at).is_some_and(|element| !element.trim_ascii().is_empty())
                {
                    shape.elements.push(start..at);
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        at += 1;
    }
    shape
}

/// Repairs one string, starting after its opening quote. Returns the index of its closing quote.
fn repair_string(bytes: &mut [u8], start: usize) -> usize {
    let mut at = start;
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'"' => return at,
            b'\\' => match escaped_unit(bytes, at) {
                Some(0xd800..=0xdbff)
                    if matches!(escaped_unit(bytes, at + 6), Some(0xdc00..=0xdfff)) =>
                {
                    at += 12;
                }
                Some(0xd800..=0xdfff) => {
                    if let Some(escape) = bytes.get_mut(at..at + 6) {
                        escape.copy_from_slice(b"\\ufffd");
                    }
                    at += 6;
                }
                _ => at += 2,
            },
            _ => at += 1,
        }
    }
    at
}

/// The UTF-16 code unit of an escape `\uXXXX` at `at`.
fn escaped_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(body: impl Into<Vec<u8>>, expected: Expect) {
        let lines: Vec<String> = screen(body.into())
            .into_iter()
            .map(|screened| match screened {
                ScreenedMessage::Call(call) => call.to_string(),
                ScreenedMessage::Answer { id, outcome } => format!("answer {id} {outcome:?}"),
                ScreenedMessage::Refused(json) => format!("refused {json}"),
                other => format!("{other:?}"),
            })
            .collect();
        expected.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn lone_surrogates() {
        check(
            r#"{"method":"m","params":{"text":"a\ud83d b\ude00 c\ud83d\ude00 d\\ud83d"}}"#,
            expect![[r#"{"jsonrpc":"2.0","method":"m","params":{"text":"a� b� c😀 d\\ud83d"}}"#]],
        );
    }

    #[test]
    fn invalid_utf8() {
        check(
            b"{\"method\":\"m\",\"params\":[\"\xff\xfe\"]}".to_vec(),
            expect![[r#"{"jsonrpc":"2.0","method":"m","params":["��"]}"#]],
        );
    }

    #[test]
    fn positions_beyond_any_text() {
        check(
            r#"{"method":"m","params":{"line":-1,"character":1.7976931348623157e308,"version":null}}"#,
            expect![[
                r#"{"jsonrpc":"2.0","method":"m","params":{"character":4294967295,"line":0,"version":0}}"#
            ]],
        );
    }

    #[test]
    fn paths_instead_of_uris() {
        check(
            r#"{"method":"m","params":{"uri":"file:///a b/é%zz%20.py"}}"#,
            expect![[
                r#"{"jsonrpc":"2.0","method":"m","params":{"uri":"file:///a%20b/%C3%A9%25zz%20.py"}}"#
            ]],
        );
    }

    #[test]
    fn deep_requests_are_answered_by_id() {
        let deep = format!(
            r#"{{"params":{}1{},"id":7,"method":"m"}}"#,
            "[".repeat(20_000),
            "]".repeat(20_000)
        );
        check(
            deep,
            expect![[
                r#"refused {"error":{"code":-32600,"message":"this message is nested too deeply"},"id":7,"jsonrpc":"2.0"}"#
            ]],
        );
        check("[".repeat(100_000), expect!["NotJson"]);
    }

    #[test]
    fn a_byte_order_mark() {
        let body = b"{\"jsonrpc\":\"2.0\",\"method\":\"exit\"}";
        assert_eq!(screen([b"\xef\xbb\xbf", &body[..]].concat()), screen(body.to_vec()));
    }

    #[test]
    fn too_many_values() {
        let values = "0,".repeat(VALUES_LIMIT);
        let message = |id: &str| format!("{{{id}\"method\":\"m\",\"params\":[{values}0]}}");
        assert_eq!(
            screen(message("\"id\":7,").into_bytes()),
            [refused(Some(Value::from(7)), -32600, "this message has too many values")]
        );
        assert!(matches!(screen(message("").into_bytes())[..], [ScreenedMessage::Dropped(_)]));
        let batch = format!("[{values}0]");
        assert_eq!(repair_strings(&mut batch.into_bytes()).elements.len(), BATCH_LIMIT + 2);
    }

    #[test]
    fn requests_that_cannot_be_passed_on_are_answered_by_id() {
        check(
            r#"{"id":5,"method":"m","params":{"line":1e999}}"#,
            expect![[
                r#"refused {"error":{"code":-32700,"message":"the parameters are not valid JSON"},"id":5,"jsonrpc":"2.0"}"#
            ]],
        );
        check(
            r#"{"id":6,"method":"$/setTrace","params":{"value":"off"}}"#,
            expect![[
                r#"refused {"error":{"code":-32601,"message":"this method is not a request"},"id":6,"jsonrpc":"2.0"}"#
            ]],
        );
    }

    #[test]
    fn arrays_of_messages_are_split() {
        check(
            r#"[{"method":"a","params":[1,2]},{"id":1,"method":"b"},3,[]]"#,
            expect![[r#"
                {"jsonrpc":"2.0","method":"a","params":[1,2]}
                {"jsonrpc":"2.0","method":"b","id":1}
                refused {"error":{"code":-32600,"message":"this is JSON, but not a JSON-RPC message"},"id":null,"jsonrpc":"2.0"}
                refused {"error":{"code":-32600,"message":"nested batches are not allowed"},"id":null,"jsonrpc":"2.0"}"#]],
        );
        check(
            "[]",
            expect![[
                r#"refused {"error":{"code":-32600,"message":"an empty batch, or one with too many messages"},"id":null,"jsonrpc":"2.0"}"#
            ]],
        );
    }

    #[test]
    fn answers_of_every_kind() {
        check(r#"{"id":1,"result":null}"#, expect!["answer 1 Ok(Null)"]);
        check(r#"{"id":"x"}"#, expect![[r#"answer "x" Ok(Null)"#]]);
        check(
            r#"{"id":2,"error":{"code":1,"message":"no","extra":true}}"#,
            expect![[r#"answer 2 Err("no")"#]],
        );
    }

    #[test]
    fn bodies_that_are_not_messages() {
        check("", expect!["NotJson"]);
        check("{\"method\":", expect!["NotJson"]);
        check(
            "17",
            expect![[
                r#"refused {"error":{"code":-32600,"message":"this is JSON, but not a JSON-RPC message"},"id":null,"jsonrpc":"2.0"}"#
            ]],
        );
        check(
            r#"{"id":4,"method":{"m":[]}}"#,
            expect![[
                r#"refused {"error":{"code":-32600,"message":"a method must be a string"},"id":4,"jsonrpc":"2.0"}"#
            ]],
        );
        check(
            r#"{"id":1.5,"method":"m"}"#,
            expect![[
                r#"refused {"error":{"code":-32600,"message":"an id must be a string or an integer"},"id":null,"jsonrpc":"2.0"}"#
            ]],
        );
    }
}
