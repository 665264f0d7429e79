//! A client of HTTP/1.1.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Player {
    stream: TcpStream,
    authority: String,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the whole body came.
    pub is_complete: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Player {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self { stream, authority: address.to_string() }
    }

    /// Sends the head of a request; a `Host` among the headers replaces the right one.
    pub async fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.authority);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        self.stream.write_all(head.as_bytes()).await.unwrap();
    }

    pub async fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", target, headers).await;
        self.answer(true).await
    }

    pub async fn head(&mut self, target: &str) -> Answer {
        self.send("HEAD", target, &[]).await;
        self.answer(false).await
    }

    /// Reads a response, with its body unless the request was a HEAD.
    pub async fn answer(&mut self, has_body: bool) -> Answer {
        let mut answer = self.answer_head().await;
        if !has_body || answer.status == 304 || answer.status == 204 {
            return answer;
        }
        match answer.header("content-length").map(|length| length.parse::<u64>().unwrap()) {
            Some(length) => {
                let mut body = (&mut self.stream).take(length);
                let ended = body.read_to_end(&mut answer.body).await;
                answer.is_complete = ended.is_ok() && answer.body.len() as u64 == length;
            }
            None => answer.is_complete = self.chunks(&mut answer.body).await.is_ok(),
        }
        answer
    }

    pub async fn answer_head(&mut self) -> Answer {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.expect("the connection ended"));
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        Answer { status, headers: headers.collect(), body: Vec::new(), is_complete: true }
    }

    /// Reads exactly this many bytes of a body.
    pub async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> std::io::Result<()> {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(self.stream.read_u8().await?);
            }
            let size = std::str::from_utf8(&line).unwrap().trim();
            let size = usize::from_str_radix(size, 16).unwrap();
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..]).await?;
            self.stream.read_exact(&mut [0; 2]).await?;
            if size == 0 {
                return Ok(());
            }
        }
    }
}
