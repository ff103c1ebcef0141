//! Problem types (RFC 9457): a closed set, with a page for each.

use actix_web::http::StatusCode;

/// Texts of a kind: name, default status, title, meaning and advice.
type Words = (&'static str, u16, &'static str, &'static str, &'static str);

/// Defines the kinds from a table of `ProblemType = name, status, title: meaning, advice`.
macro_rules! kinds {
    ($($kind:ident = $name:literal, $status:literal, $title:literal:
        $meaning:literal, $advice:literal;)*) => {
        /// A problem type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "`meaning` says it, for people too")]
        pub enum ProblemType {
            $($kind,)*
        }

        impl ProblemType {
            /// All kinds.
            pub const ALL: [ProblemType; [$($name),*].len()] = [$(ProblemType::$kind),*];

            fn words(self) -> Words {
                match self {
                    $(ProblemType::$kind => ($name, $status, $title, $meaning, $advice),)*
                }
            }
        }
    };
}

kinds! {
    InvalidRequest = "invalid-request", 422, "The request is not as it should be":
        "Something in it is missing, misspelt or out of range, or its address takes no such \
         method or type of content. Nothing was changed.",
        "Look at `detail`, and at `errors` if there are any: each names a field and what it \
         should be. Then send it again.";
    Unauthenticated = "unauthenticated", 401, "Sign in first":
        "The request carries no session, or one that is over.",
        "Get a token from POST /api/sessions and send it as `Authorization: Bearer …`.";
    Forbidden = "forbidden", 403, "Not allowed":
        "You are known, and this is not yours to do; or it is the lab's, and the lab is off.",
        "Sign in as somebody who may, or start the shop with the lab on.";
    NotFound = "not-found", 404, "There is no such thing":
        "It does not exist, or it is somebody else's; the shop does not say which.",
        "Check the name or the id.";
    Exists = "exists", 409, "There is one already":
        "The name is taken, or a run of the lab goes on already.",
        "Choose another name; wait for the end of the run.";
    SoldOut = "sold-out", 409, "Not enough on the shelf":
        "Fewer are left than were asked for. Nothing was ordered, not even the other lines.",
        "Order fewer, or wait for a restock. The same key may try again.";
    LimitReached = "limit-reached", 409, "You may have no more of this item":
        "There are enough of it, and only so many for one customer. What is in your orders \
         counts, as long as they are pending or paid. Nothing was ordered, not even the \
         other lines.",
        "Order `limit` − `already` at most, or cancel an order that has it. The same key may \
         try again.";
    InsufficientFunds = "insufficient-funds", 402, "Not enough on the account":
        "The balance is smaller than what is to be paid. Nothing was paid.",
        "Top the account up, then pay again. The same key may try again.";
    OrderState = "order-state", 409, "The order is past that":
        "An order is paid or cancelled once, and refunded once after it was paid.",
        "Read the order to see how it stands.";
    OrderExpired = "order-expired", 409, "The order was not paid in time":
        "Its units were held until `expires_at`. They are on the shelf again, or will be in a moment.",
        "Place a new order.";
    IdempotencyKeyMissing = "idempotency-key-missing", 400, "An idempotency key is missing":
        "This request changes something, so it must be safe to send twice.",
        "Send a header `Idempotency-Key` with a fresh UUID (or `?token=`), and the same one \
         again when you ask again.";
    IdempotencyKeyInFlight = "idempotency-key-in-flight", 409, "The same request is being worked on":
        "Another request with this key has not finished yet.",
        "Wait as long as `Retry-After` says and send the same request: you will get its answer.";
    IdempotencyKeyMismatch = "idempotency-key-mismatch", 422, "The key was used for another request":
        "A key stands for one request. This one came with another payload before.",
        "Mint a new key for a new request.";
    IdempotencyKeyUsed = "idempotency-key-used", 409, "The key was used long ago":
        "It did its work more than a day ago, and the answer is not kept so long.",
        "Read the order named in `order_id`; for a new order mint a new key.";
    LockBusy = "lock-busy", 423, "Somebody else is changing this":
        "The lock is taken, and the request did not want to wait for it. `holder_process`, \
         `holder_since` and `holder_fence` say by whom, as far as that is known.",
        "Try again after `retry_after_ms`.";
    LockTimeout = "lock-timeout", 503, "Waited for the lock in vain":
        "The lock stayed taken for as long as the request could wait. Nothing was changed. \
         `holder_process`, `holder_since` and `holder_fence` say who had it at the end, as \
         far as that is known.",
        "Try again after `Retry-After`, with the same key.";
    LockLost = "lock-lost", 503, "The lock was lost on the way":
        "The lease ended before the work was done, so the work was not written.",
        "Try again with the same key.";
    Overloaded = "overloaded", 503, "Too much at once":
        "More wait already than can be served within a moment, so this request was not \
         made to wait in vain. Nothing was changed by it. Whether an earlier request with \
         the same key was carried out, this does not say.",
        "Try again after `Retry-After`, with the same key: what it has done is told then, \
         and not done twice.";
    Unavailable = "unavailable", 503, "Postgres or Redis is away":
        "Without them the shop can't promise that nothing is sold twice, so it does not sell. \
         With `outcome: unknown`, the change may have been made.",
        "Try again after `Retry-After`, with the same key: you will get the truth.";
    TooManyRequests = "too-many-requests", 429, "Slower, please":
        "More requests came from you than the shop takes from one hand: one user, one \
         address, or one name that somebody tries to sign in as; `limit` says which. \
         Nothing was looked at and nothing was changed.",
        "Wait as long as `Retry-After` says (`retry_after_ms` says it more exactly), then \
         ask again; an order with the same key. `RateLimit` on every answer says how many \
         requests are left.";
    PayloadTooLarge = "payload-too-large", 413, "The request is too large":
        "A body may have 64 KiB.",
        "Send less.";
    InternalError = "internal-error", 500, "A mistake of ours":
        "The shop met a case it was not written for. Nothing was changed.",
        "Try again with the same key; tell us the `X-Request-Id`.";
}

impl ProblemType {
    /// Returns the last segment of the problem's `type`.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.words().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn title(self) -> &'static str {
        self.words().2
    }

    pub fn meaning(self) -> &'static str {
        self.words().3
    }

    pub fn advice(self) -> &'static str {
        self.words().4
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
