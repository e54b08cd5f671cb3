//! Queries that are longer than a `Uri`.

use std::fmt::Write as _;

use super::*;

const QUERY_BYTES_MAX: usize = 500_000;

fn start_long() -> Server<Bodies> {
    let front = Front { query_bytes_max: QUERY_BYTES_MAX, ..Front::default() };
    start_front(1, 0, Arc::new(ResponseBudget::new(usize::MAX)), front)
}

/// A query of so many bytes.
fn query(bytes: usize) -> String {
    let mut query = String::new();
    for number in 0.. {
        if query.len() >= bytes {
            break;
        }
        write!(query, "a=did:web:n{number}.example&").unwrap();
    }
    query.truncate(bytes);
    query
}

/// The body of the next answer, which has a length.
fn body(answers: &mut BufReader<TcpStream>) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn a_query_comes_whole_up_to_the_limit_and_the_requests_behind_it_too() {
    let server = start_long();
    let lengths = [10, 16_000, 17_000, 70_000, 5, QUERY_BYTES_MAX, 20_000, 0];
    let queries: Vec<String> = lengths.into_iter().map(query).collect();
    let request = |query: &String| format!("GET /query?{query} HTTP/1.1\r\nhost: x\r\n\r\n");
    // All at once, so that there are heads behind each other.
    let mut answers = send(&server, &queries.iter().map(request).collect::<String>());
    for query in &queries {
        assert!(body(&mut answers) == *query, "{} bytes", query.len());
    }
    drop(answers);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn one_byte_more_is_refused_with_the_limit_in_words() {
    let server = start_long();
    let mut answer = String::new();
    let request = format!("GET /query?{} HTTP/1.1\r\nhost: x\r\n\r\n", query(QUERY_BYTES_MAX + 1));
    send(&server, &request).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 414 ") && answer.contains("\"query_too_long\""), "{answer}");
    assert!(answer.contains("more than 500000 bytes"), "{answer}");
    assert_eq!(counters(&server).heads_too_large, 1);
    let mut answer = String::new();
    let request = format!("GET /query?{}\u{e9} HTTP/1.1\r\nhost: x\r\n\r\n", query(20_000));
    send(&server, &request).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"malformed_head\""), "{answer}");
    stop(server);
}

#[test]
fn where_long_queries_are_not_asked_for_they_are_part_of_the_head() {
    let server = start(1, 0);
    let mut answer = String::new();
    let request = format!("GET /query?{} HTTP/1.1\r\nhost: x\r\n\r\n", query(20_000));
    send(&server, &request).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 ") && answer.contains("\"head_too_large\""), "{answer}");
    stop(server);
}
