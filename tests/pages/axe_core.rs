//! axe-core, which finds violations of accessibility on a page as it is.

use std::process::Command;

use serde_json::Value;

use crate::browser::Browser;

/// Runs axe-core with every rule; `only` restricts it to one.
const RUN: &str = "const [only, done] = arguments;
    const options = only ? { runOnly: [only] } : { rules: { 'target-size': { enabled: true } } };
    axe.run(document, { ...options, resultTypes: ['violations'] }).then((found) => done(
        found.violations.map((rule) => `${rule.id}: ${rule.nodes.map((n) => n.html).join(' | ')}`)
    ));";

/// Returns the script of axe-core, which is installed if it is missing.
pub fn axe() -> String {
    let output = Command::new("script/axe").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = String::from_utf8(output.stdout).unwrap();
    std::fs::read_to_string(path.trim()).unwrap()
}

/// Returns the violations of one rule, or with null of all, on a page that has run [`axe`].
pub async fn violations(browser: &Browser, only: Value) -> Vec<String> {
    let found = browser.driver.execute_async(RUN, vec![only]).await.unwrap();
    found.convert().unwrap()
}
