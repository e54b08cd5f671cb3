//! A server with a handler for each kind of body, looked at from the wire.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

mod http2;
mod line;
mod live;
mod long_queries;
mod requests;
mod roaming;
mod slow_readers;
mod tls;
mod upgrade;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use alluvium_http::{
    Body, BodyBudget, BodyError, CollectLimits, CounterSnapshot, Drained, Front, Handler, Request, Response,
    ResponseBudget, Server, ServerOptions, Shutdown, bind, collect, error_response,
};
use bytes::Bytes;
use http::StatusCode;

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);

struct Bodies {
    shutdown: Shutdown,
    budget: BodyBudget,
    responses: Arc<ResponseBudget>,
}

impl Handler for Bodies {
    async fn handle(&self, request: Request) -> Response {
        let body = match request.uri().path() {
            "/echo" => {
                let limits = CollectLimits {
                    bytes_max: 64 * 1024,
                    timeout: LONG,
                    discard_refused: true,
                    budget: &self.budget,
                };
                match collect(request.into_body(), limits).await {
                    Ok(bytes) => Body::full(bytes),
                    Err(error) => {
                        return error_response(StatusCode::BAD_REQUEST, "refused", &error.to_string());
                    }
                }
            }
            "/host" => return http2::host(&request),
            "/query" => Body::full(alluvium_http::query(&request).to_owned()),
            "/pieces" => Body::pieces([&b"one "[..], b"two"].map(Bytes::from_static).into()),
            "/chunks" => Body::chunks(7, async |mut feed| {
                feed.send(Bytes::from_static(b"one ")).await;
                tokio::task::yield_now().await;
                feed.send(Bytes::from_static(b"two")).await;
                Ok(())
            }),
            "/short" => Body::chunks(7, async |mut feed| {
                feed.send(Bytes::from_static(b"one ")).await;
                Ok(())
            }),
            "/broken" => Body::live(async |mut feed| {
                feed.send(Bytes::from_static(b"one ")).await;
                Err(BodyError("no more".to_owned()))
            }),
            "/nothing" => Body::live(async |_| Err(BodyError("nothing".to_owned()))),
            "/upgrade" => return upgrade::shouting(&self.shutdown),
            "/large" => slow_readers::large(&self.responses),
            "/live" => {
                let stopping = self.shutdown.wait();
                Body::live(async |mut feed| {
                    feed.send(Bytes::from_static(b"first\n")).await;
                    stopping.await;
                    feed.send(Bytes::from_static(b"last\n")).await;
                    Ok(())
                })
            }
            path => match (path.strip_prefix("/lined/"), path.strip_prefix("/pausing/")) {
                (Some(bytes), _) => line::lined(bytes.parse().unwrap()),
                (_, Some(path)) => live::pausing(path),
                (None, None) => Body::empty(),
            },
        };
        Response::new(body)
    }
}

fn start(reactors: usize, bodies_bytes_max: usize) -> Server<Bodies> {
    start_with(reactors, bodies_bytes_max, Arc::new(ResponseBudget::new(usize::MAX)))
}

fn start_with(reactors: usize, bodies_bytes_max: usize, responses: Arc<ResponseBudget>) -> Server<Bodies> {
    start_front(reactors, bodies_bytes_max, responses, Front::default())
}

fn start_front(
    reactors: usize,
    bodies_bytes_max: usize,
    responses: Arc<ResponseBudget>,
    front: Front,
) -> Server<Bodies> {
    let shutdown = Shutdown::new();
    let budget = BodyBudget::new(bodies_bytes_max);
    let handler = Bodies { shutdown: shutdown.clone(), budget, responses: Arc::clone(&responses) };
    let options = ServerOptions {
        reactors,
        heavy_reactors: 0,
        connections_max: 100,
        header_bytes_max: 8 * 1024,
        idle_timeout: LONG,
        responses,
    };
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    Server::start_with(listener, handler, options, front, shutdown).unwrap()
}

fn counters(server: &Server<Bodies>) -> CounterSnapshot {
    server.counters()
}

fn send(server: &Server<Bodies>, request: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    BufReader::new(socket)
}

fn get(server: &Server<Bodies>, path: &str) -> String {
    let mut answer = String::new();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    send(server, &request).read_to_string(&mut answer).unwrap();
    answer
}

fn stop(server: Server<Bodies>) -> Drained {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(server.drain(LONG))
}

#[test]
fn each_kind_of_body_arrives_whole_on_every_reactor() {
    let server = start(3, 0);
    for _ in 0..6 {
        for path in ["/pieces", "/chunks"] {
            let answer = get(&server, path);
            assert!(answer.contains("content-length: 7\r\n"), "{answer}");
            assert!(answer.ends_with("\r\n\r\none two"), "{answer}");
        }
    }
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_body_that_breaks_off_cannot_be_taken_for_a_whole_one() {
    let server = start(1, 0);
    // What came before the fault arrives, the head at least, and never the end.
    let short = get(&server, "/short");
    assert!(short.contains("content-length: 7\r\n") && short.ends_with("\r\n\r\none "), "{short}");
    let broken = get(&server, "/broken");
    assert!(broken.ends_with("\r\n\r\n4\r\none \r\n"), "{broken}");
    let nothing = get(&server, "/nothing");
    assert!(nothing.starts_with("HTTP/1.1 200") && nothing.ends_with("\r\n\r\n"), "{nothing}");
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_live_body_ends_in_order_when_the_server_stops() {
    let server = start(2, 0);
    let mut reading = send(&server, "GET /live HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut line = String::new();
    while line != "first\n" {
        line.clear();
        assert!(reading.read_line(&mut line).unwrap() > 0, "the response ended early");
    }
    // A connection that waits for its next request is closed rather than waited for.
    let mut idle = send(&server, "GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    idle.read_line(&mut line).unwrap();
    assert_eq!(stop(server), Drained::Clean);
    let mut rest = String::new();
    reading.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("last\n") && rest.ends_with("0\r\n\r\n"), "{rest}");
}

#[test]
fn bodies_in_pieces_are_joined_within_the_budget() {
    let server = start(1, 4);
    let head = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let echo = |chunks: &str| {
        let mut answer = String::new();
        send(&server, &format!("{head}{chunks}0\r\n\r\n")).read_to_string(&mut answer).unwrap();
        answer
    };
    for _ in 0..3 {
        assert!(echo("2\r\nab\r\n2\r\ncd\r\n").ends_with("\r\n\r\nabcd"));
    }
    assert!(echo("4\r\nabcd\r\n1\r\ne\r\n").contains("too many request bodies"));
    assert!(echo("2\r\nab\r\n2\r\ncd\r\n").ends_with("\r\n\r\nabcd"));
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_client_that_sends_too_much_comes_to_read_the_refusal() {
    let server = start(1, 0);
    let body = "x".repeat(8 * 1024 * 1024);
    let head = format!(
        "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = String::new();
    send(&server, &(head + &body)).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("exceeds the limit of 65536 bytes"), "{answer}");
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn an_address_in_use_is_told_apart() {
    let server = start(1, 0);
    let error = bind(server.address()).unwrap_err();
    assert!(matches!(error, alluvium_http::BindError::InUse { .. }), "{error}");
    assert_eq!(stop(server), Drained::Clean);
}
