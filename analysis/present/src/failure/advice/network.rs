//! Hosts that cannot be reached, or that refuse.

use super::{Advice, Seen, between, quoted};

/// How the libraries call it when a host does not answer or has no address.
const TYPES: &[&str] = &[
    "gaierror",
    "URLError",
    "NameResolutionError",
    "NewConnectionError",
    "MaxRetryError",
    "ConnectTimeoutError",
    "ConnectTimeout",
    "ConnectError",
    "ProxyError",
    "ClientConnectorError",
    "ClientConnectorDNSError",
    "EndpointConnectionError",
    "LocalEntryNotFoundError",
    "OfflineModeIsEnabled",
];
const TEXTS: &[&str] = &[
    "We couldn't connect to 'https://huggingface.co'",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "No route to host",
    "outgoing traffic has been disabled",
    "nodename nor servname provided",
    // torchvision's.
    "Error downloading ",
];

/// A server that the program expects on this machine.
pub(super) fn server_absent(seen: &Seen) -> Option<Advice> {
    if !seen.comes_from(&["ConnectionRefusedError"]) && !seen.says(&["Connection refused"]) {
        return None;
    }
    if host(&seen.failure.message).is_some_and(|host| !is_this_machine(host)) {
        return None;
    }
    seen.because(
        "server-absent",
        "The program tries to connect to a server, but nothing listens at that address (a tracking \
        server, Visdom, Redis, a database, another rank). Start the server, or disable that part \
        of the program.",
    )
}

/// A host that answered that one may not.
pub(super) fn login_needed(seen: &Seen) -> Option<Advice> {
    let is_gated = seen.comes_from(&["GatedRepoError"]) || seen.says(&["Cannot access gated repo"]);
    if is_gated {
        let how = seen.run.with_variable(seen.reader, "HF_TOKEN", "…");
        return seen.because(
            "login-needed",
            format!(
                "The model or dataset is gated: accept its terms on its page and log in with `hf \
                auth login`, or set {how}."
            ),
        );
    }
    if !(seen.comes_from(&[
        "HTTPError",
        "HfHubHTTPError",
        "HTTPStatusError",
        "RepositoryNotFoundError",
    ]) && seen.says(&["401", "403"]))
    {
        return None;
    }
    seen.because(
        "login-needed",
        "The server denied access: the program must be logged in, or has no permission. Log in \
        with the library's own command. The run uses your home folder and its saved logins.",
    )
}

/// No connection to a host.
pub(super) fn no_network(seen: &Seen) -> Option<Advice> {
    let of_requests =
        seen.comes_from(&["ConnectionError"]) && seen.failure.error_type.contains("requests");
    let is_network = seen.comes_from(TYPES) || seen.says(TEXTS) || of_requests;
    if !is_network {
        return None;
    }
    let which = host(&seen.failure.message).map_or_else(|| "a network host".to_owned(), quoted);
    let is_off = seen.says(&["outgoing traffic has been disabled"])
        || seen.comes_from(&["OfflineModeIsEnabled"]);
    if is_off {
        return seen.because(
            "no-network",
            "The program tries to download something, but `HF_HUB_OFFLINE` is set. Run it once \
            online to fill the cache: downloads into the torch and Hugging Face caches are kept.",
        );
    }
    seen.because(
        "no-network",
        format!(
            "The program could not reach {which}. Ridgeline does not restrict the network of a \
            run: this machine is offline, or needs a proxy (`HTTPS_PROXY`). Run the program once \
            with network access to fill the cache: runs read and keep the torch and Hugging Face \
            caches."
        ),
    )
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host == "0.0.0.0" || host.starts_with("127.") || host.starts_with('[')
}

fn host(message: &str) -> Option<&str> {
    let host = between(message, "host='", "'").or_else(|| {
        let rest = message.split("://").nth(1)?;
        rest.split(['/', ':', '\'', '"', ' ', ')', '>', ',']).next()
    });
    host.filter(|host| !host.is_empty())
}
