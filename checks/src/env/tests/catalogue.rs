use std::collections::HashSet;

use super::super::catalogue::catalogue;
use super::super::rules::RULES;
use super::fixture;

#[test]
fn every_variable_of_ucx_is_known() {
    let names = std::fs::read_to_string(fixture("ucx-variables.txt")).expect("the names");
    let missing: Vec<&str> = names.lines().filter(|name| catalogue().get(name).is_none()).collect();
    assert!(names.lines().count() > 1_200);
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn every_entry_states_its_source_and_a_name_of_its_own() {
    let mut seen = HashSet::new();
    for entry in catalogue().entries() {
        assert!(!entry.source.is_empty(), "{entry:?}");
        assert!(!entry.read_by.is_empty(), "{entry:?}");
        assert!(seen.insert(entry.name), "{} stands twice", entry.name);
    }
}

#[test]
fn every_entry_says_for_which_versions_it_holds() {
    for entry in catalogue().entries() {
        let dated = entry.source.chars().any(|c| c.is_ascii_digit());
        assert!(dated && (entry.read_by != "ucx" || !entry.versions().is_empty()), "{entry:?}");
    }
    let versions = |name: &str| catalogue().get(name).map(super::super::Entry::versions);
    assert_eq!(versions("UCX_PROTO_EMULATION_ENABLE").as_deref(), Some("since 1.21"));
    assert_eq!(versions("UCX_CMA_BW").as_deref(), Some("since 1.21 or before"));
    assert_eq!(versions("UCX_MEMTYPE_REG_WHOLE").as_deref(), Some("never existed"));
}

#[test]
fn no_variable_of_ucx_refuses_its_own_default() {
    for entry in catalogue().entries().iter().filter(|e| !e.default.is_empty()) {
        let problem = super::super::value::problem(entry.kind, entry.default);
        assert_eq!(problem, None, "{} = {}", entry.name, entry.default);
    }
}

#[test]
fn names_are_inherited_between_transports_and_misspelt_ones_are_not_known() {
    for name in ["UCX_RC_MLX5_TIMEOUT", "UCX_UD_VERBS_SL", "UCX_GDR_COPY_BW", "UCX_DC_MLX5_TX_QUEUE_LEN"] {
        assert!(catalogue().knows(name), "{name}");
    }
    for (name, near) in [
        ("UCX_NET_DEVICE", "UCX_NET_DEVICES"),
        ("UCX_TSL", "UCX_TLS"),
        ("NIXL_PLUGIN_DIRR", "NIXL_PLUGIN_DIR"),
    ] {
        assert!(!catalogue().knows(name), "{name}");
        assert_eq!(catalogue().nearest(name), Some(near));
    }
}

#[test]
fn ids_of_rules_are_unique_and_written_alike() {
    let mut seen = HashSet::new();
    for rule in RULES {
        assert!(seen.insert(rule.id), "{}", rule.id);
        assert!(rule.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", rule.id);
        assert!(!rule.why.is_empty() && !rule.remedy.is_empty());
    }
}
