use super::*;
use serde_json::json;

fn lenses() -> Client {
    Client { shows_lenses: true, ..Client::default() }
}

#[test]
fn clients_without_lenses_or_refresh_get_alternatives() {
    let headline = |value: Value, client: &Client| {
        let (settings, _) = Settings::read(&value, client);
        settings.hints.is_some_and(|hints| hints.headline)
    };
    assert!(headline(json!({}), &Client::default()));
    assert!(!headline(json!({}), &lenses()));
    assert!(headline(json!({"inlayHints.headline": "on"}), &lenses()));
    let remarks = |value: Value, client: &Client| Settings::read(&value, client).0.remarks;
    let pushed = Client { takes_diagnostics: true, ..Client::default() };
    let refreshed = Client { refreshes_hints: true, ..pushed.clone() };
    assert!(remarks(json!({}), &pushed));
    assert!(!remarks(json!({}), &refreshed));
    assert!(!remarks(json!({"diagnostics": {"costs": "off"}}), &pushed));
    assert!(remarks(json!({"diagnostics": {"costs": "auto"}}), &pushed));
}

#[test]
fn missing_settings_have_their_defaults() {
    for nothing in [Value::Null, json!({}), json!([]), json!({"ridgeline": {}}), json!(17)] {
        let (settings, complaints) = Settings::read(&nothing, &lenses());
        assert_eq!(settings, Settings::default(), "{nothing}");
        assert!(complaints.is_empty());
    }
}

#[test]
fn initial_options_apply_unless_they_are_overridden() {
    let options = json!({"codeLens": {"memory": false}, "hover.enable": false});
    let client = Client { options, ..lenses() };
    let (settings, _) = Settings::read(&json!({"hover": {"enable": true}}), &client);
    assert_eq!(settings.lenses.map(|lenses| lenses.memory), Some(false));
    assert!(settings.hover);
}

#[test]
fn nested_and_dotted_keys() {
    let nested = json!({"ridgeline": {"inlayHints": {"minimumShare": 0.5}}});
    let dotted = json!({"inlayHints.minimumShare": 0.5});
    for value in [nested, dotted] {
        let (settings, _) = Settings::read(&value, &lenses());
        assert_eq!(settings.hints.map(|hints| hints.min_share), Some(0.5));
    }
}

#[test]
fn an_invalid_value_does_not_affect_other_settings() {
    let (settings, complaints) = Settings::read(
        &json!({"runOnSave": "no", "inlayHints": {"minimumShare": 7, "enable": false}}),
        &lenses(),
    );
    assert!(settings.run_on_save);
    assert_eq!(settings.hints, None);
    assert_eq!(
        complaints,
        [
            "ridgeline.inlayHints.minimumShare must be a number from 0 to 1; using the default",
            "ridgeline.runOnSave must be true or false; using the default",
        ]
    );
}

#[test]
fn which_findings_are_shown() {
    let read = |value: Value| Settings::read(&value, &Client::default());
    assert_eq!(read(json!({})).0.findings, Some(Severity::Hint));
    assert_eq!(read(json!({"findings": {"enable": false}})).0.findings, None);
    let (settings, _) = read(json!({"findings.minimum": "warning"}));
    assert_eq!(settings.findings, Some(Severity::Warning));
    let (settings, complaints) = read(json!({"findings.minimum": "much"}));
    assert_eq!((settings.findings, complaints.len()), (Some(Severity::Hint), 1));
}

#[test]
fn changes_in_hints_are_opt_in() {
    let change = |value: Value| {
        let (settings, complaints) = Settings::read(&value, &lenses());
        (settings.hints.map(|hints| hints.change), complaints.len())
    };
    assert_eq!(change(json!({})), (Some(Since::Off), 0));
    assert_eq!(change(json!({"inlayHints": {"change": "lastRun"}})), (Some(Since::LastRun), 0));
    assert_eq!(change(json!({"inlayHints.change": "head"})), (Some(Since::Head), 0));
    assert_eq!(change(json!({"inlayHints.change": true})), (Some(Since::Off), 1));
}

#[test]
fn measuring_the_gpu_follows_the_setting() {
    let read = |value: Value| {
        let (settings, complaints) = Settings::read(&value, &Client::default());
        (settings.measure_device, complaints.len())
    };
    assert_eq!(read(json!({})), (MeasureDevice::Ask, 0));
    assert_eq!(read(json!({"measureDevice": "always"})), (MeasureDevice::Always, 0));
    assert_eq!(read(json!({"measureDevice": "never"})), (MeasureDevice::Never, 0));
    assert_eq!(read(json!({"measureDevice": true})), (MeasureDevice::Ask, 1));
}

#[test]
fn prices_are_numbers_by_name() {
    let value = json!({"prices": {"T4": 0.3, "H100": "cheap", "L4": -1}});
    let (settings, complaints) = Settings::read(&value, &lenses());
    assert_eq!(settings.prices, BTreeMap::from([("T4".to_owned(), 0.3)]));
    assert_eq!(complaints.len(), 2);
    assert!(complaints[0].starts_with("ridgeline.prices: the price of `H100`"), "{complaints:?}");
    let (settings, complaints) = Settings::read(&json!({"prices": 3}), &lenses());
    assert!(settings.prices.is_empty());
    assert_eq!(complaints, ["ridgeline.prices must be an object with numbers; using the default"]);
}

#[test]
fn the_documentation_has_the_same_table() {
    let page = include_str!("../../../docs/settings.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = TABLE
        .iter()
        .map(|row| format!("| `{SECTION}.{}` | `{}` | {} |", row.name, row.default, row.what))
        .collect();
    assert_eq!(rows, expected);
}
