//! A visitor of the site: a browser, and the host that it may ask.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use holdfast_testkit::until_within;
use serde_json::{Value, json};
use thirtyfour::{CapabilitiesHelper as _, ChromiumLikeCapabilities as _, DesiredCapabilities};

use super::host::{Host, SUB_PATH};
use super::site;
use crate::axe_core::{axe, violations};
use crate::browser::Browser;
use crate::{SharedMachine, share_machine};

/// What a browser asks without a host.
const LOCAL: [&str; 5] = ["file:", "data:", "blob:", "chrome:", "about:"];

/// A Postgres is compiled in the browser, in what other tests leave of the machine.
const TIMEOUT: Duration = Duration::from_secs(120);

pub struct Visit {
    pub browser: Browser,
    pub host: Host,
    pub folder: &'static Path,
    width: Cell<usize>,
    /// The addresses that were requested since the begin.
    requested: RefCell<Vec<String>>,
    _machine: SharedMachine,
}

impl Visit {
    /// Begins at 390 px, in light colours, of somebody who wants no motion.
    pub async fn begin() -> Self {
        let machine = share_machine();
        let folder = site();
        let host = Host::start(folder);
        let visit = Self {
            browser: open_browser(&host.address).await,
            host,
            folder,
            width: Cell::default(),
            requested: RefCell::default(),
            _machine: machine,
        };
        visit.prefer("light", "reduce").await;
        visit.size(390).await;
        visit
    }

    /// Opens a page of the site on the host without a defect.
    pub async fn open(&self, path: &str) {
        self.browser.go(&format!("{SUB_PATH}{path}")).await;
    }

    /// Opens a page of the site from the file system.
    pub async fn open_file(&self, path: &str) {
        let address = reqwest::Url::from_file_path(self.folder.join(path)).unwrap();
        self.browser.driver.goto(address.as_str()).await.unwrap();
    }

    /// Returns what the script does.
    pub async fn run(&self, script: &str, values: &[Value]) -> Value {
        let run = self.browser.driver.execute(script, values.to_vec()).await;
        run.unwrap_or_else(|error| panic!("{script}: {error}")).json().clone()
    }

    /// Waits until the script returns true.
    pub async fn until(&self, what: &str, script: &str, values: &[Value]) {
        until_within(TIMEOUT, what, async || self.run(script, values).await == true).await;
    }

    /// Returns the value of an expression, also on a page whose scripts are off.
    pub async fn evaluate(&self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        self.browser.devtools("Runtime.evaluate", params).await["result"]["value"].take()
    }

    /// Clicks by script: what covers the element makes no difference.
    pub async fn click(&self, css: &str) {
        let exists = "return !!document.querySelector(arguments[0])";
        self.until(&format!("{css} exists"), exists, &[json!(css)]).await;
        self.run("document.querySelector(arguments[0]).click()", &[json!(css)]).await;
    }

    pub async fn text(&self, css: &str) -> String {
        let read = "return document.querySelector(arguments[0])?.textContent.trim() ?? ''";
        self.run(read, &[json!(css)]).await.as_str().unwrap().to_owned()
    }

    pub async fn size(&self, width: usize) {
        self.width.set(width);
        let metrics = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500
        });
        self.browser.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Sets the preferred colours, and whether things move: `reduce`, or empty.
    pub async fn prefer(&self, scheme: &str, motion: &str) {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": motion },
        ] });
        self.browser.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Adds a script that runs before those of each page; returns what removes it.
    pub async fn run_first(&self, script: &str) -> Value {
        let params = json!({ "source": script });
        self.browser.devtools("Page.addScriptToEvaluateOnNewDocument", params).await
    }

    pub async fn run_no_longer(&self, added: Value) {
        self.browser.devtools("Page.removeScriptToEvaluateOnNewDocument", added).await;
    }

    /// Runs what follows in a frame of the page, until [`Self::leave_frame`].
    pub async fn enter_frame(&self, css: &str) {
        self.browser.find(css).await.enter_frame().await.unwrap();
    }

    pub async fn leave_frame(&self) {
        self.browser.driver.enter_default_frame().await.unwrap();
    }

    /// Asserts that the page as it is violates no rule of accessibility, and is not wider than the
    /// screen.
    pub async fn examine(&self, path: &str) {
        static AXE: LazyLock<String> = LazyLock::new(axe);
        let width = self.width.get();
        // On a phone, the window grows with what is too wide.
        let fits = "return document.documentElement.scrollWidth <= arguments[0]";
        let fits = self.run(fits, &[json!(width)]).await;
        assert_eq!(fits, true, "{path} is wider than {width} px");
        self.run(&AXE, &[]).await;
        let found = violations(&self.browser, json!({})).await;
        assert!(found.is_empty(), "{path}, {width} px:\n{}", found.join("\n"));
    }

    /// Returns the addresses that pages, not their workers, requested since the last call.
    pub async fn requests(&self) -> Vec<String> {
        let mut requests = Vec::new();
        for entry in self.browser.log("performance").await {
            let entry: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let message = &entry["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let address = &message["params"]["request"]["url"];
                requests.push(address.as_str().unwrap().to_owned());
            }
        }
        self.requested.borrow_mut().extend(requests.iter().cloned());
        requests
    }

    /// Asserts that no other host was asked, and ends the browser.
    pub async fn end(self) {
        self.requests().await;
        let is_own = |address: &String| {
            address.starts_with(&self.host.address)
                || LOCAL.iter().any(|scheme| address.starts_with(scheme))
        };
        let requested = self.requested.take();
        let is_of_site = |address: &String| is_own(address) && !address.starts_with("data:");
        assert!(requested.iter().any(is_of_site), "no request was seen");
        let others: Vec<_> = requested.iter().filter(|address| !is_own(address)).collect();
        assert!(others.is_empty(), "{others:?}");
        self.browser.close().await;
        self.host.stop().await;
    }
}

/// Opens a browser that logs what it requests.
async fn open_browser(base: &str) -> Browser {
    let mut capabilities = DesiredCapabilities::chrome();
    capabilities.set("goog:loggingPrefs", json!({ "performance": "ALL" })).unwrap();
    let network = json!({ "enableNetwork": true, "enablePage": false });
    capabilities.add_experimental_option("perfLoggingPrefs", network).unwrap();
    Browser::open_with(base, true, capabilities).await
}
