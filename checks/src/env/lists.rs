//! UCX's allow lists (`UCX_TLS`, `UCX_*_DEVICES`), read as UCX reads them: nothing is trimmed, case matters, `^`
//! counts only as the very first character. Source: UCX 1.21 to 1.23, read and run.

/// What a list does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// Everything is allowed.
    All,
    /// Only what is listed.
    Allow,
    /// Everything but what is listed.
    Deny,
    /// Nothing: UCX refuses to start.
    Empty,
    /// UCX refuses the value.
    Refused,
}

/// Something about a list that does not do what it seems to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Odd {
    /// The part of the value.
    pub token: String,
    /// What UCX makes of it.
    pub effect: String,
    /// True when transports or devices are lost or gained by it.
    pub serious: bool,
}

/// A list as UCX understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AllowList {
    /// What it does.
    pub mode: Mode,
    /// Its entries, as written.
    pub tokens: Vec<String>,
    /// What is odd about it.
    pub odd: Vec<Odd>,
}

/// Names that stand for several transports (UCX 1.22 and 1.23). Without the auxiliary ones, which only set
/// connections up.
const ALIASES: &[(&str, &[&str])] = &[
    ("mm", &["posix", "sysv", "xpmem"]),
    ("sm", &["posix", "sysv", "xpmem", "knem", "cma"]),
    ("shm", &["posix", "sysv", "xpmem", "knem", "cma"]),
    ("ib", &["rc_verbs", "ud_verbs", "rc_mlx5", "ud_mlx5", "dc_mlx5", "gga_mlx5", "srd", "rc_gda"]),
    ("rc", &["rc_mlx5", "rc_verbs"]),
    ("rc_x", &["rc_mlx5"]),
    ("rc_v", &["rc_verbs"]),
    ("ud", &["ud_mlx5", "ud_verbs"]),
    ("ud_x", &["ud_mlx5"]),
    ("ud_v", &["ud_verbs"]),
    ("dc", &["dc_mlx5"]),
    ("dc_x", &["dc_mlx5"]),
    ("gga", &["gga_mlx5"]),
    ("cuda", &["cuda_copy", "cuda_ipc", "gdr_copy"]),
    ("rocm", &["rocm_copy", "rocm_ipc", "rocm_gdr"]),
    ("gaudi", &["gaudi_gdr"]),
    ("ze", &["ze_copy", "ze_ipc", "ze_gdr"]),
    ("ugni", &["ugni_rdma", "ugni_smsg", "ugni_udt"]),
];

/// Transports that are named directly.
const TRANSPORTS: &[&str] = &[
    "self",
    "tcp",
    "srd",
    "cma",
    "knem",
    "xpmem",
    "posix",
    "sysv",
    "rc_gda",
    "gdp",
    "rc_mlx5",
    "rc_verbs",
    "ud_mlx5",
    "ud_verbs",
    "dc_mlx5",
    "gga_mlx5",
    "cuda_copy",
    "cuda_ipc",
    "gdr_copy",
    "rocm_copy",
    "rocm_ipc",
    "rocm_gdr",
    "ze_copy",
    "ze_ipc",
    "ze_gdr",
    "gaudi_gdr",
    "ugni_rdma",
    "ugni_smsg",
    "ugni_udt",
];

/// Transports that carry a put or get over a network by hardware. `ud` has none: it emulates them.
pub(super) const RDMA: &[&str] = &["rc_mlx5", "rc_verbs", "dc_mlx5", "gga_mlx5", "srd", "rc_gda"];

/// Reads a list.
pub(super) fn parse(value: &str) -> AllowList {
    let mut odd = Vec::new();
    let mut add = |token: &str, effect: String, serious: bool| {
        odd.push(Odd { token: token.to_owned(), effect, serious });
    };
    let (negated, body) = match value.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let tokens: Vec<String> =
        if body.is_empty() { Vec::new() } else { body.split(',').map(str::to_owned).collect() };
    let mode = match (negated, tokens.first().map(String::as_str)) {
        (_, None) => {
            add(value, "the list is empty: UCX refuses to start".to_owned(), true);
            Mode::Empty
        }
        (true, Some("all")) => {
            add(value, "`all` comes first, so the ^ is lost: everything is allowed".to_owned(), true);
            Mode::All
        }
        (false, Some("all")) if tokens.len() > 1 => {
            add(
                value,
                "`all` with other names is an invalid value: NIXL gets no UCX backend".to_owned(),
                true,
            );
            Mode::Refused
        }
        (false, Some("all")) => Mode::All,
        (true, _) => Mode::Deny,
        (false, _) => Mode::Allow,
    };
    for (i, token) in tokens.iter().enumerate() {
        if token.is_empty() {
            add(value, "a comma without a name beside it is a name that does not exist".to_owned(), false);
        } else if token.starts_with('^') && i + usize::from(negated) > 0 {
            let effect = match mode {
                Mode::Deny => {
                    format!("only the first ^ counts and covers the whole list: `{token}` excludes nothing")
                }
                _ => format!(
                    "^ counts only as the first character: `{token}` is an unknown name, and everything that is not listed is excluded"
                ),
            };
            add(token, effect, true);
        } else if token.trim() != token {
            add(token, format!("UCX does not trim: `{token}` with its blank is an unknown name"), true);
        } else if token.contains(['"', '\'']) {
            add(token, format!("the quotes are part of the name `{token}`, which does not exist"), true);
        } else if token == "all" && i > 0 && mode == Mode::Allow {
            add(token, "`all` is ignored here: only the other names are allowed".to_owned(), true);
        }
    }
    AllowList { mode, tokens, odd }
}

impl AllowList {
    /// Adds what is odd about the names of a list of transports.
    #[must_use]
    pub(super) fn check_transports(mut self) -> Self {
        if matches!(self.mode, Mode::Empty | Mode::Refused) {
            return self;
        }
        for token in &self.tokens {
            let name = token.strip_suffix(":aux").unwrap_or(token);
            let name = name.strip_prefix('\\').unwrap_or(name);
            if name.is_empty()
                || name == "all"
                || self.odd.iter().any(|o| o.token == *token)
                || is_transport(name)
            {
                continue;
            }
            let lower = name.to_ascii_lowercase();
            let (what, consequence) = if is_transport(&lower) {
                (format!("names are in lower case: `{name}` is unknown, `{lower}` is meant"), true)
            } else {
                let near = nearest(name).map_or(String::new(), |n| format!("; is `{n}` meant?"));
                (format!("there is no transport `{name}`{near}"), self.mode == Mode::Deny)
            };
            let effect = match self.mode {
                Mode::Deny => format!("{what}; in a list with ^ it excludes nothing, without a warning"),
                _ => what,
            };
            self.odd.push(Odd { token: token.clone(), effect, serious: consequence });
        }
        self
    }

    /// True when a transport may be used.
    pub(super) fn allows(&self, transport: &str) -> bool {
        let listed = self.tokens.iter().any(|token| {
            if token.ends_with(":aux") {
                return false;
            }
            match token.strip_prefix('\\') {
                Some(exact) => exact == transport,
                None => token == transport || expand(token).contains(&transport),
            }
        });
        match self.mode {
            Mode::All => true,
            Mode::Allow => listed,
            Mode::Deny => !listed,
            Mode::Empty | Mode::Refused => false,
        }
    }

    /// True when any of these may be used.
    pub(super) fn allows_any(&self, transports: &[&str]) -> bool {
        transports.iter().any(|t| self.allows(t))
    }
}

fn expand(alias: &str) -> &'static [&'static str] {
    ALIASES.iter().find(|(name, _)| *name == alias).map_or(&[], |(_, all)| all)
}

fn is_transport(name: &str) -> bool {
    TRANSPORTS.contains(&name) || ALIASES.iter().any(|(alias, _)| *alias == name)
}

fn nearest(name: &str) -> Option<&'static str> {
    let known = TRANSPORTS.iter().chain(ALIASES.iter().map(|(alias, _)| alias));
    known.copied().find(|k| k.len() > 2 && (name.replace(['-', '_', ' '], "") == k.replace('_', "")))
}

/// What a name in a list of network devices looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// An RDMA device: `mlx5_0:1`.
    Rdma,
    /// A network interface: `eth0`. UCX reaches it by TCP only.
    Interface,
    /// Neither form is known.
    Unknown,
}

/// What a device's name looks like.
pub(super) fn device(name: &str) -> Device {
    let base = name.split(':').next().unwrap_or(name).trim_start_matches(['^', '=']);
    let numbered = |prefix: &str| {
        base.strip_prefix(prefix).is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit() || c == '[')
                || rest == "bond_0"
                || rest.starts_with("bond")
        })
    };
    const RDMA_PREFIXES: &[&str] = &[
        "mlx5_",
        "mlx4_",
        "bnxt_re",
        "irdma",
        "efa_",
        "rdmap",
        "hfi1_",
        "hns_",
        "erdma_",
        "qedr",
        "rxe",
        "rocep",
        "roceo",
        "ibp",
        "cxgb4_",
        "mana_",
        "ionic_",
        "usnic_",
        "siw",
        "rdma",
        "ocrdma",
        "i40iw",
        "vmw_pvrdma",
        "mthca",
    ];
    const INTERFACES: &[&str] = &[
        "eth", "ens", "enp", "eno", "enx", "bond", "ib", "em", "p", "net", "wlan", "docker", "br", "veth",
        "cni",
    ];
    if RDMA_PREFIXES.iter().any(|p| numbered(p)) {
        Device::Rdma
    } else if base == "lo" || INTERFACES.iter().any(|p| numbered(p)) {
        Device::Interface
    } else {
        Device::Unknown
    }
}
