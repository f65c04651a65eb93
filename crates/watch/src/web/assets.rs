//! The page's files, which are part of the binary.

/// A file by its path: its type, and its bytes.
pub(super) fn find(path: &str) -> Option<(&'static str, &'static [u8])> {
    let file = FILES.iter().find(|f| f.0 == path)?;
    Some((file.1, file.2))
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and bytes.
pub(super) const FILES: &[(&str, &str, &[u8])] = &[
    ("/", HTML, include_bytes!("../page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_bytes!("../page/page.css")),
    ("/page.js", SCRIPT, include_bytes!("../page/page.js")),
    ("/graph.js", SCRIPT, include_bytes!("../page/graph.js")),
    ("/alerts.js", SCRIPT, include_bytes!("../page/alerts.js")),
    ("/icon.svg", "image/svg+xml", include_bytes!("../page/icon.svg")),
];
