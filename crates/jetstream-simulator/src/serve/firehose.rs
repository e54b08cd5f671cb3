//! `com.atproto.sync.subscribeRepos`: a WebSocket for each subscriber, who takes frames from the relay's window as fast as
//! its socket does. Nothing is queued for it, so a slow one costs nothing and is told that it was too slow.

use std::sync::Arc;

use alluvium_http::{Body, Request, Response, Upgraded};
use alluvium_websocket::{AcceptOptions, CloseCode, ConnectionOptions, Error, Message, WebSocket, accept};
use http::StatusCode;

use super::State;
use super::answer::Answer;
use super::query::get;
use crate::subscription::Subscription;

pub(super) fn handle(state: &Arc<State>, request: &Request) -> Response {
    let path = request.uri().path().to_owned();
    let refuse = |answer: Answer| answer.send(&path, &mut state.faults.lock());
    let cursor = match get(request.uri().query(), "cursor").map(|cursor| cursor.parse::<u64>()) {
        None => None,
        Some(Ok(cursor)) if i64::try_from(cursor).is_ok() => Some(cursor),
        Some(_) => return refuse(Answer::bad("`cursor` must be a sequence number")),
    };
    let accepted = match accept(request, &AcceptOptions::default()) {
        Ok(accepted) => accepted,
        Err(error) => {
            let answer = Answer::error(error.status(), "InvalidRequest", &error.to_string());
            let mut response = refuse(answer);
            response.headers_mut().extend(error.headers());
            return response;
        }
    };
    let Ok(place) = Arc::clone(&state.subscribers).try_acquire_owned() else {
        let answer = Answer::error(StatusCode::SERVICE_UNAVAILABLE, "TooManySubscribers", "no place is free");
        return refuse(answer.with("retry-after", "1"));
    };
    // Here, so that whoever has the answer gets everything that happens from then on.
    let subscription = Subscription::new(&state.world.lock(), cursor);
    let state = Arc::clone(state);
    accepted.response.map(|()| {
        Body::upgrade(move |stream| async move {
            let _place = place;
            // A subscriber that goes away has nothing to be told.
            drop(follow(&state, stream, subscription).await);
        })
    })
}

async fn follow(state: &State, stream: Upgraded, mut subscription: Subscription) -> Result<(), Error> {
    let mut socket = WebSocket::server(stream, None, ConnectionOptions::default());
    let mut news = state.news.subscribe();
    loop {
        news.mark_unchanged();
        let next = subscription.next(&state.world.lock(), &mut state.faults.lock());
        for message in &next.messages {
            socket.send(&Message::Binary(message.clone())).await?;
        }
        if next.is_end {
            return end(socket, next.is_cut).await;
        }
        if !next.messages.is_empty() {
            // Whoever is behind may ask something all the same, or leave.
            tokio::select! {
                biased;
                received = socket.next() => if received?.is_none() { return Ok(()) },
                () = std::future::ready(()) => {}
            }
            continue;
        }
        tokio::select! {
            changed = news.changed() => if changed.is_err() { return Ok(()) },
            received = socket.next() => if received?.is_none() { return Ok(()) },
            () = state.shutdown.wait() => return socket.close(CloseCode::AWAY, "the relay stops").await,
        }
    }
}

/// Says goodbye, unless the connection is to end without a word.
async fn end(mut socket: WebSocket<Upgraded>, is_cut: bool) -> Result<(), Error> {
    if is_cut {
        return Ok(());
    }
    socket.close(CloseCode::NORMAL, "").await
}
