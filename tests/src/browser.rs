//! A headless Chromium, driven over the pipe of its debugging protocol. It reaches no network: every page is a file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// A step that takes longer hangs: a busy machine needs many seconds to start a browser.
const STEP: Duration = Duration::from_secs(120);

/// A running browser with one page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    commands: File,
    answers: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// What the page said without being asked, in order.
    events: VecDeque<Value>,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts it with an empty profile.
    ///
    /// # Panics
    /// It does not start; `scripts/need chromium` installs it.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (to, from) = (folder.path().join("to"), folder.path().join("from"));
        let made = Command::new("mkfifo").args([&to, &from]).status().expect("mkfifo");
        assert!(made.success(), "mkfifo");
        // The protocol speaks over descriptors 3 and 4, which a shell can open without any unsafe code.
        let child = Command::new("sh")
            .args(["-c", r#"exec chromium "$@" 3<"$TO" 4>"$FROM""#, "sh"])
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .env("TO", &to)
            .env("FROM", &from)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let commands = OpenOptions::new().write(true).open(&to).expect("the pipe to the browser");
        let output = File::open(&from).expect("the pipe from the browser");
        let (sender, answers) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            answers,
            session: None,
            sent: 0,
            events: VecDeque::new(),
            _folder: folder,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Calls a method of the protocol and waits for its answer.
    ///
    /// # Panics
    /// It fails, or does not answer in time.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.next(method);
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn next(&self, waiting_for: &str) -> Value {
        self.answers
            .recv_timeout(STEP)
            .unwrap_or_else(|e| panic!("the browser says nothing to {waiting_for}: {e}"))
    }

    /// Opens a file in a window of this width and waits until it is loaded.
    ///
    /// # Panics
    /// It does not load in time.
    pub fn open(&mut self, file: &Path, width: u32, dark: bool) {
        let screen = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media);
        self.events.clear();
        self.call("Page.navigate", &json!({ "url": format!("file://{}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next("Page.loadEventFired");
            self.events.push_back(event);
        }
    }

    /// The value of an expression in the page.
    ///
    /// # Panics
    /// The page is gone.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", &asked)["result"]["value"].clone()
    }

    /// Everything that the page complained about since it was opened: console messages, exceptions, log entries.
    pub fn complaints(&self) -> Vec<String> {
        let bad = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Network.loadingFailed",
        ];
        let is_bad = |event: &&Value| event["method"].as_str().is_some_and(|method| bad.contains(&method));
        self.events.iter().filter(is_bad).map(Value::to_string).collect()
    }

    /// Every address that the page asked for since it was opened.
    pub fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap_or("?").to_owned()).collect()
    }

    /// A picture of the whole page as PNG in base64.
    ///
    /// # Panics
    /// The page is gone.
    pub fn picture(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        picture["data"].as_str().unwrap_or_default().to_owned()
    }

    /// The page as it is printed, as PDF in base64.
    ///
    /// # Panics
    /// The page is gone.
    pub fn print(&mut self) -> String {
        let printed = self.call("Page.printToPDF", &json!({ "paperWidth": 8.27, "paperHeight": 11.69 }));
        printed["data"].as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closed from inside, its own children end as well; the rest is for a browser that does not listen.
        let _ = self.commands.write_all(b"{\"id\":999999,\"method\":\"Browser.close\"}\0");
        while let Ok(message) = self.answers.recv_timeout(Duration::from_secs(10)) {
            drop(message);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
