//! What stands between client and server: it passes requests on, and does to answers what a test wants.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What becomes of a request.
pub(crate) enum Fate {
    Pass,
    /// The whole answer, in place of the server's.
    Answer(String),
    /// The server's answer, changed.
    Edit(Box<dyn FnOnce(Vec<u8>) -> Vec<u8> + Send>),
}

type Rule = Box<dyn FnMut(&str) -> Fate + Send>;

pub(crate) struct Front {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    rule: Rule,
    /// Bumped to end the connections there are.
    connections: JoinSet<()>,
}

impl Front {
    /// `rule` is asked about each request by its first line.
    pub(crate) async fn new(server: SocketAddr, rule: impl FnMut(&str) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let connections = JoinSet::new();
        let shared = Arc::new(Mutex::new(Shared { server, rule: Box::new(rule), connections }));
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks all connections, and passes later ones on to another server.
    pub(crate) fn turn_to(&self, server: SocketAddr) {
        let mut shared = self.shared.lock().expect("no panic");
        shared.server = server;
        shared.connections.abort_all();
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Mutex<Shared>>) {
    while let Ok((client, _)) = listener.accept().await {
        let serving = serve(client, Arc::clone(&shared));
        shared.lock().expect("no panic").connections.spawn(async move { serving.await.unwrap_or_default() });
    }
}

/// One request; a connection is not used for another.
async fn serve(mut client: TcpStream, shared: Arc<Mutex<Shared>>) -> std::io::Result<()> {
    let mut request = Vec::new();
    let end = loop {
        if client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if let Some(at) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 2;
        }
    };
    let head = String::from_utf8_lossy(&request[..end]).into_owned();
    let (fate, server) = {
        let mut shared = shared.lock().expect("no panic");
        ((shared.rule)(head.lines().next().unwrap_or_default()), shared.server)
    };
    let is_socket = head.to_lowercase().contains("upgrade: websocket");
    if !is_socket {
        request.splice(end..end, *b"connection: close\r\n");
    }
    match fate {
        Fate::Answer(answer) => client.write_all(answer.as_bytes()).await?,
        Fate::Pass => {
            let mut server = TcpStream::connect(server).await?;
            server.write_all(&request).await?;
            copy_bidirectional(&mut client, &mut server).await?;
        }
        Fate::Edit(edit) => {
            let mut server = TcpStream::connect(server).await?;
            server.write_all(&request).await?;
            let mut answer = Vec::new();
            // The body of a procedure may still be on its way.
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            tokio::select! {
                read = from_server.read_to_end(&mut answer) => drop(read?),
                copied = tokio::io::copy(&mut from_client, &mut to_server) => drop(copied?),
            }
            to_client.write_all(&edit(answer)).await?;
        }
    }
    client.shutdown().await
}

/// An answer with a body of JSON.
pub(crate) fn refusal(status: &str, body: &str) -> Fate {
    Fate::Answer(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ))
}

/// Changes the body of an answer.
pub(crate) fn edit_body(edit: impl FnOnce(&mut [u8]) + Send + 'static) -> Fate {
    Fate::Edit(Box::new(move |mut answer| {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        edit(&mut answer[end..]);
        answer
    }))
}

/// Breaks an answer off in the middle of its body.
pub(crate) fn cut() -> Fate {
    Fate::Edit(Box::new(|mut answer| {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        answer.truncate(end + (answer.len() - end).div_ceil(2));
        answer
    }))
}
