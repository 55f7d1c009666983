//! What a Job of kvwire must keep: two sides, nothing retried, and a place to meet that the cluster's DNS knows.

use serde_json::Value;

use super::rules::{Complaints, fits};
use super::{list, of_kind, text};

/// Two pods, of which the second finds the first by its index.
pub(super) fn check(objects: &[Value], job: &Value, told: &mut Complaints) {
    let spec = &job["spec"];
    told.unless(text(spec, "/completionMode") == "Indexed", job, || "is not Indexed".to_owned());
    for count in ["completions", "parallelism"] {
        told.unless(spec[count] == 2, job, || format!("{count} is {}, and a run has two sides", spec[count]));
    }
    told.unless(spec["backoffLimitPerIndex"] == 0, job, || "retries".to_owned());
    // With it, the first failed pod would take the other one and its log away.
    told.unless(spec.get("backoffLimit").is_none(), job, || "has a backoffLimit".to_owned());
    told.unless(text(spec, "/template/spec/restartPolicy") == "Never", job, || {
        "restarts its containers".to_owned()
    });
    for limit in ["activeDeadlineSeconds", "ttlSecondsAfterFinished"] {
        told.unless(spec[limit].as_i64().is_some_and(|limit| limit > 0), job, || format!("has no {limit}"));
    }
    failure_policy(job, told);
    let containers = list(job, "/spec/template/spec/containers");
    let shm = containers
        .iter()
        .flat_map(|one| list(one, "/volumeMounts"))
        .any(|mount| text(mount, "/mountPath") == "/dev/shm");
    told.unless(shm, job, || "leaves /dev/shm to the runtime".to_owned());
    meeting(objects, job, told);
}

/// Every exit code but 0 is a rule's, and no rule starts anything again.
fn failure_policy(job: &Value, told: &mut Complaints) {
    let containers: Vec<&str> = list(job, "/spec/template/spec/containers")
        .iter()
        .map(|container| text(container, "/name"))
        .collect();
    let rules = list(job, "/spec/podFailurePolicy/rules");
    for code in [1, 2, 3, 4, 137] {
        let covers = |rule: &&Value| {
            let listed = list(rule, "/onExitCodes/values").contains(&code.into());
            match text(rule, "/onExitCodes/operator") {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        };
        let action = rules.iter().find(covers).map_or("", |rule| text(rule, "/action"));
        told.unless(["FailJob", "FailIndex"].contains(&action), job, || {
            format!("exit code {code}: `{action}`")
        });
    }
    for rule in rules.iter().filter(|rule| rule.get("onExitCodes").is_some()) {
        let name = text(rule, "/onExitCodes/containerName");
        told.unless(containers.contains(&name), job, || format!("a rule is about the container {name}"));
    }
}

/// The place where the two sides meet is a name that the cluster's DNS knows.
fn meeting(objects: &[Value], job: &Value, told: &mut Complaints) {
    let place = of_kind(objects, "ConfigMap")
        .iter()
        .map(|map| text(map, "/data/KVWIRE_RENDEZVOUS"))
        .find(|place| !place.is_empty())
        .unwrap_or("");
    let subdomain = text(job, "/spec/template/spec/subdomain");
    let headless = of_kind(objects, "Service").into_iter().any(|service| {
        text(service, "/metadata/name") == subdomain
            && text(service, "/spec/clusterIP") == "None"
            && service["spec"]["publishNotReadyAddresses"] == true
            && fits(&service["spec"]["selector"], &job["spec"]["template"]["metadata"]["labels"])
    });
    told.unless(headless, job, || format!("no headless Service `{subdomain}` names its pods"));
    if let Some(address) = place.strip_prefix("tcp://") {
        let expected = format!("{}-0.{subdomain}:18516", text(job, "/metadata/name"));
        told.unless(address == expected, job, || format!("index 0 is {expected}, not {address}"));
        let token = list(job, "/spec/template/spec/containers")
            .iter()
            .flat_map(|container| list(container, "/env"))
            .any(|variable| variable["name"] == "KVWIRE_TOKEN");
        told.unless(token, job, || "has no token".to_owned());
    } else {
        let (host, port) =
            place.strip_prefix("etcd://").and_then(|rest| rest.split_once(':')).unwrap_or(("", ""));
        let served = of_kind(objects, "Service").into_iter().any(|service| {
            text(service, "/metadata/name") == host
                && list(service, "/spec/ports").iter().any(|one| one["port"].as_u64() == port.parse().ok())
        });
        told.unless(served, job, || format!("no Service is `{place}`"));
    }
}
