//! The page's built files (`server/panel/dist`), embedded in the binary.

use axum::http::header;
use axum::response::IntoResponse;
use ridgeline_analysis::present::report::BuiltPanel;

use super::guard::PAGE_HEADERS;

/// The page with its script and style.
pub(crate) const BUILT: BuiltPanel<'_> = BuiltPanel {
    html: include_str!("../../panel/dist/index.html"),
    script: include_str!("../../panel/dist/panel.js"),
    style: include_str!("../../panel/dist/panel.css"),
};

pub(crate) async fn html() -> impl IntoResponse {
    (PAGE_HEADERS, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], BUILT.html)
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], BUILT.script)
}

pub(crate) async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], BUILT.style)
}
