//! Probes the network from its own pod, or from one that it makes: `helm test` starts it from the hub's own image.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args as ClapArgs;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

mod error;
mod job;

pub use error::ProbeError;
use error::REACHED;

/// What must hold; each but the Job may be given several times.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = true)]
pub struct ProbeArgs {
    /// Admin server of a hub that must be ready.
    #[arg(long, value_name = "HOST:PORT")]
    pub ready: Vec<String>,
    /// Server that must not be reached from here.
    #[arg(long, value_name = "HOST:PORT")]
    pub unreachable: Vec<String>,
    /// Job of this program's image, in JSON, from whose pod the latter must not be reached, instead of from here.
    #[arg(long, value_name = "JSON", requires = "unreachable", value_parser = job::parse)]
    pub from_job: Option<Box<Job>>,
}

/// How long something may take to become true: a hub to be ready, a policy to hold for a new pod.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTimeouts {
    /// Looks before it is given up.
    pub looks: u32,
    /// Time between two looks.
    pub pause: Duration,
    /// Longest that one look takes.
    pub limit: Duration,
}

impl Default for ProbeTimeouts {
    fn default() -> Self {
        Self {
            looks: 15,
            pause: Duration::from_secs(1),
            limit: Duration::from_secs(3),
        }
    }
}

/// Runs every check until it holds or its time is over; returns a sentence for each. A Job is made in the cluster of `client`.
pub async fn run(
    args: &ProbeArgs,
    timeout: ProbeTimeouts,
    client: Option<&Client>,
) -> Vec<Result<String, ProbeError>> {
    let mut found = Vec::new();
    for place in &args.ready {
        found.push(ready(place, timeout).await);
    }
    match (client, &args.from_job) {
        (Some(client), Some(job)) => found.push(job::unreachable(client, job, &args.unreachable).await),
        _ => {
            for place in &args.unreachable {
                found.push(unreachable(place, timeout).await);
            }
        }
    }
    found
}

/// The exit code of the results.
#[must_use]
pub fn exit_code(found: &[Result<String, ProbeError>]) -> u8 {
    let is_reached = |one: &Result<String, ProbeError>| matches!(one, Err(ProbeError::Reached(_)));
    if found.iter().any(is_reached) {
        REACHED
    } else {
        u8::from(found.iter().any(Result::is_err))
    }
}

async fn ready(place: &str, timeouts: ProbeTimeouts) -> Result<String, ProbeError> {
    let address = address(place).await?;
    holds(timeouts, async || is_ready(address, timeouts.limit).await)
        .await
        .map_err(|()| ProbeError::NotReady(place.to_owned()))?;
    Ok(format!("{place} says that the hub is ready"))
}

async fn unreachable(place: &str, timeouts: ProbeTimeouts) -> Result<String, ProbeError> {
    let address = address(place).await?;
    holds(timeouts, async || !is_reached(address, timeouts.limit).await)
        .await
        .map_err(|()| ProbeError::Reached(place.to_owned()))?;
    Ok(format!("{place} cannot be reached from here"))
}

/// The address of HOST:PORT, where the host may be an IPv6 address with or without brackets, as Kubernetes gives it.
async fn address(place: &str) -> Result<SocketAddr, ProbeError> {
    let none = || ProbeError::NoAddress(place.to_owned());
    let (host, port) = place.rsplit_once(':').ok_or_else(none)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = port.parse().map_err(|_| none())?;
    let mut found = lookup_host((host, port)).await.map_err(|_| none())?;
    found.next().ok_or_else(none)
}

async fn holds(timeouts: ProbeTimeouts, look: impl AsyncFn() -> bool) -> Result<(), ()> {
    for _ in 0..timeouts.looks {
        if look().await {
            return Ok(());
        }
        sleep(timeouts.pause).await;
    }
    Err(())
}

async fn is_reached(place: SocketAddr, limit: Duration) -> bool {
    matches!(timeout(limit, TcpStream::connect(place)).await, Ok(Ok(_)))
}

async fn is_ready(place: SocketAddr, limit: Duration) -> bool {
    matches!(timeout(limit, status_line(place)).await, Ok(Ok(line)) if &line == b"HTTP/1.1 200")
}

/// The first bytes of the response to GET /readyz, with its code.
async fn status_line(place: SocketAddr) -> std::io::Result<[u8; 12]> {
    let mut stream = TcpStream::connect(place).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const HASTY: ProbeTimeouts = ProbeTimeouts {
        looks: 3,
        pause: Duration::from_millis(1),
        limit: Duration::from_secs(5),
    };

    /// A server that gives these answers, one a connection, then the last one for ever.
    async fn server(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut left = answers.iter();
            let mut answer = "";
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                answer = left.next().unwrap_or(&answer);
                _ = stream.read(&mut [0; 1024]).await;
                _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        place
    }

    async fn probe(ready: &[&str], unreachable: &[&str]) -> Vec<Result<String, ProbeError>> {
        let all = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let args = ProbeArgs {
            ready: all(ready),
            unreachable: all(unreachable),
            from_job: None,
        };
        run(&args, HASTY, None).await
    }

    fn ready(place: &str) -> String {
        format!("{place} says that the hub is ready")
    }

    #[tokio::test]
    async fn a_hub_is_ready_when_it_says_so_and_may_take_its_time() {
        let late = server(&[
            "HTTP/1.1 503 Service Unavailable\r\n\r\n",
            "",
            "HTTP/1.1 200 OK\r\n\r\n",
        ])
        .await;
        assert_eq!(probe(&[&late], &[]).await, [Ok(ready(&late))]);
        let never = server(&["HTTP/1.1 503 Service Unavailable\r\n\r\n"]).await;
        let found = probe(&[&never, &late], &[]).await;
        assert_eq!(exit_code(&found), 1);
        // The results after a failure are returned too.
        assert_eq!(found, [Err(ProbeError::NotReady(never)), Ok(ready(&late))]);
    }

    #[tokio::test]
    async fn what_is_reached_fails_and_what_has_no_address_shows_nothing() {
        let open = server(&[""]).await;
        let found = probe(&[], &["no-port", &open]).await;
        assert_eq!(exit_code(&found), REACHED, "whatever else there is");
        assert_eq!(found[1], Err(ProbeError::Reached(open)));
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = closed.local_addr().unwrap().to_string();
        drop(closed);
        let found = probe(&[], &[&place]).await;
        assert_eq!(exit_code(&found), 0);
        assert_eq!(found, [Ok(format!("{place} cannot be reached from here"))]);
        for nothing in ["no-port", "127.0.0.1:x", ":1"] {
            let found = probe(&[], &[nothing]).await;
            assert_eq!(exit_code(&found), 1, "{nothing}");
            assert_eq!(found, [Err(ProbeError::NoAddress(nothing.to_owned()))]);
        }
        let given = address("fd00::1:443").await.map(|a| a.to_string());
        assert_eq!(given, Ok("[fd00::1]:443".to_owned()));
    }
}
