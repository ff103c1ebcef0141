//! A real Chromium, driven over WebDriver. Dropping the value ends the driver and the browser.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_testkit::ports::free_ports;
use holdfast_testkit::{CONDITION_TIMEOUT, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::ChromeCapabilities;
use thirtyfour::prelude::*;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Two browsers at a time: each waits for half of its time, and more of them on two cores would be
/// no faster. That of `axe` runs beside them.
static AT_A_TIME: Semaphore = Semaphore::const_new(2);

/// Chromium without windows, a package of its own: it starts in half the time. It ignores the
/// preference that turns scripts off.
const SHELL: &str = "/usr/bin/chromium-headless-shell";
const FLAGS: [&str; 11] = [
    "--headless",
    // Chromium's sandbox does not work as root and in most containers.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--window-size=1280,900",
];

/// A browser with a profile of its own.
pub struct Browser {
    pub driver: WebDriver,
    base: String,
    processes: Processes,
    _permit: Option<SemaphorePermit<'static>>,
}

/// The driver and its browser, which end with this value or with this process, and the profile,
/// which is removed then.
struct Processes {
    shell: Child,
    port: u16,
}

impl Browser {
    pub async fn open(base: &str, javascript: bool) -> Self {
        Self::open_with(base, javascript, DesiredCapabilities::chrome()).await
    }

    /// Opens a browser with capabilities of the test's own.
    pub async fn open_with(base: &str, javascript: bool, capabilities: ChromeCapabilities) -> Self {
        let permit = AT_A_TIME.acquire().await.unwrap();
        Self::launch(base, javascript, capabilities, Some(permit)).await
    }

    /// Opens a browser that waits for no other test's, for a test whose page computes for minutes:
    /// it keeps one core busy, and those of the others wait for most of their time.
    pub async fn open_for_minutes(base: &str) -> Self {
        Self::launch(base, true, DesiredCapabilities::chrome(), None).await
    }

    /// Opens another browser at the same site, beside this one.
    pub async fn beside(&self) -> Self {
        Self::launch(&self.base, true, DesiredCapabilities::chrome(), None).await
    }

    async fn launch(
        base: &str,
        javascript: bool,
        mut capabilities: ChromeCapabilities,
        permit: Option<SemaphorePermit<'static>>,
    ) -> Self {
        let profile = tempfile::Builder::new().prefix("holdfast-browser-").tempdir().unwrap();
        let (processes, profile) = Processes::start(profile);
        for flag in FLAGS {
            capabilities.add_arg(flag).unwrap();
        }
        capabilities.add_arg(&format!("--user-data-dir={}", profile.display())).unwrap();
        if javascript && Path::new(SHELL).exists() {
            capabilities.set_binary(&shell_with_page(&profile)).unwrap();
        }
        if !javascript {
            let prefs = json!({ "profile.managed_default_content_settings.javascript": 2 });
            capabilities.add_experimental_option("prefs", prefs).unwrap();
        }
        let address = format!("http://127.0.0.1:{}", processes.port);
        let driver = WebDriver::new(address, capabilities).await.unwrap();
        let page = "data:text/html,<title>off</title><script>document.title = 'on'</script>";
        driver.goto(page).await.unwrap();
        let title = if javascript { "on" } else { "off" };
        until("scripts are on or off", async || driver.title().await.is_ok_and(|t| t == title))
            .await;
        Self { driver, base: base.to_owned(), processes, _permit: permit }
    }

    pub async fn go(&self, path: &str) {
        self.driver.goto(format!("{}{path}", self.base)).await.unwrap();
    }

    pub async fn find(&self, css: &str) -> WebElement {
        until(css, async || self.driver.find(By::Css(css)).await.is_ok()).await;
        self.driver.find(By::Css(css)).await.unwrap()
    }

    pub async fn click(&self, css: &str) {
        self.find(css).await.click().await.unwrap();
    }

    pub async fn center(&self, css: &str) -> (f64, f64) {
        let place = self.find(css).await.rect().await.unwrap();
        (place.x + place.width / 2.0, place.y + place.height / 2.0)
    }

    /// Clicks at a position, without any wait before or after: locating an element would wait for
    /// the page that is loading.
    pub async fn press(&self, (x, y): (f64, f64)) {
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.devtools("Input.dispatchMouseEvent", params).await;
        }
    }

    /// Sends a DevTools command that WebDriver does not have, and returns its result.
    pub async fn devtools(&self, command: &str, params: Value) -> Value {
        let command = json!({ "cmd": command, "params": params });
        self.call_driver("goog/cdp/execute", &command).await
    }

    /// Makes the pages' screen as large as that.
    pub async fn resize(&self, width: u32, height: u32) {
        let screen =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Sets a media feature, and resets all others.
    pub async fn prefer(&self, feature: &str, value: &str) {
        let media = json!({ "features": [{ "name": feature, "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// Returns how wide the page is, which may be more than its screen.
    pub async fn width(&self) -> i64 {
        let width = "return document.documentElement.scrollWidth";
        let width = self.driver.execute(width, vec![]).await.unwrap();
        width.json().as_i64().unwrap()
    }

    /// Returns the console errors since the last call.
    pub async fn console_errors(&self) -> Vec<Value> {
        self.log("browser").await
    }

    /// Returns the entries of one of the driver's logs since the last call.
    pub async fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.call_driver("se/log", &json!({ "type": kind })).await;
        log.as_array().unwrap().clone()
    }

    async fn call_driver(&self, path: &str, body: &Value) -> Value {
        let session = self.driver.session_id().to_string();
        let url = format!("http://127.0.0.1:{}/session/{session}/{path}", self.processes.port);
        let sent = reqwest::Client::new().post(&url).json(body).send().await.unwrap();
        assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
        let mut answer: Value = sent.json().await.unwrap();
        answer["value"].take()
    }

    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.find(css).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Waits until the element's text, with white space collapsed, contains `text`.
    pub async fn until_text(&self, css: &str, text: &str) {
        let contains = |content: String| {
            content.split_whitespace().collect::<Vec<_>>().join(" ").contains(text)
        };
        let read = async || {
            // The element may vanish between two pages.
            let element = self.driver.find(By::Css(css)).await.ok()?;
            element.text().await.ok()
        };
        let expected = format!("{css} reads {text:?}");
        let waiting = until(&expected, async || read().await.is_some_and(contains));
        // Within the time of the condition, to say what is there instead.
        let reads = timeout(CONDITION_TIMEOUT.mul_f64(0.9), waiting).await.is_ok();
        assert!(reads, "{css} reads {:?} instead of {text:?}", read().await);
    }

    /// Waits until each chart of a judgement is scrolled to the update that was lost.
    pub async fn until_charts_show_their_loss(&self) {
        let shown = "return [...document.querySelectorAll('.static-lanes .timeline:has(.loss)')]
            .map((chart) => {
                const edges = (part) => part.getBoundingClientRect();
                const [box, loss] = [chart, chart.querySelector('.loss .mark')].map(edges);
                return box.left <= loss.left && loss.right <= box.right;
            })";
        until("each chart shows its loss", async || {
            let shown = self.driver.execute(shown, vec![]).await.unwrap();
            let shown: Vec<bool> = shown.convert().unwrap();
            !shown.is_empty() && !shown.contains(&false)
        })
        .await;
    }

    /// Waits until the browser's path begins with `path`; returns the whole path.
    pub async fn until_path(&self, path: &str) -> String {
        let mut at = String::new();
        until(&format!("the browser is at {path}"), async || {
            let url = self.driver.current_url().await.map(|url| url.to_string());
            at = url.unwrap_or_default().strip_prefix(&self.base).unwrap_or_default().to_owned();
            at.starts_with(path)
        })
        .await;
        at
    }

    /// Signs in with the form; the password is the name.
    pub async fn sign_in(&self, name: &str) {
        self.fill("#user", name).await;
        self.fill("#password", name).await;
        self.click("form.stack button").await;
    }

    pub async fn close(self) {
        self.driver.clone().quit().await.unwrap();
    }
}

/// Returns a program that starts [`SHELL`] with a page, which the driver waits for, and cannot ask
/// it for.
fn shell_with_page(folder: &Path) -> String {
    let program = folder.join("shell");
    fs::write(&program, format!("#!/bin/sh\nexec {SHELL} \"$@\" data:,\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

/// Starts a driver, and ends it when standard input closes, which a shell sees also if this process
/// is killed. The driver leaves its browser running, whose processes name the profile; one that has
/// just ended may still have written into it.
const RUN_DRIVER: &str = "profile=$1; trap : INT TERM HUP
    PATH=$PATH:/usr/lib/chromium-browser
    chromedriver --port=$2 </dev/null & driver=$!
    exec >&-
    read -r _; kill $driver; wait $driver 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        all=$(grep -las -- \"[-]-user-data-dir=$profile\" /proc/[0-9]*/cmdline)
        [ \"$all\" ] || break
        for found in $all; do
            found=${found%/cmdline}
            kill -KILL \"${found#/proc/}\" 2>/dev/null
        done
        sleep 0.02
    done
    rm -rf \"$profile\"";

impl Processes {
    /// Starts a driver on a free port. With `--port=0`, it would choose a free port of ::1 and fail
    /// if another test uses it on 127.0.0.1.
    fn start(profile: TempDir) -> (Self, PathBuf) {
        let port = free_ports(1);
        let mut shell = Command::new("sh")
            .args(["-c", RUN_DRIVER, "sh"])
            .arg(profile.path())
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();

        // From here on, the shell removes it.
        let profile = profile.keep();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        let processes = Self { shell, port };
        let mut lines = stdout.lines().map_while(Result::ok);
        let mut output = String::new();
        let started = lines.by_ref().any(|line| {
            output += &line;
            line.contains("started successfully")
        });
        assert!(started, "no chromedriver (script/bootstrap --tests): {output}");
        // The driver would block on a full pipe, so the rest is read and discarded.
        std::thread::spawn(move || lines.for_each(drop));
        (processes, profile)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
