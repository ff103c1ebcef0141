//! The HTTP server: what `actix_web::HttpServer` builds, with a [`ClientStream`] in the place of
//! the socket. Above the limits of [`ConnectionLimit`], a connection is closed at once.

use std::future::ready;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, Protocol};
use actix_service::{Service as _, ServiceFactoryExt as _, apply_fn_factory, map_config};
use actix_web::App;
use actix_web::dev::{AppConfig, Server, fn_service};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;

use super::border::Border;
use super::client_stream::ClientStream;
use super::configure;
use super::middleware::admission::{check_host, enforce_rate_limits};
use super::middleware::connections::ConnectionLimit;
use super::middleware::read_body::{close_unread, read_body};
use super::middleware::request_notes::request_notes;
use super::pages::error_pages::render_problems;
use super::state::State;

/// Time for which the body of a refused request is discarded, so that the client reads the response
/// before the connection is closed.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

pub fn start(
    listener: TcpListener,
    connections: ConnectionLimit,
    state: State,
    border: Border,
    finish_timeout: Duration,
) -> io::Result<Server> {
    let local_address = listener.local_addr()?;
    let server = Server::build()
        .workers(connections.workers())
        .max_concurrent_connections(connections.max_of_worker())
        .shutdown_timeout(finish_timeout.as_secs())
        .disable_signals();

    let draining = server.graceful_shutdown_signal();
    let server = server.listen("http", listener, move || {
        let app = App::new()
            .app_data(state.clone())
            .wrap(from_fn(read_body))
            .wrap(from_fn(enforce_rate_limits))
            .wrap(from_fn(check_host))
            .wrap(from_fn(request_notes))
            .wrap(from_fn(render_problems))
            .wrap(from_fn(close_unread))
            .configure(configure);

        let draining = draining.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let draining = draining.clone();
                async move { draining.notified().await }
            })
            // The stream closes connections that are late or idle.
            .keep_alive(KeepAlive::Os)
            .client_request_timeout(Duration::ZERO)
            .client_disconnect_timeout(DISCARD_TIMEOUT)
            // A closed connection cancels its request. A client that closes only its writing half
            // looks the same, so clients must not do that while they wait; few do.
            .h1_allow_half_closed(false)
            .local_addr(local_address)
            .on_connect_ext(|stream: &ClientStream, extensions| {
                extensions.insert(Rc::clone(&stream.phase));
            })
            .finish(map_config(app, |()| AppConfig::default()));

        let connections = connections.clone();
        let state = state.clone();
        let border = border.clone();
        let connection = fn_service(move |tcp| ready(accept(tcp, &connections, &state)));

        // In the program's runtime: what a request opens for others outlives the worker.
        apply_fn_factory(connection.and_then(http), move |tcp: TcpStream, service| {
            let served = border.run(service.call(tcp));
            async { served.await.unwrap_or(Ok(())) }
        })
    })?;
    Ok(server.run())
}

type Accepted = (ClientStream, Protocol, Option<std::net::SocketAddr>);

fn accept(
    tcp: TcpStream,
    connections: &ConnectionLimit,
    state: &State,
) -> Result<Accepted, DispatchError> {
    let Some(counted) = connections.accept(&tcp) else {
        return Err(DispatchError::Io(io::ErrorKind::ConnectionRefused.into()));
    };
    // Without it, only small responses may be delayed.
    let _ = tcp.set_nodelay(true);
    let peer_address = tcp.peer_addr().ok();
    Ok((ClientStream::new(tcp, state.clone(), counted), Protocol::Http1, peer_address))
}
