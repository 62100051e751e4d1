//! Finds a value in a YAML, TOML or JSON file, with its byte range.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::literal;

/// The maximum size of a file, in bytes. Larger files hold data, not settings.
const MAX_BYTES: usize = 1 << 20;
/// The maximum nesting depth.
const MAX_DEPTH: usize = 64;
/// The maximum number of events read from a YAML file.
const MAX_EVENTS: usize = 200_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number { span: Range<usize>, value: u64 },
    Text(String),
    Truth(bool),
    Nothing,
}

/// Returns the value at a path of keys, or `None` if it does not exist. The key `*` matches each
/// element of a list.
///
/// # Errors Returns the reason why the file cannot be read, as the end of a sentence.
pub(super) fn find(file: &str, text: &str, keys: &[String]) -> Result<Option<Value>, String> {
    if text.len() > MAX_BYTES {
        return Err("is too large for a settings file".to_owned());
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    match file.rsplit_once('.').map(|(_, ending)| ending) {
        Some("toml") => in_toml(text, &keys),
        // JSON is a subset of YAML, and the YAML parser reports the positions of values.
        Some("yaml" | "yml" | "json") => in_yaml(text, &keys),
        _ => Err("is not YAML, TOML or JSON".to_owned()),
    }
}

fn in_toml(text: &str, keys: &[&str]) -> Result<Option<Value>, String> {
    let table =
        DeTable::parse(text).map_err(|error| format!("is not valid TOML: {}", error.message()))?;
    let Some((first, rest)) = keys.split_first() else { return Ok(None) };
    let mut at: Option<&Spanned<DeValue<'_>>> = table.get_ref().get(*first);
    for key in rest {
        at = match at.map(Spanned::get_ref) {
            Some(DeValue::Table(inner)) => inner.get(*key),
            Some(DeValue::Array(items)) => key.parse::<usize>().ok().and_then(|at| items.get(at)),
            _ => None,
        };
    }
    Ok(at.and_then(|value| match value.get_ref() {
        DeValue::Integer(_) => {
            let span = value.span();
            Some(Value::Number { value: literal::whole(text.get(span.clone())?)?, span })
        }
        DeValue::String(inner) => Some(Value::Text(inner.to_string())),
        DeValue::Boolean(truth) => Some(Value::Truth(*truth)),
        _ => None,
    }))
}

/// A YAML node that is being read.
enum Open {
    /// A mapping, with the key whose value comes next.
    Mapping(Option<String>),
    Sequence(usize),
}

fn in_yaml(text: &str, keys: &[&str]) -> Result<Option<Value>, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut found: Option<Value> = None;
    let mut anchors: Vec<(usize, Value)> = Vec::new();
    let offsets = Offsets::of(text);
    for event in Parser::new_from_str(text).take(MAX_EVENTS) {
        let (event, span) =
            event.map_err(|error| format!("is not valid YAML: {}", error.info()))?;
        let is_wanted = |open: &[Open]| {
            open.len() == keys.len()
                && open.iter().zip(keys).all(|(open, key)| match open {
                    Open::Mapping(Some(own)) => own == key,
                    Open::Mapping(None) => false,
                    Open::Sequence(at) => *key == "*" || key.parse() == Ok(*at),
                })
        };
        match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                if open.len() >= MAX_DEPTH {
                    return Err("is nested too deeply".to_owned());
                }
                let is_mapping = matches!(event, Event::MappingStart(..));
                open.push(if is_mapping { Open::Mapping(None) } else { Open::Sequence(0) });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                advance(&mut open);
            }
            Event::Scalar(value, style, anchor, _) => {
                let is_plain = matches!(style, ScalarStyle::Plain);
                if let Some(Open::Mapping(key @ None)) = open.last_mut() {
                    *key = Some(value.into_owned());
                    continue;
                }
                let entry = scalar(text, &value, is_plain, offsets.bytes(&span));
                if anchor > 0 {
                    anchors.push((anchor, entry.clone()));
                }
                // Of duplicate keys the last one counts, as in PyYAML.
                if is_wanted(&open) {
                    found = Some(entry);
                }
                advance(&mut open);
            }
            Event::Alias(anchor) => {
                if is_wanted(&open) {
                    found = anchors
                        .iter()
                        .rfind(|(id, _)| *id == anchor)
                        .map(|(_, entry)| entry.clone());
                }
                advance(&mut open);
            }
            // Only the first document is read.
            Event::DocumentEnd => break,
            _ => {}
        }
    }
    Ok(found)
}

/// Moves on to the next key or element after a value.
fn advance(open: &mut [Open]) {
    match open.last_mut() {
        Some(Open::Mapping(key)) => *key = None,
        Some(Open::Sequence(at)) => *at += 1,
        None => {}
    }
}

fn scalar(text: &str, value: &str, is_plain: bool, span: Range<usize>) -> Value {
    let written = text.get(span.clone()).unwrap_or_default();
    match value {
        _ if !is_plain => Value::Text(value.to_owned()),
        "true" | "True" | "yes" | "on" => Value::Truth(true),
        "false" | "False" | "no" | "off" => Value::Truth(false),
        "" | "~" | "null" | "None" => Value::Nothing,
        _ => match literal::whole(value) {
            Some(number) if written == value => Value::Number { span, value: number },
            _ => Value::Text(value.to_owned()),
        },
    }
}

/// Byte offsets of characters, because the parser counts characters.
struct Offsets(Option<Vec<usize>>);

impl Offsets {
    fn of(text: &str) -> Offsets {
        let all = || text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        Offsets((!text.is_ascii()).then(all))
    }

    fn bytes(&self, span: &Span) -> Range<usize> {
        let at = |index: usize| match &self.0 {
            None => index,
            Some(offsets) => offsets.get(index).or(offsets.last()).copied().unwrap_or_default(),
        };
        at(span.start.index())..at(span.end.index())
    }
}
