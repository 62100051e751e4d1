//! Unreachable hosts, and servers that deny access.

use super::{Advice, Failed, between, quoted};

/// The exceptions that libraries raise if a host does not answer or its name does not resolve.
const NETWORK_ERRORS: &[&str] = &[
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
const NETWORK_MESSAGES: &[&str] = &[
    "We couldn't connect to 'https://huggingface.co'",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "No route to host",
    "outgoing traffic has been disabled",
    "nodename nor servname provided",
    // From torchvision.
    "Error downloading ",
    // From Hugging Face's `evaluate`, which fetches metrics.
    "doesn't exist on the Hugging Face Hub either",
];

/// No server listens at an address on this machine.
pub(super) fn server_absent(failed: &Failed) -> Option<Advice> {
    if !failed.comes_from(&["ConnectionRefusedError"])
        && !failed.message_contains(&["Connection refused"])
    {
        return None;
    }
    if host(&failed.failure.message).is_some_and(|host| !is_this_machine(host)) {
        return None;
    }
    failed.because(
        "server-absent",
        "The program tries to connect to a server, but nothing listens at that address (a tracking \
        server, Visdom, Redis, a database, another rank). Start the server, or disable that part \
        of the program.",
    )
}

/// The server denied access.
pub(super) fn login_needed(failed: &Failed) -> Option<Advice> {
    let is_gated = failed.comes_from(&["GatedRepoError"])
        || failed.message_contains(&["Cannot access gated repo"]);
    if is_gated {
        let how = failed.run.with_variable(failed.reader, "HF_TOKEN", "…");
        return failed.because(
            "login-needed",
            format!(
                "The model or dataset is gated: accept its terms on its page and log in with `hf \
                auth login`, or set {how}."
            ),
        );
    }
    if !(failed.comes_from(&[
        "HTTPError",
        "HfHubHTTPError",
        "HTTPStatusError",
        "RepositoryNotFoundError",
    ]) && failed.message_contains(&["401", "403"]))
    {
        return None;
    }
    failed.because(
        "login-needed",
        "The server denied access: the program must be logged in, or has no permission. Log in \
        with the library's own command. The run uses your home folder and its saved logins.",
    )
}

/// A remote host cannot be reached.
pub(super) fn no_network(failed: &Failed) -> Option<Advice> {
    let from_requests =
        failed.comes_from(&["ConnectionError"]) && failed.failure.error_type.contains("requests");
    let is_network = failed.comes_from(NETWORK_ERRORS)
        || failed.message_contains(NETWORK_MESSAGES)
        || from_requests;
    if !is_network {
        return None;
    }
    let which = host(&failed.failure.message).map_or_else(|| "a network host".to_owned(), quoted);
    let is_off = failed.message_contains(&["outgoing traffic has been disabled"])
        || failed.comes_from(&["OfflineModeIsEnabled"]);
    if is_off {
        return failed.because(
            "no-network",
            "The program tries to download something, but `HF_HUB_OFFLINE` is set. Run it once \
            online to fill the cache: downloads into the torch and Hugging Face caches are kept.",
        );
    }
    failed.because(
        "no-network",
        format!(
            "The program could not reach {which}. Ridgeline does not restrict the network of a \
            run: this machine is offline, or needs a proxy (`HTTPS_PROXY`). Run the program once \
            with network access and without Ridgeline, which discards downloads into the project \
            (it keeps the torch and Hugging Face caches)."
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
