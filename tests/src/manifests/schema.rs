//! The published schemas of Kubernetes' objects, in their strict form: an unknown field is an error.

use std::collections::BTreeMap;
use std::fs;

use jsonschema::Validator;
use serde_json::Value;

use super::text;
use crate::repository;

/// The schemas of one version.
#[derive(Debug)]
pub struct Schemas {
    version: &'static str,
    known: BTreeMap<String, Validator>,
}

impl Schemas {
    /// Those of Kubernetes `version`, for example `1.33`.
    pub fn of(version: &'static str) -> Self {
        Self { version, known: BTreeMap::new() }
    }

    /// What is wrong with an object.
    ///
    /// # Panics
    /// The schemas have not been fetched, or know no such kind.
    pub fn complaints(&mut self, object: &Value) -> Vec<String> {
        // batch/v1 Job: job-batch-v1; networking.k8s.io/v1: …-networking-v1; v1 Service: service-v1.
        let (group, version) =
            text(object, "/apiVersion").split_once('/').unwrap_or(("", text(object, "/apiVersion")));
        let group = group.split('.').next().unwrap_or("");
        let kind = text(object, "/kind").to_lowercase();
        let name = [kind.as_str(), group, version].join("-").replace("--", "-");
        let release = self.version;
        let validator = self.known.entry(name.clone()).or_insert_with(|| validator(release, &name));
        let at = |e: jsonschema::ValidationError<'_>| format!("{kind} {}: {e}", e.instance_path());
        validator.iter_errors(object).map(at).collect()
    }
}

fn validator(release: &str, name: &str) -> Validator {
    let folder = repository()
        .join(".cache/kubernetes-schemas/kubernetes_validate/kubernetes-json-schema")
        .join(format!("v{release}.0-local-strict"));
    let read = |file: &str| {
        let path = folder.join(file);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; `make setup-tests` fetches it", path.display()));
        // One document instead of two that point at each other.
        let text = text.replace("\"/api/_definitions.json#/", "\"#/");
        serde_json::from_str::<Value>(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let mut schema = read(&format!("{name}.json"));
    schema["$defs"] = read("_definitions.json")["$defs"].take();
    jsonschema::validator_for(&schema).unwrap_or_else(|e| panic!("{name}: {e}"))
}
