//! Simulates the panel's page, only for clicks on a line.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// Read timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A page opened at a URL.
pub(super) struct Panel {
    host: String,
    path: String,
    workspace: u64,
}

impl Panel {
    /// Parses the URL `http://127.0.0.1:PORT/TOKEN/?workspace=N`.
    pub(super) fn at(address: &str) -> Panel {
        let rest = address.strip_prefix("http://").expect("an address of the panel");
        let (host, path) = rest.split_once('/').expect("a token");
        let (path, query) = path.split_once('?').expect("a workspace");
        let number = query.split('&').find_map(|pair| pair.strip_prefix("workspace="));
        Panel {
            host: host.to_owned(),
            path: format!("/{path}"),
            workspace: number.and_then(|number| number.parse().ok()).expect("a number"),
        }
    }

    /// Clicks on a line and returns the response.
    pub(super) fn jump(&self, file: &str, line: u32) -> Value {
        let workspace = self.workspace;
        let document = self.send("GET", &format!("api/panel?workspace={workspace}"), None);
        let files = document["recording"]["files"].as_array().expect("a recording").clone();
        let number = files.iter().position(|known| known["path"] == file).expect("the file");
        let body = json!({"workspace": workspace, "file": number, "line": line});
        self.send("POST", "api/jump", Some(body))
    }

    fn send(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            body.len(),
            host = self.host,
        );
        let mut stream = TcpStream::connect(&self.host).expect("a panel that listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
        stream.write_all((head + &body).as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }
}
