//! A host of the site: the same folder under several paths of one server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::SizedStream;
use actix_web::dev::ServerHandle;
use actix_web::http::header::CONTENT_SECURITY_POLICY;
use actix_web::web::Bytes;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::SetOnce;

pub const SUB_PATH: &str = "/some/where/";
/// A host that allows no WebAssembly.
pub const STRICT: &str = "/strict/";
/// A host that lacks a file.
pub const BROKEN: &str = "/broken/";
/// A host that keeps the rest of a large file back. Workers, too, may ask only it.
pub const SLOW: &str = "/slow/";

const ROOTS: [&str; 4] = [SUB_PATH, STRICT, BROKEN, SLOW];

/// How much of the large file the slow host sends at once.
const FIRST_BYTES: usize = 3_000_000;

pub struct Host {
    /// `http://` and the address, without a path.
    pub address: String,
    state: Arc<State>,
    server: ServerHandle,
}

struct State {
    folder: PathBuf,
    /// The paths that were asked for, also by workers, whose requests the browser does not tell.
    asked: Mutex<BTreeSet<String>>,
    /// Set when the slow host may send the rest.
    rest_may_follow: SetOnce<()>,
}

impl Host {
    pub fn start(folder: &Path) -> Self {
        let state = Arc::new(State {
            folder: folder.to_owned(),
            asked: Mutex::default(),
            rest_may_follow: SetOnce::new(),
        });
        let data = web::Data::from(state.clone());
        let app = move || App::new().app_data(data.clone()).default_service(web::to(answer));
        let server = HttpServer::new(app)
            .workers(1)
            .shutdown_timeout(0)
            .disable_signals()
            .client_disconnect_timeout(Duration::ZERO);
        let server = server.bind(("127.0.0.1", 0)).unwrap();
        let address = format!("http://{}", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { address, state, server: handle }
    }

    pub async fn stop(&self) {
        self.server.stop(false).await;
    }

    pub fn let_rest_follow(&self) {
        self.state.rest_may_follow.set(()).unwrap();
    }

    /// Returns the files that were asked for, of all hosts.
    pub fn asked_files(&self) -> Vec<PathBuf> {
        let asked = self.state.asked.lock();
        asked.iter().filter_map(|path| self.state.file(path)).map(|(_, file)| file).collect()
    }
}

impl State {
    /// Returns the host that a path is of, and the file that it names.
    fn file(&self, path: &str) -> Option<(&'static str, PathBuf)> {
        let root = ROOTS.into_iter().find(|root| path.starts_with(root))?;
        Some((root, self.folder.join(path.strip_prefix(root)?)))
    }
}

async fn answer(request: HttpRequest, state: web::Data<State>) -> HttpResponse {
    let path = request.path();
    state.asked.lock().insert(path.to_owned());
    let Some((root, file)) = state.file(path) else { return HttpResponse::NotFound().finish() };
    let Ok(content) = std::fs::read(&file) else { return HttpResponse::NotFound().finish() };
    if root == BROKEN && path.ends_with("pglite.wasm") {
        return HttpResponse::NotFound().finish();
    }

    let mut response = HttpResponse::Ok();
    response.content_type(content_type(&file));
    match root {
        STRICT => {
            response.insert_header((CONTENT_SECURITY_POLICY, "script-src 'self'"));
        }
        SLOW => {
            let allowed = "script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; \
                worker-src 'self'";
            response.insert_header((CONTENT_SECURITY_POLICY, allowed));
        }
        _ => {}
    }
    if root == SLOW && path.ends_with("pglite.data") {
        return response.body(in_two_parts(content, state));
    }
    response.body(content)
}

/// A body whose second part waits until it may follow.
fn in_two_parts(
    content: Vec<u8>,
    state: web::Data<State>,
) -> SizedStream<impl stream::Stream<Item = Result<Bytes, std::io::Error>>> {
    let size = content.len() as u64;
    let mut first = Bytes::from(content);
    let rest = first.split_off(FIRST_BYTES);
    let rest = stream::once(async move {
        state.rest_may_follow.wait().await;
        Ok(rest)
    });
    let first = stream::once(async { Ok(first) });
    SizedStream::new(size, Box::pin(first.chain(rest)))
}

/// Returns the type of a file; a browser compiles WebAssembly as it arrives only with its type.
fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}
