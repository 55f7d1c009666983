//! Types of values, as the program that reads them takes them.

/// What is wrong with a value of this type: what is accepted. None when it is right or cannot be judged.
pub(super) fn problem(kind: &str, value: &str) -> Option<String> {
    let lower = value.to_ascii_lowercase();
    let boolean =
        matches!(lower.as_str(), "y" | "yes" | "n" | "no") || matches!(value, "on" | "off" | "1" | "0");
    let maybe = matches!(lower.as_str(), "try" | "maybe");
    let auto = lower == "auto";
    let on_off = boolean || matches!(lower.as_str(), "on" | "off") || auto || maybe;
    let choices = |list: &str| list.replace(',', ", ");
    let (right, accepted) = match kind {
        "bool" => (boolean, "y, yes, on, 1 or n, no, off, 0".to_owned()),
        "ternary" => (boolean || maybe, "y, yes, on, 1, n, no, off, 0 or try".to_owned()),
        "switch" | "ternary_auto" => {
            (boolean || maybe || auto, "y, yes, on, 1, n, no, off, 0, try or auto".to_owned())
        }
        "on_off_auto" => (on_off, "on, off, auto or try".to_owned()),
        "uint" => (is_uint(value), "a whole number".to_owned()),
        "int" => (is_int(value), "a whole number".to_owned()),
        "one" => (
            matches!(value, "0" | "1" | ""),
            "exactly 1 to switch it on (true and yes count as off)".to_owned(),
        ),
        "nixlbool" => (
            matches!(
                lower.as_str(),
                "y" | "yes" | "on" | "1" | "true" | "enable" | "n" | "no" | "off" | "0" | "false" | "disable"
            ),
            "y, yes, on, 1, true or n, no, off, 0, false".to_owned(),
        ),
        "efabool" => (
            matches!(lower.as_str(), "1" | "true" | "yes" | "on" | "0" | "false" | "no" | "off"),
            "1 or 0".to_owned(),
        ),
        "sized" => (
            value.chars().any(|c| c.is_ascii_alphabetic()) && value.starts_with(|c: char| c.is_ascii_digit()),
            "a number with its unit, for example 512MB".to_owned(),
        ),
        "memunits" => (is_memunits(&lower), "a number, with b, kb, mb or gb, or inf or auto".to_owned()),
        "time" => (is_time(&lower), "a number with m, s, ms, us or ns, or inf or auto".to_owned()),
        _ => {
            if let Some(list) = kind.strip_prefix("enum:") {
                (list.split(',').any(|c| c.eq_ignore_ascii_case(value)), choices(list))
            } else if let Some(list) = kind.strip_prefix("enum=") {
                (list.split(',').any(|c| c == value), choices(list))
            } else {
                return None;
            }
        }
    };
    (!right).then_some(accepted)
}

/// True for what UCX and NIXL take as no.
pub fn is_off(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "n" | "no" | "off" | "0")
}

/// True for what UCX and NIXL take as yes.
pub(super) fn is_on(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "y" | "yes" | "on" | "1")
}

fn is_uint(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit())
}

fn is_int(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    is_uint(digits) || digits.strip_prefix("0x").is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_memunits(lower: &str) -> bool {
    if matches!(lower, "inf" | "auto") {
        return true;
    }
    let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    end > 0 && matches!(&lower[end..], "" | "b" | "k" | "kb" | "m" | "mb" | "g" | "gb" | "t" | "tb")
}

fn is_time(lower: &str) -> bool {
    if matches!(lower, "inf" | "auto") {
        return true;
    }
    let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    end > 0 && matches!(&lower[end..], "" | "m" | "s" | "ms" | "us" | "ns")
}
