//! The page's built files (`server/panel/dist`), which travel in the binary.

use axum::http::header;
use axum::response::IntoResponse;

const HTML: &str = include_str!("../../panel/dist/index.html");
const SCRIPT: &str = include_str!("../../panel/dist/panel.js");
const STYLE: &str = include_str!("../../panel/dist/panel.css");

pub async fn html() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], HTML)
}

pub async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT)
}

pub async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)
}
