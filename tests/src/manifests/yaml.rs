//! YAML as kubectl writes it, to trees.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// All documents of a text.
///
/// # Panics
/// It is not YAML, or has anchors: kubectl writes none.
pub fn read(text: &str) -> Vec<Value> {
    let mut documents = Vec::new();
    let mut open: Vec<(bool, Vec<Value>)> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let done = match event.expect("YAML").0 {
            Event::Scalar(text, style, ..) => Some(scalar(&text, style)),
            Event::SequenceStart(..) => {
                open.push((false, Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push((true, Vec::new()));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (is_map, parts) = open.pop().expect("a collection");
                Some(if is_map { Value::Object(map(parts)) } else { Value::Array(parts) })
            }
            Event::Alias(_) => panic!("an alias"),
            _ => None,
        };
        match (done, open.last_mut()) {
            (Some(value), Some((_, parts))) => parts.push(value),
            (Some(value), None) => documents.push(value),
            (None, _) => {}
        }
    }
    documents
}

fn map(parts: Vec<Value>) -> Map<String, Value> {
    let mut parts = parts.into_iter();
    let mut map = Map::new();
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        map.insert(key.as_str().expect("a key that is text").to_owned(), value);
    }
    map
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "null" | "~" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text.parse::<i64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}
