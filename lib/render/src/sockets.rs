//! A socket, as strace names it with its addresses.
//!
//! Given what made it and the addresses that calls have named; gives text. Must not know which
//! descriptor leads to it. Numbers of inodes are not known: `?` stands for them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A socket.
#[derive(Clone, Debug)]
pub struct Socket {
    family: u64,
    kind: u64,
    protocol: u64,
    /// Its own address.
    pub local: Option<String>,
    /// That of the other end.
    pub peer: Option<String>,
}

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const SOCK_STREAM: u64 = 1;
const SOCK_DGRAM: u64 = 2;

impl Socket {
    /// By the arguments of socket(2).
    pub fn new(args: [u64; 6]) -> Self {
        let [family, kind, protocol, ..] = args;
        Self {
            family,
            // Without SOCK_NONBLOCK and SOCK_CLOEXEC.
            kind: kind & 0xf,
            protocol,
            local: None,
            peer: None,
        }
    }

    /// `TCP:[127.0.0.1:1->127.0.0.1:2]`, and so on.
    pub fn with_addresses(&self) -> String {
        let inner = match (&self.local, &self.peer) {
            (None, None) => "?".to_owned(),
            (Some(local), None) => local.clone(),
            (local, Some(peer)) => format!("{}->{peer}", local.as_deref().unwrap_or("?")),
        };
        format!("{}:[{inner}]", self.name())
    }

    fn name(&self) -> &'static str {
        match (self.family, self.kind, self.protocol) {
            (AF_UNIX, SOCK_STREAM, _) => "UNIX-STREAM",
            (AF_UNIX, SOCK_DGRAM, _) => "UNIX-DGRAM",
            (AF_UNIX, ..) => "UNIX-SEQPACKET",
            (AF_INET, SOCK_STREAM, _) => "TCP",
            (AF_INET, SOCK_DGRAM, _) => "UDP",
            (AF_INET6, SOCK_STREAM, _) => "TCPv6",
            (AF_INET6, SOCK_DGRAM, _) => "UDPv6",
            (AF_NETLINK, ..) => "NETLINK",
            _ => "socket",
        }
    }
}

/// An address, from its bytes.
pub fn address(bytes: &[u8]) -> Option<String> {
    let family = u16::from_le_bytes(*bytes.first_chunk()?);
    let port = bytes.get(2..)?.first_chunk();
    let port = port.map(|bytes| u16::from_be_bytes(*bytes));
    match u64::from(family) {
        AF_UNIX => {
            let path = bytes.get(2..)?;
            let (mark, path) = match path.split_first() {
                Some((0, rest)) => ("@", rest),
                _ => ("", path),
            };
            let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
            let path = String::from_utf8_lossy(path.get(..end)?);
            (!path.is_empty()).then(|| format!("\"{mark}{path}\""))
        }
        AF_INET => {
            let octets: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(format!("{}:{}", Ipv4Addr::from(octets), port?))
        }
        AF_INET6 => {
            let octets: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Some(format!("[{}]:{}", Ipv6Addr::from(octets), port?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_named_by_both_its_ends() {
        let mut socket = Socket::new([AF_INET, SOCK_STREAM | 0o2000000, 0, 0, 0, 0]);
        assert_eq!(socket.with_addresses(), "TCP:[?]");
        let inet = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        socket.peer = address(&inet);
        assert_eq!(socket.with_addresses(), "TCP:[?->127.0.0.1:8080]");
        socket.local = Some("127.0.0.1:1".to_owned());
        assert_eq!(socket.with_addresses(), "TCP:[127.0.0.1:1->127.0.0.1:8080]");
        for length in 0..8 {
            assert_eq!(address(&inet[..length]), None);
        }
        assert_eq!(address(b"\x01\0/run/x\0").as_deref(), Some("\"/run/x\""));
    }
}
