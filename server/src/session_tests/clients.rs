//! Fallbacks for clients with fewer features.

use serde_json::{Value, json};

use super::diagnostics::failed;
use super::fake::Session;

async fn profiled(capabilities: Value) -> Session {
    let mut session = Session::start();
    session.initialize_with(capabilities, json!({"trusted": true, "watchFiles": false})).await;
    session.open_and_save().await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    session
}

/// The next diagnostics: severity, line and message of each.
async fn published(session: &mut Session) -> Vec<String> {
    let params = session.client.notification("textDocument/publishDiagnostics").await;
    let describe = |diagnostic: &Value| {
        let line = &diagnostic["range"]["start"]["line"];
        let message = diagnostic["message"].as_str().unwrap_or_default();
        format!("{} {line}: {message}", diagnostic["severity"])
    };
    params["diagnostics"].as_array().expect("a list").iter().map(describe).collect()
}

#[tokio::test]
async fn messages_do_not_repeat_long_names_or_themselves() {
    let mut session = Session::initialized(json!({}), true).await;
    let script = session.uri("train.py");
    session.client.open(&script, "x = 1\n").await;
    let name = "A".repeat(100_000);
    let arguments = json!([{"uri": script, "name": name}]);
    for command in ["ridgeline.measureWhatIf", "ridgeline.applyWhatIf"] {
        session.client.command(command, arguments.clone()).await.expect("done");
        let message = session.client.notification("window/showMessage").await;
        assert!(message.to_string().len() < 200, "{command}");
    }
    let error = session.client.command(&name, arguments).await.expect_err("unknown");
    assert!(error.to_string().len() < 200);

    // A client may open a whole project.
    for number in 0..4100 {
        session.client.open(&format!("untitled:{number}"), "").await;
    }
    let message = session.client.notification("window/showMessage").await;
    assert!(message["message"].as_str().is_some_and(|text| text.contains("too many files")));
    session.client.goodbye().await;
}

/// A client that supports refreshing hints needs no second copy of them.
#[tokio::test]
async fn remarks_replace_hints_without_refresh() {
    let mut session = profiled(json!({"textDocument": {"publishDiagnostics": {}}})).await;
    let headline = "3 1: 320 samples/s · 100 ms";
    let costliest = "4 3: most expensive line: 60 ms · 60%";
    let second = "4 2: 2nd most expensive line: 40 ms · 40%";
    assert_eq!(published(&mut session).await, [headline, second, costliest]);

    let script = session.uri("train.py");
    let at = |line: u32, character: u32| {
        let at = json!({"line": line, "character": character});
        json!({"start": at, "end": at})
    };
    let edit = json!([
        {"range": at(3, 4), "text": "my_"},
        {"range": at(0, 0), "text": "# a comment\n"},
    ]);
    session.client.change(&script, 2, edit).await;
    let moved = published(&mut session).await;
    assert_eq!(moved[1], "4 3: 2nd most expensive line: 40 ms · 40%");
    assert_eq!(moved[2], "4 4: most expensive line: was 60 ms · 60%");

    session.client.command("ridgeline.clear", json!([])).await.expect("done");
    assert_eq!(published(&mut session).await, Vec::<String>::new());
    session.client.goodbye().await;
}

#[tokio::test]
async fn a_failure_and_remarks_coexist() {
    let mut session = profiled(json!({"textDocument": {"publishDiagnostics": {}}})).await;
    assert_eq!(published(&mut session).await.len(), 3);
    let script = session.uri("train.py");
    session.client.save(&script).await;
    let failed = failed(&session, "exception", &[3]);
    session.next_run().await.end.send(failed).expect("waiting");
    let both = published(&mut session).await;
    assert!(both[0].starts_with("1 2: RuntimeError"), "{both:?}");
    assert_eq!(both.len(), 4);
    session.client.save(&script).await;
    session.next_run().await.end.send(session.measured()).expect("waiting");
    while published(&mut session).await.len() != 3 {}
    session.client.goodbye().await;
}

#[tokio::test]
async fn remarks_follow_the_setting() {
    let refreshed = json!({
        "workspace": {"inlayHint": {"refreshSupport": true}},
        "textDocument": {"publishDiagnostics": {}},
    });
    let mut session = profiled(refreshed).await;
    let (id, _) = session.client.wait_for_request("workspace/inlayHint/refresh").await;
    session.client.reply(&id, Value::Null).await;
    assert!(!session.client.has_unread("textDocument/publishDiagnostics").await);
    for (costs, expected) in [("on", 3), ("off", 0)] {
        let settings = json!({"ridgeline": {"diagnostics": {"costs": costs}, "watchFiles": false}});
        let params = json!({"settings": settings});
        session.client.notify("workspace/didChangeConfiguration", params).await;
        assert_eq!(published(&mut session).await.len(), expected, "{costs}");
        let (id, _) = session.client.wait_for_request("workspace/inlayHint/refresh").await;
        session.client.reply(&id, Value::Null).await;
    }
    session.client.goodbye().await;
}

#[tokio::test]
async fn the_headline_is_a_hint_without_lenses() {
    for (capabilities, expected) in [
        (json!({}), true),
        (json!({"textDocument": {"codeLens": {}}}), false),
        // Emacs' lsp-mode only announces the refresh.
        (json!({"workspace": {"codeLens": {"refreshSupport": false}}}), false),
    ] {
        let mut session = profiled(capabilities.clone()).await;
        while session.client.status("idle").await["headline"].is_null() {}
        let hints = session.hints("train.py").await;
        let headline = hints.iter().any(|hint| hint == "1: 100 ms · 320/s");
        assert_eq!(headline, expected, "{capabilities}: {hints:?}");
        session.client.goodbye().await;
    }
}

/// A client's capabilities, and what it receives.
struct Known {
    name: &'static str,
    initialize: &'static str,
    encoding: &'static str,
    hover: &'static str,
    /// Whether it supports refreshing hints and lenses.
    refreshes: [bool; 2],
    /// Whether it gets the headline as a hint, and remarks as diagnostics.
    instead: [bool; 2],
}

/// `clients/` contains the relevant parts of the clients' `initialize` requests. Those of Sublime
/// Text, Kate and Zed are from their sources, the others from the running programs.
const KNOWN: [Known; 10] = [
    Known {
        name: "VS Code",
        initialize: include_str!("clients/vscode.json"),
        encoding: "utf-16",
        hover: "markdown",
        refreshes: [true, true],
        instead: [false, false],
    },
    Known {
        name: "Neovim 0.12",
        initialize: include_str!("clients/neovim-0.12.json"),
        encoding: "utf-8",
        hover: "markdown",
        refreshes: [true, true],
        instead: [false, false],
    },
    Known {
        name: "Neovim 0.10",
        initialize: include_str!("clients/neovim-0.10.json"),
        encoding: "utf-16",
        hover: "markdown",
        refreshes: [true, false],
        instead: [true, false],
    },
    Known {
        name: "Helix 25.01",
        initialize: include_str!("clients/helix-25.01.json"),
        encoding: "utf-8",
        hover: "markdown",
        refreshes: [false, false],
        instead: [true, true],
    },
    Known {
        name: "Helix 25.07",
        initialize: include_str!("clients/helix-25.07.json"),
        encoding: "utf-8",
        hover: "markdown",
        refreshes: [false, false],
        instead: [true, true],
    },
    Known {
        name: "eglot",
        initialize: include_str!("clients/emacs-eglot.json"),
        encoding: "utf-8",
        hover: "plaintext",
        refreshes: [false, false],
        instead: [true, true],
    },
    Known {
        name: "lsp-mode",
        initialize: include_str!("clients/emacs-lsp-mode.json"),
        encoding: "utf-8",
        hover: "markdown",
        refreshes: [false, true],
        instead: [false, true],
    },
    Known {
        name: "Sublime Text",
        initialize: include_str!("clients/sublime.json"),
        encoding: "utf-16",
        hover: "markdown",
        refreshes: [true, true],
        instead: [false, false],
    },
    Known {
        name: "Kate",
        initialize: include_str!("clients/kate.json"),
        encoding: "utf-16",
        hover: "markdown",
        refreshes: [false, false],
        instead: [true, true],
    },
    Known {
        name: "Zed",
        initialize: include_str!("clients/zed.json"),
        encoding: "utf-16",
        hover: "markdown",
        refreshes: [true, false],
        instead: [true, false],
    },
];

#[tokio::test]
async fn known_clients_get_every_fact_in_a_supported_form() {
    for known in KNOWN {
        let params: Value = serde_json::from_str(known.initialize).expect("JSON");
        let capabilities = params["capabilities"].clone();
        let mut session = Session::start();
        let options = json!({"trusted": true, "watchFiles": false});
        let hello = session.initialize_with(capabilities.clone(), options).await;
        let agreed = &hello["capabilities"]["positionEncoding"];
        assert_eq!(agreed, known.encoding, "{}", known.name);

        let mut answered = Vec::new();
        if capabilities["workspace"]["configuration"] == true {
            answered.push("workspace/configuration");
        }
        session.open_and_save().await;
        let run = session.next_run().await;
        if capabilities["window"]["workDoneProgress"] == true {
            answered.push("window/workDoneProgress/create");
        }
        for method in answered {
            let (id, _) = session.client.wait_for_request(method).await;
            session.client.reply(&id, Value::Null).await;
        }
        run.end.send(session.measured()).expect("waiting");
        while session.client.status("idle").await["headline"].is_null() {}
        let refreshes = ["workspace/inlayHint/refresh", "workspace/codeLens/refresh"];
        for (method, _) in
            refreshes.into_iter().zip(known.refreshes).filter(|(_, expected)| *expected)
        {
            let (id, _) = session.client.wait_for_request(method).await;
            session.client.reply(&id, Value::Null).await;
        }

        let [headline, remarks] = known.instead;
        let hints = session.hints("train.py").await;
        let has_headline = hints.iter().any(|hint| hint == "1: 100 ms · 320/s");
        assert_eq!(has_headline, headline, "{}: {hints:?}", known.name);
        if remarks {
            assert_eq!(published(&mut session).await.len(), 3, "{}", known.name);
        }
        let at = json!({"line": 2, "character": 4});
        let params = json!({"textDocument": {"uri": session.uri("train.py")}, "position": at});
        let hover = session.client.request("textDocument/hover", params).await.expect("a hover");
        assert_eq!(hover["contents"]["kind"], known.hover, "{}", known.name);
        // Fails if the client received an unsupported message.
        session.client.goodbye().await;
    }
}

/// Emacs with lsp-mode loses messages that it reads together with a command's response and after
/// it.
#[tokio::test]
async fn questions_and_messages_precede_the_response() {
    let window = json!({"workDoneProgress": true, "showDocument": {"support": true}});
    let mut session = Session::initialized(json!({"window": window}), false).await;
    session.open_and_save().await;
    let (id, _) = session.client.wait_for_request("window/showMessageRequest").await;
    session.client.reply(&id, Value::Null).await;
    for _ in 0..20 {
        for (command, asks) in [
            ("ridgeline.openPanel", "window/showDocument"),
            ("ridgeline.profile", "window/showMessageRequest"),
        ] {
            session.client.command(command, json!([])).await.expect("done");
            assert!(session.client.has_passed(asks), "{asks} comes behind {command}'s answer");
            let (id, _) = session.client.wait_for_request(asks).await;
            session.client.reply(&id, json!({"success": true})).await;
        }
    }
    session.client.command("ridgeline.trust", json!([])).await.expect("done");
    let asks = "window/workDoneProgress/create";
    assert!(session.client.has_passed(asks), "{asks} comes behind the answer");
    session.client.wait_for_request(asks).await;
    session.client.goodbye().await;
}

/// If lsp-mode lost the end of a progress, the run would appear to continue forever.
#[tokio::test]
async fn the_end_of_a_stopped_run_precedes_the_response() {
    let mut session =
        Session::initialized(json!({"window": {"workDoneProgress": true}}), true).await;
    session.open_and_save().await;
    let script = session.uri("train.py");
    for round in 0..20 {
        if round > 0 {
            session.client.save(&script).await;
        }
        let _run = session.next_run().await;
        let (id, _) = session.client.wait_for_request("window/workDoneProgress/create").await;
        session.client.reply(&id, Value::Null).await;
        let begin = session.client.notification("$/progress").await;
        assert_eq!(begin["value"]["kind"], "begin");
        session.client.command("ridgeline.stop", json!([])).await.expect("done");
        assert!(session.client.has_passed("$/progress"), "the end comes behind the answer");
        let end = session.client.notification("$/progress").await;
        assert_eq!(end["value"], json!({"kind": "end", "message": "stopped"}));
    }
    session.client.goodbye().await;
}
