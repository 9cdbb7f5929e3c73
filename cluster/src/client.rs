//! The client's side: an address, and the session that sends plans there.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ballista::extension::{SessionConfigExt, SessionStateExt};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use worldloom_curate::{Cluster, register};

use crate::MESSAGE_BYTES;
use crate::error::{Error, Result};

/// How long a scheduler may take to be reached.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cluster, by the address of its scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ballista {
    host: String,
    port: u16,
}

impl Ballista {
    /// Reads `ballista://HOST:PORT`.
    pub fn parse(address: &str) -> Result<Self> {
        let wrong = || Error::Address { found: address.into() };
        let (host, port) = address
            .strip_prefix("ballista://")
            .map(|rest| rest.strip_suffix('/').unwrap_or(rest))
            .and_then(|rest| rest.rsplit_once(':'))
            .ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        if host.is_empty() || host.contains(['/', '@']) || port == 0 {
            return Err(wrong());
        }
        Ok(Self { host: host.into(), port })
    }

    /// Host and port of the scheduler.
    pub(crate) fn scheduler(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Says at once whether the scheduler can be reached.
    pub fn reach(&self) -> Result<()> {
        let address = format!("{}:{}", self.host, self.port);
        let failed = |error: std::io::Error| Error::NoScheduler { address: address.clone(), detail: error.to_string() };
        let mut last = std::io::Error::other("the name has no address");
        for socket in address.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&socket, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

impl Cluster for Ballista {
    fn session(&self, here: &SessionContext) -> std::result::Result<SessionContext, DataFusionError> {
        // The planner that plans again between stages never ends some of our plans, and joins by hash whatever a build
        // side takes.
        let config = here
            .copied_config()
            .upgrade_for_ballista()
            .with_ballista_adaptive_query_planner(false)
            .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES as usize);
        let state = SessionStateBuilder::new_from_existing(here.state()).with_config(config).build();
        let state = state.upgrade_for_ballista(format!("http://{}:{}", self.host, self.port))?;
        let there = SessionContext::new_with_state(state);
        register(&there);
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_and_a_port() {
        let read = |address: &str| Ballista::parse(address).map(|read| (read.host, read.port));
        assert_eq!(read("ballista://node-1:50050").unwrap(), ("node-1".into(), 50050));
        assert_eq!(read("ballista://[::1]:80/").unwrap(), ("[::1]".into(), 80));
        for wrong in
            ["", "node:1", "http://node:1", "ballista://node", "ballista://:1", "ballista://a:0", "ballista://a:b"]
        {
            assert!(read(wrong).unwrap_err().to_string().contains("expected ballista://HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn a_scheduler_that_does_not_answer_is_named() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = Ballista::parse(&format!("ballista://127.0.0.1:{free}")).unwrap().reach().unwrap_err();
        assert!(error.to_string().starts_with(&format!("no scheduler at 127.0.0.1:{free}: ")), "{error}");
    }
}
