//! Proxies to the Postgres and the Redis of the tests, which simulate an outage.

use holdfast_services::Target;
pub use holdfast_services::{Proxy, Traffic};

use crate::{options, services};

pub async fn to_postgres() -> Proxy {
    let socket = format!(".s.PGSQL.{}", options().get_port());
    let socket = options().get_socket().unwrap().join(socket);
    Proxy::start(Target::Socket(socket)).await.unwrap()
}

pub async fn to_redis() -> Proxy {
    let url = &services().running.redis_url;
    let socket = url.strip_prefix("redis+unix://").unwrap();
    Proxy::start(Target::Socket(socket.into())).await.unwrap()
}
