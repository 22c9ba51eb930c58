//! `GET /live`: a sample each second, as server-sent events (WHATWG HTML, "Server-sent events").

use super::ServerState;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Those who may watch at a time, of the connections that there may be.
pub(super) const WATCHERS_MAX: usize = 16;

/// The places of those who watch.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Places {
        Places(Arc::new(Semaphore::new(WATCHERS_MAX)))
    }
}

pub(super) async fn live(State(shared): State<ServerState>) -> Response {
    let Ok(place) = shared.watchers.0.try_acquire_owned() else {
        let why = format!(
            "{WATCHERS_MAX} programs watch already, which is the limit; /status answers all\n"
        );
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    Sse::new(stream::unfold((shared.observer.watch(), place), next)).into_response()
}

/// What is watched, and the place that it takes.
type Watched = (watch::Receiver<Arc<str>>, OwnedSemaphorePermit);

/// The next sample; one that a slow reader was too late for is left out.
async fn next((mut samples, place): Watched) -> Option<(Result<Event, Infallible>, Watched)> {
    samples.changed().await.ok()?;
    let sample = Arc::clone(&samples.borrow_and_update());
    Some((Ok(Event::default().event("sample").data(&*sample)), (samples, place)))
}
