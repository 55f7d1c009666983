//! Which transports and devices UCX offers on this machine. NIXL has no call that tells; UCX itself does, in the warning
//! about a name that it does not know: an engine is started with such a name and its log is read.

use std::collections::BTreeMap;
use std::time::Duration;

use checks::node::NodeReport;
use checks::{Finding, Status};
use coordinator::Role;

use crate::engine::protocol::Command;
use crate::engine::{Engine, Phase};
use crate::terminal::Terminal;

/// Loading NIXL and failing to create a backend, at most.
const DEADLINE: Duration = Duration::from_secs(30);
/// A name that no UCX has, beside two that every UCX has.
const UNKNOWN: &str = "kvwire";
/// Transports that need an RDMA device.
const RDMA: [&str; 6] = ["rc_", "dc_", "ud_", "srd", "gga_", "ib"];

/// What UCX said that it has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Offer {
    transports: Vec<String>,
    devices: Vec<String>,
}

/// What UCX offers, compared with what the node has.
pub(super) async fn finding(
    nixl_lib: Option<&str>,
    node: Option<&NodeReport>,
    terminal: &Terminal,
) -> Finding {
    let id = "ucx-transports";
    let transports = ask("UCX_TLS", &format!("{UNKNOWN},self,tcp"), nixl_lib, terminal).await;
    let devices = ask("UCX_NET_DEVICES", UNKNOWN, nixl_lib, terminal).await;
    let offer = Offer { transports: transports.transports, devices: devices.devices };
    if offer.transports.is_empty() && offer.devices.is_empty() {
        return Finding::new(id, Status::Unknown, "UCX did not say which transports it has")
            .next_step("run `ucx_info -d` of the same UCX, where it is installed");
    }
    let lines = [
        format!("transports: {}", offer.transports.join(", ")),
        format!("devices: {}", offer.devices.join(", ")),
    ];
    let has_rdma = offer.devices.iter().any(|device| device.ends_with("(ib)"))
        || offer.transports.iter().any(|name| RDMA.iter().any(|rdma| name.starts_with(rdma)));
    let usable = node.and_then(NodeReport::can_use_rdma);
    match (has_rdma, usable) {
        (true, _) => Finding::new(id, Status::Ok, "UCX offers RDMA here").evidence(lines),
        (false, Some(true)) => {
            Finding::new(id, Status::Fail, "this node has a usable RDMA device and UCX does not offer it: transfers would take TCP")
                .evidence(lines)
                .next_step("see libraries-rdma: UCX needs its IB module and the device's provider library; then the UCX lines of `kvwire check nixl --verbose`")
        }
        (false, _) => Finding::new(id, Status::Ok, "UCX offers no RDMA here, as the node has none that is usable").evidence(lines),
    }
}

/// Starts an engine with `variable` set so that UCX must warn, and reads the warning.
async fn ask(variable: &str, value: &str, nixl_lib: Option<&str>, terminal: &Terminal) -> Offer {
    let env: BTreeMap<String, String> =
        [(variable, value), ("UCX_LOG_LEVEL", "warn"), ("UCX_LOG_FILE", "stderr")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
    let Ok(mut engine) = Engine::spawn(Role::Initiator, &env, terminal) else { return Offer::default() };
    let command = Command::TryOut { nixl_lib: nixl_lib.map(str::to_owned) };
    // Success or not: the warning is what is wanted.
    let _ = engine.request(&command, Phase::Opening, DEADLINE).await;
    let log = engine.trouble().await;
    parse(&log)
}

/// Finds the lists in UCX's warnings: `transport 'kvwire' is not available, please use one or more of: cma, posix, tcp` and
/// `network device 'kvwire' is not available, please use one or more of: 'eth0'(tcp), 'mlx5_0:1'(ib)`.
fn parse(log: &[String]) -> Offer {
    let mut offer = Offer::default();
    for line in log.iter().filter(|line| line.contains(UNKNOWN)) {
        let Some((what, list)) = line.split_once("please use one or more of: ") else { continue };
        let names = list.split(',').map(|name| name.trim().trim_end_matches('.').replace('\'', ""));
        let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        if what.contains("network device") {
            offer.devices = names;
        } else if what.contains("transport") {
            offer.transports = names;
        }
    }
    offer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_read_from_the_warnings_of_ucx() {
        let log = [
            "[1.2] [h:1:0] ucp_context.c:1512 UCX  WARN  transport 'kvwire' is not available, please use one or more of: cma, posix, rc_verbs, self, tcp",
            "[1.2] [h:1:0] ucp_context.c:1512 UCX  WARN  network device 'kvwire' is not available, please use one or more of: 'eth0'(tcp), 'mlx5_0:1'(ib)",
            "[1.2] [h:1:0] ucp_context.c:1512 UCX  WARN  transport 'other' is not available, please use one or more of: x",
        ]
        .map(str::to_owned);
        let offer = parse(&log);
        assert_eq!(offer.transports, ["cma", "posix", "rc_verbs", "self", "tcp"]);
        assert_eq!(offer.devices, ["eth0(tcp)", "mlx5_0:1(ib)"]);
        assert_eq!(parse(&[]), Offer::default());
    }
}
