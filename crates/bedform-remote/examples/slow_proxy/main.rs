//! A proxy before a server: each request takes a time of its own, each stream has a bandwidth.
//!
//!     slow_proxy PORT SERVER_PORT SECONDS BYTES_PER_SECOND
//!
//! It prints a line once it listens. What is uploaded comes as slowly as answers do, and the time of the
//! request passes after it. It counts requests, and the bytes of both ways; `GET /-/counts` tells them at once.
//!
//! A connection is a thread, which takes its requests one after the other, over a connection of its own to
//! the server. Bodies go from socket to socket inside the system (`splice`): what is before the server must
//! cost little, for it shares the cores with the client that is measured.

#![allow(clippy::print_stdout, reason = "a program")]

mod head;
mod peer;
mod proxy;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use proxy::{Proxy, Slowness};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((port, proxy)) = parse(&arguments) else {
        eprintln!("usage: slow_proxy PORT SERVER_PORT SECONDS BYTES_PER_SECOND");
        return ExitCode::from(2);
    };
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(listener) => {
            println!("listening");
            proxy.listen(&listener);
        }
        Err(error) => eprintln!("slow_proxy: cannot listen on port {port}: {error}"),
    }
    ExitCode::FAILURE
}

/// The port to listen on and the proxy that the arguments ask for.
fn parse(arguments: &[String]) -> Option<(u16, &'static Proxy)> {
    let [port, server_port, seconds, bandwidth] = arguments else { return None };
    let slowness = Slowness {
        request: Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?,
        bytes_per_second: bandwidth.parse().ok().filter(|&bandwidth| bandwidth > 0.0)?,
    };
    let server = (Ipv4Addr::LOCALHOST, server_port.parse().ok()?).into();
    // It lives as long as the process.
    Some((port.parse().ok()?, Box::leak(Box::new(Proxy::new(server, slowness)))))
}
