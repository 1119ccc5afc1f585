//! Getting one file from a server.
//!
//! Plain HTTP/1.1 with one request a connection, and no more of it than a server of files needs:
//! lengths, chunks, redirections. https is left to curl(1). Answers are bounded; a server that
//! stops in the middle is an error. Must not know what is asked for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Redirections that are followed.
const MOST_HOPS: usize = 5;
/// Bytes of an answer.
const MOST_BYTES: u64 = 8 << 30;
/// Bytes of a line of its head, and lines.
const MOST_LINE_BYTES: u64 = 16 << 10;
const MOST_LINES: usize = 100;
/// What curl(1) says if the server has no such file: exit status 22, by --fail.
const NOT_THERE: i32 = 22;

/// The file at `url`; `None`: the server has none.
///
/// # Errors
/// What went wrong, as the end of a sentence.
pub fn get(url: &str, timeout: Duration) -> Result<Option<Vec<u8>>, String> {
    let mut url = url.to_owned();
    for _ in 0..MOST_HOPS {
        if url.starts_with("https://") {
            return by_curl(&url, timeout);
        }
        match plain(&url, timeout)? {
            Answer::File(bytes) => return Ok(Some(bytes)),
            Answer::NotThere => return Ok(None),
            Answer::Elsewhere(other) => url = other,
        }
    }
    Err("it redirects again and again".to_owned())
}

enum Answer {
    File(Vec<u8>),
    NotThere,
    Elsewhere(String),
}

fn plain(url: &str, timeout: Duration) -> Result<Answer, String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or("it is no http:// or https:// address")?;
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let is_odd = |c: char| c.is_control() || c == ' ';
    if host.is_empty() || url.contains(is_odd) {
        return Err("its address is malformed".to_owned());
    }
    let with_port = match host.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host.to_owned(),
        _ => format!("{host}:80"),
    };
    let mut stream = connect(&with_port, timeout)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sptrace\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let told = |error: std::io::Error| error.to_string();
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut from = BufReader::new(stream);
    let head = Head::read(&mut from)?;
    match head.status {
        200 => body(&head, &mut from).map(Answer::File),
        301 | 302 | 303 | 307 | 308 => {
            let to = head.location.ok_or("it redirects to nowhere")?;
            Ok(Answer::Elsewhere(match to.starts_with('/') {
                true => format!("http://{host}{to}"),
                false => to,
            }))
        }
        404 | 410 => Ok(Answer::NotThere),
        status => Err(format!("it answers with status {status}")),
    }
}

fn connect(host: &str, timeout: Duration) -> Result<TcpStream, String> {
    let mut last = "its name has no address".to_owned();
    let addresses = host.to_socket_addrs().map_err(|error| error.to_string())?;
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout.min(Duration::from_secs(20))) {
            Ok(stream) => {
                let set = stream
                    .set_read_timeout(Some(timeout))
                    .and_then(|()| stream.set_write_timeout(Some(timeout)));
                return set.map(|()| stream).map_err(|error| error.to_string());
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

struct Head {
    status: u16,
    length: Option<u64>,
    is_chunked: bool,
    location: Option<String>,
}

impl Head {
    fn read(from: &mut impl BufRead) -> Result<Self, String> {
        let first = line(from)?;
        let status = first
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let mut head = Self {
            status: status.ok_or("it does not speak HTTP")?,
            length: None,
            is_chunked: false,
            location: None,
        };
        for _ in 0..MOST_LINES {
            let text = line(from)?;
            if text.is_empty() {
                return Ok(head);
            }
            let Some((name, value)) = text.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = value.parse().ok(),
                "transfer-encoding" => head.is_chunked = value.eq_ignore_ascii_case("chunked"),
                "location" => head.location = Some(value.to_owned()),
                _ => {}
            }
        }
        Err("its answer's head does not end".to_owned())
    }
}

fn line(from: &mut impl BufRead) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = from.take(MOST_LINE_BYTES).read_until(b'\n', &mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.pop() != Some(b'\n') {
        return Err("its answer is cut off".to_owned());
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\r').to_owned())
}

fn body(head: &Head, from: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    let told = |error: std::io::Error| error.to_string();
    if head.is_chunked {
        loop {
            let size = line(from)?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(|_| "its chunks are malformed")?;
            if size == 0 {
                return Ok(all);
            }
            exactly(size, from, &mut all)?;
            line(from)?;
        }
    }
    match head.length {
        Some(length) => exactly(length, from, &mut all)?,
        None => {
            from.take(MOST_BYTES).read_to_end(&mut all).map_err(told)?;
        }
    }
    Ok(all)
}

fn exactly(bytes: u64, from: &mut impl BufRead, all: &mut Vec<u8>) -> Result<(), String> {
    if (all.len() as u64).saturating_add(bytes) > MOST_BYTES {
        return Err("its answer is too large".to_owned());
    }
    let read = from.take(bytes).read_to_end(all);
    match read {
        Ok(got) if got as u64 == bytes => Ok(()),
        Ok(_) => Err("its answer is cut off".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn by_curl(url: &str, timeout: Duration) -> Result<Option<Vec<u8>>, String> {
    let seconds = timeout.as_secs().max(1).to_string();
    let ran = Command::new("curl")
        .args(["--fail", "--silent", "--show-error", "--location"])
        .args(["--max-redirs", "5", "--proto-redir", "=https"])
        .args(["--connect-timeout", "20", "--speed-limit", "1"])
        .args(["--speed-time", &seconds, "--", url])
        .stdin(Stdio::null())
        .output();
    let output = ran.map_err(|_| "https needs curl(1), which is not installed")?;
    if output.status.success() {
        return Ok(Some(output.stdout));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(NOT_THERE) if said.contains("404") || said.contains("410") => Ok(None),
        _ => Err(said.trim().trim_start_matches("curl: ").to_owned()),
    }
}
