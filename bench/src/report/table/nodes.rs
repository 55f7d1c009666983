//! The two nodes of a run side by side, with what they differ in marked.

use std::fmt::Write as _;

use checks::Node;
use checks::node::FactPair;

use super::text::{Paint, Tone, plain};
use crate::report::model::Sides;

/// Columns that a value of the first node takes at most before the second one follows.
const VALUE_MAX: usize = 48;

/// Two processes of one host that are alike are left out.
pub(crate) fn push_nodes(out: &mut String, nodes: &Sides<Node>, paint: Paint) {
    let (Some(initiator), Some(target)) = (&nodes.initiator, &nodes.target) else { return };
    let (Some(ours), Some(theirs)) = (&initiator.report, &target.report) else { return };
    let pairs = ours.beside(theirs);
    if initiator.same_host(target) && !pairs.iter().any(FactPair::differs) {
        return;
    }
    let name_width = pairs.iter().map(|pair| pair.name.len()).max().unwrap_or(0);
    let value = |value: Option<&str>| plain(value.unwrap_or("not known"));
    let value_width =
        pairs.iter().map(|pair| value(pair.first).chars().count()).max().unwrap_or(0).clamp(9, VALUE_MAX);
    // Writing to a String cannot fail.
    let _ = writeln!(out, "\n  {:name_width$}  {:value_width$}  target", "", "initiator");
    for pair in &pairs {
        let mark = if pair.differs() { paint.text(Tone::Doubtful, "!") } else { " ".to_owned() };
        let (first, second) = (value(pair.first), value(pair.second));
        let _ = writeln!(out, "{mark} {:name_width$}  {first:value_width$}  {second}", pair.name);
    }
    let _ = writeln!(out, "  (! marks a difference)");
}

#[cfg(test)]
mod tests {
    use super::*;
    use checks::node::{Fact, NodeReport};

    fn node(boot: &str, rate: &str) -> Node {
        let fact = |name: &str, value: &str| Fact { name: name.to_owned(), value: value.to_owned() };
        let facts = vec![fact("link", "InfiniBand"), fact("port rate", rate)];
        Node {
            boot_id: Some(boot.to_owned()),
            report: Some(NodeReport { facts, ..NodeReport::default() }),
            ..Node::default()
        }
    }

    fn shown(initiator: Node, target: Node) -> String {
        let mut out = String::new();
        let sides = Sides { initiator: Some(initiator), target: Some(target) };
        push_nodes(&mut out, &sides, Paint::new(false));
        out
    }

    #[test]
    fn what_differs_is_marked_and_what_is_alike_is_not() {
        let text = shown(node("a", "400"), node("b", "200"));
        assert!(text.contains("! port rate  400         200\n"), "{text}");
        assert!(text.contains("\n  link       InfiniBand  InfiniBand\n"), "{text}");
    }

    #[test]
    fn two_processes_of_one_host_are_shown_only_where_they_differ() {
        assert_eq!(shown(node("a", "400"), node("a", "400")), "");
        assert!(shown(node("a", "400"), node("a", "200")).contains("! port rate"));
    }
}
