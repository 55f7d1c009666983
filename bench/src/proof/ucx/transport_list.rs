//! What a `UCX_TLS` leaves out.

/// Whether this list allows none of the transports that `is_one` knows by name.
pub(crate) fn leaves_out(value: &str, is_one: impl Fn(&str) -> bool) -> bool {
    // UCX knows `^` only at the very beginning, where it negates the whole list.
    let (negated, list) = value.strip_prefix('^').map_or((false, value), |rest| (true, rest));
    // A trailing part as in `rc_mlx5` or `ud_verbs:aux` names one transport of the kind.
    let listed = list
        .split(',')
        .any(|item| is_one(item.trim_start_matches('\\').split(':').next().unwrap_or_default()));
    if negated { listed && list != "all" } else { !listed }
}
