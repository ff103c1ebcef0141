//! axe-core, which finds violations of accessibility on a page as it is.

use std::process::Command;

use serde_json::Value;

use crate::browser::Browser;

/// Runs axe-core with every rule, `only` with one, or `without` one.
const RUN: &str = "const [{ only, without }, done] = arguments;
    const rules = { 'target-size': { enabled: true } };
    if (without) rules[without] = { enabled: false };
    const options = only ? { runOnly: [only] } : { rules };
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

/// Returns the violations on a page that has run [`axe`]: of all rules with `{}`, of one with
/// `{ "only": rule }`, of the others with `{ "without": rule }`.
pub async fn violations(browser: &Browser, which: Value) -> Vec<String> {
    let found = browser.driver.execute_async(RUN, vec![which]).await.unwrap();
    found.convert().unwrap()
}
