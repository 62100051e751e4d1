//! The report: the panel with its data in one HTML file, followed by the source with its costs.
//!
//! It opens from disk without a server, a network or other files. With scripts disabled, it still
//! shows everything as tables. Nothing from a workspace can become markup of the page: text is
//! escaped, data contains no `<`, and the page's Content-Security-Policy allows one script, by its
//! hash.

mod source;
mod style;
mod summary;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::panel::PanelDocument;
use super::timeline::Timeline;
use ridgeline_base::printable::clean;
use ridgeline_profile::Profile;

/// The maximum number of timeline spans in a report, so that browsers open it quickly.
pub const MAX_SPANS: usize = 20_000;

/// The input of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    pub profile: &'a Profile,
    /// The texts of its files (same index as `profile.files`), if available.
    pub texts: &'a [Option<&'a str>],
    /// The name of the project.
    pub title: &'a str,
    /// The document of the panel.
    pub document: &'a PanelDocument,
    /// The timeline of the same run.
    pub timeline: &'a Timeline,
    /// The built page of the panel.
    pub panel: BuiltPanel<'a>,
}

/// The built page of the panel. Its HTML refers to `panel.css` and `panel.js`.
#[derive(Clone, Copy, Debug)]
pub struct BuiltPanel<'a> {
    /// `index.html`.
    pub html: &'a str,
    /// `panel.js`.
    pub script: &'a str,
    /// `panel.css`.
    pub style: &'a str,
}

/// The reason why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The page was built from a source that this version does not support.
    #[error("the panel's page has no {0}; build it again")]
    Page(&'static str),
    /// The script or style contains text that would end its HTML element.
    #[error("the panel's {0} cannot stand within a page; build it again")]
    Inline(&'static str),
    /// A value that JSON cannot represent.
    #[error("the panel's data could not be written: {0}")]
    Data(#[from] serde_json::Error),
}

const TITLE: &str = "<title>Ridgeline</title>";
const STYLE: &str = "<link rel=\"stylesheet\" href=\"panel.css\">";
const SCRIPT: &str = "<script src=\"panel.js\"></script>";

/// Returns the report as one HTML page.
///
/// # Errors
/// If this version cannot insert its data into the built page.
pub fn html(report: &Report<'_>) -> Result<String, ReportError> {
    let panel = report.panel;
    let (start, rest) = part(panel.html, TITLE)?;
    let (head, rest) = part(rest, STYLE)?;
    let (body, end) = part(rest, SCRIPT)?;
    if contains_tag(panel.script, "</script") || contains_tag(panel.script, "<!--") {
        return Err(ReportError::Inline("script"));
    }
    if contains_tag(panel.style, "</style") {
        return Err(ReportError::Inline("style"));
    }
    let own_style = style::style();
    let policy = policy(panel.script, &[panel.style, &own_style]);
    let mut page = String::new();
    let _ = write!(
        page,
        "{start}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <title>{} – Ridgeline</title>{head}<style>{}</style>\n<style>{own_style}</style>{body}",
        text(report.title),
        panel.style
    );
    page.push_str(
        "<div id=\"static\" role=\"region\" aria-label=\"Source with costs\">\n<noscript>\n",
    );
    page.push_str(&summary::summary(report.profile, report.title));
    page.push_str("</noscript>\n");
    page.push_str(&source::sources(report.profile, report.texts));
    page.push_str("</div>\n");
    data(&mut page, "panel-data", report.document)?;
    data(&mut page, "timeline-data", report.timeline)?;
    let _ = write!(page, "<script>{}</script>{end}", panel.script);
    Ok(page)
}

/// Splits the page at a mark.
fn part<'a>(page: &'a str, mark: &'static str) -> Result<(&'a str, &'a str), ReportError> {
    page.split_once(mark).ok_or(ReportError::Page(mark))
}

/// The Content-Security-Policy: nothing is loaded, and only the script and the two styles with
/// these hashes are allowed.
fn policy(script: &str, styles: &[&str]) -> String {
    let mut policy = format!("default-src 'none'; script-src {}; style-src", checksum(script));
    for style in styles {
        let _ = write!(policy, " {}", checksum(style));
    }
    policy.push_str("; img-src data:; base-uri 'none'; form-action 'none'");
    policy
}

fn checksum(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// Returns whether a text contains the start of a tag, ignoring case.
fn contains_tag(text: &str, tag: &str) -> bool {
    let (text, tag) = (text.as_bytes(), tag.as_bytes());
    text.windows(tag.len()).any(|window| window.eq_ignore_ascii_case(tag))
}

/// Writes a JSON document for the page's script. Without `<` it can neither end its element nor
/// start another. The two separators are line terminators in old JavaScript.
fn data(page: &mut String, id: &str, document: &impl Serialize) -> Result<(), ReportError> {
    let json = serde_json::to_string(document)?;
    let _ = write!(page, "<script type=\"application/json\" id=\"{id}\">");
    for letter in json.chars() {
        match letter {
            '<' => page.push_str("\\u003c"),
            '\u{2028}' => page.push_str("\\u2028"),
            '\u{2029}' => page.push_str("\\u2029"),
            letter => page.push(letter),
        }
    }
    page.push_str("</script>\n");
    Ok(())
}

/// Escapes text for an element or a quoted attribute.
fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in clean(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panel::{PanelInput, document};
    use ridgeline_compare::fixture::{TRAIN, profile};

    const PANEL: BuiltPanel<'_> = BuiltPanel {
        html: "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
               <title>Ridgeline</title>\n<link rel=\"stylesheet\" href=\"panel.css\">\n</head>\n\
               <body>\n<main></main>\n<script src=\"panel.js\"></script>\n</body>\n</html>\n",
        script: "abc",
        style: "body{}",
    };

    fn page(profile: &Profile, source: &str, title: &str) -> String {
        let texts = [Some(source)];
        let input = PanelInput {
            project: title,
            profile: Some(profile),
            texts: &texts,
            ..PanelInput::default()
        };
        let report = Report {
            profile,
            texts: &texts,
            title,
            document: &document(&input),
            timeline: &Timeline::empty(0),
            panel: PANEL,
        };
        html(&report).expect("a report")
    }

    #[test]
    fn the_page_has_all_parts() {
        let (source, profile) = profile(TRAIN);
        let page = page(&profile, &source, "demo");
        for part in [
            "<title>demo – Ridgeline</title>",
            "320 samples/s · 100 ms · peak 120 MB / 23.7 GB",
            "forward",
            "activations",
            "The line that holds most is train.py:8",
            "train.py:8",
            "x = torch.relu(self.conv(x))",
            "<tr id=\"f0l8\"",
            "Conv2d",
            "98% of op time",
            "<script type=\"application/json\" id=\"panel-data\">{\"schema\":1,",
            "<script type=\"application/json\" id=\"timeline-data\">{\"schema\":1,",
            "<script>abc</script>",
            "<style>body{}</style>",
            "prefers-color-scheme:dark",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert_eq!(page.matches("<tr").count(), page.matches("</tr>").count());
        assert!(!page.contains("http:") && !page.contains("https:"));
        // The policy blocks inline styles and handlers.
        assert!(!page.contains(" style=\"") && !page.contains(" onclick"));
    }

    #[test]
    fn the_policy_allows_the_script_and_the_styles_by_hash() {
        let (source, profile) = profile(TRAIN);
        let page = page(&profile, &source, "demo");
        // The test vector in FIPS 180-2, appendix B.1.
        let hash_of_abc = "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='";
        assert!(
            page.contains(&format!("default-src 'none'; script-src {hash_of_abc}; style-src "))
        );
        for style in page.split("<style>").skip(1).filter_map(|rest| rest.split("</style>").next())
        {
            assert!(page.contains(&checksum(style)), "{style} is not in the policy");
        }
        assert!(!page.contains("unsafe"));
    }

    #[test]
    fn input_never_becomes_markup() {
        let (_, mut profile) = profile(TRAIN);
        let evil = "</style></script><!--<script>alert('\"&\u{2028}\u{2029}')</script>";
        profile.files[0].path = evil.into();
        profile.device.name = evil.into();
        profile.torch_version = evil.into();
        profile.notes = vec![evil.into()];
        profile.modules[1].path = evil.into();
        profile.modules[1].type_name = evil.into();
        profile.lines[0][0].scope = evil.into();
        profile.untracked.push(ridgeline_profile::Untracked {
            name: evil.into(),
            time_ns: 1e6,
            ..Default::default()
        });
        profile.files[0].fingerprint.clear();
        let source = format!("{evil}\n").repeat(12);
        let page = page(&profile, &source, evil);
        assert!(page.contains("&lt;script&gt;") && page.contains("\\u003cscript>"));
        assert!(!page.contains("<script>alert") && !page.contains("<!--"));
        assert_eq!(page.matches("<script").count(), 3);
        assert_eq!(page.matches("</script>").count(), 3);
        assert_eq!(page.matches("</style>").count(), 2);
    }

    #[test]
    fn data_survives_a_round_trip() {
        let mut page = String::new();
        let value = serde_json::json!({"a": "</script>\u{2028}<!--", "b": [1, null]});
        data(&mut page, "x", &value).expect("JSON");
        assert!(!page.contains('\u{2028}'));
        let json = page.split_once('>').and_then(|(_, rest)| rest.rsplit_once("</script>"));
        let read: serde_json::Value =
            serde_json::from_str(json.expect("an element").0).expect("JSON");
        assert_eq!(read, value);
    }

    #[test]
    fn an_empty_profile_has_a_report() {
        let page = page(&Profile::default(), "", "");
        assert!(page.contains("No iteration was measured") && page.ends_with("</html>\n"));
    }

    #[test]
    fn a_page_from_another_source_is_refused() {
        let (source, profile) = profile(TRAIN);
        let refused = |panel: BuiltPanel<'_>| {
            let input = PanelInput::default();
            let report = Report {
                profile: &profile,
                texts: &[Some(&source)],
                title: "demo",
                document: &document(&input),
                timeline: &Timeline::empty(0),
                panel,
            };
            html(&report).expect_err("no report").to_string()
        };
        let without_style = PANEL.html.replace("panel.css", "other.css");
        assert!(refused(BuiltPanel { html: &without_style, ..PANEL }).contains("panel.css"));
        assert!(refused(BuiltPanel { script: "'</SCRIPT>'", ..PANEL }).contains("script"));
        assert!(refused(BuiltPanel { style: "</style>", ..PANEL }).contains("style"));
    }
}
