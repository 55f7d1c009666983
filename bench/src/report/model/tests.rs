use std::env;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::report::read::{ReadError, parse, read};

const SCHEMA_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/result.schema.json");

fn schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&schemars::schema_for!(ResultFile)).unwrap();
    text.push('\n');
    text
}

fn parsed(value: &Value) -> Result<ResultFile, ReadError> {
    parse(Path::new("r.json"), value.to_string().as_bytes())
}

fn as_value(result: &ResultFile) -> Value {
    serde_json::to_value(result).unwrap()
}

#[test]
fn the_published_schema_is_the_one_of_the_code() {
    let text = schema_text();
    if env::var_os("KVWIRE_UPDATE_DOCS").is_some_and(|value| value == "1") {
        fs::write(SCHEMA_PATH, &text).unwrap();
    }
    let published = fs::read_to_string(SCHEMA_PATH).unwrap_or_default();
    assert!(
        published == text,
        "docs/result.schema.json is stale; run: \
         KVWIRE_UPDATE_DOCS=1 cargo test -p kvwire the_published_schema"
    );
}

#[test]
fn results_fit_the_schema_and_damage_does_not() {
    let schema: Value = serde_json::from_str(&schema_text()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for result in [example::passed(), example::failed()] {
        let value = as_value(&result);
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    let damaged = |pointer: &str, with: Value| {
        let mut value = as_value(&example::failed());
        *value.pointer_mut(pointer).unwrap() = with;
        value
    };
    for (pointer, with) in [
        ("/schema", json!("kvwire.result/2")),
        ("/verdict/outcome", json!("fine")),
        ("/cases/0/status", json!("passed")),
        ("/cases/0/total/unit", json!("us")),
        ("/cases/1/verification/mismatch/expected", json!(12)),
        ("/cases/1/verification/mismatch/expected", json!("0x12")),
    ] {
        assert!(!validator.is_valid(&damaged(pointer, with)), "{pointer}");
    }
}

#[test]
fn every_property_is_described() {
    fn undescribed(path: &str, value: &Value, missing: &mut Vec<String>) {
        if let Some(properties) = value.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let tag = property.get("const").is_some();
                if !tag && property.get("description").is_none() {
                    missing.push(format!("{path}.{name}"));
                }
            }
        }
        if let Some(fields) = value.as_object() {
            fields.iter().for_each(|(name, inner)| undescribed(&format!("{path}/{name}"), inner, missing));
        }
        if let Some(items) = value.as_array() {
            items.iter().for_each(|inner| undescribed(path, inner, missing));
        }
    }
    let mut missing = Vec::new();
    let schema: Value = serde_json::from_str(&schema_text()).unwrap();
    undescribed("", &schema, &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_result_survives_writing_and_reading() {
    for result in [example::passed(), example::failed()] {
        let value = as_value(&result);
        assert_eq!(as_value(&parsed(&value).unwrap()), value);
    }
}

#[test]
fn fields_of_a_newer_minor_are_ignored() {
    let mut value = as_value(&example::passed());
    value["minor"] = json!(7);
    value["lanes"] = json!({"rails": 8});
    value["cases"][0]["power_w"] = json!(311.5);
    let result = parsed(&value).unwrap();
    assert_eq!((result.minor, result.cases.len()), (7, 4));
}

#[test]
fn another_major_is_refused_with_a_sentence() {
    let mut value = as_value(&example::passed());
    value["schema"] = json!("kvwire.result/2");
    let error = parsed(&value).unwrap_err();
    assert!(matches!(error, ReadError::OtherMajor { .. }));
    let text = error.to_string();
    assert!(text.contains("r.json") && text.contains("kvwire.result/2") && text.contains(SCHEMA), "{text}");
}

#[test]
fn what_is_no_result_says_what_it_is() {
    let whole = as_value(&example::passed()).to_string();
    let of = |bytes: &[u8]| parse(Path::new("r.json"), bytes).unwrap_err();
    assert!(matches!(of(b""), ReadError::Truncated { .. }));
    assert!(matches!(of(&whole.as_bytes()[..whole.len() / 2]), ReadError::Truncated { .. }));
    assert!(matches!(of(b"# a table"), ReadError::NotJson { .. }));
    assert!(matches!(of(b"[1, 2]"), ReadError::NotAResult { .. }));
    assert!(of(br#"{"schema": "other/1"}"#).to_string().contains("`other/1`"));
    let damaged = of(whole.replace("\"duration_ns\":", "\"duration\":").as_bytes()).to_string();
    assert!(damaged.contains("duration_ns"), "{damaged}");
}

#[test]
fn a_missing_file_is_named() {
    let text = read(Path::new("/no/such/result.json")).unwrap_err().to_string();
    assert!(text.contains("/no/such/result.json") && text.contains("No such file"), "{text}");
}
