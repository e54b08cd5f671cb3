//! Connections with large answers move to another reactor, and nobody notices.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use alluvium_http::{
    Body, Drained, HEAVY_BYTES_MIN, Handler, Request, Response, ResponseBudget, Server, ServerOptions,
    Shutdown, bind,
};

use crate::LONG;

/// Answers `/large` and `/huge` with such a body and everything else with the name of the thread.
struct Where;

impl Handler for Where {
    async fn handle(&self, request: Request) -> Response {
        Response::new(match request.uri().path() {
            "/large" => Body::full(vec![b'x'; usize::try_from(HEAVY_BYTES_MIN).unwrap()]),
            // More than the buffers of both ends take.
            "/huge" => Body::full(vec![b'x'; 64 * 1024 * 1024]),
            _ => Body::full(std::thread::current().name().unwrap_or_default().to_owned()),
        })
    }
}

fn start(reactors: usize, heavy_reactors: usize) -> Server<Where> {
    let options = ServerOptions {
        reactors,
        heavy_reactors,
        connections_max: 100,
        header_bytes_max: 8 * 1024,
        idle_timeout: LONG,
        responses: Arc::new(ResponseBudget::new(usize::MAX)),
    };
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    Server::start(listener, Where, options, Shutdown::new()).unwrap()
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server<Where>) -> Self {
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self(BufReader::new(socket))
    }

    fn get(&mut self, path: &str) -> Vec<u8> {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let (mut line, mut len) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the connection ended early");
            if let Some(value) = line.strip_prefix("content-length: ") {
                len = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    fn reactor(&mut self) -> String {
        String::from_utf8(self.get("/where")).unwrap()
    }
}

fn drain(server: Server<Where>, deadline: Duration) -> Drained {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(server.drain(deadline))
}

#[test]
fn a_connection_moves_with_its_first_large_answer_and_stays_there() {
    let server = start(1, 1);
    let mut heavy = Client::connect(&server);
    let mut light = Client::connect(&server);
    assert_eq!((heavy.reactor(), light.reactor()), ("reactor-0".to_owned(), "reactor-0".to_owned()));
    for _ in 0..3 {
        assert!(heavy.get("/large").iter().all(|byte| *byte == b'x'));
        assert_eq!(heavy.reactor(), "reactor-1");
        assert_eq!(light.reactor(), "reactor-0");
    }
    // The next heavy one is dealt to the next reactor, which happens to be its own.
    light.get("/large");
    assert_eq!(light.reactor(), "reactor-0");
    drop((heavy, light));
    assert_eq!(drain(server, LONG), Drained::Clean);
}

#[test]
fn heavy_connections_are_spread_over_all_reactors() {
    let server = start(2, 2);
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(&server)).collect();
    let mut reactors: Vec<String> = clients
        .iter_mut()
        .map(|client| {
            client.get("/large");
            client.reactor()
        })
        .collect();
    reactors.sort_unstable();
    let twice = ["reactor-0", "reactor-1", "reactor-2", "reactor-3"].map(|name| [name, name]).concat();
    assert_eq!(reactors, twice);
    drop(clients);
    assert_eq!(drain(server, LONG), Drained::Clean);
}

#[test]
fn a_moved_connection_that_waits_is_closed_when_the_server_stops() {
    let server = start(1, 1);
    let mut heavy = Client::connect(&server);
    heavy.get("/large");
    assert_eq!(heavy.reactor(), "reactor-1");
    assert_eq!(drain(server, LONG), Drained::Clean);
    assert_eq!(heavy.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_moved_connection_that_does_not_read_is_cut_at_the_deadline() {
    let server = start(1, 1);
    let mut heavy = Client::connect(&server);
    heavy.get("/large");
    write!(heavy.0.get_mut(), "GET /huge HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    heavy.0.read_exact(&mut [0]).unwrap();
    assert_eq!(drain(server, Duration::from_millis(100)), Drained::Cut { connections: 1 });
}
