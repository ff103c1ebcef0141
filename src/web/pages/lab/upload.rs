//! Reads a form with a file, which may be larger than other bodies.

use actix_multipart::{Multipart, MultipartError};
use actix_web::HttpRequest;
use actix_web::error::PayloadError;
use actix_web::web::{Bytes, Payload};
use futures_util::{Stream, StreamExt as _};

use crate::web::middleware::body::MAX_BODY_BYTES;
use crate::web::middleware::read_body::declared_length;

#[derive(Default)]
pub struct UploadedForm {
    pub csrf: String,
    pub file: Vec<u8>,
}

#[derive(Debug)]
pub enum UploadError {
    TooLarge,
    Unreadable,
}

/// Reads a form whose file has at most `max_file_bytes`. A larger one is refused before its body is
/// read, or where it exceeds the bound.
pub async fn read(
    request: &HttpRequest,
    body: Payload,
    max_file_bytes: usize,
) -> Result<UploadedForm, UploadError> {
    let max_form_bytes = max_file_bytes + MAX_BODY_BYTES;
    if declared_length(request.headers()) > max_form_bytes {
        return Err(UploadError::TooLarge);
    }
    let form = Multipart::new(request.headers(), bounded(body, max_form_bytes));
    read_fields(form, max_file_bytes).await.map_err(|error| match error {
        MultipartError::Payload(PayloadError::Overflow) => UploadError::TooLarge,
        error => {
            tracing::debug!(%error, "a form can't be read");
            UploadError::Unreadable
        }
    })
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

async fn read_fields(
    mut form: Multipart,
    max_bytes: usize,
) -> Result<UploadedForm, MultipartError> {
    let mut upload = UploadedForm::default();
    while let Some(field) = form.next().await {
        let mut field = field?;
        let name = field.name().unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        while let Some(chunk) = field.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() > max_bytes {
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
