//! `kvwire target`, `kvwire initiator` and `kvwire run`: one role in this process, the other on another host.

use std::time::Instant;

use checks::Node;
use coordinator::{Endpoint, Role, RunId};

use super::finish::{Ending, block_on, no_signals};
use super::initiator::Initiator;
use super::join::{Missed, identity, join};
use super::record::Record;
use super::rendezvous::{Rendezvous, options};
use super::scope::Scope;
use super::stop::Stop;
use super::supervisor::Interrupts;
use super::target::{Keeping, Target};
use crate::cli::{InitiatorArgs, JoinArgs, MeasureArgs, NixlArgs, RunArgs, TargetArgs, named, text_of};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::preflight;
use crate::terminal::Terminal;

/// `kvwire target`. `begin` is when the program started.
pub(crate) fn target(args: &TargetArgs, terminal: &Terminal, begin: Instant) -> Exit {
    let side = TargetSide {
        rendezvous: args.rendezvous.as_str(),
        advertise: args.advertise.as_deref(),
        keep: args.keep,
        by_index: false,
        gpus: &args.gpu,
        join: &args.join,
        nixl: &args.nixl,
        ending: Ending::new(&args.output, &args.result),
    };
    side.run(terminal, begin)
}

/// `kvwire initiator`. `begin` is when the program started.
pub(crate) fn initiator(args: &InitiatorArgs, terminal: &Terminal, begin: Instant) -> Exit {
    let side = InitiatorSide {
        rendezvous: args.rendezvous.as_str(),
        by_index: false,
        join: &args.join,
        measure: &args.measure,
        nixl: &args.nixl,
        ending: Ending::new(&args.output, &args.result),
    };
    side.run(terminal, begin)
}

/// `kvwire run`. `begin` is when the program started.
pub(crate) fn by_index(args: &RunArgs, terminal: &Terminal, begin: Instant) -> Exit {
    let ending = Ending::new(&args.output, &args.result);
    match args.index(|name| std::env::var(name).ok()) {
        Err(message) => ending.usage(terminal, &message),
        Ok(0) => TargetSide {
            rendezvous: args.rendezvous.as_str(),
            advertise: None,
            keep: false,
            by_index: true,
            gpus: &args.measure.memory.gpu,
            join: &args.join,
            nixl: &args.nixl,
            ending,
        }
        .run(terminal, begin),
        Ok(1) => InitiatorSide {
            rendezvous: args.rendezvous.as_str(),
            by_index: true,
            join: &args.join,
            measure: &args.measure,
            nixl: &args.nixl,
            ending,
        }
        .run(terminal, begin),
        Ok(other) => ending.usage(
            terminal,
            &format!(
                "--index: {other} has no role, since a run has two sides\n  fix: start two processes, with index 0 and 1"
            ),
        ),
    }
}

/// Parsed here and not with the other flags, whose errors repeat the value: this one may hold a token.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    text.parse().map_err(|e| format!("--rendezvous: {e}"))
}

struct TargetSide<'a> {
    rendezvous: &'a str,
    advertise: Option<&'a str>,
    keep: bool,
    by_index: bool,
    gpus: &'a [String],
    join: &'a JoinArgs,
    nixl: &'a NixlArgs,
    ending: Ending<'a>,
}

impl TargetSide<'_> {
    fn run(&self, terminal: &Terminal, begin: Instant) -> Exit {
        let checked = preflight::nixl_lib("--nixl-lib", self.nixl.nixl_lib.as_ref())
            .and_then(|()| preflight::output(self.ending.output()))
            .and_then(|()| endpoint(self.rendezvous));
        match checked {
            Ok(endpoint) => block_on(terminal, self.serve(&endpoint, terminal, begin)),
            Err(message) => self.ending.usage(terminal, &message),
        }
    }

    async fn serve(&self, endpoint: &Endpoint, terminal: &Terminal, begin: Instant) -> Exit {
        let node = Node::probe(env!("CARGO_PKG_VERSION"));
        let who = format!("the target {}", identity(&node));
        let interrupts = match Interrupts::new("target") {
            Ok(interrupts) => interrupts,
            Err(e) => return no_signals(terminal, &e),
        };
        let run: Option<&RunId> = self.join.run_id.as_ref();
        let met = Rendezvous::at_target(endpoint, run, options(self.join, terminal), &who, self.by_index);
        let rendezvous = match met.await {
            Ok(rendezvous) => rendezvous,
            Err(message) => return self.ending.usage(terminal, &message),
        };
        // A launcher has told both sides already; by hand, without this line the other side cannot be started.
        if let Some(address) = rendezvous.join_address(endpoint, self.advertise).filter(|_| !self.by_index) {
            terminal.say(&format!("on the other host: kvwire initiator --rendezvous {address}"));
        }
        let mut exit = self.one_run(&rendezvous, &node, &interrupts, terminal, begin).await;
        while self.keep && !exit.interrupted {
            exit = self.one_run(&rendezvous, &node, &interrupts, terminal, Instant::now()).await;
        }
        rendezvous.close("the target has ended").await;
        exit.exit
    }

    async fn one_run(
        &self,
        rendezvous: &Rendezvous,
        node: &Node,
        interrupts: &Interrupts,
        terminal: &Terminal,
        begin: Instant,
    ) -> OneRun {
        let same_host = self.join.allow_same_host;
        let met = match join(rendezvous, Role::Target, node, same_host, interrupts.clone()).await {
            Ok(met) => met,
            Err(Missed { stop, at }) => {
                let interrupted = matches!(stop, Stop::Interrupted { .. });
                // A target that is kept waits on: nobody has come yet.
                let exit = self.ending.without_result(&stop, at, terminal);
                return OneRun { exit, interrupted };
            }
        };
        let keeping = Keeping { run: rendezvous.run.clone(), output: self.ending.output().cloned(), begin };
        let target = Target::new(met, text_of(self.nixl.nixl_lib.as_ref()), terminal.clone(), keeping)
            .with_own_environment(self.nixl.environment())
            .with_own_gpus(named(self.gpus));
        let ended = target.run().await;
        let interrupted = ended.interrupted;
        let exit = match &ended.record {
            Some(record) => self.ending.with(ended.outcome, record, terminal),
            None => ended.stop.map_or_else(
                || ended.outcome.exit(),
                |Missed { stop, at }| self.ending.without_result(&stop, at, terminal),
            ),
        };
        OneRun { exit, interrupted }
    }
}

/// How one of a target's runs ended.
struct OneRun {
    exit: Exit,
    interrupted: bool,
}

struct InitiatorSide<'a> {
    rendezvous: &'a str,
    by_index: bool,
    join: &'a JoinArgs,
    measure: &'a MeasureArgs,
    nixl: &'a NixlArgs,
    ending: Ending<'a>,
}

impl InitiatorSide<'_> {
    fn run(&self, terminal: &Terminal, begin: Instant) -> Exit {
        let terminal = &self.ending.terminal(terminal);
        match self.prepare(terminal) {
            Ok((plan, rendezvous)) => block_on(terminal, self.lead(plan, &rendezvous, terminal, begin)),
            Err(message) => self.ending.usage(terminal, &message),
        }
    }

    fn prepare(&self, terminal: &Terminal) -> Result<(Plan, Rendezvous), String> {
        let available = Node::available_memory_bytes();
        let plan = self.measure.plan(self.nixl, available).map_err(|e| e.to_string())?;
        preflight::nixl_lib("--nixl-lib", self.nixl.nixl_lib.as_ref())?;
        preflight::output(self.ending.output())?;
        let options = options(self.join, terminal);
        let run = self.join.run_id.as_ref();
        let rendezvous = Rendezvous::at_initiator(&endpoint(self.rendezvous)?, run, options, self.by_index)?;
        Ok((plan, rendezvous))
    }

    async fn lead(&self, plan: Plan, rendezvous: &Rendezvous, terminal: &Terminal, begin: Instant) -> Exit {
        let node = Node::probe(env!("CARGO_PKG_VERSION"));
        let (run, output) = (rendezvous.run.as_str(), self.ending.output().cloned());
        let interrupts = match Interrupts::new("initiator") {
            Ok(interrupts) => interrupts,
            Err(e) => return no_signals(terminal, &e),
        };
        let same_host = self.join.allow_same_host;
        let (outcome, record) = match join(rendezvous, Role::Initiator, &node, same_host, interrupts).await {
            Ok(met) => {
                let scope = Scope::of_nodes(&node, &met.peer.node, &plan);
                let record = Record::new(run, plan.clone(), scope, output, begin);
                let nixl_lib = text_of(self.nixl.nixl_lib.as_ref());
                Initiator::new(met, nixl_lib, terminal.clone(), record, plan).run().await
            }
            Err(Missed { stop, at }) => {
                let scope = Scope::said("nothing was tested: the two sides did not meet".to_owned());
                let mut record = Record::new(run, plan, scope, output, begin);
                (record.close_with(&stop, &at.to_string()), record)
            }
        };
        self.ending.with(outcome, &record, terminal)
    }
}
