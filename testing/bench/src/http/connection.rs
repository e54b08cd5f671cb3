//! One keep-alive connection with one request in flight.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wire::{BodyDecoder, HEAD_BYTES_MAX, Head, parse_head};

/// A connection and the bytes received on it that are not used yet.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Connection {
    /// Connects. `buffer_bytes` is how much one read may take in; at least a whole head fits in any case.
    pub(crate) async fn open(address: SocketAddr, buffer_bytes: usize) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).context("turning off Nagle's algorithm")?;
        let buffer = vec![0; buffer_bytes.max(HEAD_BYTES_MAX)].into_boxed_slice();
        Ok(Self { stream, buffer, start: 0, end: 0 })
    }

    /// Sends one request and reads its response, dropping the content.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Head> {
        self.send(request).await?;
        let head = self.receive_head().await?;
        self.receive_body(&head, &mut |_| ()).await?;
        Ok(head)
    }

    /// Sends one request.
    pub(crate) async fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(request).await.context("sending a request")
    }

    /// Reads the head of the next response, past any interim (1xx) ones.
    pub(crate) async fn receive_head(&mut self) -> anyhow::Result<Head> {
        loop {
            if let Some((head, length)) = parse_head(&self.buffer[self.start..self.end])? {
                self.start += length;
                if head.status >= 200 {
                    return Ok(head);
                }
            } else if !self.fill().await? {
                bail!("the server closed the connection before its answer");
            }
        }
    }

    /// Reads the rest of a response's body, content to `sink`.
    pub(crate) async fn receive_body(
        &mut self,
        head: &Head,
        sink: &mut impl FnMut(&[u8]),
    ) -> anyhow::Result<()> {
        let mut decoder = BodyDecoder::new(head.framing);
        while !decoder.is_done() {
            if !self.receive_piece(&mut decoder, sink).await? {
                break;
            }
        }
        Ok(())
    }

    /// Decodes what is here of a body, or waits for more of it. False if the body ended with the connection.
    pub(crate) async fn receive_piece(
        &mut self,
        decoder: &mut BodyDecoder,
        sink: &mut impl FnMut(&[u8]),
    ) -> anyhow::Result<bool> {
        let used = decoder.decode(&self.buffer[self.start..self.end], sink)?;
        self.start += used;
        if used == 0 && !self.fill().await? {
            if decoder.may_end_with_connection() {
                return Ok(false);
            }
            bail!("the server closed the connection inside a body");
        }
        Ok(true)
    }

    /// Reads more bytes; false at the end of the connection.
    async fn fill(&mut self) -> anyhow::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = self.stream.read(&mut self.buffer[self.end..]).await.context("reading a response")?;
        self.end += received;
        Ok(received > 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Runs `client` against a server that answers whatever comes with `pieces`, each written apart, and then
    /// closes.
    fn against<T>(pieces: &'static [&str], client: impl AsyncFnOnce(Connection) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 16];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                for piece in pieces {
                    stream.write_all(piece.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let client = async { client(Connection::open(address, 0).await.unwrap()).await };
            tokio::join!(server, client).1
        })
    }

    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        let pieces =
            &["HTTP/1.1 200 O", "K\r\nTransfer-Encoding: chunked\r\n\r\n5\r", "\nhel", "lo\r\n0\r\n\r\n"];
        let content = against(pieces, async |mut connection| {
            connection.send(b"GET").await.unwrap();
            let head = connection.receive_head().await.unwrap();
            let mut content = Vec::new();
            connection.receive_body(&head, &mut |piece| content.extend_from_slice(piece)).await.unwrap();
            content
        });
        assert_eq!(content, b"hello");
    }

    #[test]
    fn the_next_answer_begins_where_the_body_of_the_last_ended() {
        let pieces = &[
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            "HTTP/1.1 204 No Content\r\n\r\n",
        ];
        let statuses = against(pieces, async |mut connection| {
            let first = connection.exchange(b"GET").await.unwrap().status;
            (first, connection.exchange(b"GET").await.unwrap().status)
        });
        assert_eq!(statuses, (200, 204));
    }

    #[test]
    fn a_connection_lost_inside_a_body_is_an_error() {
        let pieces = &["HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"];
        let result = against(pieces, async |mut connection| connection.exchange(b"GET").await);
        assert!(result.unwrap_err().to_string().contains("inside a body"));
    }

    #[test]
    fn an_unframed_body_ends_with_its_connection() {
        let pieces = &["HTTP/1.1 200 OK\r\n\r\nhello"];
        let head = against(pieces, async |mut connection| connection.exchange(b"GET").await).unwrap();
        assert!(head.close);
    }
}
