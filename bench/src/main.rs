//! kvwire proves which wire a KV cache takes, and how fast.
#![forbid(unsafe_code)]

mod check;
mod cli;
mod deploy;
mod engine;
mod exit;
mod explain;
mod forecast;
mod gate;
mod info;
mod measure;
mod memory;
mod plan;
mod preflight;
mod proof;
mod report;
mod run;
mod terminal;
mod verdict;
mod workload;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use cli::{Cli, Command};
use exit::Exit;
use terminal::Terminal;

fn main() -> ExitCode {
    let begin = Instant::now();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return Exit::of_parser(&error).into(),
    };
    let exit = match cli.command {
        Command::Gate(args) => gate::run(&args, &Terminal::new(&args.output)),
        Command::Report(args) => report::run(&args, &Terminal::new(&args.output)),
        Command::Check(args) => check::run(&args),
        Command::Engine => engine::main(),
        Command::Collect(args) => deploy::collect(&args),
        Command::Deploy(args) => deploy::run(&args),
        Command::Explain(args) => explain::run(&args, &Terminal::new(&args.output)),
        Command::Info(args) => info::run(&args, &Terminal::new(&args.output)),
        Command::Install(args) => deploy::install(&args),
        Command::Target(args) => run::target(&args, &Terminal::new(&args.output), begin),
        Command::Initiator(args) => run::initiator(&args, &Terminal::new(&args.output), begin),
        Command::Run(args) => run::by_index(&args, &Terminal::new(&args.output), begin),
        Command::Plan(args) => forecast::run(&args, &Terminal::new(&args.output)),
        Command::Pair(args) => run::pair(&args, &Terminal::new(&args.output), begin),
    };
    exit.into()
}
