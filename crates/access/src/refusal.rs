//! Why a request goes no further, as status, code and headers (RFC 6750 §3).

use std::time::Duration;

use alluvium_feed_protocol::{Encoding, ErrorCode, ErrorResponse, RequestId, Response as Answer};
use alluvium_http::{Body, ERROR_CODE, Response, error_response};
use http::{HeaderValue, StatusCode, header};

use crate::Scope;
use crate::jwt::InvalidJwt;

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Rejected {
    /// No text that could be a token, or not one of this server's.
    #[error("the token is not one that is taken here")]
    Unknown,
    /// A static token whose time is up.
    #[error("the token has expired")]
    Expired,
    /// A signed one.
    #[error(transparent)]
    Jwt(#[from] InvalidJwt),
    /// A signed one whose key may be on its way.
    #[error("the keys that the token may be signed with are being fetched")]
    KeysPending,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this needs a token, as `Authorization: Bearer …`")]
    Missing,
    #[error("a request presents one token, once")]
    Malformed,
    #[error("{0}")]
    Rejected(#[from] Rejected),
    #[error("the token does not allow this: it needs `{0}` here")]
    Forbidden(Scope),
    #[error("pages of this origin may not open a socket here")]
    Origin,
    #[error("too many requests, or too many bytes; try again after {} s", retry_after_s(*.0))]
    Limited(Duration),
}

/// The shape that a caller expects a refusal in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    /// `{"error":{"code","message"}}`.
    Plain,
    /// A message of the protocol of feeds.
    Feeds,
    /// `{"error","message"}`, as methods of the AT Protocol have it.
    Xrpc,
}

impl Shape {
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with("/feeds/") {
            Self::Feeds
        } else if path.starts_with("/xrpc/") {
            Self::Xrpc
        } else {
            Self::Plain
        }
    }
}

fn retry_after_s(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl Refusal {
    pub(crate) const fn status_and_code(self) -> (StatusCode, &'static str) {
        match self {
            Self::Missing => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::Malformed => (StatusCode::BAD_REQUEST, "invalid_credentials"),
            Self::Rejected(Rejected::KeysPending) => (StatusCode::SERVICE_UNAVAILABLE, "keys_pending"),
            Self::Rejected(_) => (StatusCode::UNAUTHORIZED, "invalid_token"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Origin => (StatusCode::FORBIDDEN, "origin_refused"),
            Self::Limited(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
        }
    }

    /// The same in the words of the protocol of feeds.
    const fn of_feeds(self) -> ErrorCode {
        match self {
            Self::Missing | Self::Rejected(_) => ErrorCode::Unauthorized,
            Self::Malformed => ErrorCode::BadRequest,
            Self::Forbidden(_) | Self::Origin => ErrorCode::Forbidden,
            Self::Limited(_) => ErrorCode::RateLimited,
        }
    }

    /// The name that methods of the AT Protocol have for it.
    const fn of_xrpc(self) -> &'static str {
        match self {
            Self::Missing | Self::Rejected(Rejected::Unknown) => "AuthRequired",
            Self::Malformed => "InvalidRequest",
            Self::Rejected(Rejected::KeysPending) => "ServiceUnavailable",
            Self::Rejected(Rejected::Expired | Rejected::Jwt(InvalidJwt::Expired)) => "ExpiredToken",
            Self::Rejected(_) => "InvalidToken",
            Self::Forbidden(_) | Self::Origin => "Forbidden",
            Self::Limited(_) => "RateLimitExceeded",
        }
    }

    /// `WWW-Authenticate`, for what another token would change.
    fn challenge(self) -> Option<String> {
        let realm = "Bearer realm=\"alluvium\"";
        match self {
            Self::Missing => Some(realm.to_owned()),
            Self::Malformed => {
                Some(format!("{realm}, error=\"invalid_request\", error_description=\"{self}\""))
            }
            Self::Rejected(Rejected::KeysPending) | Self::Origin | Self::Limited(_) => None,
            Self::Rejected(rejected) => {
                Some(format!("{realm}, error=\"invalid_token\", error_description=\"{rejected}\""))
            }
            Self::Forbidden(scope) => {
                Some(format!("{realm}, error=\"insufficient_scope\", scope=\"{scope}\""))
            }
        }
    }

    fn retry_after_s(self) -> Option<u64> {
        match self {
            Self::Limited(wait) => Some(retry_after_s(wait)),
            Self::Rejected(Rejected::KeysPending) => Some(1),
            _ => None,
        }
    }

    /// The answer.
    pub(crate) fn into_response(self, shape: Shape) -> Response {
        let (status, code) = self.status_and_code();
        let message = self.to_string();
        let mut response = match shape {
            Shape::Plain => error_response(status, code, &message),
            Shape::Feeds => {
                let retry_after_ms = self.retry_after_s().map(|seconds| seconds * 1000);
                let error = ErrorResponse::new(RequestId::default(), self.of_feeds(), message);
                let error = ErrorResponse { retry_after_ms, ..error };
                json(
                    status,
                    error.code.clone(),
                    Encoding::Json.encode(&Answer::Error(error)).unwrap_or_default(),
                )
            }
            Shape::Xrpc => {
                let body = serde_json::json!({ "error": self.of_xrpc(), "message": message });
                json(status, code.to_owned(), body.to_string().into_bytes())
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(challenge) = self.challenge().and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

fn json(status: StatusCode, code: String, body: Vec<u8>) -> Response {
    let mut response = http::Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(code) = HeaderValue::try_from(code) {
        response.headers_mut().insert(&ERROR_CODE, code);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(refusal: Refusal, name: &str) -> Option<String> {
        let response = refusal.into_response(Shape::Plain);
        response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_challenge_says_what_another_token_would_change() {
        let challenge = |refusal| header(refusal, "www-authenticate");
        // Without a token there is no error in it (RFC 6750 §3.1).
        assert_eq!(challenge(Refusal::Missing).as_deref(), Some("Bearer realm=\"alluvium\""));
        let expired = challenge(Refusal::Rejected(Rejected::Expired)).unwrap();
        assert!(expired.contains("error=\"invalid_token\""), "{expired}");
        let forbidden = challenge(Refusal::Forbidden(Scope::Write)).unwrap();
        assert!(forbidden.ends_with("error=\"insufficient_scope\", scope=\"write\""), "{forbidden}");
        assert_eq!(challenge(Refusal::Origin), None);
    }

    #[test]
    fn waiting_is_told_in_whole_seconds_that_are_enough() {
        let after = |ms| header(Refusal::Limited(Duration::from_millis(ms)), "retry-after");
        assert_eq!(after(1).as_deref(), Some("1"));
        assert_eq!(after(1000).as_deref(), Some("1"));
        assert_eq!(after(1001).as_deref(), Some("2"));
    }

    #[test]
    fn each_door_has_its_own_shape() {
        for (path, shape) in [
            ("/v1/stream/feeds/", Shape::Plain),
            ("/feeds/v1/ws", Shape::Feeds),
            ("/xrpc/network.bsky.jetstream.getBlock", Shape::Xrpc),
            ("/feedsy", Shape::Plain),
        ] {
            assert_eq!(Shape::of(path), shape, "{path}");
        }
        let response = Refusal::Limited(Duration::from_secs(2)).into_response(Shape::Feeds);
        assert_eq!(response.headers()["alluvium-error"], "rate_limited");
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let names = [
            (Refusal::Missing, "AuthRequired"),
            (Rejected::Unknown.into(), "AuthRequired"),
            (Rejected::Expired.into(), "ExpiredToken"),
            (Refusal::Forbidden(Scope::Admin), "Forbidden"),
        ];
        for (refusal, name) in names {
            assert_eq!(refusal.of_xrpc(), name, "{refusal}");
        }
        assert_eq!(Refusal::Missing.into_response(Shape::Xrpc).status(), StatusCode::UNAUTHORIZED);
    }
}
