//! A headless Chromium, controlled over a pipe with the DevTools protocol. It is the one without
//! windows, which takes a quarter less of the processor.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process::Process;

/// For one step, on a slow machine. With a core of its own, axe takes seconds for the longest page.
const WAIT_TIMEOUT: Duration = Duration::from_secs(100);
/// Chromium needs these as root and without a network: `--no-sandbox` for root, most others to stop
/// background traffic. Without `--allow-pre-commit-input`, it drops what is pressed before a
/// document is painted.
const FLAGS: &str = "--no-sandbox --disable-gpu --disable-quic --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync \
                     --disable-dev-shm-usage --no-proxy-server --hide-scrollbars \
                     --allow-pre-commit-input --remote-debugging-pipe";
/// `scripts/setup` installs it: the version and digest are in `scripts/axe/package-lock.json`.
const AXE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/axe/node_modules/axe-core/axe.min.js"
);
/// A line for each violation of any rule: what it is, where, and how to fix it. `preload` would
/// fetch style sheets from a script, which the pages forbid. `resultTypes` leaves out the report on
/// all that is right. What is not of colours is the same when it is dark.
const RUN_AXE: &str = "axe.run({preload: false, resultTypes: ['violations'], \
    runOnly: matchMedia('(prefers-color-scheme: dark)').matches \
        ? ['color-contrast', 'link-in-text-block'] : undefined}) \
    .then(({violations}) => violations.flatMap(rule => rule.nodes.map(node => \
    `${rule.impact} ${rule.id} at ${node.target.join(' ')}: ${node.failureSummary.replace(/\\s+/g, ' ')}`)))";
/// What sticks out, if the page is wider than the window.
const OVERFLOW: &str = "document.documentElement.scrollWidth <= innerWidth ? [] : \
    [...document.body.querySelectorAll('*')].filter(element => element.getBoundingClientRect().right > innerWidth) \
    .map(element => 'wider than the window: ' + element.outerHTML.slice(0, 120))";

/// A function of the page: the element of a selector, once the page has it.
const FIND: &str = "selector => new Promise(resolve => { const check = () => { \
    const element = document.querySelector(selector); \
    if (element) resolve(element); else requestAnimationFrame(check); }; check(); })";
/// A function of the page: scrolls to an element, and returns its middle as it is painted.
const MIDDLE: &str = "element => new Promise(resolve => { element.scrollIntoView({block: 'center'}); \
    requestAnimationFrame(() => requestAnimationFrame(() => { const box = element.getBoundingClientRect(); \
    resolve([box.x + box.width / 2, box.y + box.height / 2]); })); })";

/// A function of the page: the middle of the summary that opens the outermost closed `details`
/// around an element, or null.
const CLOSED: &str = "element => { let closed = null; \
    for (let at = element; (at = at.parentElement?.closest('details:not([open])'));) { \
    if (!(element.matches('summary') && element.parentElement === at)) closed = at; } \
    return closed && (MIDDLE)(closed.querySelector('summary')); }";

/// A browser with one tab. Dropping it kills the process.
pub(crate) struct Browser {
    _process: Process,
    to: ChildStdin,
    from: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    /// The document of the tab, by the id of the navigation that led to it, and whether it has
    /// loaded. Events say so: every message that arrives is noted, whatever is waited for.
    document: String,
    is_loaded: bool,
    _profile: TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// Starts with further flags.
    pub(crate) fn start_with(flags: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // Chromium reads commands from descriptor 3 and responds on descriptor 4.
        let folder = profile.path().display();
        let line = format!(
            "exec chromium-headless-shell {FLAGS} {flags} --user-data-dir={folder} about:blank 3<&0 4>&1 >&2"
        );
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromium-headless-shell is installed (scripts/setup installs it)");
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let Ok(message) = message.map(|bytes| serde_json::from_slice(&bytes).unwrap())
                else {
                    return;
                };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (document, is_loaded) = (String::new(), false);
        let mut browser = Self {
            _process: Process(child),
            to,
            from,
            last_id: 0,
            session: None,
            document,
            is_loaded,
            _profile: profile,
        };
        let target =
            browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target, "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        browser.call("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
        browser
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to
            .write_all(format!("{message}\0").as_bytes())
            .unwrap();
        self.last_id
    }

    /// Notes what an event says about the document of the tab. No page has frames.
    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.frameNavigated") => {
                params["frame"]["loaderId"]
                    .as_str()
                    .unwrap()
                    .clone_into(&mut self.document);
                self.is_loaded = params["type"] == "BackForwardCacheRestore";
            }
            Some("Page.lifecycleEvent") if params["name"] == "load" => {
                self.is_loaded |= params["loaderId"] == self.document.as_str();
            }
            _ => {}
        }
    }

    /// Reads messages until `found` returns something, for as long as one step may take.
    fn wait<T>(
        &mut self,
        description: &str,
        mut found: impl FnMut(&Self, Option<Value>) -> Option<T>,
    ) -> T {
        let until = Instant::now() + WAIT_TIMEOUT;
        let mut message = None;
        loop {
            if let Some(found) = found(self, message.take()) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            let next = self
                .from
                .recv_timeout(left)
                .unwrap_or_else(|error| panic!("{description}: {error}"));
            self.note(&next);
            message = Some(next);
        }
    }

    /// The response to a command, which may be an error.
    fn response(&mut self, description: &str, id: u64) -> Value {
        self.wait(description, |_, message| {
            message.filter(|message| message["id"] == id)
        })
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let mut response = self.response(method, id);
        assert!(response["error"].is_null(), "{method}: {response}");
        response["result"].take()
    }

    /// Does what leads to another document, and waits until that one has loaded.
    pub(crate) fn leave(&mut self, description: &str, go: impl FnOnce(&mut Self)) {
        while let Ok(message) = self.from.try_recv() {
            self.note(&message);
        }
        let before = self.document.clone();
        go(self);
        self.wait(description, |browser, _| {
            (browser.document != before && browser.is_loaded).then_some(())
        });
    }

    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        let is_open =
            |browser: &Self| browser.is_loaded && opened["loaderId"] == browser.document.as_str();
        self.wait(url, |browser, _| is_open(browser).then_some(()));
    }

    /// The value of a script. A document may be replaced while the script waits in it, for example
    /// because it loads itself again. Then Chromium has no value, and the script runs in the next
    /// document.
    pub(crate) fn evaluate(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            let id = self.send("Runtime.evaluate", params.clone());
            let mut response = self.response(script, id);
            if !response["error"].is_null() {
                assert!(Instant::now() < until, "{script}: {response}");
                self.wait(script, |browser, _| browser.is_loaded.then_some(()));
                continue;
            }
            let result = &mut response["result"];
            assert!(result["exceptionDetails"].is_null(), "{script}: {result}");
            return result["result"]["value"].take();
        }
    }

    /// What a function of the page returns for an element, once the page has it.
    fn evaluate_on(&mut self, selector: &str, function: &str) -> Value {
        self.evaluate(&format!("({FIND})({}).then({function})", json!(selector)))
    }

    /// Waits until a condition is true, and checks it before each frame.
    pub(crate) fn wait_for(&mut self, condition: &str) {
        self.evaluate(&format!(
            "new Promise(resolve => {{ const check = () => \
             ({condition}) ? resolve(true) : requestAnimationFrame(check); check(); }})"
        ));
    }

    /// Keeps a page as it is that would load itself again after some seconds, while it is used or
    /// checked.
    pub(crate) fn stay(&mut self) {
        self.evaluate("window.stop()");
    }

    pub(crate) fn url(&mut self) -> String {
        self.evaluate("location.href").as_str().unwrap().to_owned()
    }

    /// The visible text of the page.
    pub(crate) fn text(&mut self) -> String {
        self.evaluate("document.body.innerText")
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[track_caller]
    pub(crate) fn assert_shows(&mut self, words: &str) {
        let text = self.text();
        assert!(text.contains(words), "no {words:?} in {text}");
    }

    pub(crate) fn has(&mut self, selector: &str) -> bool {
        self.evaluate(&format!(
            "document.querySelector({}) !== null",
            json!(selector)
        )) == true
    }

    /// Opens the menus and details that hide an element, as a user does.
    fn reveal(&mut self, selector: &str) {
        let closed = CLOSED.replace("MIDDLE", MIDDLE);
        loop {
            let summary = self.evaluate_on(selector, &closed);
            if summary.is_null() {
                return;
            }
            self.press_at(&summary);
            self.evaluate(
                "new Promise(resolve => requestAnimationFrame(resolve)).then(() => null)",
            );
        }
    }

    /// Clicks in the middle of an element and waits for the next page.
    pub(crate) fn click(&mut self, selector: &str) {
        self.reveal(selector);
        let middle = self.evaluate_on(selector, MIDDLE);
        self.leave(selector, |browser| browser.press_at(&middle));
    }

    /// Clicks in the middle of an element without waiting for a page.
    pub(crate) fn press(&mut self, selector: &str) {
        self.reveal(selector);
        let middle = self.evaluate_on(selector, MIDDLE);
        self.press_at(&middle);
    }

    /// Waits until the page has handled both events: a window that changes its size between them
    /// would take the second one elsewhere. A page that is left may respond with an error.
    fn press_at(&mut self, middle: &Value) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": middle[0], "y": middle[1], "button": "left", "clickCount": 1});
            let id = self.send("Input.dispatchMouseEvent", event);
            self.response(kind, id);
        }
    }

    /// Presses `Tab` or `Enter`.
    pub(crate) fn press_key(&mut self, key: &str) {
        let (code, text) = if key == "Enter" { (13, "\r") } else { (9, "") };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Replaces the text of an input.
    pub(crate) fn write(&mut self, selector: &str, text: &str) {
        self.evaluate_on(selector, "input => input.select()");
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the language that the browser prefers.
    pub(crate) fn language(&mut self, language: &str) {
        let agent = self.evaluate("navigator.userAgent");
        let values = json!({"userAgent": agent, "acceptLanguage": language});
        self.call("Emulation.setUserAgentOverride", values);
    }

    pub(crate) fn size(&mut self, width: u32, height: u32, dark: bool) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Asserts that axe finds no violation and that nothing sticks out at 360 and 1280 pixels,
    /// light and dark. Saves screenshots in the folder that `BELLBIRD_SCREENSHOTS` names, if it is
    /// set.
    pub(crate) fn assert_accessible(&mut self, name: &str) {
        let found = self.violations(name);
        assert!(found.is_empty(), "{}:\n{}", self.url(), found.join("\n"));
    }

    fn violations(&mut self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (width, dark) in [(360, false), (360, true), (1280, false), (1280, true)] {
            self.size(width, 800, dark);
            let name = format!("{name}-{width}{}", if dark { "-dark" } else { "" });
            self.screenshot(&name);
            for lines in [self.evaluate(OVERFLOW), self.run_axe()] {
                let lines = lines.as_array().unwrap().iter();
                found.extend(lines.map(|line| format!("{name}: {}", line.as_str().unwrap())));
            }
        }
        self.size(1280, 800, false);
        found
    }

    /// A document that has replaced another one has no axe yet.
    fn run_axe(&mut self) -> Value {
        loop {
            let found = self.evaluate(&format!("typeof axe === 'undefined' ? null : {RUN_AXE}"));
            if !found.is_null() {
                return found;
            }
            let axe = std::fs::read_to_string(Path::new(AXE))
                .expect("scripts/setup browser has installed axe");
            self.evaluate(&format!("{axe}; null"));
        }
    }

    /// A picture of the whole page.
    fn screenshot(&mut self, name: &str) {
        self.save(
            name,
            json!({"format": "png", "captureBeyondViewport": true}),
        );
    }

    /// A picture of the top of the page for the documentation, with two dots a pixel.
    pub(crate) fn picture(&mut self, name: &str, width: u32, height: u32) {
        self.size(width, height, false);
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 2});
        self.save(name, json!({"format": "png", "clip": clip}));
    }

    /// Saves a picture, if `BELLBIRD_SCREENSHOTS` is set.
    fn save(&mut self, name: &str, params: Value) {
        use base64::Engine as _;
        let Ok(folder) = std::env::var("BELLBIRD_SCREENSHOTS") else {
            return;
        };
        let shot = self.call("Page.captureScreenshot", params);
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(shot["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(format!("{folder}/{name}.png"), bytes).unwrap();
    }
}

#[test]
fn violations_are_found() {
    let mut browser = Browser::start();
    browser.open(
        "data:text/html,<html lang=en><title>Poor</title><meta name=viewport content='width=device-width'>\
         <style>@media (prefers-color-scheme: dark) { p { color: %23eee } }</style>\
         <main><h1>Poor</h1><p style='width: 800px'>Too wide, or too light</p></main>",
    );
    let found = browser.violations("poor");
    let [narrow, narrow_dark, contrast, wide_dark] = &found[..] else {
        panic!("{found:?}")
    };
    for wider in [narrow, narrow_dark] {
        assert!(wider.contains("wider than the window: <p"), "{wider}");
    }
    for light in [contrast, wide_dark] {
        assert!(
            light.contains("-dark: serious color-contrast at p"),
            "{light}"
        );
    }
}
