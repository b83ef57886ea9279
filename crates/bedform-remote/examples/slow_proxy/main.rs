//! A proxy that slows a server down: each request has a latency, each stream a bandwidth.
//!
//!     slow_proxy PORT SERVER_PORT SECONDS BYTES_PER_SECOND
//!
//! It prints a line once it listens. An upload has the bandwidth of an answer, and the latency
//! follows the upload. It counts requests, and the bytes of both directions; `GET /-/counts`
//! returns them without a delay.
//!
//! Each connection has a thread and its own connection to the server. The thread handles one
//! request after the other. Bodies move from socket to socket in the kernel (`splice`): the proxy
//! must cost little, because it shares the cores with the measured client.

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

/// Returns the port to listen on and the proxy, from the arguments.
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
