//! Reads a form with a file, which may be larger than other bodies.
//!
//! Guarantees: at most [`MAX_UPLOADS`] are in memory at a time, each for at most
//! [`UPLOAD_TIMEOUT`]. The caller checks first who sends it.

use std::time::Duration;

use actix_multipart::{Multipart, MultipartError};
use actix_web::HttpRequest;
use actix_web::error::PayloadError;
use actix_web::web::{Bytes, Payload};
use futures_util::{Stream, StreamExt as _};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::web::middleware::body::MAX_BODY_BYTES;
use crate::web::middleware::read_body::declared_length;
use crate::web::{Problem, ProblemType};

/// Upper bound of a file, in bytes.
const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Upper bound of the form; `deploy/nginx.conf` has the same.
const MAX_FORM_BYTES: usize = MAX_FILE_BYTES + MAX_BODY_BYTES;
/// Time in which it must arrive. Less than [`REQUEST_TIMEOUT`](crate::shop::REQUEST_TIMEOUT).
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(6);
/// Upper bound of the forms that are read or shown at a time; others wait, unread.
const MAX_UPLOADS: usize = 4;
/// Time in which one of those must end. With [`UPLOAD_TIMEOUT`] less than a request's time.
const PERMIT_TIMEOUT: Duration = Duration::from_millis(1_500);

static PERMITS: Semaphore = Semaphore::const_new(MAX_UPLOADS);

#[derive(Default)]
pub struct UploadedForm {
    pub csrf: String,
    pub file: Vec<u8>,
    /// Until the file is parsed and shown.
    _permit: Option<SemaphorePermit<'static>>,
}

/// Reads a form with a file. A larger one is refused before its body is read, or where it exceeds
/// the bound. `None` if it can't be read.
///
/// # Errors
/// `payload-too-large`, `request-timeout` or `overloaded`.
pub async fn read(request: &HttpRequest, body: Payload) -> Result<Option<UploadedForm>, Problem> {
    if declared_length(request.headers()) > MAX_FORM_BYTES {
        return Err(too_large());
    }
    let permit = timeout(PERMIT_TIMEOUT, PERMITS.acquire()).await;
    let Ok(Ok(permit)) = permit else {
        let detail = "other files are being read; try again in a few seconds";
        return Err(Problem::new(ProblemType::Overloaded, detail));
    };
    let reading = async {
        let form = Multipart::new(request.headers(), bounded(body, MAX_FORM_BYTES));
        let form = read_fields(form).await;
        form.map(|form| UploadedForm { _permit: Some(permit), ..form })
    };
    match timeout(UPLOAD_TIMEOUT, reading).await {
        Err(_) => {
            let detail = format!("the file did not arrive within {} s", UPLOAD_TIMEOUT.as_secs());
            Err(Problem::new(ProblemType::RequestTimeout, detail))
        }
        Ok(Err(MultipartError::Payload(PayloadError::Overflow))) => Err(too_large()),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a form can't be read");
            Ok(None)
        }
        Ok(Ok(form)) => Ok(Some(form)),
    }
}

fn too_large() -> Problem {
    let detail = "a file has at most 4 MiB; choose one that the lab or `holdfast judge --json` has \
                  written";
    Problem::new(ProblemType::PayloadTooLarge, detail)
}

/// Ends a body with an error where it exceeds `left` bytes.
fn bounded(
    body: Payload,
    mut left: usize,
) -> impl Stream<Item = Result<Bytes, PayloadError>> + 'static {
    body.map(move |chunk| {
        let chunk = chunk?;
        left = left.checked_sub(chunk.len()).ok_or(PayloadError::Overflow)?;
        Ok(chunk)
    })
}

async fn read_fields(mut form: Multipart) -> Result<UploadedForm, MultipartError> {
    let mut upload = UploadedForm::default();
    while let Some(field) = form.next().await {
        let mut field = field?;
        let name = field.name().unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        while let Some(chunk) = field.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() > MAX_FILE_BYTES {
                return Err(MultipartError::Payload(PayloadError::Overflow));
            }
        }
        match name.as_str() {
            "csrf" => upload.csrf = String::from_utf8_lossy(&bytes).into_owned(),
            "file" => upload.file = bytes,
            _ => {}
        }
    }
    Ok(upload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balancer_admits_the_largest_form() {
        let config = include_str!("../../../../deploy/nginx.conf");
        let expected = format!("client_max_body_size {};", MAX_FORM_BYTES);
        assert!(config.contains(&expected), "{expected}");
    }
}
