//! Access control. A page of another site can make this machine's browser send requests here, and
//! another site's name can be made to resolve to loopback, so a local port is no protection. The
//! token, `Host` and `Origin` are checked instead.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, Uri};
use subtle::ConstantTimeEq as _;

/// The secret that every request needs: 128 random bits in hexadecimal.
#[derive(Clone)]
pub(super) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Creates a token from the system's randomness.
    ///
    /// # Errors
    /// If the system has none.
    pub(super) fn random() -> io::Result<Token> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let mut token = String::with_capacity(32);
        for byte in bytes {
            // Writing into a string cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        Ok(Token(token))
    }

    /// The token as in the page's address.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The token is missing or wrong. The response is that of an unknown address.
    NoToken,
    /// It was sent to a host name other than this machine's.
    Host,
    /// It was sent by a page of another origin.
    Origin,
}

impl Refusal {
    /// The status of the response.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Refusal::NoToken => StatusCode::NOT_FOUND,
            Refusal::Host | Refusal::Origin => StatusCode::FORBIDDEN,
        }
    }
}

/// Checks whether a request may be answered.
///
/// # Errors
/// The reason for a refusal.
pub(super) fn check(
    token: &Token,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let host = only(headers, header::HOST).ok_or(Refusal::Host)?;
    // The absolute form of a request, used with proxies, names the host twice.
    let named = uri.authority().is_none_or(|authority| authority.as_str() == host);
    if !named || !is_this_machine(host) {
        return Err(Refusal::Host);
    }
    let mut parts = uri.path().split('/').skip(1);
    if !parts.next().is_some_and(|part| token.is(part)) {
        return Err(Refusal::NoToken);
    }
    let is_page = method == Method::GET && parts.next() == Some("") && parts.next().is_none();
    if is_from_page(host, headers) || (is_page && is_navigation(headers)) {
        Ok(())
    } else {
        Err(Refusal::Origin)
    }
}

/// The value of a header that occurs exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether a host name is this machine's. The port is not checked, because a remote editor forwards
/// another port to ours.
fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let is_loopback = address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !host.contains('@') && (is_loopback || name.eq_ignore_ascii_case("localhost"))
}

/// Whether a request comes from the panel's page. Browsers send its origin. Other clients send
/// none, but need the token.
fn is_from_page(host: &str, headers: &HeaderMap) -> bool {
    let own_origin = !headers.contains_key(header::ORIGIN)
        || only(headers, header::ORIGIN)
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(|origin| origin.eq_ignore_ascii_case(host));
    let own_site =
        !headers.contains_key(SITE) || matches!(only(headers, SITE), Some("same-origin" | "none"));
    own_origin && own_site
}

/// Whether a request is a navigation. The page may be opened from elsewhere, such as an editor's
/// webview: without its scripts it contains no data, and the policy restricts who may frame it.
fn is_navigation(headers: &HeaderMap) -> bool {
    !headers.contains_key(header::ORIGIN) && only(headers, MODE) == Some("navigate")
}

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The headers of every response. The page loads only its own two files and requests only its own
/// server. Editors may frame it. In VS Code's desktop window every ancestor frame is checked,
/// including the window's own (`vscode-file:`).
pub(super) const ANSWER_HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self' \
             vscode-file: vscode-webview: https://*.vscode-cdn.net http://127.0.0.1:* \
             http://localhost:*",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// The additional and overriding headers of the page itself. A window that isolates itself from
/// other sites (an option of VS Code) only frames pages that allow it and isolate themselves, too.
pub(super) const PAGE_HEADERS: [(HeaderName, HeaderValue); 2] = [
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("cross-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-embedder-policy"),
        HeaderValue::from_static("require-corp"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "00112233445566778899aabbccddeeff";

    /// Checks a request for `path`, in which `TOKEN` is replaced by the token.
    #[track_caller]
    fn check_request(
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        expected: Result<(), Refusal>,
    ) {
        let uri: Uri = path.replace("TOKEN", SECRET).parse().expect("a URI");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        assert_eq!(check(&Token(SECRET.to_owned()), &method, &uri, &map), expected);
    }

    #[track_caller]
    fn get(path: &str, headers: &[(&str, &str)], expected: Result<(), Refusal>) {
        let headers = [&[("host", "127.0.0.1:4711")], headers].concat();
        check_request(Method::GET, path, &headers, expected);
    }

    #[track_caller]
    fn host(host: &str, expected: Result<(), Refusal>) {
        check_request(Method::GET, "/TOKEN/", &[("host", host)], expected);
    }

    #[test]
    fn nothing_is_served_without_the_token() {
        get("/TOKEN/", &[], Ok(()));
        get("/TOKEN/api/panel?workspace=0", &[], Ok(()));
        for path in ["/", "/panel.js", "//TOKEN/", "/TOKEN0/", "/x/TOKEN/", "/?TOKEN/"] {
            get(path, &[], Err(Refusal::NoToken));
        }
        get(&format!("/{}/", SECRET.to_uppercase()), &[], Err(Refusal::NoToken));
        get(&format!("/{}/", &SECRET[1..]), &[], Err(Refusal::NoToken));
    }

    #[test]
    fn other_names_of_this_machine_are_refused() {
        for name in
            ["127.0.0.1", "127.0.0.1:80", "localhost:1", "LOCALHOST", "[::1]:9", "127.8.8.8"]
        {
            host(name, Ok(()));
        }
        for name in [
            "",
            "evil.example",
            "evil.example:4711",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "localhost@evil.example:1",
            "user@127.0.0.1",
            "0.0.0.0",
            "192.168.0.1",
            "[::ffff:1.2.3.4]",
            "localhost:1:2",
        ] {
            host(name, Err(Refusal::Host));
        }
    }

    #[test]
    fn a_host_header_occurs_once() {
        check_request(Method::GET, "/TOKEN/", &[], Err(Refusal::Host));
        let twice = [("host", "localhost"), ("host", "evil.example")];
        check_request(Method::GET, "/TOKEN/", &twice, Err(Refusal::Host));
        let one = [("host", "localhost")];
        check_request(Method::GET, "http://evil.example/TOKEN/", &one, Err(Refusal::Host));
        check_request(Method::GET, "http://localhost/TOKEN/", &one, Ok(()));
    }

    #[test]
    fn other_origins_are_refused() {
        let path = "/TOKEN/api/panel";
        get(path, &[("origin", "http://127.0.0.1:4711")], Ok(()));
        for origin in [
            "null",
            "",
            "https://evil.example",
            "http://127.0.0.1:4712",
            "http://localhost:4711",
            "https://127.0.0.1:4711",
            "vscode-webview://abc",
        ] {
            get(path, &[("origin", origin)], Err(Refusal::Origin));
            get("/TOKEN/", &[("origin", origin)], Err(Refusal::Origin));
        }
        let twice = [("origin", "http://127.0.0.1:4711"), ("origin", "http://127.0.0.1:4711")];
        get(path, &twice, Err(Refusal::Origin));
    }

    #[test]
    fn other_sites_may_open_the_page_but_not_its_api() {
        let path = "/TOKEN/api/panel";
        for site in ["same-origin", "none"] {
            get(path, &[("sec-fetch-site", site)], Ok(()));
        }
        for site in ["cross-site", "same-site"] {
            let framed = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
            get("/TOKEN/", &framed, Ok(()));
            get(path, &framed, Err(Refusal::Origin));
            get("/TOKEN/panel.js", &framed, Err(Refusal::Origin));
            get("/TOKEN/", &[("sec-fetch-site", site)], Err(Refusal::Origin));
            let headers = [&[("host", "localhost")], &framed[..]].concat();
            check_request(Method::POST, "/TOKEN/", &headers, Err(Refusal::Origin));
        }
    }

    #[test]
    fn tokens_are_long_and_unique() {
        let (a, b) = (Token::random().expect("random"), Token::random().expect("random"));
        assert_ne!(a.as_str(), b.as_str());
        assert!(a.as_str().len() == 32 && a.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
