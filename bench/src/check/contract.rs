//! The JSON of every check: that of NVIDIA's read-only interconnect check, with more in it and nothing left out.

use checks::node::NodeReport;
use checks::{Finding, Status};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;

/// What a check prints with `--json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Every judgement, in the order made.
    pub(super) checks: Vec<Check>,
    /// How many there are of each status.
    pub(super) counts: Counts,
    /// The conclusion in one sentence.
    pub(super) verdict: String,
    /// The first thing to do; null when there is nothing to fix.
    pub(super) fix_first: Option<String>,
    /// Everything that is not as it should be, what is most likely the cause of the rest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ranked: Vec<ToMend>,
    /// What each node is like, to be compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<Node>,
    /// What two nodes differ in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<Difference>,
    /// Version of kvwire.
    pub(super) kvwire: String,
}

/// One judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Check {
    /// The finding's id.
    pub(super) name: String,
    pub(super) status: Status,
    /// Title and detail together.
    pub(super) detail: String,
    /// What was looked at, when it is one of several places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) evidence: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) next_step: String,
    /// Text to paste.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) fix: String,
}

/// Something to mend, in the order in which to do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToMend {
    /// The check.
    pub(super) name: String,
    pub(super) status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<String>,
    /// What to do.
    pub(super) next_step: String,
}

/// One fact of two nodes that are not alike in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Difference {
    /// What, for example `port rate`.
    pub(super) name: String,
    /// On the first node; null when it is not known there.
    pub(super) first: Option<String>,
    /// On the second node.
    pub(super) second: Option<String>,
}

/// How many checks came out how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) ok: usize,
    pub(super) warn: usize,
    pub(super) fail: usize,
    #[serde(default)]
    pub(super) skipped: usize,
    #[serde(default)]
    pub(super) unknown: usize,
}

/// The facts of one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) place: String,
    pub(super) facts: Vec<checks::node::Fact>,
}

impl Check {
    /// A check of a finding; `place` where there are several.
    pub(super) fn new(finding: Finding, place: Option<&str>) -> Self {
        let detail = if finding.detail.is_empty() {
            finding.title
        } else {
            format!("{}: {}", finding.title, finding.detail)
        };
        Self {
            name: finding.id,
            status: finding.status,
            detail,
            place: place.map(str::to_owned),
            evidence: finding.evidence,
            next_step: finding.next_step,
            fix: finding.fix,
        }
    }
}

impl Report {
    /// A report of these places, each with its findings. With several places each check says which it is of.
    pub(super) fn new(places: Vec<(String, Vec<Finding>)>, nodes: &[NodeReport]) -> Self {
        Self::with(Vec::new(), places, nodes)
    }

    /// The same after checks that were made elsewhere.
    pub(super) fn with(
        mut checks: Vec<Check>,
        places: Vec<(String, Vec<Finding>)>,
        nodes: &[NodeReport],
    ) -> Self {
        let several = places.len() > 1 || !checks.is_empty();
        for (place, findings) in places {
            let of = several.then_some(place.as_str());
            checks.extend(findings.into_iter().map(|finding| Check::new(finding, of)));
        }
        let differences = match nodes {
            [first, second] => differences(first, second),
            _ => Vec::new(),
        };
        let nodes =
            nodes.iter().map(|node| Node { place: node.place.clone(), facts: node.facts.clone() }).collect();
        let mut counts = Counts::default();
        for check in &checks {
            match check.status {
                Status::Ok => counts.ok += 1,
                Status::Warn => counts.warn += 1,
                Status::Fail => counts.fail += 1,
                Status::Skipped => counts.skipped += 1,
                Status::Unknown => counts.unknown += 1,
            }
        }
        let ranked: Vec<ToMend> = super::rollup::ranked(&checks).into_iter().map(to_mend).collect();
        let fix_first = ranked.first().map(|first| first.next_step.clone()).filter(|step| !step.is_empty());
        let verdict = verdict(&checks, counts);
        let kvwire = env!("CARGO_PKG_VERSION").to_owned();
        Self { checks, counts, verdict, fix_first, ranked, nodes, differences, kvwire }
    }

    /// 1 when a check failed, 3 when nothing that was asked for could be looked at, else 0.
    pub(super) fn exit(&self) -> Exit {
        if self.counts.fail > 0 {
            Exit::NotTrusted
        } else if unreachable(&self.checks) {
            Exit::Inconclusive
        } else {
            Exit::Trusted
        }
    }
}

fn to_mend(check: &Check) -> ToMend {
    ToMend {
        name: check.name.clone(),
        status: check.status,
        place: check.place.clone(),
        next_step: check.next_step.clone(),
    }
}

fn differences(first: &NodeReport, second: &NodeReport) -> Vec<Difference> {
    let owned = |value: Option<&str>| value.map(str::to_owned);
    let pairs = first.beside(second).into_iter().filter(checks::node::FactPair::differs);
    pairs
        .map(|pair| Difference {
            name: pair.name.to_owned(),
            first: owned(pair.first),
            second: owned(pair.second),
        })
        .collect()
}

/// A pod that was asked for and could not be looked into.
fn unreachable(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.name == super::kubectl::ID && check.status == Status::Unknown)
}

fn verdict(checks: &[Check], counts: Counts) -> String {
    if counts.fail > 0 {
        "transport blockers found: disaggregated serving will not be correct or fast until they are fixed"
            .to_owned()
    } else if unreachable(checks) {
        "nothing can be said: a pod that was asked for could not be looked into".to_owned()
    } else if counts.warn > 0 {
        "potential gaps found: verify them before trusting disaggregated serving".to_owned()
    } else {
        let unproven = counts.skipped + counts.unknown;
        format!(
            "no gaps detected; {unproven} checks were skipped or unknown, and only a transfer proves the wire (kvwire run)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(statuses: &[Status]) -> Report {
        let findings = statuses
            .iter()
            .map(|status| Finding::new("x", *status, "t").detail("d").next_step("do"))
            .collect();
        Report::new(vec![("local host".to_owned(), findings)], &[])
    }

    #[test]
    fn the_keys_of_the_read_only_check_are_all_there() {
        let value = serde_json::to_value(of(&[Status::Ok, Status::Warn])).unwrap();
        for key in ["checks", "counts", "verdict"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["checks"][0]["name"], "x");
        assert_eq!(value["checks"][0]["status"], "ok");
        assert_eq!(value["checks"][0]["detail"], "t: d");
        assert_eq!(value["counts"]["ok"], 1);
        assert_eq!(value["counts"]["warn"], 1);
        assert_eq!(value["counts"]["fail"], 0);
    }

    #[test]
    fn only_a_failure_exits_with_one() {
        assert_eq!(of(&[Status::Ok, Status::Fail]).exit(), Exit::NotTrusted);
        assert_eq!(of(&[Status::Warn, Status::Skipped, Status::Unknown]).exit(), Exit::Trusted);
    }

    #[test]
    fn the_verdict_is_that_of_the_worst() {
        assert!(of(&[Status::Warn, Status::Fail]).verdict.contains("blockers"));
        assert!(of(&[Status::Ok, Status::Warn]).verdict.contains("potential gaps"));
        assert!(of(&[Status::Ok, Status::Skipped]).verdict.contains("no gaps"));
    }
}
