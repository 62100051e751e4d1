//! `textDocument/diagnostic` and `textDocument/publishDiagnostics`: a failed run at the failing
//! line, with its traceback as related information, findings, and remarks on costs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ridgeline_analysis::diagnose::current_text::CurrentText;
use ridgeline_analysis::diagnose::severity::Severity;
use ridgeline_analysis::present::failure::FailureFrame;
use ridgeline_analysis::present::findings::plain_text;
use ridgeline_analysis::present::remarks::remarks;
use ridgeline_analysis::python::{LineMap, Lines, SourceIndex, fingerprint};
use serde_json::json;
use tower_lsp::ls_types::{
    Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, DocumentDiagnosticReport,
    DocumentDiagnosticReportResult, FullDocumentDiagnosticReport, Location, NumberOrString, Range,
    RelatedFullDocumentDiagnosticReport, Uri,
};

use crate::diagnostics::{Failure, Placements, Publication};
use crate::documents::{DocumentId, DocumentSnapshot, text_on_disk};
use crate::findings::{FindingSet, PlacedFinding as Found, in_text};
use crate::live::{LineReports, Obstacle};
use crate::lsp::position::{Encoding, line_range, to_range};
use crate::lsp::to_proto;
use crate::scheduler::WorkspaceId;
use crate::state::GlobalState;
use crate::view::View;

/// The maximum number of files with shown findings.
const MAX_FILES: usize = 256;

/// The maximum number of traceback frames shown. A recursion has a thousand.
const RELATED_LIMIT: usize = 32;

/// The diagnostics of one file.
struct Placed {
    /// The URI, as spelled by the client if the file is open.
    uri: String,
    diagnostics: Vec<Diagnostic>,
}

/// The data for placing diagnostics. Placing reads files and computes costs, so do it on the pool.
pub(crate) struct Report {
    failures: Vec<Arc<Failure>>,
    reports: Vec<Arc<LineReports>>,
    remarked: Vec<View>,
    /// The findings and where to show them, or `None` if findings are turned off.
    found: Option<(Vec<Arc<FindingSet>>, FileScope)>,
    minimum: Severity,
    open: HashMap<PathBuf, DocumentSnapshot>,
    encoding: Encoding,
    related_information: bool,
}

/// The files in which findings are shown.
enum FileScope {
    /// Every file with findings.
    Everywhere,
    /// One file.
    In(PathBuf),
}

/// Gathers the diagnostics of a document.
pub(crate) fn report(state: &GlobalState, id: &DocumentId) -> Report {
    let real = state.documents.get(id).and_then(|document| document.real.clone());
    let failures = state.workspaces.iter().filter_map(|workspace| workspace.failure.clone());
    let here = failures.filter(|failure| real.is_some() && failure.file() == real);
    let reports = state.workspaces.iter().filter_map(|workspace| workspace.live.reports.clone());
    let reports = reports
        .filter_map(|reports| Some(reports.of(real.as_deref()?)).filter(LineReports::has_reports));
    let reports = reports.map(Arc::new).collect();
    let mut report = gather(state, here.collect(), reports, state.view(id).into_iter().collect());
    report.found = real.filter(|_| state.settings.findings.is_some()).map(|real| {
        let around = state.findings_around(&real);
        (around, FileScope::In(real))
    });
    report
}

/// Gathers the diagnostics of a workspace: its failure, wherever it is shown, and remarks on its
/// open documents.
pub(crate) fn report_of(state: &GlobalState, id: WorkspaceId) -> Report {
    let workspace = &state.workspaces[id];
    let (failure, reports) = (workspace.failure.clone(), workspace.live.reports.clone());
    let ours = state.documents.iter().filter(|(_, document)| {
        document.real.as_deref().and_then(|file| state.workspaces.around(file)) == Some(id)
    });
    let views = ours.filter_map(|(id, _)| state.view(id)).collect();
    let mut report =
        gather(state, failure.into_iter().collect(), reports.into_iter().collect(), views);
    report.found = state.settings.findings.map(|_| {
        let all = workspace.findings.all().cloned().collect();
        (all, FileScope::Everywhere)
    });
    report
}

fn gather(
    state: &GlobalState,
    failures: Vec<Arc<Failure>>,
    reports: Vec<Arc<LineReports>>,
    views: Vec<View>,
) -> Report {
    let open = state
        .documents
        .iter()
        .filter_map(|(id, document)| Some((document.real.clone()?, state.documents.snapshot(id)?)));
    let (failing, remarks) = (state.settings.diagnostics, state.settings.remarks);
    Report {
        failures: if failing { failures } else { Vec::new() },
        reports: if failing { reports } else { Vec::new() },
        remarked: if remarks { views } else { Vec::new() },
        found: None,
        minimum: state.settings.findings.unwrap_or(Severity::Hint),
        open: open.collect(),
        encoding: state.client.encoding,
        related_information: state.client.related_information,
    }
}

impl Report {
    /// The response to a pull request.
    pub(crate) fn finish(&self) -> DocumentDiagnosticReportResult {
        let (placed, _) = self.placed();
        let items = placed.into_iter().flat_map(|placed| placed.diagnostics).collect();
        let report = FullDocumentDiagnosticReport { result_id: None, items };
        DocumentDiagnosticReportResult::Report(DocumentDiagnosticReport::Full(
            RelatedFullDocumentDiagnosticReport {
                related_documents: None,
                full_document_diagnostic_report: report,
            },
        ))
    }

    /// The diagnostics of each file in its current text, as sent to the client.
    pub(crate) fn place(&self) -> Placements {
        let (placed, homeless) = self.placed();
        let files = placed.iter().map(|placed| Publication {
            uri: placed.uri.clone(),
            diagnostics: json!(placed.diagnostics),
        });
        Placements { files: files.collect(), homeless }
    }

    /// The diagnostics by file, and the messages without a file.
    fn placed(&self) -> (Vec<Placed>, Vec<String>) {
        let (mut all, mut homeless) = (Vec::<Placed>::new(), Vec::new());
        let mut add = |found: Placed| match all.iter_mut().find(|placed| placed.uri == found.uri) {
            Some(placed) => placed.diagnostics.extend(found.diagnostics),
            None => all.push(found),
        };
        for failure in &self.failures {
            match self.failure(failure) {
                Some(placed) => add(placed),
                None => homeless.push(failure.report.message.clone()),
            }
        }
        self.reports.iter().flat_map(|reports| self.live(reports)).for_each(&mut add);
        self.found().into_iter().for_each(&mut add);
        self.remarked.iter().filter_map(|view| self.remarks(view)).for_each(add);
        (all, homeless)
    }

    /// The reports of an estimate at lines. A failure that was already reported as an error is not
    /// repeated: that it would fail again on save is not new.
    fn live(&self, reports: &LineReports) -> Vec<Placed> {
        let known = |frame: &FailureFrame| {
            self.failures.iter().any(|failure| {
                failure.root == reports.root && failure.report.at.as_ref() == Some(frame)
            })
        };
        let obstacle = reports.obstacle.iter().filter(|obstacle| !known(&obstacle.at));
        let obstacle = obstacle.map(|Obstacle { at, message, raises }| {
            let (severity, code) = if *raises {
                (DiagnosticSeverity::WARNING, "would-fail")
            } else {
                (DiagnosticSeverity::HINT, "not-estimated")
            };
            (at, at.line, message, severity, code)
        });
        let gaps = reports.gaps.iter().filter_map(|gap| {
            let severity = DiagnosticSeverity::INFORMATION;
            Some((
                &gap.at,
                self.current_line(reports, &gap.at)?,
                &gap.message,
                severity,
                "not-estimated",
            ))
        });
        let place = |(at, line, text, severity, code): (&FailureFrame, u32, &String, _, &str)| {
            let file = reports.root.join(&at.path);
            let (uri, range) = self.at_line(&file, line)?;
            let diagnostics = vec![Diagnostic {
                range,
                severity: Some(severity),
                code: Some(NumberOrString::String(code.to_owned())),
                source: Some("ridgeline".to_owned()),
                message: text.clone(),
                ..Diagnostic::default()
            }];
            Some(Placed { uri, diagnostics })
        };
        obstacle.chain(gaps).filter_map(place).collect()
    }

    /// The current line of a line of the estimated text. Returns `None` if it changed.
    fn current_line(&self, reports: &LineReports, at: &FailureFrame) -> Option<u32> {
        let Some(open) = self.open.get(&reports.root.join(&at.path)) else { return Some(at.line) };
        let estimated = reports.fingerprints.iter().find(|(path, _)| *path == at.path);
        let (_, estimated) = estimated?;
        let place = LineMap::new(estimated, open.index.lines().checksums()).place(at.line)?;
        (!place.changed).then_some(place.line)
    }

    /// The findings, by file.
    fn found(&self) -> Vec<Placed> {
        let Some((all, scope)) = &self.found else { return Vec::new() };
        let mut files = match scope {
            FileScope::In(file) => vec![file.clone()],
            FileScope::Everywhere => all.iter().flat_map(|set| set.files()).collect(),
        };
        files.sort_unstable();
        files.dedup();
        files.truncate(MAX_FILES);
        files.iter().filter_map(|file| self.found_in(all, file)).collect()
    }

    fn found_in(&self, all: &[Arc<FindingSet>], file: &Path) -> Option<Placed> {
        let (uri, index) = match self.open.get(file) {
            Some(open) => (open.uri.clone(), open.index.clone()),
            None => {
                let uri = to_proto::uri(file)?.as_str().to_owned();
                (uri, SourceIndex::new(text_on_disk(file)?))
            }
        };
        let related = |found: &Found<'_>| self.related(found);
        let place = |found: &Found<'_>| diagnostic(found, &index, self.encoding, related(found));
        let diagnostics: Vec<Diagnostic> =
            in_text(all, file, &index, self.minimum).iter().map(place).collect();
        (!diagnostics.is_empty()).then_some(Placed { uri, diagnostics })
    }

    /// The related places of a finding that have not changed.
    fn related(&self, found: &Found<'_>) -> Vec<DiagnosticRelatedInformation> {
        if !self.related_information {
            return Vec::new();
        }
        let places = found.finding.related.iter().take(RELATED_LIMIT);
        let places = places.filter_map(|(place, what)| {
            let file = found.set.root.join(&place.path);
            let then = found.set.fingerprint_of(&place.path).unwrap_or_default();
            let (uri, index) = match self.open.get(&file) {
                Some(open) => (open.uri.parse().ok()?, open.index.clone()),
                None => (to_proto::uri(&file)?, SourceIndex::new(text_on_disk(&file)?)),
            };
            let line = CurrentText::new(then, &index).line(place.line)?;
            let range = line_range(index.text(), index.lines(), self.encoding, line);
            let location = Location { uri, range };
            Some(DiagnosticRelatedInformation { location, message: what.clone() })
        });
        places.collect()
    }

    /// The location of a line of the current text.
    fn at_line(&self, file: &Path, line: u32) -> Option<(String, Range)> {
        if let Some(document) = self.open.get(file) {
            let index = &document.index;
            let range = line_range(index.text(), index.lines(), self.encoding, line);
            return Some((document.uri.clone(), range));
        }
        let text = text_on_disk(file)?;
        let range = line_range(&text, &Lines::new(&text), self.encoding, line);
        Some((to_proto::uri(file)?.as_str().to_owned(), range))
    }

    /// Remarks on the costs of a document. Returns `None` if there are none.
    fn remarks(&self, view: &View) -> Option<Placed> {
        let (profile, costs) = view.costs()?;
        let index = &view.document.index;
        let diagnostics: Vec<Diagnostic> = remarks(profile, costs, index)
            .into_iter()
            .map(|remark| Diagnostic {
                range: to_range(index.text(), index.lines(), self.encoding, remark.span),
                severity: Some(match remark.is_headline {
                    true => DiagnosticSeverity::INFORMATION,
                    false => DiagnosticSeverity::HINT,
                }),
                code: Some(NumberOrString::String("cost".to_owned())),
                source: Some("ridgeline".to_owned()),
                message: remark.message,
                ..Diagnostic::default()
            })
            .collect();
        let uri = view.document.uri.clone();
        (!diagnostics.is_empty()).then_some(Placed { uri, diagnostics })
    }

    fn failure(&self, failure: &Failure) -> Option<Placed> {
        let file = failure.file()?;
        let at = failure.report.at.as_ref()?;
        let (uri, range) = self.location(&file, at.line)?;
        let mut message = failure.report.message.clone();
        let mut related = Vec::new();
        for (frame, what) in failure.report.related.iter().take(RELATED_LIMIT) {
            match self.location(&failure.path(frame), frame.line) {
                Some((uri, range)) if self.related_information => {
                    related.push(DiagnosticRelatedInformation {
                        location: Location { uri, range },
                        message: what.clone(),
                    });
                }
                _ => message += &format!("\n{}:{}: {what}", frame.path, frame.line),
            }
        }
        let open = self.open.get(&file);
        Some(Placed {
            uri: open.map_or_else(|| uri.as_str().to_owned(), |document| document.uri.clone()),
            diagnostics: vec![Diagnostic {
                range,
                severity: Some(DiagnosticSeverity::ERROR),
                code: Some(NumberOrString::String(code(&failure.kind).to_owned())),
                source: Some("ridgeline".to_owned()),
                message,
                related_information: (!related.is_empty()).then_some(related),
                ..Diagnostic::default()
            }],
        })
    }

    /// The location of a line of the text that ran in the current text.
    fn location(&self, file: &Path, line: u32) -> Option<(Uri, Range)> {
        let on_disk = text_on_disk(file);
        let Some(document) = self.open.get(file) else {
            let text = on_disk?;
            let range = line_range(&text, &Lines::new(&text), self.encoding, line);
            return Some((to_proto::uri(file)?, range));
        };
        // The saved text ran. The open text may have been edited since.
        let index = &document.index;
        let saved = on_disk.as_deref().map(fingerprint).unwrap_or_default();
        let map = LineMap::new(&saved, index.lines().checksums());
        let line = map.place(line).map_or(line, |place| place.line);
        let range = line_range(index.text(), index.lines(), self.encoding, line);
        Some((document.uri.parse().ok()?, range))
    }
}

/// Converts a finding to a diagnostic at its line in the current text.
pub(crate) fn diagnostic(
    found: &Found<'_>,
    index: &SourceIndex,
    encoding: Encoding,
    related: Vec<DiagnosticRelatedInformation>,
) -> Diagnostic {
    Diagnostic {
        range: to_range(index.text(), index.lines(), encoding, index.code_on_line(found.line)),
        severity: Some(match found.severity {
            Severity::Warning => DiagnosticSeverity::WARNING,
            Severity::Information => DiagnosticSeverity::INFORMATION,
            Severity::Hint => DiagnosticSeverity::HINT,
        }),
        code: Some(NumberOrString::String(found.finding.rule.to_owned())),
        source: Some("ridgeline".to_owned()),
        message: plain_text(found.finding, found.profile()),
        related_information: (!related.is_empty()).then_some(related),
        ..Diagnostic::default()
    }
}

fn code(kind: &str) -> &'static str {
    match kind {
        "syntax" => "syntax-error",
        "exit" => "exited",
        "memory" => "out-of-memory",
        _ => "exception",
    }
}
