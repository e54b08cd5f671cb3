//! A server that stores nothing and answers every request at once with 204.
//!
//! Measured like any other (`--server 'ceiling=alluvium-bench ceiling --port {port}'`), it shows what the
//! client and the machine's sockets reach at most, and so how much of a real server's figures is its own. Only
//! the append workloads make sense against it.

use std::net::Ipv4Addr;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The longest request accepted, in bytes; a longer one ends its connection.
const REQUEST_BYTES_MAX: usize = 2 << 20;
/// How much is read at a time.
const READ_BYTES: usize = 16 * 1024;
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 0\r\n\r\n";

/// Serves on a loopback port until the process ends.
pub(crate) async fn serve(port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.context("listening")?;
    loop {
        let (stream, _) = listener.accept().await.context("accepting a connection")?;
        tokio::spawn(answer(stream));
    }
}

/// Errors end the connection; its client sees that.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        while let Some(length) = request_length(&buffer) {
            stream.write_all(ANSWER).await?;
            buffer.drain(..length);
        }
        buffer.reserve(READ_BYTES);
        if buffer.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// The length of the request at the start of `buffer`, if it is there whole. Relies on how
/// [`crate::http::request`] writes its headers.
fn request_length(buffer: &[u8]) -> Option<usize> {
    const LENGTH_NAME: &[u8] = b"\r\nContent-Length: ";
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let named = buffer[..head].windows(LENGTH_NAME.len()).position(|window| window == LENGTH_NAME);
    let body = named.map_or(0, |at| {
        let digits = buffer[at + LENGTH_NAME.len()..head].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_usize, |sum, digit| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0')))
    });
    let length = head.saturating_add(4).saturating_add(body);
    (buffer.len() >= length).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_after_its_body() {
        let post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET";
        assert_eq!(request_length(post), Some(post.len() - 3));
        assert_eq!(request_length(&post[..post.len() - 4]), None);
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r\n"), Some(18));
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n"), None);
    }
}
