//! The committed page of environment variables is the table's.
#![allow(clippy::unwrap_used, reason = "test code")]

use ccl_core::config::environment_markdown;

#[test]
fn the_environment_page_is_generated() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/environment.md");
    let page = environment_markdown();
    if std::env::var("UPDATE_DOCS").is_ok_and(|v| v == "1") {
        std::fs::write(path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == page, "docs/environment.md is stale: UPDATE_DOCS=1 cargo test -p ccl-core --test config_docs");
}
