//! Whether two results can be compared at all: the same workload, on the same kind of machine.

use std::collections::BTreeSet;

use clap::ValueEnum;
use serde_json::Value;

use crate::report::model::{ResultFile, Sides};

/// A difference that a user may accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Difference {
    /// Another workload: depth, merging, notifications and the like.
    Workload,
    /// Another kind of machine: processors, memory kind.
    Machine,
}

/// Fields of the plan that do not change what a repetition measures, or that are compared case by case.
const NOT_WORKLOAD: [&str; 5] = ["cases", "seed", "total_time_ms", "repeat", "ucx_env"];
/// Fields of the plan that say how long was measured, and what was expected of the wire: told, not refused.
const EFFORT: [&str; 8] = [
    "samples",
    "case_time_ms",
    "warmup",
    "pool_bytes",
    "transfer_timeout_ms",
    "expect",
    "strict",
    "min_efficiency_percent",
];

/// What differs between two results.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// Differences that make a comparison meaningless unless they are meant.
    pub(super) refused: Vec<(Difference, String)>,
    /// Differences that a reader should know.
    pub(super) told: BTreeSet<String>,
}

/// Compares who and what was measured.
pub(super) fn differences(baseline: &ResultFile, candidate: &ResultFile) -> Differences {
    let mut found = Differences::default();
    plans(baseline, candidate, &mut found);
    let sides = |result: &ResultFile| {
        let Sides { initiator, target } = &result.nodes;
        [("initiator", initiator.clone()), ("target", target.clone())]
    };
    for ((role, old), (_, new)) in sides(baseline).into_iter().zip(sides(candidate)) {
        let (Some(old), Some(new)) = (old, new) else { continue };
        let mut machine = |what: &str, old: String, new: String| {
            if old != new {
                found.refused.push((Difference::Machine, format!("{role}: {what} was {old} and is {new}")));
            }
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        machine("processor", text(&old.cpu), text(&new.cpu));
        machine("architecture", old.architecture.clone(), new.architecture.clone());
        machine("number of usable CPUs", old.cpus_usable.to_string(), new.cpus_usable.to_string());
        let mut tell = |what: &str, old: String, new: String| {
            if old != new {
                found.told.insert(format!("{role}: {what} was {old} and is {new}"));
            }
        };
        tell("kvwire", old.kvwire.clone(), new.kvwire.clone());
        tell("kernel", old.kernel.clone(), new.kernel.clone());
        let nixl = |node: &checks::Node| {
            node.nixl.as_ref().map_or("unknown".to_owned(), checks::NixlIdentity::versions)
        };
        tell("software", nixl(&old), nixl(&new));
    }
    for (role, old, new) in [
        ("initiator", &baseline.memory.initiator, &candidate.memory.initiator),
        ("target", &baseline.memory.target, &candidate.memory.target),
    ] {
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            found.refused.push((Difference::Machine, format!("{role}: memory was {old} and is {new}")));
        }
    }
    found
}

fn plans(baseline: &ResultFile, candidate: &ResultFile, found: &mut Differences) {
    let plan = |result: &ResultFile| match serde_json::to_value(&result.plan) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (plan(baseline), plan(candidate));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (before, after) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
        if before == after {
            continue;
        }
        let text = format!("plan: {name} was {before} and is {after}");
        if EFFORT.contains(&name.as_str()) || name == "ucx_env" {
            found.told.insert(text);
        } else if !NOT_WORKLOAD.contains(&name.as_str()) {
            found.refused.push((Difference::Workload, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::example;

    #[test]
    fn equal_results_have_no_difference() {
        let found = differences(&example::passed(), &example::passed());
        assert!(found.refused.is_empty() && found.told.is_empty(), "{found:?}");
    }

    #[test]
    fn another_workload_or_machine_is_refused_and_another_version_told() {
        let old = example::passed();
        let with = |change: fn(&mut ResultFile)| {
            let mut new = example::passed();
            change(&mut new);
            differences(&old, &new)
        };
        assert_eq!(with(|r| r.plan.depth = 4).refused[0].0, Difference::Workload);
        assert_eq!(
            with(|r| r.memory.target = Some("GPU memory".to_owned())).refused[0].0,
            Difference::Machine
        );
        let cpu = with(|r| r.nodes.target.as_mut().unwrap().cpu = Some("another".to_owned()));
        assert_eq!(cpu.refused[0].0, Difference::Machine);
        let version = with(|r| r.nodes.initiator.as_mut().unwrap().kvwire = "9.9.9".to_owned());
        assert!(
            version.refused.is_empty() && version.told.iter().any(|t| t.contains("9.9.9")),
            "{version:?}"
        );
        let env = with(|r| _ = r.plan.ucx_env.insert("UCX_TLS".to_owned(), "tcp".to_owned()));
        assert!(env.refused.is_empty() && env.told.iter().any(|t| t.contains("UCX_TLS")), "{env:?}");
        assert!(with(|r| r.plan.seed = 7).told.is_empty());
    }
}
