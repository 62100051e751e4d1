//! JUnit XML, as GitLab, Jenkins and others read it: one test case for each check.

use std::io::{self, Write};

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::{message, path};
use ridgeline_compare::check::{Check, Item, Status};

/// Returns the test suite of a check. `prefix` is prepended to every path.
///
/// # Errors
/// If writing the XML fails, which would be a bug.
pub fn junit(check: &Check, prefix: &str) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let count = |status: Status| check.items.iter().filter(|item| item.status == status).count();
    let errors = usize::from(check.error.is_some());
    let tests = (check.items.len() + errors).to_string();
    let (failures, errors) = (count(Status::Broken).to_string(), errors.to_string());
    let skipped = count(Status::NotJudged).to_string();
    let counts = [
        ("name", "ridgeline check"),
        ("tests", tests.as_str()),
        ("failures", failures.as_str()),
        ("errors", errors.as_str()),
        ("skipped", skipped.as_str()),
    ];
    writer.create_element("testsuites").with_attributes(counts).write_inner_content(|writer| {
        let suite = writer.create_element("testsuite").with_attributes(counts);
        suite.write_inner_content(|writer| {
            check.error.iter().try_for_each(|error| not_run(writer, error))?;
            check.items.iter().try_for_each(|item| case(writer, item, prefix))
        })?;
        Ok(())
    })?;
    let mut text = String::from_utf8_lossy(&writer.into_inner()).into_owned();
    text.push('\n');
    Ok(text)
}

/// Writes the test case of a program that did not run to its end.
fn not_run(writer: &mut Writer<impl Write>, error: &str) -> io::Result<()> {
    let text = allowed(&message(error));
    let test = writer
        .create_element("testcase")
        .with_attributes([("classname", "ridgeline.check"), ("name", "program")]);
    test.write_inner_content(|writer| {
        let attributes = [("message", text.as_str())];
        let error = writer.create_element("error").with_attributes(attributes);
        error.write_text_content(BytesText::new(&text))?;
        Ok(())
    })?;
    Ok(())
}

fn case(writer: &mut Writer<impl Write>, item: &Item, prefix: &str) -> io::Result<()> {
    let (file, line) = (allowed(&path(prefix, &item.at.file)), item.at.line.to_string());
    let (name, text) = (allowed(&item.name), allowed(&message(&item.message)));
    let test = writer.create_element("testcase").with_attributes([
        ("classname", "ridgeline.check"),
        ("name", name.as_str()),
        ("file", file.as_str()),
        ("line", line.as_str()),
    ]);
    let attributes = [("message", text.as_str())];
    match item.status {
        Status::Passed => test.write_empty()?,
        Status::NotJudged => test.write_inner_content(|writer| {
            writer.create_element("skipped").with_attributes(attributes).write_empty()?;
            Ok(())
        })?,
        Status::Broken => test.write_inner_content(|writer| {
            let place = format!("{file}:{line}: {text}");
            let failure = writer.create_element("failure").with_attributes(attributes);
            failure.write_text_content(BytesText::new(&place))?;
            Ok(())
        })?,
    };
    Ok(())
}

/// Replaces the characters that XML 1.0 cannot represent.
fn allowed(text: &str) -> String {
    let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    text.chars().map(|c| if is_allowed(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use quick_xml::Reader;

    use super::*;
    use crate::check::tests::check_with_special_characters;

    /// Parses the written XML: every element is closed, and the texts survive the round trip.
    #[test]
    fn a_suite_is_well_formed() {
        let mut check = check_with_special_characters();
        check.items[1].message.push_str(" ]]> \u{1}\u{fffe}");
        let text = junit(&check, "ml").expect("written");
        let mut reader = Reader::from_str(&text);
        let mut open: Vec<String> = Vec::new();
        let (mut cases, mut failures) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().expect("well-formed") {
                Event::Eof => break,
                Event::Start(start) => {
                    let name = String::from_utf8(start.name().as_ref().to_vec()).expect("a name");
                    note(&start, &mut cases, &mut failures);
                    open.push(name);
                }
                Event::Empty(start) => note(&start, &mut cases, &mut failures),
                Event::End(end) => {
                    assert_eq!(
                        open.pop().map(String::into_bytes).as_deref(),
                        Some(end.name().as_ref())
                    );
                }
                _ => {}
            }
        }
        assert!(open.is_empty());
        assert_eq!(cases, ["time-budget", "time-regression", "memory-regression"]);
        assert_eq!(failures, ["slower by 20%, p < 0.01 & \"so on\" ]]> \u{fffd}\u{fffd}"]);
        assert!(text.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{text}");
    }

    #[test]
    fn a_program_that_failed_is_an_error() {
        let text = junit(&Check::failed("a.py:3: ValueError: \"<x>\" \u{1}"), "").expect("written");
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites name="ridgeline check" tests="1" failures="0" errors="1" skipped="0">
              <testsuite name="ridgeline check" tests="1" failures="0" errors="1" skipped="0">
                <testcase classname="ridgeline.check" name="program">
                  <error message="a.py:3: ValueError: &quot;&lt;x&gt;&quot; �">a.py:3: ValueError: &quot;&lt;x&gt;&quot; �</error>
                </testcase>
              </testsuite>
            </testsuites>
        "#]].assert_eq(&text);
    }

    fn note(
        start: &quick_xml::events::BytesStart<'_>,
        cases: &mut Vec<String>,
        failures: &mut Vec<String>,
    ) {
        let of = |name: &str| {
            let found = start.try_get_attribute(name).expect("attributes").expect("it is there");
            found.unescape_value().expect("escaped").into_owned()
        };
        match start.name().as_ref() {
            b"testcase" => cases.push(of("name")),
            b"failure" => failures.push(of("message")),
            _ => {}
        }
    }
}
