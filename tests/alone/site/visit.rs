//! A visitor of the site: a browser, and the host that it may ask.

use std::cell::{Cell, RefCell};
use std::path::Path;

use serde_json::{Value, json};
use thirtyfour::{CapabilitiesHelper as _, ChromiumLikeCapabilities as _, DesiredCapabilities};

use super::host::{Host, SUB_PATH};
use super::site;
use crate::axe_core::{axe, violations};
use crate::browser::Browser;

/// What a browser asks without a host.
const LOCAL: [&str; 5] = ["file:", "data:", "blob:", "chrome:", "about:"];

pub struct Visit {
    pub browser: Browser,
    pub host: Host,
    pub folder: &'static Path,
    axe: String,
    width: Cell<usize>,
    /// The addresses that were requested since the begin.
    requested: RefCell<Vec<String>>,
}

impl Visit {
    /// Begins at 390 px, in light colours, of somebody who wants no motion.
    pub async fn begin() -> Self {
        let folder = site().await;
        let host = Host::start(folder);
        let visit = Self {
            browser: open_browser(&host.address).await,
            host,
            folder,
            axe: axe(),
            width: Cell::default(),
            requested: RefCell::default(),
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
        let address = format!("file://{}", self.folder.join(path).display());
        self.browser.driver.goto(address).await.unwrap();
    }

    /// Returns what the script does.
    pub async fn run(&self, script: &str, values: &[Value]) -> Value {
        let run = self.browser.driver.execute(script, values.to_vec()).await;
        run.unwrap_or_else(|error| panic!("{script}: {error}")).json().clone()
    }

    /// Waits until the script returns something that is not empty, and returns it.
    pub async fn until(&self, what: &str, script: &str, values: &[Value]) -> Value {
        let mut found = Value::Null;
        holdfast_testkit::until(what, async || {
            found = self.run(script, values).await;
            !matches!(found, Value::Null | Value::Bool(false))
        })
        .await;
        found
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
        let fits = "return document.documentElement.scrollWidth <= innerWidth";
        let width = self.width.get();
        assert_eq!(self.run(fits, &[]).await, true, "{path} is wider than {width} px");
        self.run(&self.axe, &[]).await;
        let found = violations(&self.browser, Value::Null).await;
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
        assert!(requested.len() > 1, "no request was seen");
        let others: Vec<_> = requested.iter().filter(|address| !is_own(address)).collect();
        assert!(others.is_empty(), "{others:?}");
        self.browser.close().await;
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
