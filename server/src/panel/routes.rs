//! The routes below the token, as documented in docs/panel.md.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Json, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::admission::ConnectionSlot;
use super::feed::Feed;
use super::guard::{self, ANSWER_HEADERS, Token};
use super::request::{ActionResult, Line, OptimizationAction, PanelCommand, PanelRequest};
use super::{page, streams};
use crate::pool::{Reply, RequestError};
use crate::scheduler::WorkspaceId;

/// The maximum size of a request's body, in bytes. The largest has three numbers.
const BODY_LIMIT: usize = 16 * 1024;

/// The timeout for a response. Reading the timeline of a large recording takes longest.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// The timeout for a POST request, from its first byte to the response. An editor has five seconds.
const POST_LIMIT: Duration = Duration::from_secs(15);

/// The maximum number of listening pages. A browser has six connections per server for all its
/// tabs. A sixth listening page would leave none for loading another.
const STREAM_LIMIT: usize = 5;

/// The maximum number of lines of one edit.
const MAX_LINES: usize = 64;

/// The interval of keep-alive messages, which show proxies and the server that an idle page is
/// still connected.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Clone)]
struct Desk {
    questions: mpsc::Sender<PanelRequest>,
    feed: Feed,
    streams: Arc<Semaphore>,
}

/// The panel's routes. Paths without the token do not exist.
pub(super) fn router(token: Token, questions: mpsc::Sender<PanelRequest>, feed: Feed) -> Router {
    let desk = Desk { questions, feed, streams: Arc::new(Semaphore::new(STREAM_LIMIT)) };
    Router::new()
        .route("/{token}/", get(page::html))
        .route("/{token}/panel.js", get(page::script))
        .route("/{token}/panel.css", get(page::style))
        .route("/{token}/api/panel", get(document))
        .route("/{token}/api/timeline", get(timeline))
        .route("/{token}/api/compare", get(compare))
        .route("/{token}/api/events", get(events))
        .route("/{token}/api/jump", post(jump))
        .route("/{token}/api/highlight", post(highlight))
        .route("/{token}/api/command", post(command))
        .route("/{token}/api/batch", post(batch))
        .route("/{token}/api/whatif", post(what_if))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(desk)
        .layer(from_fn_with_state(token, guarded))
}

/// The middleware for every request, also for unknown paths.
async fn guarded(State(token): State<Token>, request: Request, next: Next) -> Response {
    let allowed = guard::check(&token, request.method(), request.uri(), request.headers());
    // The listener gives each connection a place. Tests of the routes have none.
    let place = request.extensions().get::<Arc<ConnectionSlot>>();
    let has_room = allowed.is_err() || place.is_none_or(|place| place.authenticate());
    let limit = if request.method() == Method::POST { POST_LIMIT } else { ANSWER_LIMIT };
    // Do not wait for a body whose declared length is too large.
    let too_large = request.body().size_hint().lower() > BODY_LIMIT as u64;
    let mut response = match allowed {
        Ok(()) if !has_room => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Ok(()) if too_large => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Ok(()) => tokio::time::timeout(limit, next.run(request))
            .await
            .unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response()),
        Err(refusal) => refusal.status().into_response(),
    };
    if allowed.is_err() || !has_room {
        // A refused connection does not keep its place.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in ANSWER_HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

#[derive(Deserialize)]
struct OfWorkspace {
    workspace: WorkspaceId,
}

#[derive(Deserialize)]
struct OfMeasurement {
    workspace: WorkspaceId,
    generation: u64,
}

#[derive(Deserialize)]
struct OfRuns {
    workspace: WorkspaceId,
    before: u64,
    after: u64,
}

#[derive(Deserialize)]
struct OfLine {
    workspace: WorkspaceId,
    file: Option<u32>,
    line: Option<u32>,
    generation: Option<u64>,
}

impl OfLine {
    fn line(&self) -> Option<Line> {
        let generation = self.generation;
        Some(Line { file: self.file?, line: self.line?, generation })
    }
}

#[derive(Deserialize)]
struct OfCommand {
    workspace: WorkspaceId,
    command: PanelCommand,
}

#[derive(Deserialize)]
struct OfBatch {
    workspace: WorkspaceId,
    generation: u64,
    batch: u64,
}

#[derive(Deserialize)]
struct OfWhatIf {
    workspace: WorkspaceId,
    name: String,
    action: OptimizationAction,
    /// The line of the finding to fix. Without a line, the edit covers the whole program.
    #[serde(flatten)]
    line: Option<Line>,
    /// Several lines instead of one: those of activations to recompute.
    #[serde(default)]
    lines: Vec<Line>,
}

async fn document(
    State(desk): State<Desk>,
    query: Result<Query<OfWorkspace>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(of) = query.map_err(IntoResponse::into_response)?;
    desk.ask(|reply| PanelRequest::Document(of.workspace, reply)).await.map(json)
}

async fn timeline(
    State(desk): State<Desk>,
    query: Result<Query<OfMeasurement>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(of) = query.map_err(IntoResponse::into_response)?;
    desk.ask(|reply| PanelRequest::Timeline(of.workspace, of.generation, reply)).await.map(json)
}

async fn compare(
    State(desk): State<Desk>,
    query: Result<Query<OfRuns>, QueryRejection>,
) -> Result<Response, Response> {
    let Query(of) = query.map_err(IntoResponse::into_response)?;
    let to_request = |reply| PanelRequest::Compare(of.workspace, of.before, of.after, reply);
    desk.ask(to_request).await.map(json)
}

async fn jump(
    State(desk): State<Desk>,
    body: Result<Json<OfLine>, JsonRejection>,
) -> Result<Json<ActionResult>, Response> {
    let Json(of) = body.map_err(IntoResponse::into_response)?;
    let line = of.line().ok_or_else(|| StatusCode::UNPROCESSABLE_ENTITY.into_response())?;
    desk.ask(|reply| PanelRequest::Jump(of.workspace, line, reply)).await.map(Json)
}

async fn highlight(
    State(desk): State<Desk>,
    body: Result<Json<OfLine>, JsonRejection>,
) -> Result<Json<ActionResult>, Response> {
    let Json(of) = body.map_err(IntoResponse::into_response)?;
    desk.ask(|reply| PanelRequest::Highlight(of.workspace, of.line(), reply)).await.map(Json)
}

async fn command(
    State(desk): State<Desk>,
    body: Result<Json<OfCommand>, JsonRejection>,
) -> Result<Json<ActionResult>, Response> {
    let Json(of) = body.map_err(IntoResponse::into_response)?;
    desk.ask(|reply| PanelRequest::Command(of.workspace, of.command, reply)).await.map(Json)
}

async fn batch(
    State(desk): State<Desk>,
    body: Result<Json<OfBatch>, JsonRejection>,
) -> Result<Json<ActionResult>, Response> {
    let Json(of) = body.map_err(IntoResponse::into_response)?;
    desk.ask(|reply| PanelRequest::Batch(of.workspace, of.generation, of.batch, reply))
        .await
        .map(Json)
}

async fn what_if(
    State(desk): State<Desk>,
    body: Result<Json<OfWhatIf>, JsonRejection>,
) -> Result<Json<ActionResult>, Response> {
    let Json(of) = body.map_err(IntoResponse::into_response)?;
    let OfWhatIf { workspace, name, action, line, lines } = of;
    let lines: Vec<Line> = line.into_iter().chain(lines).collect();
    if lines.len() > MAX_LINES {
        // A partial edit would differ from the one that the page showed.
        let why = format!("One edit can change at most {MAX_LINES} lines.");
        return Ok(Json(ActionResult::failure(why)));
    }
    let to_request = |reply| match action == OptimizationAction::Apply && !lines.is_empty() {
        true => PanelRequest::Fix(workspace, name, lines, reply),
        false => PanelRequest::WhatIf(workspace, name, action, reply),
    };
    desk.ask(to_request).await.map(Json)
}

async fn events(
    State(desk): State<Desk>,
    query: Result<Query<OfWorkspace>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let Query(of) = query.map_err(IntoResponse::into_response)?;
    let full = |_| StatusCode::SERVICE_UNAVAILABLE.into_response();
    let room = desk.streams.clone().try_acquire_owned().map_err(full)?;
    let feed = desk.feed.follow();
    if !feed.borrow().contains_key(&of.workspace) {
        return Err(StatusCode::NOT_FOUND.into_response());
    }
    // Browsers send the last event's id when they reconnect.
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let events = streams::events(feed, of.workspace, known, room);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

impl Desk {
    /// Sends a request to the owner of the state.
    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> PanelRequest) -> Result<T, Response> {
        let (reply, answer) = oneshot::channel();
        let over = || (StatusCode::SERVICE_UNAVAILABLE, "The session has ended.").into_response();
        self.questions.send(question(reply)).await.map_err(|_| over())?;
        answer.await.map_err(|_| over())?.map_err(|error| {
            let status = match error {
                RequestError::Invalid(_) => StatusCode::NOT_FOUND,
                RequestError::ContentModified => StatusCode::CONFLICT,
                RequestError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, error.to_string()).into_response()
        })
    }
}

fn json(body: Arc<str>) -> Response {
    let body = axum::body::Bytes::from_owner(Shared(body));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// A text shared by several responses.
struct Shared(Arc<str>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
