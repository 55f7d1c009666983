//! NVIDIA's management library (NVML), where it is installed: the GPUs, their links, and what those have carried.
//!
//! It is opened once for the process, at the first question, and by a thread of its own: a driver that hangs must not
//! hang whoever asks.

mod fabric;
mod fields;
mod gpu;

use std::env;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml as Library;

pub use fabric::Fabric;
use fields::Fields;
pub use gpu::{Gpu, Link, LinkTraffic, PcieLink, Traffic, Way};

/// Names the library where the loader would not find it.
pub const VARIABLE: &str = "KVWIRE_NVML_LIB";
/// What the driver's packages and the container toolkit install.
const NAME: &str = "libnvidia-ml.so.1";
/// NVML answers in milliseconds, but waits for the GPUs where no process keeps the driver awake.
const PATIENCE: Duration = Duration::from_secs(5);

type Question = Box<dyn FnOnce(&Opened) + Send>;

/// A library that is open. Only its own thread touches it.
struct Opened {
    library: Library,
    fields: Option<Fields>,
}

/// NVML, ready to be asked.
#[derive(Debug)]
pub struct Nvml {
    questions: Sender<Question>,
}

/// NVML of this process, opened at the first call.
///
/// # Errors
/// There is no such library, or no driver below it: what was looked for, and what came back.
pub fn shared() -> Result<&'static Nvml, &'static str> {
    static SHARED: OnceLock<Result<Nvml, String>> = OnceLock::new();
    SHARED.get_or_init(Nvml::open).as_ref().map_err(String::as_str)
}

/// Whether somebody named a library, so that it is asked even where no driver shows in `/proc`.
pub(crate) fn is_named() -> bool {
    env::var_os(VARIABLE).is_some()
}

impl Nvml {
    fn open() -> Result<Self, String> {
        let path = env::var_os(VARIABLE).unwrap_or_else(|| OsString::from(NAME));
        let (questions, asked) = channel::<Question>();
        let (ready, opened) = channel();
        thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || {
                let library = match Library::builder().lib_path(&path).init() {
                    Ok(library) => library,
                    Err(error) => {
                        // Ignored, here and below: after the patience nobody listens.
                        let _ = ready.send(Err(format!("{}: {}", path.display(), innermost(&error))));
                        return;
                    }
                };
                let opened = Opened { library, fields: Fields::open(&path) };
                let _ = ready.send(Ok(()));
                asked.into_iter().for_each(|question| question(&opened));
            })
            .map_err(|error| error.to_string())?;
        opened.recv_timeout(PATIENCE).unwrap_or_else(|error| Err(no_answer(error)))?;
        Ok(Self { questions })
    }

    /// Asks the thread of the library.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Opened) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (sender, answer) = channel();
        let question = move |opened: &Opened| {
            let _ = sender.send(question(opened));
        };
        self.questions.send(Box::new(question)).map_err(|_| "NVML's thread is gone".to_owned())?;
        answer.recv_timeout(PATIENCE).unwrap_or_else(|error| Err(no_answer(error)))
    }

    /// All GPUs, with their links as they are now.
    ///
    /// # Errors
    /// The driver refuses, a GPU is lost, or nothing came back in time.
    pub fn gpus(&self) -> Result<Vec<Gpu>, String> {
        self.ask(|opened| gpu::all(opened).map_err(|error| error.to_string()))
    }

    /// The driver's version, for example `570.86.15`.
    ///
    /// # Errors
    /// As [`Nvml::gpus`].
    pub fn driver(&self) -> Result<String, String> {
        self.ask(|opened| opened.library.sys_driver_version().map_err(|error| error.to_string()))
    }

    /// What every GPU has carried since its driver was loaded.
    ///
    /// # Errors
    /// As [`Nvml::gpus`].
    pub fn traffic(&self) -> Result<Vec<Traffic>, String> {
        self.ask(|opened| gpu::traffic(opened).map_err(|error| error.to_string()))
    }

    /// Bytes per second over the PCIe link of a GPU (`GPU-…`) in a window of about 20 ms, for which the call waits
    /// (`nvmlDeviceGetPcieThroughput`, in KB/s). Other GPUs of the node wait for it too.
    ///
    /// # Errors
    /// As [`Nvml::gpus`]; the driver does not tell, or there is no such GPU.
    pub fn pcie_rate(&self, uuid: &str, way: Way) -> Result<u64, String> {
        let wanted = uuid.to_owned();
        let rate =
            self.ask(move |opened| gpu::pcie_rate(opened, &wanted, way).map_err(|error| error.to_string()))?;
        rate.ok_or_else(|| format!("NVML knows no {uuid}"))
    }
}

/// The last of an error's sources: of a library that cannot be opened, the loader's own words.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn no_answer(error: RecvTimeoutError) -> String {
    match error {
        RecvTimeoutError::Timeout => format!("no answer within {PATIENCE:?}"),
        RecvTimeoutError::Disconnected => "NVML's thread ended".to_owned(),
    }
}
